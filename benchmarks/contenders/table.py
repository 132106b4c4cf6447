"""The table of contenders: their transports, and how they differ from mcp_trio."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
PROJECT = SOURCES.parent.parent

OLDER = "2025-11-25"
NEWEST = "2026-07-28"
BOTH = (OLDER, NEWEST)

# Transport -> the revisions that a contender speaks on it.
Transports = Mapping[str, tuple[str, ...]]

STDIO_ONLY: Transports = {"stdio": BOTH}
JSON_OVER_HTTP: Transports = {"http": BOTH, "stateless": BOTH}
ALL_OVER_HTTP: Transports = {**JSON_OVER_HTTP, "stream": BOTH}
STDIO_AND_HTTP: Transports = {**STDIO_ONLY, **ALL_OVER_HTTP}


@dataclass(frozen=True)
class Contender:
    """A server to be measured.

    The first argument on its command line is a transport, and the second is a port,
    which stdio ignores. The transports are:

    - stdio
    - http: the older revisions with a session; replies are JSON if there is a switch
    - stateless: the same, without a session in the older revisions
    - stream: as http, with replies as event streams, so that progress is delivered
    - ws
    """

    name: str
    title: str
    folder: str  # below benchmarks/contenders
    toolchain: str  # a key of TOOLCHAINS
    transports: Transports
    program: str = "server.py"
    arguments: tuple[str, ...] = ()  # after the port
    uses_all_cores: bool = False
    # Packages that it imports from this environment and mcp_trio does not require.
    packages: tuple[str, ...] = ()
    # What it cannot do, or does differently from mcp_trio.
    differences: tuple[str, ...] = ()


NO_STRUCTURED_TEXT = (
    "by default it repeats each text as structured content: this is switched off"
)
NO_PROGRESS_IN_JSON = (
    "over http and stateless, replies are JSON and progress is dropped: "
    "measure it over stream"
)
LIST_CHANGED_TO_CALLER = (
    "list-changed goes only to the session that called grow: "
    "it keeps no list of the other sessions"
)
WRAPPED_TEXT = (
    "the text of an integer or a list with an output schema is "
    '`{"result": ...}`; mcp_trio sends the value'
)
NO_FALSE_IS_ERROR = "results have no isError if it is false"
NO_NOTIFICATIONS = (
    "over HTTP there are no streams: progress and list-changed are not delivered"
)
FLOOR = (
    "no protocol: no validation, sessions, cancellation or errors; "
    "wait and block are answered like add",
    "the reply is the same in all revisions, "
    "without the resultType and _meta of the newest",
    "a tool takes 168 bytes in tools/list",
)

CONTENDERS = (
    Contender(
        name="mcp_trio",
        title="mcp_trio, its own HTTP engine",
        folder="mcp_trio",
        toolchain="current",
        transports={**STDIO_AND_HTTP, "ws": BOTH},
        differences=(
            "over http and stream alike, a reply is JSON, and becomes an event stream "
            "when the tool reports progress",
            "a tool takes 197 bytes in tools/list: "
            "its schema forbids additional properties",
        ),
    ),
    Contender(
        name="mcp_trio_hypercorn",
        title="mcp_trio under hypercorn",
        folder="mcp_trio",
        toolchain="current",
        transports=ALL_OVER_HTTP,
        arguments=("hypercorn",),
        packages=("hypercorn",),
        differences=("as mcp_trio",),
    ),
    Contender(
        name="python_sdk",
        title="the official Python SDK, uvicorn with uvloop and httptools",
        folder="python_sdk",
        toolchain="python",
        transports=STDIO_AND_HTTP,
        differences=(
            NO_STRUCTURED_TEXT,
            NO_PROGRESS_IN_JSON,
            "stdio runs on asyncio without uvloop, as its run() does, "
            "and reads and writes in threads",
            "route is missing: only its low-level server takes a JSON Schema",
            LIST_CHANGED_TO_CALLER + "; in the newest revision, all subscribers get it",
            "a tool takes 215 bytes in tools/list: its schema has titles",
        ),
    ),
    Contender(
        name="python_sdk_lowlevel",
        title="the official Python SDK's low-level server, which takes JSON Schemas",
        folder="python_sdk",
        toolchain="python",
        transports=STDIO_ONLY,
        program="lowlevel.py",
        differences=(
            "has only the tool route, and checks its arguments with jsonschema itself",
        ),
    ),
    Contender(
        name="python_sdk_streams",
        title="the official Python SDK with its default of event streams over HTTP",
        folder="python_sdk",
        toolchain="python",
        transports=JSON_OVER_HTTP,
        arguments=("asyncio", "stream"),
        differences=("as python_sdk, without its switch for JSON",),
    ),
    Contender(
        name="python_sdk_trio",
        title="the official Python SDK on trio, under hypercorn",
        folder="python_sdk",
        toolchain="python",
        transports=STDIO_AND_HTTP,
        arguments=("trio",),
        differences=("as python_sdk",),
    ),
    Contender(
        name="fastmcp",
        title="FastMCP, uvicorn with uvloop and httptools",
        folder="fastmcp",
        toolchain="python",
        transports=STDIO_AND_HTTP,
        differences=(
            NO_STRUCTURED_TEXT,
            NO_PROGRESS_IN_JSON,
            LIST_CHANGED_TO_CALLER,
            "no subscriptions in the newest revision",
            "route is a subclass of Tool that checks its arguments with jsonschema",
            "a tool takes 248 bytes in tools/list: it has a title, and tags in _meta",
        ),
    ),
    Contender(
        name="tiny",
        title="aiohttp-tiny-mcp, aiohttp",
        folder="tiny",
        toolchain="python",
        transports={**STDIO_ONLY, **JSON_OVER_HTTP},
        differences=(
            WRAPPED_TEXT,
            "stdio writes and flushes each message separately, on asyncio without "
            "uvloop, as its documentation shows",
            "block uses a thread of asyncio: its tools are always async functions",
            "an integer and a list are fields of a model: "
            "other results are text without an output schema",
            "it cannot add tools while it serves, so grow is missing",
            "on stdio, a line of more than 64 KiB ends it, "
            "so echo is not measured with 1 MB",
            "route takes a model, because a tool cannot have its own JSON Schema",
        ),
    ),
    Contender(
        name="typescript",
        title="the official TypeScript SDK, its node:http adapter",
        folder="typescript",
        toolchain="node",
        transports=STDIO_AND_HTTP,
        program="server.mjs",
        differences=(
            WRAPPED_TEXT,
            "block blocks the loop: the SDK does not run functions in threads",
            "as the SDK requires, a server with all its tools is created for each "
            "session, and for each request in the newest revision and over stateless: "
            "there, each request pays for BENCH_TOOLS",
            NO_FALSE_IS_ERROR,
            "over http and stateless, progress is dropped in the older revisions",
            "a tool takes 336 bytes in tools/list: "
            "its schema has bounds for integers, and names its dialect",
        ),
    ),
    Contender(
        name="go",
        title="the official Go SDK, net/http",
        folder="go",
        toolchain="go",
        transports=STDIO_AND_HTTP,
        uses_all_cores=True,
        differences=(
            WRAPPED_TEXT,
            "each call is a goroutine: block is the same as add, "
            "and wait yields to the scheduler",
            NO_FALSE_IS_ERROR,
            "over http and stateless, progress is lost or sent on the session's GET "
            "stream: measure it over stream",
            "list-changed is delayed by 10 ms, to combine several changes",
            "the schema of order is written by hand: "
            "constraints are not inferred from types",
            "its page size is set so that all tools are on one page, "
            "as in the other contenders",
            "a tool takes 197 bytes in tools/list: "
            "its schema forbids additional properties",
        ),
    ),
    Contender(
        name="rust",
        title="the official Rust SDK, axum",
        folder="rust",
        toolchain="cargo",
        transports=STDIO_AND_HTTP,
        uses_all_cores=True,
        differences=(
            WRAPPED_TEXT,
            "in a session every reply is an event stream: there is no switch",
            "results of the newest revision have no _meta with the server's name",
            "arguments are decoded into types without a check by their schema: "
            "order and route check constraints themselves",
            "list-changed needs a task for each listener, written by hand: "
            "the SDK cannot send it to all of them",
            "a tool takes 259 bytes in tools/list: "
            "its schema has formats for integers, and names its dialect",
        ),
    ),
    Contender(
        name="floor_blocking",
        title="floor: a blocking read-write loop",
        folder="floors",
        toolchain="current",
        transports=STDIO_ONLY,
        program="blocking.py",
        differences=FLOOR,
    ),
    Contender(
        name="floor_loop",
        title="floor: a trio loop with msgspec",
        folder="floors",
        toolchain="current",
        transports=STDIO_ONLY,
        program="loop.py",
        differences=FLOOR,
    ),
    Contender(
        name="floor_tasks",
        title="floor: a trio loop with a task for each message, which waits once",
        folder="floors",
        toolchain="current",
        transports=STDIO_ONLY,
        program="tasks.py",
        differences=FLOOR,
    ),
    Contender(
        name="floor_httptools",
        title="floor: bare httptools on trio",
        folder="floors",
        toolchain="current",
        transports=JSON_OVER_HTTP,
        program="native.py",
        differences=(*FLOOR, NO_NOTIFICATIONS),
    ),
    Contender(
        name="floor_hypercorn",
        title="floor: a bare ASGI application under hypercorn",
        folder="floors",
        toolchain="current",
        transports=JSON_OVER_HTTP,
        program="asgi.py",
        packages=("hypercorn",),
        differences=(*FLOOR, NO_NOTIFICATIONS),
    ),
    Contender(
        name="floor_websocket",
        title="floor: a bare trio-websocket echo",
        folder="floors",
        toolchain="current",
        transports={"ws": ()},
        program="websocket.py",
        differences=(
            "it echoes each message: one with the request's id, and without a result",
        ),
    ),
)
