"""The page about limits agrees with the code."""

from mcp_trio import Limits
from mcp_trio.auth import access
from mcp_trio.protocol import extensions, jsonrpc, params
from mcp_trio.server import batch_replies, options, subscriptions, worker_threads
from mcp_trio.server.schema import decode
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


def _row(what: str) -> str:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {what}")]
    return line


def test_the_page_says_the_bounds_of_the_code() -> None:
    limits = Limits()
    assert f"{limits.max_result // 2**20} MiB" in _row("bytes of a result")
    assert f"| {limits.threads} |" in _row("worker threads for functions")
    assert worker_threads.SHARE == 0.75
    assert "three quarters" in _row("worker threads of one client")
    assert f"{worker_threads.PATIENCE:g} s" in _row("waiting for a worker thread")
    together = (
        f"{access.MOST_VERIFYING}, and {access.MOST_VERIFYING_OF_ONE} of one address"
    )
    assert together in _row("tokens being verified")
    assert f"{access.VERIFY_TIMEOUT:g} s" in _row("verifying one token")
    assert f"{access.REMEMBERED:g} s" in _row("time before a valid token")
    assert f"at least {options.SHORTEST_SECRET}" in _row("length of the secret")
    most = subscriptions.MOST_SUBSCRIPTIONS
    assert f"{most:,}" in _row("subscriptions of a session")
    assert f"{limits.memory // 2**20} MiB" in _row("bytes held for all clients")
    assert f"| {jsonrpc.MAX_MESSAGE // 2**20} MiB |" in _row("a message")
    assert f"| {jsonrpc.MAX_ID} |" in _row("characters of an id")
    assert f"| {params.MAX_URI:,} |" in _row("characters of a URI")
    assert f"| {params.MAX_URIS:,} |" in _row("URIs of one")
    assert f"| {jsonrpc.MAX_BATCH:,} |" in _row("messages in a batch")
    batch = f"| {batch_replies.MOST_BYTES // 2**20} MiB |"
    assert batch in _row("bytes of the replies to a batch")
    assert f"{extensions.MAX_SETTINGS // 1024} KiB" in _row(
        "capabilities that a session keeps"
    )
    row = _row("arguments where numbers")
    assert f"{decode.MOST_BYTES // 2**20} MiB and {decode.MOST_VALUES:,} values" in row


def test_the_page_says_the_bounds_of_http() -> None:
    limits = Limits()
    assert f"| {limits.max_sessions:,} |" in _row("HTTP sessions")
    assert f"| {Sessions.idle_timeout // 60:g} minutes |" in _row("an idle HTTP")
    assert f"| {server.MOST_CONNECTIONS:,}, or" in _row("HTTP connections")
    head = f"{parser.MAX_HEAD // 1024} KiB and {parser.MAX_HEADERS} headers"
    assert head in _row("the head of an HTTP request")
    patience = connection.PATIENCE
    waits = [patience[stage] for stage in (parser.HEAD, parser.BODY, parser.IDLE)]
    seconds = ", ".join(f"{wait:g} s" for wait in waits)
    assert f"| {seconds} |" in _row("waiting for a head")
    assert f"| {connection.WRITE_TIME:g} s |" in _row("waiting for a client to read")
    probes = f"{keep_alive.COUNT} probes every {keep_alive.INTERVAL} s"
    assert f"| {keep_alive.IDLE} s, then {probes} |" in _row("waiting for a machine")
    kept = f"{event_stream.HISTORY_BYTES // 1024} KiB and {event_stream.HISTORY_EVENTS}"
    assert kept in _row("events that a stream keeps")
    assert f"| {sessions.HISTORY_STREAMS} |" in _row("ended streams")
