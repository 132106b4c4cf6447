"""Sessions that two processes of one server share in a Redis."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from mcp_trio import Server
from tests.clients.install import Unavailable, command_of
from tests.support.deployment import balanced, running_server
from tests.support.http_wire import Site, message
from tests.support.processes import ServerProcess, serving, until
from tests.support.redis_server import RedisServer, running_redis
from tests.support.shared_sites import Events, calling, getting, listening

pytest.importorskip("coredis")
pytestmark = [pytest.mark.slow, pytest.mark.integration]

SERVER = """
from pathlib import Path

import trio
from mcp_trio import Context, Server
from msgspec import Struct

server = Server("shared", secret="the same for all processes, and long enough")

class Answer(Struct):
    value: str

@server.resource("note://{name}")
async def note(name: str) -> str:
    return name

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def add_a_tool() -> str:
    server.add_tool(trio.sleep, name="new")
    return "added"

@server.tool
async def change(uri: str) -> str:
    server.resource_updated(uri)
    return "changed"

@server.tool
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Answer)
    return "Hello " + answer.content.value

@server.tool
async def look(ctx: Context) -> str:
    return ", ".join(root.uri for root in await ctx.roots())

@server.tool
async def think(ctx: Context) -> str:
    return (await ctx.sample("Think", max_tokens=10)).text

@server.tool
async def wait(begun: str, ended: str) -> str:
    Path(begun).touch()
    try:
        await trio.sleep_forever()
    finally:
        Path(ended).touch()

@server.tool
async def advance(steps: int, until: str, ctx: Context) -> str:
    for step in range(steps):
        await ctx.progress(step + 1, steps)
    while not Path(until).exists():
        await trio.sleep(0.05)
    return "done"
"""


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "shared_server.py"
    path.write_text(SERVER)
    return path


Pair = tuple[ServerProcess, ServerProcess]


@contextmanager
def two_processes(spec: Path, redis: RedisServer) -> Iterator[Pair]:
    """Run two processes with a store that is empty."""
    options = ("--store", redis.url(prefix=secrets.token_hex(4)))
    with ExitStack() as stack:
        a = stack.enter_context(serving(spec, *options))
        b = stack.enter_context(serving(spec, *options))
        yield a, b


@pytest.fixture
def pair(spec: Path, redis: RedisServer) -> Iterator[Pair]:
    with two_processes(spec, redis) as processes:
        yield processes


def site_of(process: ServerProcess) -> Site:
    """Return a process as the helpers for streams expect it."""
    return Site(Server("nobody"), process.port, trio.Event())


# curl as a client


def curl(process: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run curl, and return the response with its headers."""
    url = f"http://127.0.0.1:{process.port}/mcp"
    command = ["curl", "-si", "--max-time", "60", *arguments, url]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def posted(process: ServerProcess, session: dict[str, str], body: Any) -> Any:
    """Post a message with curl. Returns the status, and the message in the response."""
    done = curl(process, *headers(session), "-d", json.dumps(body))
    head, _, content = done.stdout.replace("\r\n", "\n").partition("\n\n")
    return int(head.split()[1]), json.loads(content) if content else None


def headers(session: dict[str, str]) -> list[str]:
    sent = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **session,
    }
    return [part for name, value in sent.items() for part in ("-H", f"{name}: {value}")]


def call(tool: str, id: int = 1, **arguments: object) -> dict[str, Any]:
    return message("tools/call", {"name": tool, "arguments": arguments}, id)


def opened(process: ServerProcess, capabilities: Any = None) -> dict[str, str]:
    """Open a session with curl, and return the headers of its requests."""
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities or {},
        "clientInfo": {"name": "curl", "version": "1"},
    }
    body = json.dumps(message("initialize", opening))
    response = curl(process, *headers({}), "-d", body).stdout
    lines = [line.split(": ", 1) for line in response.splitlines() if ": " in line]
    id = next(value for name, value in lines if name.lower() == "mcp-session-id")
    session = {"Mcp-Session-Id": id, "MCP-Protocol-Version": "2025-11-25"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert posted(process, session, note)[0] == 202
    return session


@contextmanager
def streaming(
    process: ServerProcess,
    session: dict[str, str],
    file: Path,
    body: dict[str, Any] | None = None,
) -> Iterator[Callable[[], list[Any]]]:
    """Let curl write a stream to a file: that of a GET, or of a POST with a body.

    Yields a function that returns the messages so far.
    """
    url = f"http://127.0.0.1:{process.port}/mcp"
    data = [] if body is None else ["-d", json.dumps(body)]
    command = ["curl", "-sN", "--max-time", "60", "-o", str(file), *headers(session)]
    running = subprocess.Popen([*command, *data, url])

    def messages() -> list[Any]:
        if not file.exists():
            return []
        lines = file.read_text().splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    try:
        yield messages
    finally:
        running.kill()
        running.wait()


def until_messages(messages: Callable[[], list[Any]], count: int = 1) -> list[Any]:
    until(lambda: len(messages()) >= count)
    return messages()


# One conversation at two processes


def test_a_session_is_used_at_one_process_and_ended_at_another(pair: Pair) -> None:
    a, b = pair
    session = opened(a)
    status, reply = posted(b, session, call("add", a=1, b=2))
    assert status == 200
    assert reply["result"]["structuredContent"] == {"result": 3}
    done = curl(a, "-X", "DELETE", *headers(session))
    assert " 204 " in done.stdout.splitlines()[0]
    ended = time.monotonic()
    until(lambda: posted(b, session, call("add", a=1, b=2))[0] == 404)
    assert time.monotonic() - ended < 1


def test_the_standing_stream_hears_what_another_process_changes(
    pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    session = opened(a)
    subscribing = message("resources/subscribe", {"uri": "note://a"})
    assert posted(a, session, subscribing)[1]["result"] == {}
    with streaming(b, session, tmp_path / "stream") as messages:
        until(lambda: (tmp_path / "stream").exists())
        posted(a, session, call("add_a_tool"))
        (changed,) = until_messages(messages)
        assert changed["method"] == "notifications/tools/list_changed"
        posted(a, session, call("change", uri="note://a"))
        updated = until_messages(messages, 2)[1]
        assert updated["method"] == "notifications/resources/updated"
        assert updated["params"] == {"uri": "note://a"}


QUESTIONS = {
    "greet": ({"action": "accept", "content": {"value": "Bob"}}, "Hello Bob"),
    "look": ({"roots": [{"uri": "file:///a"}]}, "file:///a"),
    "think": (
        {
            "role": "assistant",
            "content": {"type": "text", "text": "Hm"},
            "model": "m",
        },
        "Hm",
    ),
}


@pytest.mark.parametrize("tool", QUESTIONS)
def test_a_question_of_one_process_is_answered_at_another(
    pair: Pair, tmp_path: Path, tool: str
) -> None:
    a, b = pair
    answer, text = QUESTIONS[tool]
    session = opened(a, {"elicitation": {}, "roots": {}, "sampling": {}})
    with streaming(a, session, tmp_path / "stream", call(tool)) as messages:
        (question,) = until_messages(messages)
        body = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
        assert posted(b, session, body)[0] == 202
        reply = until_messages(messages, 2)[1]
        assert reply["result"]["content"][0]["text"] == text


def test_a_request_of_one_process_is_cancelled_at_another(
    pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    session = opened(a)
    begun = tmp_path / "begun"
    ended = tmp_path / "ended"
    body = call("wait", 7, begun=str(begun), ended=str(ended))
    with streaming(a, session, tmp_path / "stream", body):
        until(begun.exists)
        cancelling = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 7},
        }
        assert posted(b, session, cancelling)[0] == 202
        until(ended.exists)


# Clients of 2026-07-28


async def test_a_subscription_hears_what_another_process_changes(pair: Pair) -> None:
    a, b = pair
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a"]}
    async with listening(site_of(b), wanted) as events:
        await site_of(a).modern("tools/call", {"name": "add_a_tool"})
        changed = await events.next()
        assert changed["method"] == "notifications/tools/list_changed"
        changing = {"name": "change", "arguments": {"uri": "note://a"}}
        await site_of(a).modern("tools/call", changing)
        updated = await events.next()
        assert updated["method"] == "notifications/resources/updated"


def test_a_call_in_two_parts_is_answered_by_two_processes(pair: Pair) -> None:
    a, b = pair
    first = a.ask("tools/call", {"name": "greet"})
    (key,) = first["inputRequests"]
    answer = {"action": "accept", "content": {"value": "Bob"}}
    second = {
        "name": "greet",
        "requestState": first["requestState"],
        "inputResponses": {key: answer},
    }
    result = b.ask("tools/call", second)
    assert result["content"][0]["text"] == "Hello Bob"


# Clients of the official SDKs, each request at the process whose turn it is


@pytest.mark.parametrize("client", ["python 1", "python 2", "typescript 1"])
def test_a_real_client_uses_both_processes(
    client: str, redis: RedisServer, tmp_path: Path
) -> None:
    try:
        command = command_of(client)
    except Unavailable as reason:
        pytest.skip(f"cannot install the client {client}: {reason}")
    options = ("--store", redis.url(prefix=secrets.token_hex(4)))
    with ExitStack() as stack:
        ports = [stack.enter_context(running_server(*options)) for _ in range(2)]
        url = stack.enter_context(balanced(tmp_path, ports))
        done = subprocess.run(
            [*command, "--revision", "legacy", "--url", url],
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["revision"] == "2025-11-25"
    assert report["sum"] == 5.5
    assert not report["weather_is_error"]
    # A tool has asked, and the answer was posted to either process.
    assert report["trip"]["text"] == "2 days in Berlin: Clear. Pack light clothes."


# A process that is lost


CLIENTS = 200
STEPS = 5


@asynccontextmanager
async def advancing(
    there: Site, until_path: Path, count: int
) -> AsyncIterator[list[tuple[dict[str, str], Events]]]:
    """Open sessions, each with a call whose stream has a few events."""
    arguments = {"steps": STEPS, "until": str(until_path)}
    async with AsyncExitStack() as stack:
        clients = []
        for number in range(count):
            session = await there.open_session()
            opening = calling(
                there, session, "advance", arguments, id=number, patience=60
            )
            events = await stack.enter_async_context(opening)
            for step in range(STEPS):
                sent = await events.next()
                assert sent["params"]["progress"] == step + 1
            clients.append((session, events))
        yield clients


async def resume(
    there: Site,
    session: dict[str, str],
    last_event: str,
    found: dict[str, list[Any]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Read a stream to its end."""
    async with getting(there, session, last_event, patience=60) as events:
        task_status.started()
        found[session["Mcp-Session-Id"]] = await events.rest()


async def test_streams_of_a_killed_process_go_on_and_end_with_an_error(
    pair: Pair, tmp_path: Path
) -> None:
    a, b = pair
    found: dict[str, list[Any]] = {}
    async with advancing(site_of(a), tmp_path / "never", CLIENTS) as clients:
        resumed = [(session, events.ids[1]) for session, events in clients]
        await trio.to_thread.run_sync(a.kill)
        killed = time.monotonic()
    async with trio.open_nursery() as nursery:
        for session, last_event in resumed:
            nursery.start_soon(resume, site_of(b), session, last_event, found)
    assert time.monotonic() - killed < 15
    assert len(found) == CLIENTS
    for number, (session, _) in enumerate(resumed):
        *missed, reply = found[session["Mcp-Session-Id"]]
        # The first event only had an id, and the second one was seen.
        steps = [sent["params"]["progress"] for sent in missed]
        assert steps == list(range(2, STEPS + 1))
        assert reply["id"] == number
        assert reply["error"]["code"] == -32603
        assert "process serving this request was lost" in reply["error"]["message"]


# What Redis keeps

BRIEFLY = """
from mcp_trio.transports.http.sessions import Sessions

Sessions.idle_timeout = 2.0
"""


def count_keys(redis: RedisServer, *words: str) -> int:
    """Return how many keys contain the words."""
    return int(redis.command("KEYS", f"*{'*'.join(words)}*").strip(b"*\r\n"))


def lasting_keys(redis: RedisServer, words: str) -> int:
    """Return how many keys contain the words and never expire."""
    script = """
    local found = 0
    for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
        if redis.call('TTL', key) == -1 then found = found + 1 end
    end
    return found
    """
    return int(redis.command("EVAL", script, "0", f"*{words}*").strip(b":\r\n"))


def test_redis_forgets_streams_that_have_ended(spec: Path, tmp_path: Path) -> None:
    spec.write_text(SERVER + BRIEFLY)
    go = tmp_path / "go"
    with running_redis(tmp_path) as redis, two_processes(spec, redis) as (a, _):
        session = opened(a)
        body = call("advance", steps=3, until=str(go))
        body["params"]["_meta"] = {"progressToken": "p"}
        with streaming(a, session, tmp_path / "ends", body) as messages:
            until_messages(messages, 3)
            assert count_keys(redis, "stream:", session["Mcp-Session-Id"]) > 0
            go.touch()
            until_messages(messages, 4)
        until(lambda: count_keys(redis, "stream:") == 0)
        until(lambda: count_keys(redis, "session:") == 0)
        go.unlink()
        lost = opened(a)
        with streaming(a, lost, tmp_path / "lost", body) as messages:
            until_messages(messages, 3)
            a.kill()
        # Nobody resumes this one, but it expires too.
        assert count_keys(redis, "stream:", lost["Mcp-Session-Id"]) > 0
        assert lasting_keys(redis, "stream:") == 0


# Redis is lost


def test_without_redis_only_what_needs_it_fails(spec: Path, tmp_path: Path) -> None:
    with running_redis(tmp_path) as redis, two_processes(spec, redis) as (a, b):
        known = opened(a)
        assert posted(b, known, call("add", a=1, b=2))[0] == 200
        unknown = opened(a)
        redis.kill()
        statuses = []
        refused: dict[str, str] = {}
        for _ in range(3):
            add = {"name": "add", "arguments": {"a": 1, "b": 2}}
            # Requests without a session, and in one that the process knows already.
            content = b.ask("tools/call", add)["content"]
            assert content[0]["text"] == "3"
            assert posted(b, known, call("add", a=1, b=2))[0] == 200
            done = curl(b, *headers(unknown), "-d", json.dumps(call("add", a=1, b=2)))
            first, *lines = done.stdout.splitlines()
            statuses.append(int(first.split()[1]))
            refused |= dict(line.split(": ", 1) for line in lines if ": " in line)
        assert set(statuses) == {503}
        assert refused["Retry-After"] == "2"
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}}
        opening["clientInfo"] = {"name": "curl", "version": "1"}
        assert posted(b, {}, message("initialize", opening))[0] == 503
        redis.start()
        until(lambda: a.get("/readyz")[0] == b.get("/readyz")[0] == 200)
        for process in (a, b):
            for session in (known, unknown):
                assert posted(process, session, call("add", a=1, b=2))[0] == 200
