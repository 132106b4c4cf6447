"""A trace for each method of each revision, in each direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .playing import (
    MODERN,
    NEWEST,
    OPENING,
    SERVERS,
    TABLES,
    VENDOR,
    Json,
    Play,
    Scenario,
    Scenarios,
    Talk,
    cancelled,
    note,
)

CHANGES, CONTENT, QUESTIONS = (
    f"{SERVERS}{name}.py" for name in ("changes", "content", "questions")
)
SCENARIOS = Scenarios()

# Requests of the client. Method -> title, notes, the params of each request.
ASKED: dict[str, tuple[str, str, list[Json]]] = {
    "ping": (
        "The client asks whether the server is there",
        "The least that there is.",
        [{}],
    ),
    "server/discover": (
        "The server says what it speaks and offers",
        "In place of initialize.",
        [{}],
    ),
    "tools/list": (
        "The tools are listed",
        "With the fields that this revision names, and no other.",
        [{}],
    ),
    "tools/call": (
        "A tool is called",
        "The weather of two cities, in this revision's kind of result.",
        [
            {"name": "get_weather", "arguments": {"location": "New York"}},
            {
                "name": "get_weather",
                "arguments": {"location": "SW1A 1AA", "units": "metric"},
            },
        ],
    ),
    "resources/list": (
        "The resources are listed",
        "Templates stand beside them where they have no list.",
        [{}],
    ),
    "resources/templates/list": (
        "The resource templates are listed",
        "They have a list of their own.",
        [{}],
    ),
    "resources/read": (
        "Resources are read",
        "A text, bytes, and one that a template makes.",
        [
            {"uri": "demo://about"},
            {"uri": "demo://logo.png"},
            {"uri": "cities://New%20York"},
        ],
    ),
    "resources/subscribe": (
        "A resource is subscribed to",
        "Also one of a template. Twice is as good as once.",
        [{"uri": "demo://about"}, {"uri": "cities://Berlin"}, {"uri": "demo://about"}],
    ),
    "resources/unsubscribe": (
        "A subscription is ended",
        "Also one that there never was, which is no error.",
        [{"uri": "demo://about"}, {"uri": "cities://Tokyo"}],
    ),
    "prompts/list": ("The prompts are listed", "With their arguments.", [{}]),
    "prompts/get": (
        "Prompts are filled in",
        "One message, and several of both sides.",
        [
            {
                "name": "write_postcard",
                "arguments": {"city": "Nairobi", "mood": "poetic"},
            },
            {
                "name": "compare_weather",
                "arguments": {"first": "Tokyo", "second": "Berlin"},
            },
        ],
    ),
    "logging/setLevel": (
        "The client chooses from which level on it is told",
        "Levels that this revision knows.",
        [{"level": "debug"}, {"level": "error"}],
    ),
    "completion/complete": (
        "Half-typed arguments are completed",
        "Of a prompt, and of a resource's template; then nothing is found.",
        [
            {
                "ref": {"type": "ref/prompt", "name": "write_postcard"},
                "argument": {"name": "city", "value": "n"},
            },
            {
                "ref": {"type": "ref/resource", "uri": "cities://{name}"},
                "argument": {"name": "name", "value": "San"},
            },
            {
                "ref": {"type": "ref/prompt", "name": "write_postcard"},
                "argument": {"name": "city", "value": "Atlantis"},
            },
        ],
    ),
}


def asked(method: str, requests: list[Json]) -> Play:
    async def play(talk: Talk) -> None:
        await talk.open()
        for params in requests:
            await talk.ask(method, params)

    return play


for method, (title, notes, requests) in ASKED.items():
    SCENARIOS += [
        Scenario(
            method.replace("/", "-"),
            revision.name,
            title,
            notes,
            asked(method, requests),
        )
        for revision in TABLES.values()
        if method in revision.requests
    ]


def having(
    table: str, method: str, among: Sequence[str] = (*OPENING, *MODERN)
) -> list[str]:
    """Return the revisions that have a method in this table."""
    return [name for name in among if method in getattr(TABLES[name], table)]


add = SCENARIOS.add


@add(OPENING)
async def initialize(talk: Talk) -> None:
    """A session is opened
    The server agrees to the revision, names itself, and says what it offers."""
    await talk.open({"roots": {"listChanged": True}, "sampling": {}})


@add(MODERN, server=CHANGES, paced=True)
async def subscriptions_listen(talk: Talk) -> None:
    """The client listens, and ends it
    First it is told what it will hear of; the tools change, then a resource; then it
    wants to hear no more."""
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["notes://first"]}
    await talk.ask("subscriptions/listen", {"notifications": wanted}, id="listening")
    await talk.use("add_tool", {"name": "another"})
    await talk.use("edit", {"uri": "notes://first"})
    await talk.use("edit", {"uri": "notes://other"})
    await talk.say(cancelled("listening"))
    await talk.use("edit", {"uri": "notes://first"})


# Notifications of the client


@add(OPENING, server=CHANGES)
async def notifications_initialized(talk: Talk) -> None:
    """The client says that it has understood
    Only then is it told of changes."""
    await talk.open()
    await talk.use("add_tool", {"name": "another"})


@add(having("notifications", "notifications/progress"))
async def notifications_progress(talk: Talk) -> None:
    """The client tells how far it is
    With an answer that the server did not ask for a progress of; it is passed over."""
    await talk.open()
    await talk.say(
        note(
            "notifications/progress",
            {"progressToken": "mine", "progress": 1, "total": 2},
        )
    )
    await talk.ask("ping")


@add(having("notifications", "notifications/cancelled"), server=CONTENT)
async def notifications_cancelled(talk: Talk) -> None:
    """The client cancels a request
    It has begun, as its progress says, and gets no answer; what comes after it does."""
    await talk.open()
    await talk.use("wait", id="slow", progressToken="slow")
    await talk.say(cancelled("slow"))
    await talk.use("echo", {"text": "still here"})


@add(having("notifications", "notifications/roots/list_changed"), server=QUESTIONS)
async def notifications_roots_list_changed(talk: Talk) -> None:
    """The client says that its folders have changed
    The server asks for them when it next needs them."""
    await talk.open({"roots": {"listChanged": True}})
    await talk.converse(
        talk.call("look"), {"roots/list": {"roots": [{"uri": "file:///one"}]}}
    )
    await talk.say(note("notifications/roots/list_changed"))
    await talk.converse(
        talk.call("look"),
        {"roots/list": {"roots": [{"uri": "file:///two", "name": "Two"}]}},
    )


# Requests of the server

SAID = {
    "role": "assistant",
    "content": {"type": "text", "text": "Paris"},
    "model": "small",
    "stopReason": "endTurn",
}


@add(having("server_requests", "ping"), server=QUESTIONS)
async def asks_ping(talk: Talk) -> None:
    """The server asks whether the client is there
    A tool does so here by hand, as the server has no occasion of its own."""
    await talk.open()
    await talk.converse(talk.call("ping_client"), {"ping": {}})


@add(having("server_requests", "sampling/createMessage"), server=QUESTIONS)
async def asks_sampling_createMessage(talk: Talk) -> None:
    """The server asks the client's model
    With all that may be said of how it is to answer."""
    await talk.open({"sampling": {}})
    await talk.converse(talk.call("think"), {"sampling/createMessage": SAID})


@add(having("server_requests", "roots/list"), server=QUESTIONS)
async def asks_roots_list(talk: Talk) -> None:
    """The server asks for the client's folders
    One has a name, one has none."""
    await talk.open({"roots": {}})
    roots = [{"uri": "file:///project", "name": "Project"}, {"uri": "file:///notes"}]
    await talk.converse(talk.call("look"), {"roots/list": {"roots": roots}})


@add(having("server_requests", "elicitation/create"), server=QUESTIONS)
async def asks_elicitation_create(talk: Talk) -> None:
    """The server asks the user
    A form is filled in, another declined, a third closed."""
    await talk.open({"elicitation": {}})
    entered = {
        "action": "accept",
        "content": {"seats": 2, "seat_class": "first", "window": True},
    }
    for answer in (entered, {"action": "decline"}, {"action": "cancel"}):
        await talk.converse(
            talk.call("book", {"city": "Rome"}), {"elicitation/create": answer}
        )


# Notifications of the server


async def listening(talk: Talk, **wanted: Any) -> None:
    """Be told of changes, in both eras."""
    await talk.open()
    if not talk.opens:
        await talk.ask(
            "subscriptions/listen", {"notifications": wanted}, id="listening"
        )
    elif "resourceSubscriptions" in wanted:
        await talk.ask(
            "resources/subscribe", {"uri": wanted["resourceSubscriptions"][0]}
        )


@add(having("server_notifications", "notifications/progress"))
async def tells_progress(talk: Talk) -> None:
    """The server tells how far a request is
    Each step under the request's token, before the result; without a token it tells
    nothing."""
    await talk.open()
    await talk.use("count_slowly", {"steps": 3, "seconds": 0}, progressToken="counting")
    await talk.use("count_slowly", {"steps": 2, "seconds": 0}, progressToken=7)
    await talk.use("count_slowly", {"steps": 2, "seconds": 0})


@add(
    having("server_notifications", "notifications/message"), server=CONTENT, paced=True
)
async def tells_message(talk: Talk) -> None:
    """The server sends log messages
    Of every level, in the words of this revision, from the level on that the client has
    chosen."""
    await talk.open()
    for level in ("debug", "error"):
        if talk.opens:
            await talk.ask("logging/setLevel", {"level": level})
            await talk.use("log_everything")
        else:
            await talk.use("log_everything", **{VENDOR + "logLevel": level})
    if not talk.opens:
        await talk.use("log_everything")


@add(
    having("server_notifications", "notifications/tools/list_changed"),
    server=CHANGES,
    paced=True,
)
async def tells_tools_list_changed(talk: Talk) -> None:
    """The server tells that its tools have changed
    One comes, is listed and called, and goes."""
    await listening(talk, toolsListChanged=True)
    await talk.use("add_tool", {"name": "another"})
    await talk.ask("tools/list")
    await talk.use("another")
    await talk.use("remove_tool", {"name": "another"})
    await talk.use("another")


@add(
    having("server_notifications", "notifications/prompts/list_changed"), server=CHANGES
)
async def tells_prompts_list_changed(talk: Talk) -> None:
    """The server tells that its prompts have changed
    One comes, and is listed."""
    await listening(talk, promptsListChanged=True)
    await talk.use("add_prompt", {"name": "another"})
    await talk.ask("prompts/list")


@add(
    having("server_notifications", "notifications/resources/list_changed"),
    server=CHANGES,
)
async def tells_resources_list_changed(talk: Talk) -> None:
    """The server tells that its resources have changed
    One comes, and is listed."""
    await listening(talk, resourcesListChanged=True)
    await talk.use("add_note", {"id": "second"})
    await talk.ask("resources/list")


@add(
    having("server_notifications", "notifications/resources/updated"),
    server=CHANGES,
    paced=True,
)
async def tells_resources_updated(talk: Talk) -> None:
    """The server tells that a resource has changed
    To who subscribed to it, and to no other; a resource of a template too."""
    await listening(talk, resourceSubscriptions=["notes://first", "lines://7"])
    await talk.use("edit", {"uri": "notes://first"})
    await talk.use("edit", {"uri": "notes://other"})
    if talk.opens:
        await talk.ask("resources/subscribe", {"uri": "lines://7"})
    await talk.use("edit", {"uri": "lines://7"})
    if talk.opens:
        await talk.ask("resources/unsubscribe", {"uri": "lines://7"})
        await talk.use("edit", {"uri": "lines://7"})


@add(
    having("server_notifications", "notifications/cancelled", OPENING), server=QUESTIONS
)
async def tells_cancelled(talk: Talk) -> None:
    """The server takes back a question
    The request that asked was cancelled, so that it needs no answer any more."""
    await talk.open({"sampling": {}})
    await talk.say(talk.call("think", id="asking"))
    await talk.say(cancelled("asking"))
    await talk.ask("ping")


@add([NEWEST], server=QUESTIONS, name="tells-cancelled")
async def tells_cancelled_by_hand(talk: Talk) -> None:
    """The server says that a request is cancelled
    This revision has the notification; as the server has no occasion for it, a tool
    sends it by hand."""
    await talk.open()
    await talk.use(
        "tell",
        {
            "method": "notifications/cancelled",
            "params": {"requestId": "x", "reason": "by hand"},
        },
    )


@add(
    having("server_notifications", "notifications/elicitation/complete"),
    server=QUESTIONS,
)
async def tells_elicitation_complete(talk: Talk) -> None:
    """The user is sent to a page, and has been there
    The client agrees to show the page; that the user is done is told by a tool, by
    hand."""
    await talk.open({"elicitation": {"url": {}}})
    await talk.converse(
        talk.call("visit"), {"elicitation/create": {"action": "accept"}}
    )
    await talk.use(
        "tell",
        {
            "method": "notifications/elicitation/complete",
            "params": {"elicitationId": "login-1"},
        },
    )


@add(MODERN, server=CHANGES)
async def tells_subscriptions_acknowledged(talk: Talk) -> None:
    """The server says what a client will hear of
    All that can be listened to; then nothing; then what this server has not, which is
    left out."""
    everything = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": ["notes://first"],
    }
    await talk.open()
    for id, wanted in (
        ("all", everything),
        ("nothing", {}),
        ("new", {"weatherChanged": True}),
    ):
        await talk.ask("subscriptions/listen", {"notifications": wanted}, id=id)
    for id in ("all", "nothing", "new"):
        await talk.say(cancelled(id))
