"""The tasks extension: every method, state and error."""

from __future__ import annotations

from typing import Any

from .playing import LATEST, MODERN, SERVERS, Json, Scenarios, Talk
from .web import HttpTalk

TASKS = f"{SERVERS}tasks.py"
EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: Json = {"extensions": {EXTENSION: {}}}
ASKING: Json = {"elicitation": {}, "sampling": {}, **DECLARED}
ACCEPTED = {"action": "accept", "content": {"agreed": True}}
DECLINED = {"action": "decline"}
SAID = {
    "role": "assistant",
    "model": "small",
    "content": {"type": "text", "text": "Gutenberg"},
}
TIMES = [
    f"/{part}/{name}"
    for part in ("result", "params")
    for name in ("createdAt", "lastUpdatedAt")
]
OPTIONS: Json = {"server": TASKS, "folder": "tasks", "ignore": TIMES, "paced": True}
SCENARIOS = Scenarios()


def add(revisions: Any = MODERN, **options: Any) -> Any:
    """Add a scenario with the server of this module."""
    return SCENARIOS.add(revisions, **{**OPTIONS, **options})


async def create(talk: Talk, name: str, arguments: Json | None = None) -> str:
    """Call a tool, and wait until its task waits. Returns the id of the task."""
    created = (await talk.use(name, arguments))[-1]
    id: str = created["result"]["taskId"]
    await talk.use("settle")
    return id


async def look(talk: Talk, id: str) -> Json:
    """Poll a task."""
    (reply,) = await talk.ask("tasks/get", {"taskId": id})
    result: Json = reply["result"]
    return result


async def answer(talk: Talk, id: str, **responses: Json) -> None:
    """Answer questions, and wait until the task waits again."""
    await talk.ask("tasks/update", {"taskId": id, "inputResponses": responses})
    await talk.use("settle")


# States


@add()
async def completed(talk: Talk) -> None:
    """A task is created, and is soon completed
    The result in it is that of the call, with structured content."""
    await talk.open(DECLARED)
    await look(talk, await create(talk, "add", {"a": 1, "b": 2}))


@add()
async def working(talk: Talk) -> None:
    """A task works for longer
    It says in its status what it is doing."""
    await talk.open(DECLARED)
    await look(talk, await create(talk, "wait"))
    await look(talk, await create(talk, "wait", {"message": "warming up"}))


@add()
async def progress_without_a_message(talk: Talk) -> None:
    """Progress in numbers becomes the status message
    It stays when the task is completed."""
    await talk.open(DECLARED)
    await look(talk, await create(talk, "count"))


@add()
async def tool_error(talk: Talk) -> None:
    """A tool fails
    The task is completed, with a result that says that it is an error."""
    await talk.open(DECLARED)
    await look(talk, await create(talk, "fail"))


@add()
async def protocol_error(talk: Talk) -> None:
    """A call ends with an error of the protocol
    The task has failed, with that error."""
    await talk.open(DECLARED)
    await look(talk, await create(talk, "refuse"))


@add()
async def cancelled_while_working(talk: Talk) -> None:
    """A task is cancelled while it works
    The acknowledgment is empty; the next poll shows the state."""
    await talk.open(DECLARED)
    id = await create(talk, "wait", {"message": "warming up"})
    await talk.ask("tasks/cancel", {"taskId": id})
    await look(talk, id)


@add()
async def cancelled_while_asking(talk: Talk) -> None:
    """A task is cancelled while it waits for an answer
    An answer that comes later is ignored."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await talk.ask("tasks/cancel", {"taskId": id})
    await answer(talk, id, elicitation=ACCEPTED)
    await look(talk, id)


@add()
async def cancelled_twice(talk: Talk) -> None:
    """Tasks that are over are cancelled
    The acknowledgment is the same, and nothing changes."""
    await talk.open(DECLARED)
    for name, arguments in (("add", {"a": 1, "b": 2}), ("wait", {})):
        id = await create(talk, name, arguments)
        for _ in range(2):
            await talk.ask("tasks/cancel", {"taskId": id})
        await look(talk, id)


# Questions


@add()
async def question(talk: Talk) -> None:
    """A task asks the user
    It is shown in every poll until it is answered."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await look(talk, id)
    await look(talk, id)
    await answer(talk, id, elicitation=ACCEPTED)
    await look(talk, id)


@add()
async def question_declined(talk: Talk) -> None:
    """The user declines
    The tool decides what that means."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await answer(talk, id, elicitation=DECLINED)
    await look(talk, id)


@add()
async def questions_one_by_one(talk: Talk) -> None:
    """A task asks two things at once
    Each is answered alone; the task waits until both are."""
    await talk.open(ASKING)
    id = await create(talk, "ask_two")
    await look(talk, id)
    await answer(talk, id, printer=SAID)
    await look(talk, id)
    await answer(talk, id, consent=ACCEPTED)
    await look(talk, id)


@add()
async def questions_together(talk: Talk) -> None:
    """A task asks two things at once
    Both are answered in one request."""
    await talk.open(ASKING)
    id = await create(talk, "ask_two")
    await answer(talk, id, consent=DECLINED, printer=SAID)
    await look(talk, id)


@add()
async def keys_of_questions(talk: Talk) -> None:
    """A task asks the same three times
    Each time under a key that it has not used before."""
    await talk.open(ASKING)
    id = await create(talk, "ask", {"times": 3})
    for _ in range(3):
        task = await look(talk, id)
        (key,) = task["inputRequests"]
        await answer(talk, id, **{key: ACCEPTED})
    await look(talk, id)


@add()
async def answers_without_questions(talk: Talk) -> None:
    """Answers that nothing was asked for
    One to an unknown key, one that comes twice, one after the end: all are ignored."""
    await talk.open(ASKING)
    id = await create(talk, "ask", {"times": 2})
    await answer(talk, id, other=ACCEPTED)
    await look(talk, id)
    await answer(talk, id, elicitation=ACCEPTED)
    await answer(talk, id, elicitation=DECLINED)
    await look(talk, id)
    await answer(talk, id, **{"elicitation-2": DECLINED})
    await answer(talk, id, elicitation=ACCEPTED)
    await look(talk, id)


@add()
async def unusable_answer(talk: Talk) -> None:
    """An answer that does not fit its question
    It is acknowledged; the tool fails."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await answer(talk, id, elicitation={"action": "perhaps"})
    await look(talk, id)


@add()
async def nobody_to_ask(talk: Talk) -> None:
    """A task asks a client that has not offered to be asked
    The task has failed, and its error says what is missing."""
    await talk.open(DECLARED)
    await look(talk, await create(talk, "ask"))


# Questions before the task is created


async def ordered(talk: Talk, **arguments: Any) -> Json:
    """Answer the question that the tool asks before it becomes a task."""
    request = talk.call("order", arguments)
    replies = await talk.converse(request, {"elicitation/create": ACCEPTED})
    result: Json = replies[-1]["result"]
    return result


@add()
async def asked_before(talk: Talk) -> None:
    """A tool asks first, then goes on as a task
    The first question is in a result, the second in the task."""
    await talk.open(ASKING)
    created = await ordered(talk)
    await talk.use("settle")
    await look(talk, created["taskId"])
    await answer(talk, created["taskId"], elicitation=DECLINED)
    await look(talk, created["taskId"])


@add()
async def failed_before(talk: Talk) -> None:
    """A tool asks first, and fails before it becomes a task
    The result is that of the request."""
    await talk.open(ASKING)
    await ordered(talk, paper=False)


@add()
async def never_a_task(talk: Talk) -> None:
    """A client that does not know tasks calls the same tool
    All questions are in results, and so is the end."""
    await talk.open({"elicitation": {}})
    request = talk.call("order")
    answers = {"elicitation/create": ACCEPTED}
    asked = await talk.converse(request, answers)
    assert asked[-1]["result"]["resultType"] == "input_required"


# Declaring the extension


@add()
async def advertised(talk: Talk) -> None:
    """The server says that it has the extension
    To every client, whether it has it or not."""
    await talk.open()
    await talk.ask("server/discover")
    await talk.ask("tools/list")


@add()
async def without_the_extension(talk: Talk) -> None:
    """A client that does not know tasks calls tools
    One waits for the result; another needs a task, and says what is missing."""
    await talk.open()
    await talk.use("add", {"a": 1, "b": 2})
    await talk.use("fail")
    await talk.use("plain")


def without_declaring(method: str) -> None:
    """Add a scenario that uses a method without the extension."""

    @add(name=f"undeclared-{method.partition('/')[2]}")
    async def undeclared(talk: Talk) -> None:
        await talk.open()
        await talk.ask(method, {"taskId": "x", "inputResponses": {}})

    SCENARIOS[-1].title = f"A client uses {method} without the extension"
    SCENARIOS[-1].notes = "The error says what is missing."


def with_unknown_id(method: str) -> None:
    """Add a scenario with an unknown task, or with wrong params."""

    @add(name=f"unknown-{method.partition('/')[2]}")
    async def unknown(talk: Talk) -> None:
        await talk.open(DECLARED)
        await talk.ask(method, {"taskId": "x", "inputResponses": {}})
        await talk.ask(method, {"taskId": 7, "inputResponses": {}})
        await talk.ask(method)

    SCENARIOS[-1].title = f"{method} for a task that does not exist"
    SCENARIOS[-1].notes = "Then with an id that is not a string, and without any."


for each in ("tasks/get", "tasks/update", "tasks/cancel"):
    without_declaring(each)
    with_unknown_id(each)


@add()
async def answers_missing(talk: Talk) -> None:
    """tasks/update without answers
    Empty ones are acknowledged."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await talk.ask("tasks/update", {"taskId": id})
    await talk.ask("tasks/update", {"taskId": id, "inputResponses": []})
    await answer(talk, id)
    await look(talk, id)


@add()
async def methods_of_the_past(talk: Talk) -> None:
    """Methods that an experimental version of tasks had
    They do not exist."""
    await talk.open(DECLARED)
    await talk.ask("tasks/list")
    await talk.ask("tasks/result", {"taskId": "x"})


@add([LATEST])
async def in_an_older_revision(talk: Talk) -> None:
    """Tasks in a revision that has sessions
    It has none, even for a client that declares them: an optional task is a plain call.
    """
    await talk.open(DECLARED)
    await talk.ask("tools/list")
    await talk.use("add", {"a": 1, "b": 2})
    await talk.use("fail")
    await talk.ask("tasks/get", {"taskId": "x"})


@add()
async def invalid_arguments(talk: Talk) -> None:
    """Arguments that do not fit
    The answer comes at once, without a task."""
    await talk.open(DECLARED)
    await talk.use("add", {"a": "one", "b": 2})
    await talk.use("nothing")


@add()
async def legacy_parameter(talk: Talk) -> None:
    """A client asks for a task as an experimental version had it
    The server alone decides, and ignores that."""
    await talk.open(DECLARED)
    hint = {"task": {"ttl": 60_000}, "arguments": {}}
    await talk.ask("tools/call", {"name": "plain", **hint})


@add()
async def too_many(talk: Talk) -> None:
    """A client has as many tasks as it may
    One more is refused."""
    await talk.open(DECLARED)
    for _ in range(5):
        await talk.use("wait")


# Listening


@add()
async def listening(talk: Talk) -> None:
    """A client listens to a task
    It hears of the state that the task is in, and of each one after that."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await talk.ask("subscriptions/listen", {"notifications": {"taskIds": [id]}})
    await answer(talk, id, elicitation=ACCEPTED)
    await look(talk, id)


@add()
async def listening_to_the_end(talk: Talk) -> None:
    """A client listens to tasks that are over
    Each is told once, with its result or its error."""
    await talk.open(DECLARED)
    ids = [
        await create(talk, name, arguments)
        for name, arguments in (("add", {"a": 1, "b": 2}), ("refuse", {}))
    ]
    for id in ids:
        await talk.ask("subscriptions/listen", {"notifications": {"taskIds": [id]}})


@add()
async def listening_to_unknown_tasks(talk: Talk) -> None:
    """A client listens to a task that does not exist
    The acknowledgment leaves it out, beside what it honors."""
    await talk.open(DECLARED)
    wanted = {"taskIds": ["x"], "toolsListChanged": True}
    await talk.ask("subscriptions/listen", {"notifications": wanted})


@add()
async def listening_to_cancellation(talk: Talk) -> None:
    """A client listens to a task that is then cancelled
    The notification has neither a result nor an error."""
    await talk.open(DECLARED)
    id = await create(talk, "wait")
    await talk.ask("subscriptions/listen", {"notifications": {"taskIds": [id]}})
    await talk.ask("tasks/cancel", {"taskId": id})
    await look(talk, id)


@add()
async def listening_without_the_extension(talk: Talk) -> None:
    """A client listens to tasks without declaring the extension
    The error says what is missing."""
    await talk.open()
    await talk.ask("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})


@add()
async def listening_to_what_is_no_id(talk: Talk) -> None:
    """A filter that is not a list of ids
    The error says where."""
    await talk.open(DECLARED)
    for ids in ("x", [7], None):
        await talk.ask("subscriptions/listen", {"notifications": {"taskIds": ids}})


# HTTP


@add(transport="http")
async def http_task(talk: HttpTalk) -> None:
    """A task over HTTP
    Each poll repeats the id in the header Mcp-Name."""
    await talk.open(ASKING)
    id = await create(talk, "ask")
    await look(talk, id)
    await answer(talk, id, elicitation=ACCEPTED)
    await look(talk, id)
    await talk.ask("tasks/cancel", {"taskId": id})


@add(transport="http", over=["http"])
async def http_headers(talk: HttpTalk) -> None:
    """The header Mcp-Name is missing, or names another task
    Both are refused."""
    await talk.open(DECLARED)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        for name in (None, "y"):
            params = {"taskId": "x", "inputResponses": {}}
            await talk.refused(talk.request(method, params), 400, {"mcp-name": name})


@add(transport="http")
async def http_without_the_extension(talk: HttpTalk) -> None:
    """Tasks over HTTP without the extension
    The status is 400."""
    await talk.open()
    await talk.refused(talk.request("tasks/get", {"taskId": "x"}), 400)
    await talk.refused(talk.call("fail"), 400)
    await talk.refused(talk.request("tasks/list"), 404)


@add(transport="http")
async def http_listening(talk: HttpTalk) -> None:
    """A client listens to a task over HTTP
    The stream goes on until the client leaves."""
    await talk.open(DECLARED)
    id = await create(talk, "wait")
    listened = {"notifications": {"taskIds": [id]}}
    exchange = await talk.exchange(talk.request("subscriptions/listen", listened))
    await exchange.event()
    await exchange.event()
    await talk.ask("tasks/cancel", {"taskId": id})
    await exchange.event()
    await exchange.leave()
