"""The clients of the official SDKs, installed once into a cache folder, apart from this project's own environment.

The folder is `$MCP_TRIO_CACHE`, else `.cache/clients` under the project's root. Each install is keyed by a hash of what
it is made from, and made in a temporary folder that is renamed when complete: a half-finished one is never used.
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

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
NODE_FILES = ("package.json", "package-lock.json", "conversation.mjs", "typescript_v1.mjs", "typescript_v2.mjs")
SECONDS = 300


class Unavailable(Exception):
    """A client cannot be installed here; the message says why."""


def python_sdk(major: int) -> Path:
    """The interpreter of a virtual environment that has the Python SDK of this major version."""
    pins = HERE / f"requirements-v{major}.txt"

    def make(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder)])
        run([str(interpreter(folder)), "-m", "pip", "install", "--quiet", "--no-input", "-r", str(pins)])

    return interpreter(cached(f"python-v{major}", make, [pins.read_bytes(), sys.version.encode()]))


def node_modules() -> Path:
    """The folder of both TypeScript SDKs. Copies of the scripts lie beside it, for that is where Node looks for it."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise Unavailable(f"no `{program}` on the PATH")

    def make(folder: Path) -> None:
        for name in NODE_FILES:
            shutil.copy(HERE / name, folder)
        npm = str(shutil.which("npm"))
        run([npm, "ci", "--ignore-scripts", "--engine-strict", "--no-audit", "--no-fund", "--loglevel=error"], folder)

    return cached("typescript", make, [(HERE / name).read_bytes() for name in NODE_FILES]) / "node_modules"


def cached(name: str, make: Callable[[Path], None], parts: Sequence[bytes]) -> Path:
    """The folder that `make` filled, now or before, from these parts."""
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    folder = cache_root() / f"{name}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder.parent, ignore_cleanup_errors=True) as work:
            unfinished = Path(work) / "install"
            unfinished.mkdir()
            make(unfinished)
            publish(unfinished, folder)
    return folder


def cache_root() -> Path:
    chosen = os.environ.get("MCP_TRIO_CACHE")
    return Path(chosen).resolve() if chosen else PROJECT / ".cache" / "clients"


def publish(unfinished: Path, folder: Path) -> None:
    try:
        unfinished.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was quicker, and its install is as good
            raise


def interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run(command: list[str], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        raise Unavailable(f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-800:]}")
