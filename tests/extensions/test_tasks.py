"""Tools that run as tasks, as a client sees them. All messages are checked."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from msgspec import Raw, Struct, json
from trio.testing import MockClock, wait_all_tasks_blocked

from mcp_trio import (
    Context,
    Elicit,
    InvalidParams,
    Limits,
    Principal,
    Sample,
    Server,
    ToolError,
)
from mcp_trio.client.client import Client
from mcp_trio.client.errors import RemoteError
from mcp_trio.extensions.tasks import Tasks
from mcp_trio.extensions.tasks.record import TaskRecord
from mcp_trio.extensions.tasks.records import TaskRecords, new_id
from mcp_trio.stores.memory import MemoryStore
from mcp_trio.testing import connect as connect_as
from tests.support.checked import ALL, MODERN, NEWEST, OPENING, connect
from tests.support.reachable import reachable
from tests.support.shared_sites import SharedMemoryStore

Json = dict[str, Any]
TASKS = "io.modelcontextprotocol/tasks"
DECLARED: Json = {"extensions": {TASKS: {}}}
ASKING: Json = {"elicitation": {}, "sampling": {}, **DECLARED}

joined = functools.partial(connect, capabilities=ASKING)


class Answer(Struct):
    """A form."""

    yes: bool


async def create(client: Client, name: str, arguments: Json | None = None) -> str:
    """Call a tool, and return the id of its task."""
    created = await client.request(
        "tools/call", {"name": name, "arguments": arguments or {}}
    )
    assert created["resultType"] == "task"
    id: str = created["taskId"]
    return id


async def get(client: Client, id: str) -> Json:
    return await client.request("tasks/get", {"taskId": id})


async def settle(client: Client, id: str) -> Json:
    """Return a task when nothing happens any more."""
    await wait_all_tasks_blocked()
    return await get(client, id)


async def ended(client: Client, id: str) -> Json:
    """Wait until a task is over, and return it."""
    while True:
        task = await get(client, id)
        if task["status"] not in ("working", "input_required"):
            return task
        await trio.sleep(0.1)


async def answer(client: Client, id: str, **responses: Any) -> None:
    params = {"taskId": id, "inputResponses": responses}
    assert (await client.request("tasks/update", params)).keys() == {
        "resultType",
        "_meta",
    }


ACCEPTED = {"action": "accept", "content": {"yes": True}}


# Creating and polling


async def test_a_tool_with_a_task_answers_at_once_and_goes_on(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="optional", ttl=60, poll_interval=0.5)
    async def job(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    async with joined(server) as client:
        created = await client.request(
            "tools/call", {"name": "job", "arguments": {"seconds": 10}}
        )
        assert created["status"] == "working"
        assert created["ttlMs"] == 60_000
        assert created["pollIntervalMs"] == 500
        assert "result" not in created
        task = await get(client, created["taskId"])
        assert task["status"] == "working"
        await trio.sleep(10)
        task = await settle(client, created["taskId"])
    assert task["resultType"] == "complete"
    assert task["status"] == "completed"
    assert task["result"]["content"] == [{"type": "text", "text": "done"}]
    assert task["result"]["resultType"] == "complete"


async def test_a_structured_result_is_that_of_the_call(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    def numbers() -> list[int]:
        return [1, 2]

    async with joined(server) as client:
        task = await ended(client, await create(client, "numbers"))
    async with connect(server) as client:
        plain = await client.call_tool("numbers")
    assert task["result"] == plain
    assert plain.structured == [1, 2]


async def test_a_tool_error_completes_the_task(autojump_clock: MockClock) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def wrong() -> str:
        raise ToolError("no luck")

    async with joined(server) as client:
        task = await ended(client, await create(client, "wrong"))
    assert task["status"] == "completed"
    assert task["result"]["isError"]
    assert task["result"]["content"][0]["text"] == "no luck"


async def test_a_protocol_error_fails_the_task(autojump_clock: MockClock) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def wrong() -> str:
        raise InvalidParams("never so", data={"hint": 1})

    async with joined(server) as client:
        task = await ended(client, await create(client, "wrong"))
    assert task["status"] == "failed"
    expected = {"code": -32602, "message": "never so", "data": {"hint": 1}}
    assert task["error"] == expected
    assert task["statusMessage"] == "never so"


@pytest.mark.parametrize("failure", [RuntimeError("secret"), SystemExit(3)])
async def test_other_exceptions_are_hidden(
    failure: BaseException, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def wrong() -> str:
        raise failure

    async with joined(server) as client:
        task = await ended(client, await create(client, "wrong"))
    text = task["result"]["content"][0]["text"]
    assert text.startswith("Internal error (reference")
    assert "secret" not in str(task)
    assert text[-9:-1] in caplog.text


async def test_invalid_arguments_are_answered_without_a_task(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="required")
    async def job(n: int) -> str:
        return "done"

    async with joined(server) as client:
        result = await client.call_tool("job", {"n": "x"})
    assert result.is_error
    assert result["resultType"] == "complete"


async def test_progress_becomes_the_status_message(autojump_clock: MockClock) -> None:
    server = Server("tasks")
    go_on = trio.Event()

    @server.tool(task="optional")
    async def job(ctx: Context) -> str:
        await ctx.progress(1, 4)
        await go_on.wait()
        await ctx.progress(2, 4, "half way")
        await ctx.log("info", "this is not sent")
        await trio.sleep_forever()
        return ""

    async with joined(server) as client:
        id = await create(client, "job")
        task = await settle(client, id)
        assert task["statusMessage"] == "1 of 4"
        go_on.set()
        task = await settle(client, id)
        assert task["statusMessage"] == "half way"
        assert client.heard == []


async def test_a_status_message_that_is_not_unicode_is_repaired(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def job(ctx: Context) -> str:
        await ctx.progress(1, 2, "half \ud800 way \U0001f375")
        return "done"

    async with joined(server) as client:
        task = await ended(client, await create(client, "job"))
    assert task["statusMessage"] == "half \ufffd way \U0001f375"
    assert task["result"]["content"][0]["text"] == "done"


async def test_ids_are_long_and_never_the_same(autojump_clock: MockClock) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def job() -> str:
        return "done"

    async with joined(server) as client:
        ids = {await create(client, "job") for _ in range(20)}
    assert len(ids) == 20
    assert min(map(len, ids)) >= 22  # 128 bits in base64


async def test_a_tool_that_leaves_a_cancel_scope_open_spoils_nothing(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def leaky() -> str:
        trio.CancelScope().__enter__()
        return "done"

    async with joined(server) as client:
        for _ in range(20):
            task = await ended(client, await create(client, "leaky"))
            assert task["status"] == "completed"
    assert "a request left a cancel scope open" in caplog.text


# Who gets a task


@pytest.mark.parametrize("revision", ALL)
async def test_a_client_that_does_not_know_tasks_waits_for_the_result(
    revision: str, autojump_clock: MockClock
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def job(ctx: Context) -> str:
        await ctx.start_task()
        await trio.sleep(10)
        return "done"

    async with connect(server, revision) as client:
        result = await client.call_tool("job")
    text = result.get("toolResult", result.text)
    assert text == "done"


@pytest.mark.parametrize("revision", OPENING)
async def test_older_revisions_have_no_tasks_even_if_they_are_declared(
    revision: str, autojump_clock: MockClock
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def job() -> str:
        return "done"

    @server.tool(task="required")
    async def only_as_task() -> str:
        return "done"

    async with connect(server, revision, capabilities=DECLARED) as client:
        result = await client.call_tool("job")
        assert result.get("toolResult", result.text) == "done"
        assert [tool["name"] for tool in await client.list_tools()] == ["job"]
        for call in (
            functools.partial(client.call_tool, "only_as_task"),
            functools.partial(client.request, "tasks/get", {"taskId": "x"}),
        ):
            with pytest.raises(RemoteError) as refused:
                await call()
            codes = {"tools/call": -32602, "tasks/get": -32601}
            method = "tasks/get" if call.args[0] == "tasks/get" else "tools/call"
            assert refused.value.code == codes[method]


@pytest.mark.parametrize("revision", MODERN)
async def test_a_tool_that_needs_a_task_says_what_the_client_lacks(
    revision: str, autojump_clock: MockClock
) -> None:
    server = Server("tasks")

    @server.tool(task="required")
    async def job() -> str:
        return "done"

    async with connect(server, revision) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["job"]
        with pytest.raises(RemoteError) as refused:
            await client.call_tool("job")
    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": DECLARED}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_methods_need_the_extension(
    method: str, autojump_clock: MockClock
) -> None:
    server = Server("tasks", extensions=[Tasks()])
    async with connect(server) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {"taskId": "x"})
    assert refused.value.code == -32021


@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
async def test_methods_that_the_extension_no_longer_has_do_not_exist(
    method: str, autojump_clock: MockClock
) -> None:
    server = Server("tasks", extensions=[Tasks()])
    async with joined(server) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {"taskId": "x"})
    assert refused.value.code == -32601


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_unknown_task_is_an_invalid_param(
    method: str, autojump_clock: MockClock
) -> None:
    server = Server("tasks", extensions=[Tasks()])
    async with joined(server) as client:
        with pytest.raises(RemoteError, match=r"\$\.params\.taskId") as refused:
            await client.request(method, {"taskId": "x", "inputResponses": {}})
    assert refused.value.code == -32602


async def test_another_principal_does_not_see_a_task(autojump_clock: MockClock) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def job(ctx: Context) -> str:
        assert ctx.principal is not None
        return ctx.principal.name

    async def connected(name: str, use: Callable[[Client], Awaitable[None]]) -> None:
        principal = Principal(name)
        async with connect_as(
            server, principal=principal, capabilities=ASKING
        ) as client:
            await use(client)

    async def as_ada(ada: Client) -> None:
        id = await create(ada, "job")

        async def as_grace(grace: Client) -> None:
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                with pytest.raises(RemoteError) as refused:
                    await grace.request(method, {"taskId": id, "inputResponses": {}})
                assert refused.value.code == -32602
            listened = {"notifications": {"taskIds": [id]}}
            grace.begin("subscriptions/listen", listened)
            acknowledged = "notifications/subscriptions/acknowledged"
            (heard,) = await grace.hear(acknowledged)
            assert heard["params"]["notifications"]["taskIds"] == []

        await connected("grace", as_grace)
        task = await ended(ada, id)
        assert task["result"]["content"][0]["text"] == "ada"

    async with server.running():
        await connected("ada", as_ada)


async def test_scopes_hold_for_tasks(autojump_clock: MockClock) -> None:
    server = Server("tasks")

    @server.tool(task="optional", scopes={"admin"})
    async def job() -> str:
        return "done"

    async with server.running():
        for scopes, works in ((frozenset({"admin"}), True), (frozenset[str](), False)):
            principal = Principal("ada", scopes)
            async with connect_as(
                server, principal=principal, capabilities=ASKING
            ) as client:
                if works:
                    task = await ended(client, await create(client, "job"))
                    assert task["status"] == "completed"
                else:
                    with pytest.raises(RemoteError, match="Unknown tool: job"):
                        await client.call_tool("job")


# Questions


def asking_server() -> Server[Any]:
    server = Server("tasks")

    @server.tool(task="optional")
    async def ask(ctx: Context, key: str | None = None, times: int = 1) -> str:
        answers = [await ctx.elicit("Go on?", Answer, key=key) for _ in range(times)]
        return " ".join(answer.action for answer in answers)

    @server.tool(task="optional")
    async def ask_two(ctx: Context) -> str:
        form, said = await ctx.ask(
            Elicit("Go on?", Answer), Sample("Say hello", max_tokens=9)
        )
        return f"{form.action} {said.text}"

    return server


async def test_a_task_asks_and_goes_on_with_the_answer(
    autojump_clock: MockClock,
) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask")
        task = await settle(client, id)
        assert task["status"] == "input_required"
        (key,) = task["inputRequests"]
        assert task["inputRequests"][key]["method"] == "elicitation/create"
        assert task["inputRequests"][key]["params"]["message"] == "Go on?"
        again = await get(client, id)
        assert again["inputRequests"] == task["inputRequests"]
        await answer(client, id, **{key: ACCEPTED})
        task = await ended(client, id)
    assert task["result"]["content"][0]["text"] == "accept"


async def test_answers_may_arrive_one_by_one(autojump_clock: MockClock) -> None:
    said = {
        "role": "assistant",
        "model": "m",
        "content": {"type": "text", "text": "hello"},
    }
    async with joined(asking_server()) as client:
        id = await create(client, "ask_two")
        task = await settle(client, id)
        assert task["inputRequests"].keys() == {"elicitation", "sampling"}
        await answer(client, id, elicitation=ACCEPTED)
        task = await settle(client, id)
        assert task["status"] == "input_required"
        assert task["inputRequests"].keys() == {"sampling"}
        await answer(client, id, sampling=said)
        task = await ended(client, id)
    assert task["result"]["content"][0]["text"] == "accept hello"


@pytest.mark.parametrize("key", [None, "mine"])
async def test_keys_are_never_used_twice(
    key: str | None, autojump_clock: MockClock
) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask", {"key": key, "times": 3})
        keys = []
        for _ in range(3):
            task = await settle(client, id)
            keys += task["inputRequests"]
            await answer(client, id, **{keys[-1]: ACCEPTED})
        task = await ended(client, id)
    assert len(set(keys)) == 3
    assert keys[0] == (key or "elicitation")
    assert task["result"]["content"][0]["text"] == "accept accept accept"


async def test_unknown_and_late_answers_are_ignored(autojump_clock: MockClock) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask", {"times": 2})
        await wait_all_tasks_blocked()
        await answer(client, id, other=ACCEPTED)
        assert (await settle(client, id))["inputRequests"].keys() == {"elicitation"}
        await answer(client, id, elicitation=ACCEPTED)
        await answer(client, id, elicitation={"action": "decline"})
        task = await settle(client, id)
        assert task["inputRequests"].keys() == {"elicitation-2"}
        await answer(client, id, **{"elicitation-2": {"action": "cancel"}})
        task = await ended(client, id)
        assert task["result"]["content"][0]["text"] == "accept cancel"
        await answer(client, id, elicitation=ACCEPTED)  # after the end, too


async def test_an_answer_that_does_not_fit_fails_the_tool(
    autojump_clock: MockClock,
) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask")
        await wait_all_tasks_blocked()
        await answer(client, id, elicitation={"action": "perhaps"})
        task = await ended(client, id)
    assert task["result"]["isError"]
    text = task["result"]["content"][0]["text"]
    assert text.startswith("the client's answer to elicitation/create is unusable")


async def test_the_task_says_that_its_client_cannot_be_asked(
    autojump_clock: MockClock,
) -> None:
    async with connect(asking_server(), capabilities=DECLARED) as client:
        task = await ended(client, await create(client, "ask"))
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32021


# Starting a task in the body


def manual_server() -> Server[Any]:
    server = Server("tasks")

    @server.tool(task="optional", manual_start=True)
    async def book(ctx: Context, fail: str = "", start: bool = True) -> str:
        first = await ctx.elicit("Which way?", Answer, key="way")
        if fail == "before":
            raise ToolError("not so")
        if start:
            await ctx.start_task()
            await ctx.start_task()  # the second one does nothing
        if fail == "after":
            raise InvalidParams("never")
        second = await ctx.elicit("Sure?", Answer)
        return f"{first.action} {second.action}"

    @server.tool(task="optional", manual_start=True)
    async def slow(ctx: Context) -> str:
        await trio.sleep(10)
        await ctx.progress(1, message="begun")
        await ctx.start_task()
        await ctx.progress(2, message="under way")
        await trio.sleep(10)
        return "done"

    return server


async def first_round(client: Client, **arguments: Any) -> Json:
    """Answer the question that is asked before the task starts."""
    params: Json = {"name": "book", "arguments": arguments}
    asked = await client.finish(client.begin("tools/call", params))
    assert asked["resultType"] == "input_required"
    assert "taskId" not in asked
    params |= {
        "inputResponses": {"way": ACCEPTED},
        "requestState": asked["requestState"],
    }
    return await client.finish(client.begin("tools/call", params))


async def test_a_tool_may_ask_first_and_go_on_as_a_task(
    autojump_clock: MockClock,
) -> None:
    async with joined(manual_server()) as client:
        created = await first_round(client)
        assert created["resultType"] == "task"
        assert "requestState" not in created
        task = await settle(client, created["taskId"])
        assert task["status"] == "input_required"
        (key,) = task["inputRequests"]
        await answer(client, created["taskId"], **{key: {"action": "decline"}})
        task = await ended(client, created["taskId"])
    assert task["result"]["content"][0]["text"] == "accept decline"


async def test_what_fails_before_the_start_is_the_requests_result(
    autojump_clock: MockClock,
) -> None:
    async with joined(manual_server()) as client:
        result = await first_round(client, fail="before")
    assert result["isError"]
    assert result["content"][0]["text"] == "not so"


async def test_what_fails_after_the_start_is_the_tasks(
    autojump_clock: MockClock,
) -> None:
    async with joined(manual_server()) as client:
        created = await first_round(client, fail="after")
        task = await ended(client, created["taskId"])
    assert task["status"] == "failed"


async def test_a_tool_that_does_not_start_its_task_has_a_plain_result(
    autojump_clock: MockClock,
) -> None:
    async with joined(manual_server()) as client:
        result = await first_round(client, start=False)
    assert result["resultType"] == "input_required"


async def test_progress_goes_to_the_request_until_the_task_starts(
    autojump_clock: MockClock,
) -> None:
    async with joined(manual_server()) as client:
        created = await client.request(
            "tools/call", {"name": "slow"}, meta={"progressToken": "p"}
        )
        task = await settle(client, created["taskId"])
        assert task["statusMessage"] == "under way"
        (heard,) = client.heard
        assert heard["params"]["message"] == "begun"
        await trio.sleep(10)
        task = await ended(client, created["taskId"])
    assert task["status"] == "completed"
    assert len(client.heard) == 1


async def test_cancelling_the_request_before_the_start_stops_the_tool(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")
    stopped = trio.Event()

    @server.tool(task="optional", manual_start=True)
    async def slow(ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()
        return ""

    async with joined(server) as client:
        with trio.move_on_after(5):
            await client.call_tool("slow")
        await stopped.wait()


async def test_starting_a_task_in_any_other_tool_is_an_error(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    server = Server("tasks")

    @server.tool
    async def plain(ctx: Context) -> str:
        await ctx.start_task()
        return ""

    async with joined(server) as client:
        assert (await client.call_tool("plain")).is_error
    assert "manual_start=True" in caplog.text


# Cancelling


async def test_a_cancelled_task_is_stopped(autojump_clock: MockClock) -> None:
    server = Server("tasks")
    stopped = trio.Event()

    @server.tool(task="optional")
    async def job() -> str:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()
        return ""

    async with joined(server) as client:
        id = await create(client, "job")
        await wait_all_tasks_blocked()
        acknowledged = await client.request("tasks/cancel", {"taskId": id})
        assert acknowledged.keys() == {"resultType", "_meta"}
        await stopped.wait()
        task = await get(client, id)
        assert task["status"] == "cancelled"
        assert task.keys().isdisjoint({"result", "error", "inputRequests"})
        again = await client.request("tasks/cancel", {"taskId": id})
        assert again.keys() == {"resultType", "_meta"}


async def test_a_task_that_waits_for_answers_can_be_cancelled(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask")
        await wait_all_tasks_blocked()
        await client.request("tasks/cancel", {"taskId": id})
        await answer(client, id, elicitation=ACCEPTED)
        task = await settle(client, id)
    assert task["status"] == "cancelled"
    assert not caplog.records


async def test_cancelling_a_task_that_is_over_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask", {"times": 0})
        await ended(client, id)
        await client.request("tasks/cancel", {"taskId": id})
        assert (await get(client, id))["status"] == "completed"


async def test_the_client_that_leaves_does_not_cancel_its_task(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="optional")
    async def job() -> str:
        await trio.sleep(10)
        return "done"

    async with server.running():
        async with joined(server) as client:
            id = await create(client, "job")
        await trio.sleep(11)
        async with joined(server) as client:
            assert (await get(client, id))["status"] == "completed"


# Listening


async def test_a_listener_is_notified_of_every_state(autojump_clock: MockClock) -> None:
    async with joined(asking_server()) as client:
        id = await create(client, "ask")
        await wait_all_tasks_blocked()
        listen = client.begin(
            "subscriptions/listen",
            {"notifications": {"taskIds": [id, "unknown"], "toolsListChanged": True}},
        )
        await client.hear("notifications/tasks", 1)
        await answer(client, id, elicitation=ACCEPTED)
        heard = await client.hear("notifications/tasks", 2)
        while heard[-1]["params"]["status"] != "completed":
            heard = await client.hear("notifications/tasks", len(heard) + 1)
        task = await get(client, id)
    acknowledged = client.heard[0]["params"]["notifications"]
    assert acknowledged == {"taskIds": [id], "toolsListChanged": True}
    states = [one["params"]["status"] for one in heard]
    assert states[0] == "input_required"
    meta = heard[-1]["params"].pop("_meta")
    assert meta == {"io.modelcontextprotocol/subscriptionId": listen}
    expected = {key: task[key] for key in task if key not in ("_meta", "resultType")}
    assert heard[-1]["params"] == expected


async def test_listening_to_tasks_needs_the_extension(
    autojump_clock: MockClock,
) -> None:
    async with connect(asking_server()) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(
                "subscriptions/listen", {"notifications": {"taskIds": ["x"]}}
            )
    assert refused.value.code == -32021


@pytest.mark.parametrize("ids", ["x", [1], {}, ["x"] * 1001])
async def test_ids_to_listen_to_are_a_short_list_of_strings(
    ids: Any, autojump_clock: MockClock
) -> None:
    async with joined(asking_server()) as client:
        with pytest.raises(RemoteError, match="taskIds") as refused:
            await client.request(
                "subscriptions/listen", {"notifications": {"taskIds": ids}}
            )
    assert refused.value.code == -32602


# Bounds


async def test_a_task_expires_and_is_stopped(autojump_clock: MockClock) -> None:
    server = Server("tasks")
    stopped = trio.Event()

    @server.tool(task="optional", ttl=60)
    async def job() -> str:
        try:
            await trio.sleep_forever()
        finally:
            stopped.set()
        return ""

    async with joined(server) as client:
        id = await create(client, "job")
        await trio.sleep(59)
        assert (await get(client, id))["status"] == "working"
        await trio.sleep(1)
        await stopped.wait()
        with pytest.raises(RemoteError) as refused:
            await get(client, id)
    assert refused.value.code == -32602


async def test_a_task_that_has_ended_does_not_keep_its_arguments(
    autojump_clock: MockClock,
) -> None:
    store = MemoryStore()
    server = Server("tasks", extensions=[Tasks(store=store)])
    go = trio.Event()

    @server.tool(task="optional")
    async def job(text: str) -> int:
        await go.wait()
        return len(text)

    async with joined(server) as client:
        id = await create(client, "job", {"text": "x" * 1000})
        await wait_all_tasks_blocked()
        assert any(b"x" * 1000 in value for value in reachable(store, bytes))
        go.set()
        await wait_all_tasks_blocked()
        assert not any(b"x" * 1000 in value for value in reachable(store, bytes))
        assert (await get(client, id))["result"]["structuredContent"] == 1000


async def test_expired_tasks_leave_nothing_behind(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    server = Server("tasks", extensions=[Tasks(store=store)])

    @server.tool(task="optional", ttl=60)
    async def job() -> str:
        return "x" * 1000

    async with joined(server) as client:
        for _ in range(100):
            await create(client, "job")
        await wait_all_tasks_blocked()
        kept = reachable(store, bytes) + reachable(store, str)
        assert len(kept) >= 100
        await trio.sleep(65)
        assert reachable(store, bytes) == []
        assert set(reachable(store, str)) == {"tasks:tasks"}  # the queue of all tasks


async def test_no_task_is_kept_longer_than_the_server_allows(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks", extensions=[Tasks(most_ttl=10)])

    @server.tool(task="optional", ttl=60)
    async def job() -> str:
        return ""

    async with joined(server) as client:
        created = await client.request("tools/call", {"name": "job"})
    assert created["ttlMs"] == 10_000


@pytest.mark.parametrize("bound", [{"most_tasks": 2}, {"most_bytes": 3000}])
async def test_a_client_may_have_so_many_tasks(
    bound: dict[str, Any], autojump_clock: MockClock
) -> None:
    server = Server("tasks", extensions=[Tasks(**bound)])

    @server.tool(task="optional", ttl=60)
    async def job() -> str:
        return ""

    async with joined(server) as client:
        for _ in range(2):
            await create(client, "job")
        refused = await client.call_tool("job")
        assert refused.is_error
        assert refused.text.startswith("Too many tasks")
        await trio.sleep(60)
        await create(client, "job")


async def test_a_result_that_no_longer_fits_is_not_kept(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks", extensions=[Tasks(most_bytes=3000)])

    @server.tool(task="optional")
    async def job() -> str:
        return "x" * 3000

    async with joined(server) as client:
        task = await ended(client, await create(client, "job"))
    assert task["status"] == "failed"
    assert "too large" in task["error"]["message"]


async def test_results_are_truncated_as_those_of_calls(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks", limits=Limits(max_result=500))

    @server.tool(task="optional")
    async def job() -> str:
        return "x" * 3000

    async with joined(server) as client:
        task = await ended(client, await create(client, "job"))
    assert len(task["result"]["content"][0]["text"]) < 500


async def test_a_timeout_stops_a_task_as_it_stops_a_call(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="optional", timeout=5)
    async def job() -> str:
        await trio.sleep_forever()
        return ""

    async with joined(server) as client:
        task = await ended(client, await create(client, "job"))
    assert task["result"]["isError"]
    assert "took longer than 5 s" in task["result"]["content"][0]["text"]


async def test_the_rate_of_a_tool_holds_for_its_tasks(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")

    @server.tool(task="optional", rate="1/m")
    async def job() -> str:
        return ""

    async with joined(server) as client:
        task = await ended(client, await create(client, "job"))
        assert task["status"] == "completed"
        assert (await client.call_tool("job")).is_error


async def test_so_many_tasks_run_at_a_time_and_others_wait(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks", extensions=[Tasks(slots=2)])
    at_once = 0
    most = 0

    @server.tool(task="optional")
    async def job() -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await trio.sleep(10)
        at_once -= 1
        return "done"

    async with joined(server) as client:
        ids = [await create(client, "job") for _ in range(7)]
        for id in ids:
            assert (await ended(client, id))["status"] == "completed"
    assert most == 2


async def test_the_server_can_be_given_another_number_of_slots(
    autojump_clock: MockClock,
) -> None:
    server = asking_server()
    server.task_slots = 1

    @server.tool(task="optional")
    async def job() -> str:
        await trio.sleep(10)
        return "done"

    async with joined(server) as client:
        began = trio.current_time()
        for id in [await create(client, "job") for _ in range(3)]:
            await ended(client, id)
    assert trio.current_time() - began >= 30


async def test_a_task_that_waits_for_its_client_takes_no_slot(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks", extensions=[Tasks(slots=1)])

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Go on?", Answer)).action

    @server.tool(task="optional")
    async def job() -> str:
        return "done"

    async with joined(server) as client:
        asking = await create(client, "ask")
        await wait_all_tasks_blocked()
        task = await ended(client, await create(client, "job"))
        assert task["status"] == "completed"
        await answer(client, asking, elicitation=ACCEPTED)
        assert (await ended(client, asking))["status"] == "completed"


async def test_a_task_runs_if_the_process_that_took_it_was_lost_before_it_began(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    server = Server("tasks")
    store = SharedMemoryStore()
    server.use_store(store)

    @server.tool(task="optional")
    async def job() -> str:
        return "done"

    # Another process waits for a task, takes it, and then disappears.
    nursery.start_soon(store.pull, "tasks:tasks", 10)
    await wait_all_tasks_blocked()
    async with joined(server) as client:
        id = await create(client, "job")
        assert (await settle(client, id))["status"] == "working"
        assert (await ended(client, id))["status"] == "completed"


@pytest.mark.parametrize("days", [-1, 1])
async def test_a_task_runs_if_the_process_that_created_it_has_another_clock(
    days: int, autojump_clock: MockClock
) -> None:
    server = Server("tasks")
    store = SharedMemoryStore()
    server.use_store(store)

    @server.tool(task="optional")
    async def job() -> str:
        await trio.sleep(1)
        return "done"

    async with joined(server) as client:
        call = {"name": "job", "arguments": {}, "_meta": {}}
        record = TaskRecord(
            id=new_id(),
            tool="job",
            revision=NEWEST,
            params=Raw(json.encode(call)),
            principal=None,
            address="",
            created=time.time() + days * 86_400,
            ttl=60,
            poll_interval=1,
        )
        await TaskRecords(store, "tasks").create(record)
        await store.push("tasks:tasks", record.id.encode())
        assert (await ended(client, record.id))["status"] == "completed"


# Stopping


async def test_tasks_may_end_within_the_grace(autojump_clock: MockClock) -> None:
    server = Server("tasks", grace=10)

    @server.tool(task="optional")
    async def job(seconds: float) -> str:
        await trio.sleep(seconds)
        return "done"

    async with joined(server) as client:
        quick = await create(client, "job", {"seconds": 3})
        slow = await create(client, "job", {"seconds": 60})
        assert server.extensions is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.extensions.settle, 10)
            await wait_all_tasks_blocked()
            refused = await client.call_tool("job", {"seconds": 1})
            assert "The server is stopping" in refused.text
            assert (await ended(client, quick))["status"] == "completed"
            began = trio.current_time()
            task = await ended(client, slow)
            assert trio.current_time() - began < 5
            # All outcomes were delivered, so the server does not wait.
    assert task["status"] == "failed"
    assert task["error"]["code"] == -32603
    assert "server was stopped" in task["error"]["message"]


async def test_tasks_that_have_not_begun_fail_when_the_server_stops(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks", extensions=[Tasks(slots=1)])

    @server.tool(task="optional")
    async def job() -> str:
        await trio.sleep_forever()
        return ""

    async with joined(server) as client:
        ids = [await create(client, "job") for _ in range(3)]
        assert server.extensions is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.extensions.settle, 5)
            for id in ids:
                assert (await ended(client, id))["status"] == "failed"


async def test_a_server_without_tasks_stops_at_once(autojump_clock: MockClock) -> None:
    server = Server("tasks", extensions=[Tasks()])
    async with joined(server):
        assert server.extensions is not None
        began = trio.current_time()
        await server.extensions.settle(5)
        assert trio.current_time() == began


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "always"}, "expected 'optional' or 'required', got 'always'"),
        ({"ttl": 5}, r"server.tool\(ttl=5\): this option is for tasks"),
        ({"retry": True}, "this option is for tasks"),
        ({"task": "optional", "ttl": -1}, r"server.tool\(ttl\)"),
        ({"task": "optional", "poll_interval": 0}, r"server.tool\(poll_interval\)"),
        ({"task": "optional", "retry": True, "manual_start": True}, "got both"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    server = Server("tasks")
    with pytest.raises((TypeError, ValueError), match=message):
        server.tool(**options)(lambda: None)


@pytest.mark.parametrize(
    "options", [{"slots": 0}, {"ttl": 0}, {"most_tasks": -1}, {"poll_interval": "1"}]
)
def test_wrong_options_of_the_extension_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Tasks"):
        Tasks(**options)


async def test_the_first_tool_with_a_task_is_added_before_the_server_runs(
    autojump_clock: MockClock,
) -> None:
    server = Server("tasks")
    async with connect(server, NEWEST):
        with pytest.raises(RuntimeError, match="the server is already running"):
            server.add_tool(lambda: "", name="late", task="optional")
