"""What each revision does: errors, cancellation, lists, content, batches."""

from __future__ import annotations

from .methods import CHANGES, CONTENT, having
from .playing import (
    ALL,
    LATEST,
    MODERN,
    NEWEST,
    OPENING,
    SERVERS,
    TABLES,
    VENDOR,
    Json,
    Scenarios,
    Talk,
    cancelled,
    initialize,
    note,
)

BARE, PAGES = f"{SERVERS}bare.py", f"{SERVERS}pages.py"
NO_SESSION = (
    "stdio",
    "sse",
    "ws",
)  # over HTTP, a request without a session is refused
WRAPPING = [name for name in ALL if TABLES[name].wraps or not TABLES[name].opens]
SCENARIOS = Scenarios()
add = SCENARIOS.add


# Errors


@add(ALL)
async def error_unknown_tool(talk: Talk) -> None:
    """A tool is called that there is not
    An error of the protocol in every revision."""
    await talk.open()
    await talk.use("invalid_tool_name")


@add(ALL)
async def error_unknown_method(talk: Talk) -> None:
    """A method is asked for that there is not
    Also one that another era has: no revision answers what it does not name."""
    await talk.open()
    await talk.ask("tools/destroy")
    await talk.ask(
        "server/discover" if talk.opens else "logging/setLevel", {"level": "debug"}
    )
    await talk.ask("tasks/list")


@add(ALL)
async def error_bad_arguments(talk: Talk) -> None:
    """A tool gets arguments that do not fit
    One is missing, one is of the wrong type, one is not among those allowed, one is
    unknown: an error, with the reason in its data, an error, or a result, as the
    revision has it."""
    await talk.open()
    for arguments in (
        {},
        {"location": 10001},
        {"location": "Berlin", "units": "kelvin"},
        {"location": "Berlin", "zone": 3},
    ):
        await talk.use("get_weather", arguments)
    await talk.use("count_slowly", {"steps": 0})


@add(ALL)
async def error_bad_params(talk: Talk) -> None:
    """A request has params that do not fit its method
    An error that says where."""
    await talk.open()
    await talk.ask("tools/call", {"arguments": {}})
    await talk.ask("tools/call", {"name": "get_weather", "arguments": []})
    await talk.ask("resources/read", {"uri": 7})
    await talk.ask(
        "completion/complete",
        {"ref": {"type": "ref/none"}, "argument": {"name": "a", "value": ""}},
    )
    await talk.ask("prompts/get", {"name": ["write_postcard"]})


@add(ALL)
async def error_unknown_resource(talk: Talk) -> None:
    """A resource is read that there is not
    One that nothing matches, and one that its template does not know: a code of its
    own, or none in the newest."""
    await talk.open()
    await talk.ask("resources/read", {"uri": "demo://nowhere"})
    await talk.ask("resources/read", {"uri": "cities://Atlantis"})
    if talk.opens:
        await talk.ask("resources/subscribe", {"uri": "demo://nowhere"})


@add(ALL)
async def error_prompts(talk: Talk) -> None:
    """Prompts that cannot be filled in
    There is none of that name; an argument is missing; one is wrong."""
    await talk.open()
    await talk.ask("prompts/get", {"name": "write_novel"})
    await talk.ask("prompts/get", {"name": "write_postcard"})
    await talk.ask(
        "prompts/get", {"name": "write_postcard", "arguments": {"city": "Atlantis"}}
    )


@add(ALL, server=BARE)
async def error_not_offered(talk: Talk) -> None:
    """A client asks for what the server has not
    This one has neither prompts nor resources, and says so when it is opened."""
    await talk.open()
    for method in ("prompts/list", "resources/list"):
        await talk.ask(method)
    await talk.ask("resources/read", {"uri": "a://b"})
    await talk.use("add", {"a": 1, "b": 2})


@add(
    ALL,
    server=CONTENT,
    ignore=["/result/content/0/text", "/result/toolResult", "/error/message"],
)
async def error_masked(talk: Talk) -> None:
    """A tool fails by mistake
    The client gets a reference to the server's log, which is another each time, and
    nothing of what went wrong."""
    await talk.open()
    await talk.use("crash")


@add(ALL, server=CONTENT)
async def error_of_a_tool(talk: Talk) -> None:
    """A tool fails, and says why
    Its words reach the model in a result, in each revision's kind."""
    await talk.open()
    await talk.use("fail")


@add(OPENING, over=NO_SESSION)
async def error_before_initialize(talk: Talk) -> None:
    """A request comes before initialize
    It is refused; a ping is not. Over HTTP there is no session yet for it to belong to,
    which is another refusal."""
    await talk.ask("tools/list", id="early")
    await talk.ask("ping", id="earlier")
    await talk.open()
    await talk.ask("ping")


@add(OPENING)
async def error_initialize_twice(talk: Talk) -> None:
    """A session is opened again
    It stays as it is."""
    await talk.open()
    await talk.say(initialize(talk.revision, id="again"))
    await talk.ask("ping")


@add([OPENING[0]], server=CONTENT, paced=True)
async def log_levels(talk: Talk) -> None:
    """Levels that the first revision does not know
    They cannot be chosen; what is said on them comes on the next one that it knows."""
    await talk.open()
    for level in ("notice", "emergency", "warning"):
        await talk.ask("logging/setLevel", {"level": level})
    await talk.use("log_everything")


@add([LATEST], name="unknown-version")
async def unknown_version(talk: Talk) -> None:
    """A client wants a revision that there is not
    It gets the newest that opens so, and may leave."""
    await talk.say(initialize("2099-01-01"), note("notifications/initialized"))
    await talk.ask("ping")


@add(MODERN, name="unknown-version")
async def unknown_version_in_a_request(talk: Talk) -> None:
    """A request says a revision that there is not
    It is refused, with all those that there are; so is one of those that open a
    session."""
    for version in ("2099-01-01", LATEST):
        await talk.ask("server/discover", **{VENDOR + "protocolVersion": version})
    await talk.ask("server/discover")


@add(MODERN)
async def error_missing_meta(talk: Talk) -> None:
    """A request does not say what it has to
    Neither its revision nor the client's capabilities; then one of both."""
    own = {VENDOR + "protocolVersion": talk.revision, VENDOR + "clientCapabilities": {}}
    for meta in ({}, *({key: value} for key, value in own.items())):
        params = {"_meta": meta} if meta else {}
        await talk.say(
            {
                "jsonrpc": "2.0",
                "id": len(talk.lines),
                "method": "server/discover",
                "params": params,
            }
        )
    await talk.ask("server/discover")


# The life of a request


@add(having("notifications", "notifications/cancelled"), server=CONTENT)
async def cancelling(talk: Talk) -> None:
    """Requests are cancelled while they run
    Several at once, the last without a reason; those that were not are answered."""
    await talk.open()
    for id in ("a", 0, "c"):
        await talk.use("wait", id=id, progressToken=f"of {id}")
    await talk.say(cancelled("a"), cancelled(0))
    await talk.ask("tools/call", {"name": "echo", "arguments": {"text": "still here"}})
    await talk.say(note("notifications/cancelled", {"requestId": "c"}))


@add([LATEST, NEWEST], server=CONTENT)
async def out_of_order(talk: Talk) -> None:
    """Answers come when they are ready
    The first request is the last to be answered."""
    await talk.open()
    talk.send(
        talk.call("wait", {"seconds": 0.2}, id="slow"),
        talk.call("echo", {"text": "quick"}, id="quick"),
    )
    await talk.hear(2)


@add([LATEST])
async def a_tool_in_a_thread(talk: Talk) -> None:
    """A tool that may block runs in a thread
    A question to a small database, and one that it refuses."""
    await talk.open()
    for query in ("SELECT name, city FROM users LIMIT 2", "DROP TABLE users"):
        talk.send(talk.call("query_database", {"query": query}))
        await talk.hear(1)


@add(ALL, server=CONTENT)
async def ids(talk: Talk) -> None:
    """Ids of every kind
    Each answer has the one of its request, as it was."""
    await talk.open()
    for id in (0, -1, 9007199254740993, "", "1", "ä€😀", 'a\\b"c\n'):
        await talk.use("echo", {"text": "x"}, id=id)


@add([LATEST], server=CONTENT)
async def both_eras_on_one_wire(talk: Talk) -> None:
    """Requests of the newest revision on a session of an older one
    Each is answered in the shape of its own."""
    own = {VENDOR + "protocolVersion": NEWEST, VENDOR + "clientCapabilities": {}}
    await talk.open()
    await talk.use("number")
    await talk.use("number", **own)
    await talk.ask("server/discover", **own)
    await talk.ask("ping")


# Lists


@add(ALL, server=PAGES)
async def pages(talk: Talk) -> None:
    """Lists come in pages
    Each is asked for with the cursor of the one before; the first revision knows none,
    and gets all at once."""
    await talk.open()
    talk.paced = True
    for method in (
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ):
        if method not in TABLES[talk.revision].requests:
            continue
        cursor: Json = {}
        while cursor is not None:
            (reply,) = await talk.ask(method, cursor)
            following = reply["result"].get("nextCursor")
            cursor = {"cursor": following} if following else None


@add([name for name in ALL if TABLES[name].pages], server=PAGES)
async def error_cursors(talk: Talk) -> None:
    """Cursors that the server has not given
    An error; an empty one is the beginning."""
    await talk.open()
    for cursor in ("made up", "YWZ0ZXI6LTE=", 7, ""):
        await talk.ask("tools/list", {"cursor": cursor})


@add(ALL, server=CONTENT)
async def descriptions(talk: Talk) -> None:
    """What is listed says all that the revision has words for
    Titles, icons, annotations, sizes, output schemas: of the same server each revision
    lists as much as it names."""
    await talk.open()
    for method in (
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ):
        if method in TABLES[talk.revision].requests:
            await talk.ask(method)


@add([LATEST], server=CHANGES, paced=True)
async def changes_of_every_kind(talk: Talk) -> None:
    """Tools, prompts and resources change
    Three calls that run together; each kind is told of once."""
    await talk.open()
    talk.send(
        talk.call("add_tool", {"name": "x"}), talk.call("add_prompt", {"name": "x"})
    )
    talk.send(talk.call("add_note", {"id": "x"}))
    await talk.quiet()


# Content


@add(ALL, server=CONTENT)
async def content_of_every_kind(talk: Talk) -> None:
    """A tool answers with content of every kind
    What a revision cannot carry becomes text that says what it was: sounds, links,
    pictures in the first."""
    await talk.open()
    await talk.use("every_kind")
    await talk.ask(
        "prompts/get", {"name": "illustrate", "arguments": {"subject": "a fox"}}
    )


@add(ALL, server=CONTENT)
async def structured_content(talk: Talk) -> None:
    """Tools answer with values
    An object, a number, a list: structured where the revision has it, wrapped where it
    has to be an object, and as text everywhere."""
    await talk.open()
    await talk.use("point", {"x": 1.0, "y": 2})
    await talk.use("number")
    await talk.use("points")
    await talk.use("labelled")


@add(ALL)
async def pictures_and_sounds(talk: Talk) -> None:
    """Tools answer with what is no text
    The demo server's picture, its link and its embedded resource."""
    await talk.open()
    await talk.use("draw_gradient", {"size": 2})
    await talk.use("link_city", {"location": "Tokyo"})
    await talk.use("embed_city", {"location": "Tokyo"})


@add(WRAPPING)
async def weather_as_data(talk: Talk) -> None:
    """The demo server's weather as structured content
    With the text that stands for it, and an output schema in the list."""
    await talk.open()
    await talk.use("get_weather_data", {"location": "London"})
    await talk.use("get_weather", {"location": "London"})


# Batches


@add([name for name in ALL if TABLES[name].batches])
async def batch(talk: Talk) -> None:
    """Several messages in one
    They are answered together. One has a notification in it, one a bad message, one
    only a notification."""
    await talk.open()
    weather = talk.call("get_weather", {"location": "Berlin"})
    await talk.say([talk.request("ping"), weather])
    await talk.say(
        [talk.request("ping"), note("notifications/initialized"), talk.request("ping")]
    )
    await talk.say(
        [talk.request("ping"), 1, {"jsonrpc": "1.0", "id": "old", "method": "ping"}]
    )
    await talk.say([note("notifications/initialized")])
    await talk.ask("ping")


@add([name for name in ALL if TABLES[name].batches])
async def batch_refused(talk: Talk) -> None:
    """Batches that are none
    An empty one, and one with initialize in it, which must stand alone."""
    await talk.open()
    await talk.say([])
    await talk.say([initialize(talk.revision, id="again"), talk.request("ping")])
    await talk.ask("ping")


@add([name for name in ALL if not TABLES[name].batches], name="batch-refused")
async def no_batch(talk: Talk) -> None:
    """A batch in a revision that has none
    It is refused as a whole."""
    await talk.open()
    await talk.say([talk.request("tools/list"), talk.request("prompts/list")])
    await talk.ask("tools/list")


# Completion


@add(ALL)
async def completing_with_others(talk: Talk) -> None:
    """An argument is completed in the light of another
    The second city is not the first. Then what nothing is known of, and what there is
    not."""
    second = {
        "ref": {"type": "ref/prompt", "name": "compare_weather"},
        "argument": {"name": "second", "value": ""},
    }
    await talk.open()
    await talk.ask(
        "completion/complete", {**second, "context": {"arguments": {"first": "Berlin"}}}
    )
    await talk.ask(
        "completion/complete", {**second, "argument": {"name": "third", "value": "B"}}
    )
    await talk.ask(
        "completion/complete", {**second, "ref": {"type": "ref/prompt", "name": "none"}}
    )
    await talk.ask(
        "completion/complete",
        {**second, "ref": {"type": "ref/resource", "uri": "none://{x}"}},
    )


# The pocket profile

POCKET = {"revisions": ["2025-06-18"], "server": "tests/seeds/seed_004.py"}


@add(**POCKET)
async def pocket_lists(talk: Talk) -> None:
    """The pocket profile lists its tools
    In pages; the cursor is a string always, at the end an empty one."""
    await talk.open()
    talk.paced = True
    cursor: str | None = None
    while cursor != "":
        (reply,) = await talk.ask(
            "tools/list", {} if cursor is None else {"cursor": cursor}
        )
        cursor = reply["result"]["nextCursor"]


@add(**POCKET)
async def pocket_calls(talk: Talk) -> None:
    """The pocket profile leaves nothing out
    Content has an item, and structured content is there, also of a tool that has
    neither, and of one that fails."""
    await talk.open()
    await talk.use("greet", {"name": "Ada"})
    await talk.use("say_nothing")
    await talk.use("measure", {"text": "one two"})
    await talk.use("divide", {"a": 1, "b": 0})


@add(**POCKET)
async def pocket_errors(talk: Talk) -> None:
    """The pocket profile's errors
    An unknown tool and bad arguments are errors of the protocol."""
    await talk.open()
    await talk.use("no_such_tool")
    await talk.use("greet")
    await talk.use("greet", {"name": 1})


@add(**{**POCKET, "server": f"{SERVERS}pocket.py"})
async def pocket_progress(talk: Talk) -> None:
    """The pocket profile tells the progress of long calls
    Over HTTP as a stream of events."""
    await talk.open()
    await talk.use("count", {"steps": 3}, progressToken="p")
