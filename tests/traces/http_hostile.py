"""Hostile requests over HTTP. After each, the server still answers."""

from __future__ import annotations

from .methods import CHANGES, CONTENT
from .playing import LATEST, NEWEST, OPENING, Scenarios, cancelled, note
from .web import TYPES, HttpTalk

SCENARIOS = Scenarios()
add = SCENARIOS.add
HERE = {"transport": "http", "folder": "hostile"}
GET = {"accept": "text/event-stream"}
OLD = OPENING[2]
MIB = 2**20


@add([LATEST], **HERE)
async def http_wrong_methods(talk: HttpTalk) -> None:
    """Methods that the endpoint does not have
    Each refusal names those that it has; without a session GET and DELETE have nothing
    to be about."""
    for method in ("PUT", "PATCH", "TRACE", "PROPFIND"):
        await talk.refused(None, 405, method=method)
    await talk.refused(None, 400, GET, method="GET")
    await talk.refused(None, 400, method="DELETE")
    await talk.refused(None, 405, path="/healthz")
    await talk.open()
    await talk.refused(None, 405, method="PUT")
    await talk.alive()


@add([LATEST], **HERE)
async def http_wrong_types(talk: HttpTalk) -> None:
    """Bodies that do not say that they are JSON
    What a page of some other site may send without asking is refused before it is read.
    """
    await talk.open()
    ping = talk.request("ping")
    for kind in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        None,
    ):
        await talk.refused(ping, 415, {"content-type": kind})
    for kind in (
        "application/jsonp",
        "text/json",
        "application/json, text/plain",
        "json",
        "*/*",
    ):
        await talk.refused(ping, 415, {"content-type": kind})
    await talk.refused(ping, 200, {"content-type": "Application/JSON; charset=utf-8"})
    await talk.alive()


@add([LATEST], **HERE)
async def http_wrong_accept(talk: HttpTalk) -> None:
    """Clients that take nothing of what there is
    Refused, unless they say nothing at all."""
    await talk.open()
    for accept in (
        "text/html",
        "application/xml",
        "",
        "application/json;q=0, text/event-stream;q=0.0",
    ):
        await talk.refused(talk.request("ping"), 406, {"accept": accept})
    await talk.refused(None, 406, {"accept": "application/json"}, method="GET")
    await talk.refused(talk.request("ping"), 200, {"accept": None})
    await talk.alive()


@add([LATEST], **HERE)
async def http_sessions_that_are_none(talk: HttpTalk) -> None:
    """Sessions that nobody has opened
    Missing, made up, a name too long; nothing is opened or told by asking."""
    await talk.refused(talk.request("tools/list"), 400)
    await talk.refused(note("notifications/initialized"), 400)
    for session in (
        "none",
        "chosen-000000000000000009",
        "../../etc",
        "x" * 1_000,
        "a b",
        "",
    ):
        await talk.refused(talk.request("tools/list"), 404, {"mcp-session-id": session})
    await talk.refused(None, 404, {"mcp-session-id": "none"}, method="DELETE")
    await talk.refused(None, 404, {"mcp-session-id": "none", **GET}, method="GET")
    await talk.open()
    await talk.alive()


@add([LATEST], **HERE)
async def http_versions_that_were_not_agreed(talk: HttpTalk) -> None:
    """Headers that name another revision than the session's
    Another, an unknown one, none that could be one; absent it is the session's own."""
    await talk.open()
    for version in (OLD, "2099-01-01", "", "\xff", f"{LATEST}, {LATEST}", "x" * 500):
        await talk.refused(talk.request("ping"), 400, {"mcp-protocol-version": version})
    await talk.refused(talk.request("ping"), 200, {"mcp-protocol-version": None})
    await talk.alive()


@add([NEWEST], **HERE, over=["http"])
async def http_heads_that_say_otherwise(talk: HttpTalk) -> None:
    """Heads that do not say what is in the body
    Missing, other, in other letters, badly encoded: who routes by the head must not be
    led astray."""
    call = talk.call("get_weather", {"location": "Berlin"})
    for name, value in (
        *(
            ("mcp-method", value)
            for value in (
                None,
                "tools/list",
                "TOOLS/CALL",
                "",
                "tools/call, tools/call",
            )
        ),
        *(
            ("mcp-name", value)
            for value in (None, "calculate_sum", "GET_WEATHER", "", "=?base64?!!?=")
        ),
        *(
            ("mcp-name", value)
            for value in ("=?base64?Z2V0X3RpbWU=?=", "=?base64?gICA?=", "\xe4")
        ),
        *(
            ("mcp-protocol-version", value)
            for value in (None, LATEST, "2099-01-01", "")
        ),
    ):
        await talk.refused(call, 400, {name: value})
    await talk.refused(call, 200, {"mcp-name": "=?base64?Z2V0X3dlYXRoZXI=?="})
    await talk.refused(
        talk.request("resources/read", {"uri": "demo://about"}),
        400,
        {"mcp-name": "demo://logo.png"},
    )
    await talk.alive()


@add([NEWEST], **HERE, server=CONTENT, over=["http"])
async def http_arguments_that_differ(talk: HttpTalk) -> None:
    """Arguments that are others in the head
    Missing, different, there though the body has none."""
    for header in (None, "us", "EU", "=?base64?dXM=?=", "=?base64?eu?="):
        await talk.refused(
            talk.call("in_region", {"region": "eu"}), 400, {"mcp-param-region": header}
        )
    for region in (7, None, ["eu"], {"eu": 1}):
        await talk.refused(
            talk.call("in_region", {"region": region}), 400, {"mcp-param-region": "eu"}
        )
    await talk.refused(talk.call("in_region"), 400, {"mcp-param-region": "eu"})
    await talk.refused(
        talk.call("in_region", {"region": "eu"}), 200, {"mcp-param-region": "eu"}
    )
    await talk.alive()


@add([NEWEST], **HERE)
async def http_versions_that_there_are_not(talk: HttpTalk) -> None:
    """A revision that nobody speaks, in head and body alike
    The refusal lists those that are spoken; those that open a session cannot be
    declared so."""
    for version in ("2099-01-01", LATEST, "draft"):
        request = talk.request(
            "tools/list", **{"io.modelcontextprotocol/protocolVersion": version}
        )
        await talk.refused(request, 400, {"mcp-protocol-version": version})
    await talk.alive()


@add([LATEST], **HERE)
async def http_foreign_origins(talk: HttpTalk) -> None:
    """Pages of other sites
    Whatever they send, and however they look like this one, it is not read."""
    await talk.open()
    origins = (
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1.nip.io",
        "file://",
        "",
    )
    for origin in (*origins, "http://localhost@evil.example", "javascript:alert(1)"):
        await talk.refused(talk.request("ping"), 403, {"origin": origin})
    for method in ("OPTIONS", "GET", "DELETE"):
        await talk.refused(
            None, 403, {"origin": "https://evil.example", **GET}, method=method
        )
    await talk.refused(talk.request("ping"), 200, {"origin": "http://localhost:3000"})
    await talk.alive()


@add([LATEST], **HERE)
async def http_foreign_hosts(talk: HttpTalk) -> None:
    """Names under which nothing is served
    A page that has made its own name point here is not let in; health checks come by
    any name."""
    await talk.open()
    for host in (
        "evil.example",
        "localhost.evil.example",
        "evil.example:8000",
        "169.254.169.254",
        "[::2]",
        "a b",
    ):
        await talk.refused(talk.request("ping"), 421, {"host": host})
    await talk.refused(
        None, 421, {"host": "evil.example"}, path="http://evil.example/mcp"
    )
    await talk.refused(
        None, 200, {"host": "evil.example"}, method="GET", path="/healthz"
    )
    await talk.refused(talk.request("ping"), 200, {"host": "[::1]:1"})
    await talk.alive()


@add([LATEST], **HERE)
async def http_other_paths(talk: HttpTalk) -> None:
    """Paths under which nothing is served
    Near the right one, around it, out of it; none is redirected."""
    await talk.open()
    for path in (
        "/",
        "/MCP",
        "//mcp",
        "/mcp//",
        "/mcp/../mcp",
        "/mcp%2f",
        "/%6dcp",
        "/mcp/tools",
        "/mcp;x=1",
        "*",
    ):
        await talk.refused(talk.request("ping"), 404, path=path)
    for path in ("/.env", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/x" * 500):
        await talk.refused(None, 404, method="GET", path=path)
    await talk.refused(talk.request("ping"), 404, path="/messages?session=none")
    await talk.refused(talk.request("ping"), 404, path="/messages")
    for path in ("/mcp/", "/mcp?x=1"):
        await talk.refused(talk.request("ping"), 200, path=path)
    await talk.alive()


@add([LATEST], **HERE)
async def http_bodies_that_are_none(talk: HttpTalk) -> None:
    """Bodies that are no message
    None, no JSON, no UTF-8, nested without end, a batch where there is none: a bad
    request, and why."""
    await talk.open()
    for body in (
        b"",
        b"{",
        b"\xff",
        b"[" * 5_000,
        b"null",
        b"1",
        b"[]",
        b"\0",
        b"ping",
        b"{}",
        b"\xef\xbb\xbf{}",
    ):
        await talk.refused(body, 400)
    await talk.refused([talk.request("ping")], 400)
    await talk.refused(b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400)
    await talk.alive()


@add([LATEST], **HERE)
async def http_deleting_twice(talk: HttpTalk) -> None:
    """A session is ended twice
    The second time there is none, neither for what comes after."""
    await talk.open()
    await talk.refused(None, 204, method="DELETE")
    await talk.refused(None, 404, method="DELETE")
    await talk.refused(None, 404, GET, method="GET")
    await talk.refused(talk.request("ping"), 404)
    await talk.open()
    await talk.alive()


@add([LATEST], **HERE)
async def http_events_of_another(talk: HttpTalk) -> None:
    """A client comes back to what is not its own
    The event of another session's stream, events that never were, names that are none.
    """
    await talk.open()
    stream = await talk.exchange(
        talk.call("count_slowly", {"steps": 1, "seconds": 0}, progressToken="p")
    )
    await stream.rest()
    (seen, *_) = [
        line.event["id"] for line in talk.lines if line.event and "id" in line.event
    ]
    await talk.open()
    for id in (
        seen,
        "999999-1",
        f"{seen}-1",
        "1",
        "-",
        "",
        "x" * 500,
        "1-99999999999999999999",
        "\xff",
    ):
        await talk.refused(None, 400, {**GET, "last-event-id": id}, method="GET")
    await talk.alive()


@add([LATEST], **HERE)
async def http_opening_within(talk: HttpTalk) -> None:
    """A session is opened within another
    The one that there is stays as it is."""
    await talk.open()
    opening = {
        "protocolVersion": OLD,
        "capabilities": {},
        "clientInfo": {"name": "trace", "version": "1"},
    }
    await talk.refused(talk.request("initialize", opening), 400)
    await talk.refused(
        talk.request("initialize", {**opening, "protocolVersion": 7}), 200
    )
    await talk.alive()


@add([LATEST], **HERE)
async def http_answers_to_nothing(talk: HttpTalk) -> None:
    """Answers and cancellations of what there is not
    Accepted without a word, as nobody waits for them."""
    await talk.open()
    for message in (
        {
            "jsonrpc": "2.0",
            "id": "ask-0000000000000001",
            "result": {"action": "accept"},
        },
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x"}},
        cancelled("nobody"),
        note("notifications/unknown"),
    ):
        await talk.refused(message, 202)
    await talk.alive()


@add([NEWEST], **HERE, name="http-what-the-newest-has-not")
async def http_what_the_newest_has_not(talk: HttpTalk) -> None:
    """The newest revision is asked for sessions, streams and answers
    It has none of them; a cancellation is a connection that is closed."""
    version = {"mcp-protocol-version": NEWEST}
    for method in ("GET", "DELETE"):
        await talk.refused(
            None, 405, {**version, **GET, "last-event-id": "1-1"}, method=method
        )
    await talk.refused({"jsonrpc": "2.0", "id": "ask-1", "result": {}}, 400, version)
    await talk.refused([talk.request("tools/list")], 400, version)
    await talk.refused(
        talk.request("initialize"), 404, {**version, "mcp-method": "initialize"}
    )
    await talk.refused(
        cancelled("x"), 202, {**version, "mcp-method": "notifications/cancelled"}
    )
    await talk.refused(
        talk.request("subscriptions/listen", {"notifications": {}}),
        406,
        {"accept": "application/json"},
    )
    await talk.alive()


@add([NEWEST], **HERE, server=CHANGES)
async def http_leaving_at_once(talk: HttpTalk) -> None:
    """Clients that go before they are answered
    Streams are opened and left; whoever comes next is served."""
    await talk.open()
    for id in "abcde":
        request = talk.request(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=id
        )
        stream = await talk.exchange(request)
        await stream.event()
        await stream.leave()
    await talk.use("add_tool", {"name": "another"})
    await talk.alive()


@add([LATEST], **HERE)
async def http_expecting(talk: HttpTalk) -> None:
    """Expectations and encodings that nobody meets
    Refused by name, and nothing is guessed."""
    await talk.open()
    await talk.refused(b"", 417, {"expect": "200-ok"})
    await talk.raw(post((b"Content-Length: ", b"Content-Length: %d" % (5 * MIB))), 413)
    await talk.refused(None, 431, {"x-long": "x" * 40_000}, method="GET")
    await talk.refused(
        None, 431, {f"x-{number}": "1" for number in range(200)}, method="GET"
    )
    await talk.alive()


# Invalid HTTP


def post(*replacements: tuple[bytes, bytes]) -> bytes:
    """A good request with something in it replaced."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    head = "".join(f"{name.title()}: {value}\r\n" for name, value in TYPES.items())
    data = (
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b"
        % (head.encode(), len(body), body)
    )
    for old, new in replacements:
        assert old in data
        data = data.replace(old, new)
    return data


CHUNKED = post().partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
BAD: dict[str, tuple[str, str, list[bytes]]] = {
    "http-two-lengths": (
        "Requests whose end is not certain",
        "A length beside chunks, two lengths, lengths that are none: two readers could see two requests in them.",
        [
            post((b"Content-Length", b"Transfer-Encoding: chunked\r\nContent-Length")),
            post((b"Content-Length", b"Content-Length: 5\r\nContent-Length")),
            post((b"Content-Length: 40", b"Content-Length: 40, 40")),
            post((b"Content-Length: 40", b"Content-Length: +40")),
            post((b"Content-Length: 40", b"Content-Length: -1")),
            post((b"Content-Length: 40", b"Content-Length: 0x28")),
        ],
    ),
    "http-bad-chunks": (
        "Chunks that are none",
        "Sizes that are missing, bad, too small; encodings that are not chunked, or not alone.",
        [
            CHUNKED + b"\r\nxx\r\n",
            CHUNKED + b"zz\r\nxx\r\n0\r\n\r\n",
            CHUNKED + b"1\r\nxx\r\n0\r\n\r\n",
            CHUNKED + b"-1\r\nx\r\n0\r\n\r\n",
            CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n",
            CHUNKED.replace(b"chunked", b"gzip"),
        ],
    ),
    "http-bad-heads": (
        "Heads that are none",
        "Folded, without a name, with a space before the colon, with a bare line feed, a zero byte, two hosts.",
        [
            post((b"Accept:", b"X-A: 1\r\n  folded\r\nAccept:")),
            post((b"Accept:", b"Accept :")),
            post((b"Accept:", b": x\r\nAccept:")),
            post((b"\r\nAccept", b"\nAccept")),
            post((b"Accept:", b"X-A: \0\r\nAccept:")),
            post((b"Host: localhost\r\n", b"")),
            post((b"Host:", b"Host: localhost\r\nHost:")),
            post(
                (
                    b"Host:",
                    b"Origin: http://localhost\r\nOrigin: http://localhost\r\nHost:",
                )
            ),
        ],
    ),
    "http-no-http": (
        "What is no HTTP at all",
        "The beginning of TLS, an old request without a version, a later version, a message alone, noise.",
        [
            b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
            b"GET /healthz\r\n\r\n",
            b"GET /healthz HTTP/3.0\r\nHost: localhost\r\n\r\n",
            b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n\r\n',
            b"\0\0\0\0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"POST /mcp HTTP/1.1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ],
    ),
}

for name, (title, notes, requests) in BAD.items():

    async def play(talk: HttpTalk, requests: list[bytes] = requests) -> None:
        for data in requests:
            await talk.raw(data)
        await talk.open()
        await talk.alive()

    play.__doc__ = f"{title}\n{notes}"
    add([LATEST], **HERE, name=name)(play)
