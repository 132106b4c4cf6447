"""What each revision does over HTTP, with and without sessions."""

from __future__ import annotations

from .methods import CHANGES, CONTENT, QUESTIONS
from .playing import (
    LATEST,
    MODERN,
    NEWEST,
    OPENING,
    TABLES,
    Json,
    Scenarios,
    cancelled,
    note,
)
from .web import HttpTalk

STREAMABLE = [name for name in OPENING if TABLES[name].resumes]
SCENARIOS = Scenarios()
add = SCENARIOS.add
HTTP = {"transport": "http"}
NUMBER: Json = {"name": "number", "arguments": {}}


@add(STREAMABLE, **HTTP)
async def http_session(talk: HttpTalk) -> None:
    """A session over HTTP, from its beginning to its end
    A notification is accepted without a word; what comes after DELETE finds no session
    any more."""
    await talk.open()
    await talk.ask("tools/list")
    await talk.use("get_weather", {"location": "New York"})
    await talk.refused(None, 204, method="DELETE")
    await talk.refused(talk.request("ping"), 404)


@add([*STREAMABLE, *MODERN], **HTTP)
async def http_stream(talk: HttpTalk) -> None:
    """A call that has something to say before its result
    The response becomes a stream of events, which ends with the result."""
    await talk.open()
    await talk.use("count_slowly", {"steps": 2, "seconds": 0}, progressToken="counting")


@add([LATEST, NEWEST], **HTTP)
async def http_accepting(talk: HttpTalk) -> None:
    """Clients that take only one kind of response
    A stream where that is asked for first; JSON alone, without what comes before the
    result."""
    await talk.open()
    for accept in (
        "text/event-stream, application/json",
        "text/event-stream",
        "*/*",
        "application/json",
    ):
        request = talk.call(
            "count_slowly", {"steps": 1, "seconds": 0}, progressToken="p"
        )
        exchange = await talk.exchange(request, {"accept": accept})
        if exchange.headers["content-type"] == "text/event-stream":
            await exchange.rest()


@add(
    [
        name
        for name in STREAMABLE
        if "elicitation/create" in TABLES[name].server_requests
    ],
    **HTTP,
    server=QUESTIONS,
)
async def http_asking(talk: HttpTalk) -> None:
    """A question on the stream of the call that asks
    The answer is a post of its own; the result comes on the stream."""
    await talk.open({"elicitation": {}})
    stream = await talk.exchange(talk.call("book"))
    question = (
        await stream.event() or await stream.event()
    )  # the first event may have only an id
    answer = {"action": "accept", "content": {"seats": 2}}
    await talk.refused({"jsonrpc": "2.0", "id": question["id"], "result": answer}, 202)
    await stream.rest()


@add(STREAMABLE, **HTTP, server=CHANGES)
async def http_announcements(talk: HttpTalk) -> None:
    """What belongs to no request
    It comes on the stream that GET opens, until the client leaves."""
    await talk.open()
    news = await talk.exchange(method="GET", headers={"accept": "text/event-stream"})
    if TABLES[talk.revision].primes:  # the first event has only an id
        await news.event()
    await talk.use("add_tool", {"name": "another"})
    await news.event()
    await news.leave()
    await talk.ask("ping")


@add(STREAMABLE, **HTTP)
async def http_coming_back(talk: HttpTalk) -> None:
    """A client comes back to a stream
    With the id of the first event that it has seen; the rest comes again, and nothing
    of another stream."""
    await talk.open()
    stream = await talk.exchange(
        talk.call("count_slowly", {"steps": 3, "seconds": 0}, progressToken="p")
    )
    await stream.rest()
    ids = [line.event["id"] for line in talk.lines if line.event and "id" in line.event]
    again = await talk.exchange(
        method="GET", headers={"accept": "text/event-stream", "last-event-id": ids[-3]}
    )
    await again.rest()


@add([name for name in STREAMABLE if TABLES[name].primes], **HTTP, server=CONTENT)
async def http_letting_go(talk: HttpTalk) -> None:
    """The server lets a client go
    It says when to come back, and the connection ends; the result is fetched with the
    id of the first event."""
    await talk.open()
    stream = await talk.exchange(talk.call("let_go"))
    await stream.rest()
    ids = [line.event["id"] for line in talk.lines if line.event and "id" in line.event]
    again = await talk.exchange(
        method="GET", headers={"accept": "text/event-stream", "last-event-id": ids[0]}
    )
    await again.rest()


@add([name for name in STREAMABLE if TABLES[name].batches], **HTTP)
async def http_batch(talk: HttpTalk) -> None:
    """Batches over HTTP
    Of requests, answered by an array; of notifications alone, accepted without a word;
    empty."""
    await talk.open()
    await talk.refused(
        [talk.request("ping"), talk.call("get_weather", {"location": "Berlin"})], 200
    )
    await talk.refused([note("notifications/initialized"), cancelled("x")], 202)
    await talk.refused([], 400)
    stream = await talk.exchange(
        [
            talk.call("count_slowly", {"steps": 1, "seconds": 0}, progressToken="p"),
            talk.request("ping"),
        ]
    )
    await stream.rest()


@add([LATEST], **HTTP, server=CONTENT)
async def http_cancelling(talk: HttpTalk) -> None:
    """A call is cancelled by a notification
    Its stream ends without an answer; that a client closes a connection would not
    cancel it."""
    await talk.open()
    stream = await talk.exchange(talk.call("wait", id="slow", progressToken="slow"))
    await stream.event() or await stream.event()  # the first event may have only an id
    await talk.refused(cancelled("slow"), 202)
    await stream.rest()
    await talk.ask("ping")


# Without sessions


@add(MODERN, **HTTP)
async def http_stateless(talk: HttpTalk) -> None:
    """Requests that stand alone
    Each head says what is in the body; no session is opened, and one that is named is
    passed over."""
    await talk.ask("server/discover")
    await talk.use("get_weather", {"location": "New York"})
    await talk.ask("resources/read", {"uri": "demo://about"})
    await talk.refused(
        talk.request("tools/call", NUMBER | {"name": "get_weather"}),
        200,
        {"mcp-session-id": "none"},
    )


@add(MODERN, **HTTP, server=CHANGES)
async def http_listening(talk: HttpTalk) -> None:
    """A subscription is a stream
    It begins with what will be heard of; to leave it is to end it."""
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["notes://first"]}
    stream = await talk.exchange(
        talk.request("subscriptions/listen", {"notifications": wanted}, id="listening")
    )
    await stream.event()
    await talk.use("add_tool", {"name": "another"})
    await stream.event()
    await talk.use("edit", {"uri": "notes://first"})
    await stream.event()
    await stream.leave()
    await talk.alive()


@add(MODERN, **HTTP, server=QUESTIONS)
async def http_input_required(talk: HttpTalk) -> None:
    """A call that asks, in two posts
    The first ends with the question, the second brings the answer and the state."""
    await talk.open({"elicitation": {}})
    await talk.converse(
        talk.call("book"),
        {"elicitation/create": {"action": "accept", "content": {"seats": 2}}},
    )


@add(MODERN, **HTTP, server=CONTENT)
async def http_mirrored_arguments(talk: HttpTalk) -> None:
    """Arguments that come in headers too
    Where a tool's schema says so; what a header could not hold comes as base64."""
    await talk.ask("tools/list")
    for region, header in (("eu", "eu"), ("Zürich", "=?base64?WsO8cmljaA==?=")):
        await talk.refused(
            talk.call("in_region", {"region": region}),
            200,
            {"mcp-param-region": header},
        )


@add(MODERN, **HTTP, over=["http"])
async def http_statuses(talk: HttpTalk) -> None:
    """Errors and their statuses
    An unknown method is not found; what does not say what it must is a bad request;
    other errors are answers."""
    await talk.refused(talk.request("nothing/at-all"), 404)
    await talk.refused(talk.request("tools/call", {"name": "nothing"}), 200)
    bare = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    await talk.refused(
        bare, 400, {"mcp-protocol-version": NEWEST, "mcp-method": "tools/list"}
    )
    await talk.refused(talk.request("resources/read", {"uri": "demo://nowhere"}), 200)
