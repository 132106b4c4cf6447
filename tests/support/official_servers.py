"""Servers that nobody here wrote, installed once from the package registries.

They are kept where the clients of tests/clients are.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.clients.install import HERE as CLIENTS
from tests.clients.install import Unavailable, cached, interpreter
from tests.clients.install import run as install

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
OLDER_EVERYTHING = "@modelcontextprotocol/server-everything@2026.1.26"
FILESYSTEM = "@modelcontextprotocol/server-filesystem@2026.8.31"
MEMORY = "@modelcontextprotocol/server-memory@2026.8.31"
PYTHON_SDK = "mcp==2.3.0"


def npm_server(package: str) -> str:
    """Return the program of a server from npm. Raises Unavailable."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("no `npm` on the PATH")

    def make(folder: Path) -> None:
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
        install([npm, "install", "--prefix", str(folder), *options, package])

    modules = cached("official-npm", make, [package.encode()]) / "node_modules"
    name = package.split("/")[1].split("@")[0]
    return str(modules / ".bin" / f"mcp-{name}")


def go_server() -> str:
    """Return the program of a small server on the Go SDK. Raises Unavailable."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no `go` on the PATH")
    sources = sorted((CLIENTS / "go_server").iterdir())

    def make(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        install([go, "build", "-o", "server", "."], folder)

    contents = b"\0".join(source.read_bytes() for source in sources)
    return str(cached("official-go", make, [contents]) / "server")


def python_sdk() -> str:
    """Return an interpreter that has the official Python SDK. Raises Unavailable."""

    def make(folder: Path) -> None:
        install([sys.executable, "-m", "venv", str(folder)])
        pip = [str(interpreter(folder)), "-m", "pip", "install", "--quiet"]
        install([*pip, PYTHON_SDK])

    key = f"{PYTHON_SDK} {sys.version}".encode()
    return str(interpreter(cached("official-python", make, [key])))
