"""The page about limits agrees with the code."""

import inspect

import pytest

from mcp_trio import Limits
from mcp_trio.auth import access
from mcp_trio.extensions.tasks import extension as tasks
from mcp_trio.protocol import extensions, jsonrpc, params
from mcp_trio.server import (
    batch_replies,
    limits,
    options,
    runner,
    sealed_state,
    subscriptions,
    worker_threads,
)
from mcp_trio.server.schema import decode
from mcp_trio.transports import send_queue, websocket
from mcp_trio.transports.http import (
    connection,
    event_stream,
    keep_alive,
    parser,
    server,
    sessions,
)
from mcp_trio.transports.http.sessions import Sessions
from tests.support.paths import PROJECT

PAGE = (PROJECT / "docs" / "limits.md").read_text(encoding="utf-8")
DEFAULTS = Limits()
KIB = 2**10
MIB = 2**20


def table(first: str) -> dict[str, list[str]]:
    """Return the rows of the table whose header begins so, by their first cell."""
    _, _, rest = PAGE.partition(f"\n| {first} |")
    _, _, *lines = rest.partition("\n\n")[0].split("\n")
    rows = [line.strip("| ").split("|") for line in lines]
    return {cell.strip(): [*map(str.strip, others)] for cell, *others in rows}


def bounds_of_requests() -> dict[str, str]:
    most = f"{limits.MOST_AT_ONCE:,}, and {limits.MOST_OF_ONE:,} of one"
    return {
        "bytes of a result, before it is encoded": f"{DEFAULTS.max_result // MIB} MiB",
        "arguments where numbers such as `1.0` are accepted as integers": (
            f"{decode.MOST_BYTES // MIB} MiB and {decode.MOST_VALUES:,} values"
        ),
        "bytes held for all clients": f"{DEFAULTS.memory // MIB} MiB",
        "a message": f"{jsonrpc.MAX_MESSAGE // MIB} MiB",
        "requests in progress": f"{most} connection",
        "open `subscriptions/listen` requests": f"{most} client",
        "time of the event loop for requests of one client in a row": (
            f"{1000 * runner.TURN:g} ms, or one request that takes longer"
        ),
        "characters of an id": f"{jsonrpc.MAX_ID}",
        "characters of a URI": f"{params.MAX_URI:,}",
        "URIs of one `subscriptions/listen`": f"{params.MAX_URIS:,}",
        "task ids of one `subscriptions/listen`": f"{tasks.MOST_LISTENED:,}",
        "messages in a batch": f"{jsonrpc.MAX_BATCH:,}",
        "bytes of the replies to a batch": f"{batch_replies.MOST_BYTES // MIB} MiB",
        "capabilities that a session keeps": (
            f"known flags, and {extensions.MAX_SETTINGS // KIB} KiB of settings for "
            "each known extension"
        ),
        "characters of the name and the version of a client": (
            f"{params.MAX_CLIENT_INFO} of each are kept"
        ),
        "subscriptions of a session": f"{subscriptions.MOST_SUBSCRIPTIONS:,}",
    }


def bounds_of_transports() -> dict[str, str]:
    waits = [
        f"{connection.PATIENCE[stage]:g} s"
        for stage in (parser.HEAD, parser.BODY, parser.IDLE)
    ]
    history = f"{event_stream.HISTORY_BYTES // KIB} KiB"
    return {
        "HTTP sessions": f"{DEFAULTS.max_sessions:,}",
        "an idle HTTP session": f"{Sessions.idle_timeout // 60:g} minutes",
        "HTTP connections": (
            f"{server.MOST_CONNECTIONS:,}, or the limit of the system"
        ),
        "the head of an HTTP request": (
            f"{parser.MAX_HEAD // KIB} KiB and {parser.MAX_HEADERS} headers"
        ),
        "waiting for a head, a body, the next request": ", ".join(waits),
        "waiting for a client to read a piece of a response": (
            f"{connection.WRITE_TIME:g} s"
        ),
        "bytes that a client sends on an HTTP connection while its request runs": (
            f"{connection.MAX_BACKLOG // KIB} KiB"
        ),
        "unread events of a stream, before functions that send more wait": (
            f"{event_stream.HIGH_WATER // MIB} MiB"
        ),
        "unread events of a stream that cannot be resumed": (
            f"{event_stream.MAX_UNSENT // MIB} MiB"
        ),
        "bytes of waiting messages, and of unread replies, on stdio, WebSocket and "
        "HTTP+SSE": f"{send_queue.HIGH_WATER // MIB} MiB",
        "opening a WebSocket": f"{websocket.HANDSHAKE_TIMEOUT:g} s",
        "waiting for the answer to a WebSocket ping": (
            f"{websocket.PONG_TIMEOUT:g} s, and a ping is sent every "
            f"{websocket.PING_INTERVAL:g} s"
        ),
        "waiting for a machine that has disappeared during a request": (
            f"{keep_alive.IDLE} s, then {keep_alive.COUNT} probes every "
            f"{keep_alive.INTERVAL} s"
        ),
        "events that a stream keeps for resumption": (
            f"{history} and {event_stream.HISTORY_EVENTS} events"
        ),
        "ended streams that a session keeps": f"{sessions.HISTORY_STREAMS}",
    }


def bounds_of_threads_and_tasks() -> dict[str, str]:
    assert worker_threads.SHARE == 0.75
    settings = inspect.signature(tasks.Tasks).parameters
    most_tasks = settings["most_tasks"].default
    most_bytes = settings["most_bytes"].default
    return {
        "worker threads for functions that are not async": f"{DEFAULTS.threads}",
        "worker threads of one client, except on stdio": "three quarters",
        "waiting for a worker thread": f"{worker_threads.PATIENCE:g} s",
        "threads stuck in abandoned calls": "all that the client may use",
        "threads of the system": "",
        "time before the system is asked again for a thread that it could not start": (
            f"{worker_threads.FIRST_PAUSE:g} s, then up to "
            f"{worker_threads.LONGEST_PAUSE:g} s"
        ),
        "tasks of one client that have not expired": (
            f"{most_tasks:,}, and {most_bytes // MIB} MiB with their results"
        ),
    }


def bounds_of_access() -> dict[str, str]:
    return {
        "tokens being verified": (
            f"{access.MOST_VERIFYING}, and {access.MOST_VERIFYING_OF_ONE} of one "
            "address"
        ),
        "verifying one token": f"{access.VERIFY_TIMEOUT:g} s",
        "time before a valid token is verified again": f"{access.REMEMBERED:g} s",
        "valid tokens that are remembered": f"{access.MOST_REMEMBERED:,}",
        "time before the token of an open stream or WebSocket is verified again": (
            f"{access.RECHECK_INTERVAL:g} s"
        ),
        "time to answer the questions of a signed state": (
            f"{sealed_state.STATE_LIFETIME // 3600} hour"
        ),
        "length of the secret that signs states": (
            f"at least {options.SHORTEST_SECRET} bytes"
        ),
    }


def test_the_page_has_the_bounds_of_the_code() -> None:
    shown = {bound: cells[0] for bound, cells in table("bound").items()}
    assert shown == {
        **bounds_of_requests(),
        **bounds_of_transports(),
        **bounds_of_threads_and_tasks(),
        **bounds_of_access(),
    }


def test_the_page_has_the_settings_of_the_code() -> None:
    shown = {cell.strip("`").partition("=")[0] for cell in table("`Limits(...)`")}
    assert shown == set(Limits.__struct_fields__)


@pytest.mark.parametrize(
    ("setting", "default"),
    [
        ("max_in_flight=", f"({DEFAULTS.max_in_flight:,})"),
        (
            "max_in_flight_per_connection=",
            f"({DEFAULTS.max_in_flight_per_connection:,})",
        ),
        ("max_result=", f"({DEFAULTS.max_result // MIB} MiB)"),
        ("threads=", f"({DEFAULTS.threads})"),
        ("memory=", f"({DEFAULTS.memory // MIB} MiB, or `--memory 256M`)"),
    ],
)
def test_the_page_has_the_default_of_a_setting(setting: str, default: str) -> None:
    meaning = table("`Limits(...)`")[f"`{setting}`"][-1]
    assert meaning.endswith(default)
