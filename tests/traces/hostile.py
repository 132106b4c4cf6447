"""Hostile messages over stdio. After each, the server still answers."""

from __future__ import annotations

import json
from typing import Any

from mcp_trio.protocol.jsonrpc import encode
from mcp_trio.server.sealed_state import seal, unseal

from .behaviour import NO_SESSION
from .methods import CONTENT, QUESTIONS
from .odd_messages import BOM, ENVELOPES, LISTED, LONG, PING, bare, call, ping, rpc
from .playing import (
    ALL,
    LATEST,
    NEWEST,
    OPENING,
    SECRET,
    TABLES,
    VENDOR,
    Play,
    Said,
    Scenario,
    Scenarios,
    Talk,
    cancelled,
    initialize,
    note,
)

SCENARIOS = Scenarios()
add = SCENARIOS.add
HERE = {"folder": "hostile"}


def sent(messages: list[Said]) -> Play:
    """The messages in an open session, and then the proof."""

    async def play(talk: Talk) -> None:
        await talk.open()
        await talk.say(*messages)
        await talk.alive()

    return play


SCENARIOS += [
    Scenario(
        name, LATEST, title, notes, sent(messages), server=server, folder="hostile"
    )
    for name, (title, notes, server, messages) in LISTED.items()
]
SCENARIOS += [
    Scenario(
        f"wrong-envelopes-{revision}",
        revision,
        "Messages that are none",
        "One of each kind, refused in the shape of this revision.",
        sent(ENVELOPES),
        folder="hostile",
    )
    for revision in ALL
]


@add([LATEST], **HERE)
async def byte_order_mark_first(talk: Talk) -> None:
    """A byte order mark before everything
    Some systems write one; it is passed over there, and only there."""
    await talk.say(BOM + json.dumps(initialize(talk.revision)).encode())
    await talk.say(note("notifications/initialized"))
    await talk.alive()


@add([LATEST], **HERE)
async def odd_openings(talk: Talk) -> None:
    """Sessions that are opened with nonsense
    Versions and clients of odd types are refused, and no session is open; then one is.
    """
    good = initialize(talk.revision)["params"]
    await talk.say(rpc(id=1, method="initialize"))
    for version in (None, 7, ["2025-11-25"], {}):
        await talk.say(
            rpc(id=2, method="initialize", params={**good, "protocolVersion": version})
        )
    for client in (None, {}, "me", {"name": 7, "version": "1"}):
        await talk.say(
            rpc(id=3, method="initialize", params={**good, "clientInfo": client})
        )
    for capabilities in (None, [], "all", {"sampling": True}):
        await talk.say(
            rpc(
                id=4, method="initialize", params={**good, "capabilities": capabilities}
            )
        )
    await talk.open()
    await talk.alive()


@add([LATEST], **HERE, over=NO_SESSION)
async def out_of_turn(talk: Talk) -> None:
    """Everything before a session is open
    Answers, cancellations, requests, notifications; then it is opened. Over HTTP there
    is no session that these could belong to."""
    await talk.say(
        rpc(id="ask-1", result={}), cancelled(1), note("notifications/initialized")
    )
    for method in (
        "tools/list",
        "tools/call",
        "logging/setLevel",
        "nothing/at-all",
        "resources/subscribe",
    ):
        await talk.say(rpc(id=1, method=method))
    await talk.open()
    await talk.alive()


@add([LATEST], **HERE, name="unknown-versions")
async def unknown_versions(talk: Talk) -> None:
    """A version that no one has ever spoken
    However it looks, the server offers its own."""
    await talk.say(initialize("2025-11-25\0'; DROP TABLE versions; --" + "x" * 100))
    await talk.say(note("notifications/initialized"))
    await talk.alive()


async def in_use(talk: Talk) -> None:
    await talk.open()
    await talk.use("wait", id="same", progressToken="same")
    await talk.use("echo", {"text": "x"}, id="same")
    await talk.say(cancelled("same"))
    await talk.alive()


@add([LATEST], **HERE, server=CONTENT)
async def ids_in_use(talk: Talk) -> None:
    """An id that still runs is used again
    The second request is refused, the first goes on, until it is cancelled."""
    await in_use(talk)


@add(
    [NEWEST], **HERE, server=CONTENT, name=f"ids-in-use-{NEWEST}", over=("stdio", "ws")
)
async def ids_in_use_without_a_session(talk: Talk) -> None:
    """An id that still runs on a connection is used again
    The second request is refused, the first goes on, until it is cancelled. Over HTTP
    each request of this revision stands alone, so that two with one id do not meet."""
    await in_use(talk)


@add([LATEST], **HERE, server=CONTENT, paced=True)
async def cancelled_before_and_after(talk: Talk) -> None:
    """Cancellations that come too early, too late, and too often
    One before its request, which is served then; one after its answer; ten for one
    request."""
    await talk.open()
    await talk.say(cancelled("early"))
    await talk.use("echo", {"text": "x"}, id="early")
    await talk.say(cancelled("early"))
    await talk.use("wait", id="often", progressToken="often")
    await talk.say(*[cancelled("often")] * 10)
    await talk.alive()


@add([NEWEST], **HERE, server=QUESTIONS)
async def forged_request_states(talk: Talk) -> None:
    """States that the server has not given
    Made up, changed, cut, of another request, of odd types: each is refused, and
    nothing is done on its word."""
    await talk.open({"elicitation": {}})
    (asked,) = await talk.converse(talk.call("book", {"city": "Rome"}))
    state, (key, *_) = asked["result"]["requestState"], asked["result"]["inputRequests"]
    answers = {key: {"action": "accept", "content": {"seats": 2}}}
    forged = (
        "",
        "made up",
        "é",
        state[:-4],
        "A" + state[1:],
        state + "A",
        state[:60],
        "=" * 100,
        "\0",
        7,
        None,
        {},
        [state],
    )
    for one in forged:
        carried = {
            "name": "book",
            "arguments": {"city": "Rome"},
            "requestState": one,
            "inputResponses": answers,
        }
        await talk.ask("tools/call", carried)
    for name, arguments in (("book", {"city": "Oslo"}), ("register", {})):
        carried = {
            "name": name,
            "arguments": arguments,
            "requestState": state,
            "inputResponses": answers,
        }
        await talk.ask("tools/call", carried)
    await talk.alive()


@add([NEWEST], **HERE, server=QUESTIONS)
async def expired_request_states(talk: Talk) -> None:
    """A state that is too old
    It was sealed by this server, whose secret is known here, but may be used no more.
    """
    await talk.open({"elicitation": {}})
    (asked,) = await talk.converse(talk.call("book"))
    state = json.loads(unseal(SECRET, asked["result"]["requestState"]))
    await talk.ask(
        "tools/call",
        {
            "name": "book",
            "requestState": seal(SECRET, encode({**state, "expires": 1.0})),
        },
    )
    await talk.alive()


@add([NEWEST], **HERE, server=QUESTIONS)
async def forged_answers(talk: Talk) -> None:
    """Answers that do not fit what was asked
    Of odd types, under other keys, to a question that was never put, with what the form
    has not."""
    await talk.open({"elicitation": {}})
    (asked,) = await talk.converse(talk.call("book"))
    state, (key, *_) = asked["result"]["requestState"], asked["result"]["inputRequests"]
    accepted = {"action": "accept", "content": {"seats": 2}}
    for responses in (
        *(
            {key: answer}
            for answer in (
                None,
                1,
                [],
                {},
                {"action": 1},
                {"action": "accept", "content": []},
            )
        ),
        *(
            {key: {**accepted, "content": content}}
            for content in ({"seats": 100}, {"seats": 2, "__proto__": 1}, None)
        ),
        *({other: accepted} for other in ("", "__proto__", "2-elicitation-00000000")),
        *(None, [], "x"),
    ):
        await talk.ask(
            "tools/call",
            {"name": "book", "requestState": state, "inputResponses": responses},
        )
    await talk.ask("tools/call", {"name": "book", "inputResponses": {key: accepted}})
    await talk.alive()


@add([LATEST], **HERE, server=QUESTIONS)
async def answers_twice(talk: Talk) -> None:
    """A question is answered twice
    The first answer counts; the other is passed over."""
    await talk.open({"elicitation": {}})
    talk.paced = True
    (question,) = await talk.use("book")
    await talk.say(rpc(id=question["id"], result={"action": "decline"}))
    await talk.say(
        rpc(id=question["id"], result={"action": "accept", "content": {"seats": 1}})
    )
    await talk.alive()


@add([LATEST], **HERE, server=QUESTIONS)
async def unusable_answers(talk: Talk) -> None:
    """Questions are answered with nonsense
    Of odd types, without what was asked for, with more; the tool has failed, in words
    that say why."""
    await talk.open({"elicitation": {}, "sampling": {}, "roots": {}})
    for answer in (
        [],
        1,
        "x",
        {},
        {"action": None},
        {"action": "accept", "content": {"seats": 1, "__proto__": {}}},
    ):
        await answered(talk, "book", "elicitation/create", answer)
    said = {"role": "assistant", "model": "m"}
    for answer in (
        {},
        {**said, "content": 1},
        {**said, "content": {"type": "text", "text": 7}},
        {**said, "content": []},
    ):
        await answered(talk, "think", "sampling/createMessage", answer)
    for answer in (
        {},
        {"roots": 1},
        {"roots": [{}]},
        {"roots": [{"uri": 7}]},
        {"roots": None},
    ):
        await answered(talk, "look", "roots/list", answer)
    await talk.alive()


async def answered(talk: Talk, tool: str, method: str, answer: Any) -> None:
    talk.paced = True
    (question,) = await talk.use(tool)
    assert question["method"] == method
    await talk.say(rpc(id=question["id"], result=answer))


@add([NEWEST], **HERE)
async def odd_declarations(talk: Talk) -> None:
    """Requests that declare nonsense of themselves
    Versions, capabilities, levels and clients of odd types; one key without the other.
    """
    version, capabilities = VENDOR + "protocolVersion", VENDOR + "clientCapabilities"
    for value in (None, 7, "", "2026-07-28x", "2026-7-28", ["2026-07-28"], OPENING[0]):
        await talk.ask("tools/list", **{version: value})
    for value in (
        None,
        7,
        "all",
        [],
        {"sampling": 1},
        {"elicitation": []},
        {"roots": None},
    ):
        await talk.ask("tools/list", **{capabilities: value})
    for key, value in (
        ("logLevel", "loud"),
        ("logLevel", 1),
        ("clientInfo", "me"),
        ("clientInfo", {}),
    ):
        await talk.ask("tools/list", **{VENDOR + key: value})
    await talk.alive()


@add([NEWEST], **HERE)
async def odd_listening(talk: Talk) -> None:
    """A client wants to listen to nonsense
    Filters of odd types are refused; what nobody knows in one is left out."""
    await talk.open()
    for wanted in (
        None,
        7,
        [],
        {"toolsListChanged": 1},
        {"resourceSubscriptions": "demo://about"},
    ):
        await talk.ask("subscriptions/listen", {"notifications": wanted})
    await talk.ask("subscriptions/listen")
    filter_ = {
        "__proto__": {"toolsListChanged": True},
        "resourceSubscriptions": ["none://", "", "x" * LONG],
    }
    await talk.ask("subscriptions/listen", {"notifications": filter_}, id="odd")
    await talk.say(cancelled("odd"))
    await talk.alive()


@add([NEWEST], **HERE)
async def older_methods(talk: Talk) -> None:
    """The newest revision is asked for what it has given up
    Nothing of it is answered."""
    for method in sorted(
        TABLES[LATEST].requests - TABLES[NEWEST].requests - {"initialize"}
    ):
        await talk.ask(method, {"uri": "demo://about"})
    await talk.alive()


@add([name for name in ALL if TABLES[name].batches], **HERE, server=CONTENT)
async def odd_batches(talk: Talk) -> None:
    """Batches of nonsense
    Each part that is no message is refused, each that is one served; an id that comes
    twice is answered twice."""
    await talk.open()
    for batch in (
        b"[]",
        b'[1,null,"x",[],{}]',
        b"[[%b]]" % PING,
        [ping(), ping()],
        [ping(), bare(id=2, method="ping"), rpc(id=None, method="ping")],
        [cancelled(1), cancelled(None)],
        [rpc(id="ask-1", result={}), ping()],
        [call("fail", {}), call("nothing", {}), ping(params=7)],
        [initialize(talk.revision), ping()],
        b"[%b" % PING,
        b"[%b]]" % PING,
        b"[\xff]",
        b"[" + b",".join([b"1"] * 20) + b"]",
    ):
        await talk.say(batch)
    await talk.alive()


@add([LATEST], **HERE, server=CONTENT, name="much-at-once")
async def much_at_once(talk: Talk) -> None:
    """A hundred requests before the first answer is read
    Good and bad ones in turn; each is answered once."""
    await talk.open()
    for number in range(25):
        talk.send(
            talk.call("echo", {"text": str(number)}, id=number),
            b"}{",
            rpc(id=f"x{number}", method="x"),
            note("x"),
        )
    await talk.quiet()
    await talk.alive()
