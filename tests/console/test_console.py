"""The console: its token, its messages, every transport, traces, and stopping."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing

from mcp_trio import Context, Server
from mcp_trio.cli.main import main
from mcp_trio.client.client import talk
from mcp_trio.client.target import connect
from mcp_trio.console import app, message_tap
from mcp_trio.console import page as page_module
from mcp_trio.console.app import Console, serve_console
from mcp_trio.console.message_tap import MessageTap
from mcp_trio.console.task_state import task_in
from mcp_trio.demo import Trip
from mcp_trio.protocol.extensions import TASKS
from mcp_trio.protocol.revisions import REVISIONS
from mcp_trio.serve import serve
from mcp_trio.server.conversation import Conversation, Sender
from mcp_trio.testing import connect as connect_in_memory
from mcp_trio.testing import replay
from mcp_trio.trace.format import read
from mcp_trio.trace.targets import _in_process
from mcp_trio.transports.http import hypercorn_host
from tests.support.http_wire import HEADERS, Signals, Site, make_server, message
from tests.support.http_wire import request as http_request
from tests.support.reachable import reachable

ALL = [revision.name for revision in REVISIONS]
OPENING = next(revision.name for revision in reversed(REVISIONS) if revision.opens)
PATIENCE = 30.0
SAID = {"role": "assistant", "content": {"type": "text", "text": "A cat"}, "model": "I"}
ROUTES = [
    ("GET", "/"),
    ("GET", "/page.css"),
    ("GET", "/page.js"),
    ("GET", "/forms.js"),
    ("GET", "/results.js"),
    ("GET", "/tasks.js"),
    ("GET", "/events"),
    ("GET", "/trace"),
    ("POST", "/request"),
    ("POST", "/cancel"),
    ("POST", "/answer"),
]


class ConsoleSite(Site):
    """A console that listens on loopback."""

    def __init__(self, server: Server, url: str, stopping: trio.Event) -> None:
        super().__init__(server, urlsplit(url).port or 0, stopping)
        self.url = url
        self.token = url.rpartition("=")[2]

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @asynccontextmanager
    async def page(self, revision: str = OPENING) -> AsyncIterator["Page"]:
        async with self.wire() as wire:
            await wire.send(
                http_request("GET", f"/events?revision={revision}", self.authorization)
            )
            assert (await wire.head()).status == 200
            yield Page(self, wire)


class Page:
    """An open page: the messages it receives, and the requests it sends."""

    def __init__(self, site: ConsoleSite, wire: Any) -> None:
        self._site = site
        self._wire = wire
        self._rest = b""
        self.messages: list[Any] = []
        self.rows: list[Any] = []
        self._keys = count(1)
        self.id = ""

    async def until(self, key: str, value: Any = None) -> Any:
        """Return the next message of a kind."""
        while True:
            for told in self.messages:
                if key in told and value in (None, told[key]):
                    self.messages.remove(told)
                    return told
            await self._more()

    async def row(self, *words: str) -> Any:
        """Return the first row with all these words in its text."""
        while True:
            for row in self.rows:
                if all(word in row["text"] for word in words):
                    return row
            await self._more()

    async def _more(self) -> None:
        chunk = await self._wire.chunk()
        assert chunk, "the page was closed"
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in filter(None, lines):
            told = json.loads(line)
            if "opened" in told:
                self.id = told["opened"]["page"]
                self.talk = told["opened"]["talk"]
            if "row" in told:
                self.rows.append(told["row"])
            self.messages.append(told)

    async def post(self, act: str, **body: Any) -> int:
        if not self.id:
            await self.until("opened")
        data = json.dumps({"page": self.id, **body}).encode()
        headers = self._site.authorization
        response = await self._site.send("POST", f"/{act}", headers, data)
        return response.status

    async def begin(self, tool: str, **arguments: Any) -> str:
        key = f"call-{next(self._keys)}"
        params = {"name": tool, "arguments": arguments}
        assert (
            await self.post("request", key=key, method="tools/call", params=params)
            == 202
        )
        return key

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.until("done", await self.begin(tool, **arguments))

    async def request(self, method: str, **params: Any) -> Any:
        """Send any request, and return its result."""
        key = f"request-{next(self._keys)}"
        assert await self.post("request", key=key, method=method, params=params) == 202
        return (await self.until("done", key))["result"]


@asynccontextmanager
async def console(server: Server) -> AsyncIterator[ConsoleSite]:
    stopping = trio.Event()
    with trio.fail_after(4 * PATIENCE):
        async with server.running(), trio.open_nursery() as nursery:
            url = await nursery.start(
                partial(serve_console, server, "127.0.0.1", 0, stopping=stopping)
            )
            yield ConsoleSite(server, url, stopping)
            nursery.cancel_scope.cancel()


def asking() -> Server:
    server = make_server()

    @server.tool
    async def plan(ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", Trip)
        return f"{answer.action} {answer.content and answer.content.city}"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("What is it?", max_tokens=5)).text

    @server.tool
    async def look(ctx: Context) -> list[Any]:
        return [root.uri for root in await ctx.roots()]

    return server


# Access


@pytest.mark.parametrize(("method", "path"), ROUTES[6:])
async def test_nothing_is_served_without_the_token(method: str, path: str) -> None:
    """As in CVE-2025-49596, where any page could use an inspector without a token."""
    async with console(make_server()) as site:
        for token in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Bearer {site.token}x"},
        ):
            refused = await site.send(
                method, path, token, b"{}" if method == "POST" else b""
            )
            assert refused.status == 401
            assert site.token.encode() not in refused.body
        for query in ("?token=", f"?token={site.token}"):
            assert (await site.send(method, path + query, {})).status == 401
        async with site.wire() as wire:
            await wire.send(
                http_request(
                    method, path, site.authorization, b"{}" if method == "POST" else b""
                )
            )
            assert (await wire.head()).status != 401


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_foreign_hosts_and_origins_are_refused(method: str, path: str) -> None:
    async with console(make_server()) as site:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": f"evil.example:{site.port}"}, 421),
            ({"Host": "192.0.2.1"}, 421),
            (
                {"Host": f"localhost:{site.port}", "Origin": "https://evil.example"},
                403,
            ),
            ({"Host": f"localhost:{site.port}", "Origin": "null"}, 403),
            (
                {
                    "Host": f"localhost:{site.port}",
                    "Origin": f"http://localhost:{site.port + 1}",
                },
                403,
            ),
        ):
            assert (
                await site.send(method, path, {**site.authorization, **headers})
            ).status == status
        own = {
            **site.authorization,
            "Host": f"localhost:{site.port}",
            "Origin": f"http://localhost:{site.port}",
        }
        async with site.wire() as wire:
            await wire.send(
                http_request(method, path, own, b"{}" if method == "POST" else b"")
            )
            assert (await wire.head()).status not in (403, 421)


async def test_the_assets_do_not_depend_on_the_client() -> None:
    async with console(make_server()) as site:
        for method, path in ROUTES[:6]:
            plain = await site.send(method, path, {})
            with_token = await site.send(method, f"{path}?token={site.token}", {})
            assert plain.status == with_token.status == 200
            assert plain.body == with_token.body
            assert site.token.encode() not in plain.body


async def test_the_page_loads_only_its_own_scripts_and_styles() -> None:
    console = Console(make_server(), MessageTap())
    client = console.app.test_client()
    for _, path in ROUTES[:6]:
        response = await client.get(
            f"{path}?token={console.token}", headers={"Host": "localhost"}
        )
        text = await response.get_data(as_text=True)
        assert response.status_code == 200
        kind = {"/": "html", "/page.css": "css"}.get(path, "javascript")
        assert response.headers["Content-Type"] == f"text/{kind}; charset=utf-8"
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
        )
        assert "unsafe" not in policy
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "{{" not in text
        assert not re.search(
            r"https?://(?!127|localhost)|\son\w+=|<script>|style=|innerHTML|document\.write|eval\(",
            text,
        )


async def test_each_console_has_its_own_token() -> None:
    assert len({Console(make_server(), MessageTap()).token for _ in range(20)}) == 20


async def test_a_public_address_must_be_given_and_causes_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, stopping = make_server(), trio.Event()
    async with server.running(), trio.open_nursery() as nursery:
        await nursery.start(
            partial(serve_console, server, "0.0.0.0", 0, stopping=stopping)
        )
        nursery.cancel_scope.cancel()
    assert "other machines can reach" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "names", "others"),
    [
        (
            "127.0.0.1",
            ["localhost", "127.0.0.1:80", "[::1]:80"],
            ["192.0.2.1", "a.example"],
        ),
        ("0.0.0.0", ["localhost", "192.0.2.1:80", "[2001:db8::1]"], ["a.example", ""]),
        ("192.0.2.1", ["localhost", "192.0.2.1:80"], ["192.0.2.2", "a.example"]),
        ("a.example", ["localhost", "a.example:80"], ["192.0.2.2", "b.example"]),
    ],
)
async def test_only_local_host_names_are_served(
    host: str, names: list[str], others: list[str]
) -> None:
    console = Console(make_server(), MessageTap(), host)
    for name in names + others:
        response = await console.app.test_client().get(
            f"/?token={console.token}", headers={"Host": name}
        )
        assert response.status_code == (200 if name in names else 421), name


# What a page does


@pytest.mark.parametrize("revision", ALL)
async def test_a_page_speaks_any_revision(revision: str) -> None:
    async with console(make_server()) as site, site.page(revision) as page:
        assert (await page.until("opened"))["opened"]["revision"] == revision
        done = await page.call("add", a=1, b=2)
        assert "3" in json.dumps(done["result"])
        await page.row('"tools/call"', '"add"')


async def test_a_failed_call_shows_its_error() -> None:
    async with console(make_server()) as site, site.page() as page:
        assert (await page.call("nothing"))["error"]["code"] == -32602
        assert (await page.call("add", a="x"))["result"]["isError"] is True


async def test_progress_is_shown_until_a_call_is_cancelled() -> None:
    signals = Signals()
    async with console(make_server(signals)) as site, site.page() as page:
        key = await page.begin("step_and_wait")
        await page.row("notifications/progress", key)
        assert await page.post("cancel", key=key) == 202
        assert (await page.until("done", key))["cancelled"] is True
        await page.row("notifications/cancelled")
        with trio.fail_after(PATIENCE):
            await signals.cleaned.wait()


async def test_a_call_is_cancelled_before_it_has_begun() -> None:
    async with console(make_server()) as site, site.page() as page:
        await page.until("opened")
        body = {"page": page.id, "key": "early"}
        wanted = json.dumps(
            {**body, "method": "tools/call", "params": {"name": "wait"}}
        ).encode()
        async with site.wire() as wire:
            await wire.send(
                http_request("POST", "/request", site.authorization, wanted)
            )
            await wire.send(
                http_request(
                    "POST", "/cancel", site.authorization, json.dumps(body).encode()
                )
            )
            assert (await page.until("done", "early"))["cancelled"] is True


async def test_a_page_that_does_not_read_cannot_ask_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_module, "MAX_CALLS", 2)
    async with console(make_server()) as site, site.page() as page:
        keys = [await page.begin("wait") for _ in range(2)]
        assert await page.post("request", key="more", method="ping") == 409
        await page.post("cancel", key=keys[0])
        await page.until("done", keys[0])
        assert await page.post("request", key="more", method="ping") == 202


async def test_several_calls_run_at_once() -> None:
    signals = Signals()
    async with console(make_server(signals)) as site, site.page() as page:
        waiting = await page.begin("wait")
        await signals.begun.wait()
        assert (await page.call("echo", text="meanwhile"))["result"]["content"][0][
            "text"
        ] == "meanwhile"
        assert await page.post("request", key=waiting, method="ping") == 409
        signals.go.set()
        assert (await page.until("done", waiting))["result"]["content"][0][
            "text"
        ] == "went"


@pytest.mark.parametrize("revision", ALL[-2:])
@pytest.mark.parametrize(
    ("tool", "asked", "answer", "text"),
    [
        (
            "plan",
            "elicitation/create",
            {"action": "accept", "content": {"city": "Rome", "days": 1}},
            "accept Rome",
        ),
        ("plan", "elicitation/create", {"action": "decline"}, "decline None"),
        (
            "think",
            "sampling/createMessage",
            {
                "role": "assistant",
                "content": {"type": "text", "text": "A cat"},
                "model": "I",
            },
            "A cat",
        ),
        ("look", "roots/list", {"roots": [{"uri": "file:///a"}]}, "file:///a"),
    ],
)
async def test_questions_of_the_server_are_answered_by_the_user(
    revision: str, tool: str, asked: str, answer: Any, text: str
) -> None:
    async with console(asking()) as site, site.page(revision) as page:
        key = await page.begin(tool)
        question = await page.until("asked")
        assert question["method"] == asked
        assert await page.post("answer", key=question["asked"], result=answer) == 202
        assert (await page.until("settled"))["settled"] == question["asked"]
        assert (await page.until("done", key))["result"]["content"][0]["text"] == text


async def test_the_user_can_decline_a_question() -> None:
    async with console(asking()) as site, site.page() as page:
        key = await page.begin("think")
        question = await page.until("asked")
        await page.post("answer", key=question["asked"], result=None)
        assert "declined" in json.dumps((await page.until("done", key))["result"])


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b'{"page": 1}', b"[" * 100_000])
async def test_malformed_requests_are_refused(body: bytes) -> None:
    async with console(make_server()) as site:
        for act in ("request", "cancel", "answer"):
            assert (
                await site.send("POST", f"/{act}", site.authorization, body)
            ).status == 400


async def test_closing_a_page_cancels_its_calls() -> None:
    signals = Signals()
    async with console(make_server(signals)) as site:
        async with site.page() as page:
            await page.begin("wait")
            await signals.begun.wait()
        with trio.fail_after(PATIENCE):
            await signals.cleaned.wait()
        assert await page.post("request", key="1", method="ping") == 404


async def test_the_number_of_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_PAGES", 2)
    async with console(make_server()) as site, site.page(), site.page():
        assert (await site.send("GET", "/events", site.authorization)).status == 503


# Tasks


def server_with_tasks() -> Server:
    server = make_server()

    @server.tool(task="optional", poll_interval=0.05)
    async def paint(ctx: Context) -> str:
        await ctx.progress(1, 2, "choosing a color")
        answer = await ctx.elicit("Which trip?", Trip)
        return f"{answer.action} {answer.content and answer.content.city}"

    return server


async def test_a_page_can_run_a_task_that_asks_a_question() -> None:
    async with console(server_with_tasks()) as site, site.page(ALL[-1]) as page:
        task = (await page.call("paint"))["result"]
        assert task["resultType"] == "task"
        id = task["taskId"]
        while True:
            state = await page.request("tasks/get", taskId=id)
            if state["status"] == "input_required":
                break
        assert state["statusMessage"] == "choosing a color"
        (key,) = state["inputRequests"]
        answer = {"action": "accept", "content": {"city": "Rome", "days": 1}}
        await page.request("tasks/update", taskId=id, inputResponses={key: answer})
        while state["status"] != "completed":
            state = await page.request("tasks/get", taskId=id)
        assert state["result"]["content"][0]["text"] == "accept Rome"


async def test_a_page_in_an_older_revision_waits_for_the_result() -> None:
    async with console(server_with_tasks()) as site, site.page(OPENING) as page:
        key = await page.begin("paint")
        question = await page.until("asked")
        await page.post("answer", key=question["asked"], result={"action": "decline"})
        done = await page.until("done", key)
        assert done["result"]["content"][0]["text"] == "decline None"


async def test_the_state_of_a_task_is_sent_with_the_message_that_shows_it() -> None:
    async with console(server_with_tasks()) as site, site.page(ALL[-1]) as page:
        id = (await page.call("paint"))["result"]["taskId"]
        created = await page.row('"resultType":"task"')
        assert created["task"]["taskId"] == id
        assert created["task"]["status"] == "working"
        assert created["isOwner"] is True
        while True:
            await page.request("tasks/get", taskId=id)
            asking = [row for row in page.rows if "inputRequests" in row["text"]]
            if asking:
                break
        (question,) = asking[-1]["task"]["inputRequests"].values()
        assert question["params"]["message"] == "Which trip?"
        called = await page.row('"tools/call"')
        assert "task" not in called


async def test_a_page_learns_who_may_use_a_task() -> None:
    from mcp_trio.transports.http.server import serve_http

    server = server_with_tasks()
    stopping = trio.Event()
    capabilities = {"extensions": {TASKS: {}}}
    call = {"name": "paint", "arguments": {}}
    async with (
        console(server) as site,
        site.page() as page,
        trio.open_nursery() as nursery,
    ):
        start = partial(serve_http, server, "127.0.0.1", 0, stopping=stopping)
        ((_, port),) = await nursery.start(start)
        async with connect(
            f"http://127.0.0.1:{port}/mcp", ALL[-1], capabilities=capabilities
        ) as client:
            over_http = await client.request("tools/call", call)
        async with (
            _in_process(server) as lines,
            talk(lines, ALL[-1], capabilities=capabilities) as client,
        ):
            over_stdio = await client.request("tools/call", call)
        assert (await page.row(over_http["taskId"]))["isOwner"] is False
        assert (await page.row(over_stdio["taskId"]))["isOwner"] is True
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b'"taskId"',
        b'{"result": {"taskId": 5, "status": "working"}}',
        b'{"result": {"taskId": "a"}}',
        b'{"result": {"content": [{"type": "text", "text": "\\"taskId\\""}]}}',
        b'[{"result": {"taskId": "a", "status": "working"}}]',
    ],
)
def test_other_messages_have_no_task_state(message: bytes) -> None:
    assert task_in(message) is None


# Messages


async def test_messages_of_all_transports_are_shown_live() -> None:
    server = make_server()
    stopping = trio.Event()
    async with (
        console(server) as site,
        site.page() as page,
        trio.open_nursery() as nursery,
    ):
        from mcp_trio.transports.http.server import serve_http
        from mcp_trio.transports.websocket import serve_websocket

        upgrade = partial(serve_websocket, server, stopping=stopping)
        start = partial(
            serve_http, server, "127.0.0.1", 0, stopping=stopping, upgrade=upgrade
        )
        ((_, port),) = await nursery.start(start)
        for url, revision, transport in (
            (f"http://127.0.0.1:{port}/mcp", OPENING, "http"),
            (f"http://127.0.0.1:{port}/mcp", ALL[-1], "http"),
            (f"http://127.0.0.1:{port}/sse", ALL[1], "sse"),
            (f"ws://127.0.0.1:{port}/mcp", OPENING, "ws"),
        ):
            text = f"{transport} {revision}"
            async with connect(url, revision) as client:
                await client.call_tool("echo", {"text": text})
                await client.call_tool(
                    "steps", {}, meta={"progressToken": f"of {text}"}
                )
            called = await page.row('"tools/call"', text)
            assert (called["transport"], called["from"]) == (transport, "client")
            assert called["client"] == "mcp_trio client 1"
            for answer in (
                await page.row('"content"', text),
                await page.row("notifications/progress", f"of {text}"),
            ):
                assert (answer["talk"], answer["from"]) == (called["talk"], "server")
        async with connect_in_memory(server) as client:
            await client.call_tool("echo", {"text": "in memory"})
        assert (await page.row('"tools/call"', "in memory"))["transport"] == "memory"
        async with _in_process(server) as lines, talk(lines, OPENING) as client:
            await client.call_tool("echo", {"text": "on pipes"})
        assert (await page.row('"tools/call"', "on pipes"))["transport"] == "stdio"
        assert (await page.row('"content"', "on pipes"))["from"] == "server"
        talks = {row["talk"] for row in page.rows}
        assert len(talks) == 7
        # No row is sent twice.
        rows = {(row["talk"], row["from"], row["text"]) for row in page.rows}
        assert len(rows) == len(page.rows)
        nursery.cancel_scope.cancel()


async def test_requests_that_http_refuses_are_shown() -> None:
    from mcp_trio.transports.http.server import serve_http

    server = make_server()
    async with (
        console(server) as console_site,
        console_site.page() as page,
        trio.open_nursery() as nursery,
    ):
        ((_, port),) = await nursery.start(
            partial(serve_http, server, "127.0.0.1", 0, stopping=trio.Event())
        )
        site = Site(server, port, trio.Event())
        await site.post(b"{", HEADERS)
        assert (await page.row("-32700"))["from"] == "server"
        await site.post(message("tools/list", id="early"))
        assert (await page.row('"early"'))["transport"] == "http"
        await site.modern(
            "tools/call", {"name": "add"}, id="mismatch", **{"Mcp-Name": "other"}
        )
        assert (await page.row("-32020", "mismatch"))["from"] == "server"
        nursery.cancel_scope.cancel()


async def test_notifications_of_a_session_are_shown() -> None:
    from mcp_trio.transports.http.server import serve_http

    server = make_server()
    async with (
        console(server) as site,
        site.page() as page,
        trio.open_nursery() as nursery,
    ):
        ((_, port),) = await nursery.start(
            partial(serve_http, server, "127.0.0.1", 0, stopping=trio.Event())
        )
        async with connect(f"http://127.0.0.1:{port}/mcp", OPENING) as client:
            await client.list_tools()
            server.remove_tool("wait")
            await client.hear("notifications/tools/list_changed")
        rows = [row for row in page.rows if "tools/list_changed" in row["text"]]
        while {row["transport"] for row in rows} != {"console", "http"}:
            await page.until("row")
            rows = [row for row in page.rows if "tools/list_changed" in row["text"]]
        nursery.cancel_scope.cancel()


async def test_a_slow_page_learns_how_many_messages_it_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(message_tap, "MAX_MESSAGES", 10)
    server = make_server()
    async with console(server) as site:
        async with connect_in_memory(server) as client:
            for number in range(20):
                await client.call_tool("echo", {"text": str(number)})
        async with site.page() as page:
            missed = (await page.until("missed"))["missed"]
            await page.until("row")
            assert page.rows[0]["number"] == missed + 1
            assert missed >= 30


def test_the_kept_messages_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_tap, "MAX_BYTES", 1000)
    tap = MessageTap()
    pipes = tap.begin_conversation("stdio")
    for _ in range(100):
        tap.note(pipes, "client", b"x" * 100)
    assert len(tap.since(0, 1000)) == 10
    assert tap.since(95, 3)[0].number == 96
    assert tap.since(100, 3) == []
    for number in range(2000):
        tap.http_conversation(b'{"params": {"clientInfo": {"name": "%d"}}}' % number)
    clients = reachable(tap, message_tap.ObservedConversation)
    assert len(clients) <= message_tap.MAX_CLIENTS + 1


async def test_a_long_message_is_cut_only_for_the_page() -> None:
    async with console(make_server()) as site, site.page() as page:
        text = "x" * 100_000
        await page.call("echo", text=text)
        row = await page.row('"tools/call"')
        assert len(row["text"]) == page_module.SHOWN < row["size"]
        assert (row["head"]["method"], row["head"]["params"]) == ("tools/call", {})
        assert "head" not in page.rows[0]
        saved = await site.send("GET", f"/trace?talk={page.talk}", site.authorization)
        assert text.encode() in saved.body


# Traces


@pytest.mark.parametrize("revision", ALL)
async def test_a_pages_own_conversation_replays(revision: str, tmp_path: Path) -> None:
    async with console(asking()) as site, site.page(revision) as page:
        await page.call("add", a=1, b=2)
        await page.call("steps", count=2)
        if revision in ALL[-2:]:
            key = await page.begin("plan")
            question = await page.until("asked")
            await page.post(
                "answer", key=question["asked"], result={"action": "cancel"}
            )
            await page.until("done", key)
        saved = await site.send("GET", f"/trace?talk={page.talk}", site.authorization)
    assert (
        saved.headers["content-disposition"]
        == f'attachment; filename="conversation-{page.talk}.jsonl"'
    )
    file = tmp_path / "saved.jsonl"
    file.write_bytes(saved.body)
    assert read(file).header.revision == revision
    await replay(file, asking(), "stdio")
    await replay(file, asking(), "http")


@pytest.mark.parametrize(
    ("kind", "revision"), [("mcp", OPENING), ("mcp", ALL[-1]), ("sse", ALL[1])]
)
async def test_a_clients_conversation_replays(
    kind: str, revision: str, tmp_path: Path
) -> None:
    from mcp_trio.transports.http.server import serve_http

    server, file = make_server(), tmp_path / "saved.jsonl"
    async with (
        console(server) as site,
        site.page() as page,
        trio.open_nursery() as nursery,
    ):
        ((_, port),) = await nursery.start(
            partial(serve_http, server, "127.0.0.1", 0, stopping=trio.Event())
        )
        async with connect(f"http://127.0.0.1:{port}/{kind}", revision) as client:
            await client.list_tools()
            await client.call_tool("steps", {"count": 2}, meta={"progressToken": "t"})
        number = (await page.row('"steps"', '"t"'))["talk"]
        await page.row('"all"')
        file.write_bytes(
            (await site.send("GET", f"/trace?talk={number}", site.authorization)).body
        )
        nursery.cancel_scope.cancel()
    trace = read(file)
    assert (trace.header.client, trace.header.revision) == (
        "mcp_trio client 1",
        revision,
    )
    await replay(file, make_server(), "stdio")


async def test_an_unknown_conversation_is_not_found() -> None:
    async with console(make_server()) as site:
        assert (
            await site.send("GET", "/trace?talk=99", site.authorization)
        ).status == 404
        assert (
            await site.send("GET", "/trace?talk=x", site.authorization)
        ).status == 404


# Stopping, and servers without a console


async def test_without_a_console_messages_are_not_observed() -> None:
    server = make_server()
    async with console(server):
        assert server.on_message is not None
    assert server.on_message is None


async def test_an_earlier_observer_of_the_server_still_sees_everything() -> None:
    server = make_server()
    seen: list[tuple[str, str, bytes]] = []

    def observer(conversation: Conversation, sender: Sender, data: bytes) -> None:
        seen.append((conversation.transport, sender, data))

    server.on_message = observer
    async with console(server) as site, site.page() as page:
        await page.call("echo", text="on the page")
        async with connect_in_memory(server) as client:
            await client.call_tool("echo", {"text": "in memory"})
        await page.row('"content"', "in memory")
    assert server.on_message is observer
    for transport, text in (("console", b"on the page"), ("memory", b"in memory")):
        senders = {one[1] for one in seen if one[0] == transport and text in one[2]}
        assert senders == {"client", "server"}


async def test_an_observer_set_later_is_kept() -> None:
    server = make_server()

    def observer(conversation: Conversation, sender: Sender, data: bytes) -> None:
        pass

    async with console(server):
        server.on_message = observer
    assert server.on_message is observer


async def test_the_console_stops_cleanly(capfd: pytest.CaptureFixture[str]) -> None:
    signals = Signals()
    server = make_server(signals, grace=2)
    async with server.running():
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                stopping = trio.Event()
                url = await nursery.start(
                    partial(serve_console, server, "127.0.0.1", 0, stopping=stopping)
                )
                site = ConsoleSite(server, url, stopping)
                async with site.page() as page:
                    key = await page.begin("wait")
                    await signals.begun.wait()
                    stopping.set()
                    await trio.testing.wait_all_tasks_blocked()
                    signals.go.set()
                    assert (await page.until("done", key))["result"]["content"][0][
                        "text"
                    ] == "went"
                    with pytest.raises(AssertionError, match="the page was closed"):
                        await page.until("never")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops such a page")
async def test_a_page_that_does_not_read_delays_stopping_only_briefly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hypercorn_host, "UNREAD_TIME", 0.1)
    server = make_server(grace=0.1)

    @server.tool
    async def flood() -> str:
        return "x" * 20_000_000

    async with server.running(), trio.open_nursery() as pages:
        stopping = trio.Event()
        async with trio.open_nursery() as nursery:
            url = await nursery.start(
                partial(serve_console, server, "127.0.0.1", 0, stopping=stopping)
            )
            page = await pages.start(unread, ConsoleSite(server, url, stopping))
            await page.begin("flood")
            await trio.testing.wait_all_tasks_blocked(0.2)
            nursery.cancel_scope.deadline = trio.current_time() + 20
            stopping.set()
        assert not nursery.cancel_scope.cancelled_caught
        pages.cancel_scope.cancel()


async def unread(site: ConsoleSite, *, task_status: trio.TaskStatus[Page]) -> None:
    async with site.page() as page:
        await page.until("opened")
        task_status.started(page)
        await trio.sleep_forever()


async def test_serve_runs_the_console_next_to_other_transports(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = make_server()
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(partial(serve, server, http=0, console=0))
        address = re.search(
            r"^Console: (http://127\.0\.0\.1:\d+/\?token=[\w-]{32})$",
            capsys.readouterr().err,
            re.M,
        )
        assert address
        site = ConsoleSite(server, address[1], trio.Event())
        async with site.page() as page, connect(url) as client:
            await client.call_tool("echo", {"text": "beside"})
            assert (await page.row('"tools/call"', "beside"))["transport"] == "http"
        nursery.cancel_scope.cancel()


def test_a_port_that_is_taken_is_reported_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["run", "--console", str(taken.getsockname()[1])]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "the port is in use" in lines[0]


@pytest.mark.parametrize("flag", [True, False])
def test_an_invalid_address_is_refused(
    flag: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if flag:
        with pytest.raises(SystemExit, match="2"):
            main(["run", "--console", "nowhere"])
    else:
        monkeypatch.setenv("MCP_TRIO_CONSOLE", "nowhere")
        assert main(["run"]) == 2
    assert (
        "expected [HOST:]PORT such as 8000 or 127.0.0.1:8000, got 'nowhere'"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_with_stdio_the_console_writes_nothing_to_stdout(tmp_path: Path) -> None:
    opening = {
        "protocolVersion": OPENING,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    given = (
        json.dumps(message("initialize", opening))
        + "\n"
        + json.dumps(message("ping", id=2))
        + "\n"
    )
    command = [sys.executable, "-m", "mcp_trio", "run", "--stdio", "--console", "0"]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=20, check=True
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    assert done.stderr.startswith("Console: http://127.0.0.1:")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_without_the_console_its_modules_are_not_imported() -> None:
    code = (
        "import sys\nfrom mcp_trio.cli.main import main\n"
        "main(['run', '--stdio'])\n"
        "print({'quart', 'quart_trio', 'hypercorn', 'mcp_trio.console'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stderr.strip() == "set()"
