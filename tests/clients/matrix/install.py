"""Install a client of the matrix, and return the command of its driver.

Installations and builds are kept in the cache folder, like those of
`tests/clients/install.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tests.clients.install import (
    Unavailable,
    cached,
    interpreter,
    node_of_pypi,
    publish,
    run,
)
from tests.clients.matrix.clients import Client

DRIVERS = Path(__file__).resolve().parent / "drivers"
# Some frameworks have hundreds of dependencies, and Rust compiles all of them.
SECONDS = 1500


def command_of(client: Client) -> list[str]:
    """Return the command that runs a client's driver. Raises Unavailable."""
    match client.language:
        case "Python":
            python = python_with(client)
            return [str(python), str(DRIVERS / "python" / client.driver)]
        case "TypeScript":
            node = node_of_pypi()
            return [node, str(javascript_driver(client, node))]
        case "Go":
            return [str(go_program(client.driver))]
        case "Rust":
            return [str(rust_program(client.driver))]
        case "Java":
            return java_program(client.driver)
        case language:
            raise ValueError(
                f"expected a language that is known here, got {language!r}"
            )


def python_with(client: Client) -> Path:
    """Return an interpreter that has the client's packages."""

    def make(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(interpreter(folder)), "-m", "pip", "install", "--quiet"]
        options = ["--no-input", "--no-compile"]
        run([*pip, *options, *client.packages], seconds=SECONDS)

    key = [package.encode() for package in client.packages]
    return interpreter(
        cached(f"matrix-{client.name}", make, [*key, sys.version.encode()])
    )


def javascript_driver(client: Client, node: str) -> Path:
    """Return the client's driver, in a folder that has its packages from npm."""

    def make(folder: Path) -> None:
        npm = [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))]
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        install = [*npm, "install", "--prefix", str(folder), *options]
        run([*install, *client.packages], folder, seconds=SECONDS)

    key = [package.encode() for package in client.packages]
    installed = cached(f"matrix-{client.name}", make, key)
    return copy_of_drivers(installed) / client.driver


def copy_of_drivers(installed: Path) -> Path:
    """Copy the drivers in JavaScript into a folder where Node finds the packages."""
    sources = sorted((DRIVERS / "javascript").glob("*.mjs"))
    contents = b"\0".join(source.read_bytes() for source in sources)
    folder = installed / f"drivers-{hashlib.sha256(contents).hexdigest()[:16]}"
    if not folder.is_dir():
        unfinished = installed / f"{folder.name}.{os.getpid()}"
        unfinished.mkdir()
        for source in sources:
            shutil.copy(source, unfinished)
        publish(unfinished, folder)
    return folder


def go_program(name: str) -> Path:
    go = program("go")

    def build(folder: Path) -> None:
        run([go, "build", "-o", "program", f"./{name}"], folder, seconds=SECONDS)

    return built(name, DRIVERS / "go", build) / "program"


def rust_program(name: str) -> Path:
    cargo = program("cargo")

    def build(folder: Path) -> None:
        run([cargo, "build", "--locked", "--quiet"], folder, seconds=SECONDS)
        shutil.copy(folder / "target" / "debug" / "driver", folder / "driver")
        # The compiler's output is large.
        shutil.rmtree(folder / "target")

    return built(name, DRIVERS / name, build) / "driver"


def java_program(name: str) -> list[str]:
    java = program("java")
    maven = program("mvn")

    def build(folder: Path) -> None:
        run([maven, "--quiet", "--batch-mode", "package"], folder, seconds=SECONDS)

    target = built(name, DRIVERS / name, build) / "target"
    return [java, "-cp", f"{target}/classes:{target}/libraries/*", "Driver"]


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no `{name}` on the PATH")
    return found


def built(name: str, source: Path, build: Callable[[Path], None]) -> Path:
    """Return a copy of a driver's sources that `build` has built."""
    files = sorted(path for path in source.rglob("*") if path.is_file())

    def make(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        build(folder)

    return cached(f"matrix-{name}", make, [file.read_bytes() for file in files])
