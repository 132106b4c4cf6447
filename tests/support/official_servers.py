"""Servers that nobody here wrote, installed once from the package registries.

They are kept in the folder that `MCP_TRIO_CACHE` names, else in `mcp_trio` in the
user's cache folder.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
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

    modules = _cached("npm", package.encode(), make) / "node_modules"
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
    return str(_cached("go", contents, make) / "server")


def python_sdk() -> str:
    """Return an interpreter that has the official Python SDK. Raises Unavailable."""

    def make(folder: Path) -> None:
        install([sys.executable, "-m", "venv", str(folder)])
        pip = [str(interpreter(folder)), "-m", "pip", "install", "--quiet"]
        install([*pip, PYTHON_SDK])

    key = f"{PYTHON_SDK} {sys.version}".encode()
    return str(interpreter(_cached("python", key, make)))


def _cached(name: str, key: bytes, make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` has filled, now or before."""
    return cached(name, make, [key], _cache_root())


def _cache_root() -> Path:
    chosen = os.environ.get("MCP_TRIO_CACHE")
    if chosen:
        return Path(chosen).resolve()
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "mcp_trio"
