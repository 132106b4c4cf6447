"""Requests over a limit are refused, with the time of the next attempt."""

import json
import threading
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio import Access, Limits, Principal, Server
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.event_parser import EventParser
from mcp_trio.client.target import connect as connect_to
from mcp_trio.protocol.errors import TooManyCalls
from mcp_trio.protocol.session import Call, Session
from mcp_trio.server.conversation import Conversation
from mcp_trio.server.execute import execute
from mcp_trio.server.limiter import MOST_SENDERS, Buckets, network
from mcp_trio.server.limits import Rate, read_rate
from mcp_trio.server.request import Request
from mcp_trio.server.runner import start
from tests.support.access_sites import A, B, Bearer, calling, guarded, post_modern
from tests.support.access_sites import make_server as make_guarded_server
from tests.support.access_sites import modern as with_meta
from tests.support.checked import (
    ALL,
    MODERN,
    OPENING,
    Json,
    asking,
    call,
    cancelled,
    connect,
    opened,
    ping,
    request,
)
from tests.support.http_wire import (
    HEADERS,
    Signals,
    Site,
    Wire,
    message,
    modern_headers,
    site,
)
from tests.support.http_wire import request as http_request
from tests.support.oracle import Oracle
from tests.support.reachable import reachable

TELLING = [revision for revision in ALL if revision >= "2025-11-25"]
EARLIER = [revision for revision in ALL if revision not in TELLING]
R = "2025-11-25"
NEWEST = MODERN[-1]


class Busy:
    """A server with tools that wait, do not wait, and have their own limits."""

    def __init__(self, limits: Limits | None = None, **own: Any) -> None:
        self.server = Server("busy", limits=limits, grace=1)
        self.go = trio.Event()
        self.running = self.most = self.cleaned = 0
        self.server.add_tool(self.work, **own)
        self.server.add_tool(self.quick)
        self.server.add_resource("slow://it", self.read)
        self.server.add_prompt(self.prompt)

    async def work(self) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
            return "worked"
        finally:
            await trio.lowlevel.cancel_shielded_checkpoint()
            self.running -= 1
            self.cleaned += 1

    async def quick(self) -> str:
        return "done"

    async def read(self) -> str:
        return await self.work()

    async def prompt(self) -> str:
        return await self.work()


def refused(reply: Json) -> str:
    """Return the message of a refusal."""
    if "error" in reply:
        return str(reply["error"]["message"])
    return (
        str(reply["result"]["content"][0]["text"])
        if reply["result"].get("isError")
        else ""
    )


def calls(revision: str, count: int, name: str = "quick") -> list[Json]:
    return [call(revision, id, name) for id in range(count)]


# Rates


@pytest.mark.parametrize("revision", ALL)
async def test_a_burst_of_a_hundred_calls_gets_ten_answers(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(Busy(Limits(rate="10/s")).server, revision) as client:
        replies = await client.exchange(*calls(revision, 100))
        told = [refused(reply) for reply in replies]
        assert told[:10] == [""] * 10
        assert (
            told[10:]
            == ["Too many calls: 10 a second are allowed; try again in 0.1 s"] * 90
        )
        for reply in replies[10:]:
            if revision in TELLING:
                assert reply["result"]["isError"] is True
            else:
                assert (reply["error"]["code"], reply["error"]["data"]) == (
                    -32603,
                    {"retryAfter": 0.1},
                )


@pytest.mark.parametrize("revision", [R, EARLIER[0]])
async def test_a_client_that_waits_as_long_as_told_is_served(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(Busy(Limits(rate="7/m:3")).server, revision) as client:
        told = [refused(reply) for reply in await client.exchange(*calls(revision, 4))]
        assert told == [
            "",
            "",
            "",
            "Too many calls: 7 a minute are allowed; try again in 8.6 s",
        ]
        for _ in range(3):
            await trio.sleep(8.6)
            assert [
                refused(reply) == ""
                for reply in await client.exchange(*calls(revision, 2))
            ] == [True, False]


async def test_what_is_refused_takes_no_token(
    autojump_clock: trio.testing.MockClock,
) -> None:
    busy = Busy(Limits(rate="2/h"), max_in_flight=1)
    async with opened(busy.server, R) as client:
        told = [
            refused(reply)
            for reply in await client.exchange(
                *[call(R, id, "work") for id in range(50)]
            )
        ]
        assert set(told) == {
            "Busy: too many calls of work in progress (limit: 1); try again in 1 s"
        }
        busy.go.set()
        assert len(await client.quiet()) == 1
        assert [
            refused(reply) for reply in await client.exchange(call(R, 1, "quick"))
        ] == [""]


async def test_the_rate_of_a_tool_applies_only_to_that_tool(
    autojump_clock: trio.testing.MockClock,
) -> None:
    busy = Busy(rate="1/m")
    busy.go.set()
    async with opened(busy.server, R) as client:
        replies = await client.exchange(*calls(R, 2, "work")) + await client.exchange(
            *calls(R, 5)
        )
        told = [refused(reply) for reply in replies if refused(reply)]
        assert told == [
            "Too many calls of work: 1 a minute are allowed; try again in 60 s"
        ]
        assert len(replies) == 7


async def test_one_conversation_does_not_slow_another(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = Busy(Limits(rate="10/s")).server
    async with opened(server, R) as one, opened(server, R) as other:
        assert (
            sum(not refused(reply) for reply in await one.exchange(*calls(R, 50))) == 10
        )
        assert (
            sum(not refused(reply) for reply in await other.exchange(*calls(R, 10)))
            == 10
        )


class Heard(list[bytes]):
    """A channel."""

    def send(self, message: bytes) -> None:
        self.append(message)

    async def drained(self) -> None:
        pass


def conversation(
    server: Server, principal: Any, address: str = "192.0.2.1"
) -> Conversation:
    session = Session(server.revisions)
    return Conversation(session, Heard(), principal=principal, address=address)


def answered(server: Server, conversation: Conversation, *asked: Json) -> list[Json]:
    """Return the replies to requests that do not wait."""
    replies = []
    for one in asked:
        event = conversation.session.receive(json.dumps(one).encode())
        assert isinstance(event, Call)
        request = Request(
            event,
            conversation,
            conversation.channel,
            server.environment,
            conversation.principal,
        )
        reply, rest = start(execute(server, request))
        assert rest is None
        replies.append(json.loads(reply or b"null"))
    return replies


async def test_a_principal_has_one_rate_from_any_address() -> None:
    server = Busy(Limits(rate="10/s")).server
    async with server.running():
        ann, again, bob = (
            conversation(server, Principal(name)) for name in ("ann", "ann", "bob")
        )
        again.address = "192.0.2.2"
        assert [
            bool(refused(reply)) for reply in answered(server, ann, *calls(NEWEST, 10))
        ] == [False] * 10
        assert [
            bool(refused(reply)) for reply in answered(server, again, *calls(NEWEST, 5))
        ] == [True] * 5
        assert [
            bool(refused(reply)) for reply in answered(server, bob, *calls(NEWEST, 10))
        ] == [False] * 10


async def test_without_a_principal_the_address_is_the_sender() -> None:
    server = Busy(Limits(rate="10/s")).server
    async with server.running():
        one, again, other = (
            conversation(server, None, address) for address in ("a", "a", "b")
        )
        assert [
            bool(refused(reply)) for reply in answered(server, one, *calls(NEWEST, 10))
        ] == [False] * 10
        assert [
            bool(refused(reply)) for reply in answered(server, again, *calls(NEWEST, 1))
        ] == [True]
        assert [
            bool(refused(reply)) for reply in answered(server, other, *calls(NEWEST, 1))
        ] == [False]


@pytest.mark.parametrize(
    ("address", "whose"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::1"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_a_network_of_addresses_is_one_sender(address: str, whose: str) -> None:
    assert network(address) == whose


async def test_a_flood_of_senders_costs_no_memory_and_frees_nobody(
    mock_clock: trio.testing.MockClock,
) -> None:
    buckets, rate = Buckets(), read_rate("10/h")
    used_up = buckets.get_or_create("used up", rate)
    used_up.tokens = 0
    for number in range(5 * MOST_SENDERS):
        buckets.get_or_create(number, rate).tokens -= 1
    assert len(buckets) <= 2 * MOST_SENDERS
    assert buckets.get_or_create("used up", rate) is used_up
    mock_clock.jump(3600)
    for number in range(2 * MOST_SENDERS):
        buckets.get_or_create(("later", number), rate)
    assert len(buckets) <= 2 * MOST_SENDERS
    assert buckets.get_or_create("used up", rate) is not used_up  # it was full again


# What is under way


@pytest.mark.parametrize("revision", ALL)
async def test_five_hundred_calls_with_a_cap_of_ten(
    revision: str, autojump_clock: trio.testing.MockClock
) -> None:
    busy = Busy(max_in_flight=10)
    async with opened(busy.server, revision) as client:
        for _ in range(2):  # the second time the tool is known to wait
            told = [
                refused(reply)
                for reply in await client.exchange(*calls(revision, 500, "work"))
            ]
            text = (
                "Busy: too many calls of work in progress (limit: 10); try again in 1 s"
            )
            assert told == [text] * 490
            assert (busy.running, busy.most) == (10, 10)
            busy.go.set()
            assert len(await client.quiet()) == 10
            busy.go = trio.Event()
        assert busy.cleaned == 20
        assert busy.server.limiter.total == 0
        assert reachable(busy.server.limiter, tuple) == []


async def test_a_tool_that_timed_out_has_cleaned_up_and_left_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    busy = Busy(max_in_flight=10, timeout=3)
    async with opened(busy.server, R) as client:
        client.send(*calls(R, 500, "work"))
        await client.replies(490)
        late = await client.replies(10)
        assert {refused(reply) for reply in late} == {
            "work took longer than 3 s and was stopped"
        }
        assert (busy.most, busy.running, busy.cleaned) == (10, 0, 10)
        busy.go.set()
        assert [
            refused(reply) for reply in await client.exchange(*calls(R, 10, "work"))
        ] == [""] * 10


async def test_a_cancelled_call_leaves_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    busy = Busy(max_in_flight=1)
    async with opened(busy.server, R) as client:
        for id in range(20):
            assert await client.exchange(call(R, id, "work")) == []
            assert await client.exchange(cancelled(id)) == []
        assert busy.cleaned == 20


@pytest.mark.parametrize(
    "limits", [Limits(max_in_flight=3), Limits(max_in_flight_per_connection=3)]
)
@pytest.mark.parametrize("method", ["tools/call", "resources/read", "prompts/get"])
async def test_a_bound_holds_for_all_that_runs_a_function(
    method: str, limits: Limits
) -> None:
    busy, about = Busy(limits), {"name": "work", "uri": "slow://it"}
    about |= {"name": "prompt"} if method == "prompts/get" else {}
    async with opened(busy.server, R) as client:
        replies = await client.exchange(
            *[asking(R, id, method, about) for id in range(5)]
        )
        assert [refused(reply) for reply in replies] == [
            "Busy: too many requests in progress (limit: 3); try again in 1 s"
        ] * 2
        assert len(await client.exchange(ping(R), request("list", "tools/list"))) == 2
        assert [
            bool(refused(reply))
            for reply in await client.exchange(call(R, "q", "quick"))
        ] == [True]
        busy.go.set()
        assert len(await client.quiet()) == 3
        assert [
            bool(refused(reply))
            for reply in await client.exchange(call(R, "q", "quick"))
        ] == [False]


async def test_a_connections_bound_is_not_anothers() -> None:
    busy = Busy(Limits(max_in_flight_per_connection=2))
    async with opened(busy.server, R) as one, opened(busy.server, R) as other:
        assert len(await one.exchange(*calls(R, 3, "work"))) == 1
        assert len(await other.exchange(*calls(R, 3, "work"))) == 1


async def test_subscriptions_take_no_place_from_calls() -> None:
    busy = Busy(Limits(max_in_flight=1, max_in_flight_per_connection=1))
    async with opened(busy.server, NEWEST) as client:
        listening = [
            asking(NEWEST, id, "subscriptions/listen", {"notifications": {}})
            for id in range(20, 25)
        ]
        assert len(await client.exchange(*listening)) == 5  # acknowledged
        assert await client.exchange(call(NEWEST, 1, "work")) == []
        busy.go.set()
        assert [refused(reply) for reply in await client.quiet()] == [""]


async def listen(wire: Wire, client: Bearer) -> int:
    """Begin to listen, without a session. Returns the status of the response."""
    wanted = {"notifications": {"toolsListChanged": True}}
    body = with_meta(message("subscriptions/listen", wanted))
    headers = {**modern_headers(body), **client.own}
    await wire.send(http_request("POST", "/mcp", headers, json.dumps(body).encode()))
    return (await wire.head()).status


async def test_listens_without_a_session_are_bounded_for_each_sender(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_trio.server.limiter.MOST_OF_ONE", 3)
    async with guarded(token=A) as there, AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(there.wire()) for _ in range(5)]
        statuses = [await listen(wire, there) for wire in wires[:4]]
        of_another = await listen(wires[4], there.by(B))
    assert statuses == [200, 200, 200, 429]
    assert of_another == 200


async def test_a_listen_without_a_session_that_ends_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_trio.server.limiter.MOST_OF_ONE", 1)
    async with guarded(token=A) as there:
        async with there.wire() as wire:
            assert await listen(wire, there) == 200
        # The server notices soon, not at once.
        status = 429
        with trio.fail_after(30):
            while status == 429:
                async with there.wire() as wire:
                    status = await listen(wire, there)
        assert status == 200


async def test_the_calls_of_a_batch_are_counted_one_by_one() -> None:
    busy = Busy(max_in_flight=2)
    async with opened(busy.server, "2025-03-26") as client:
        client.send(calls("2025-03-26", 5, "work"))
        await trio.testing.wait_all_tasks_blocked()
        assert busy.running == 2
        busy.go.set()
        (batch,) = await client.quiet()
        assert sorted(bool(refused(reply)) for reply in batch) == [
            False,
            False,
            True,
            True,
            True,
        ]


async def test_blocking_calls_that_nobody_waits_for_any_more_are_bounded(
    autojump_clock: trio.testing.MockClock,
) -> None:
    autojump_clock.autojump_threshold = float("inf")
    server, release = Server("x", limits=Limits(threads=8)), threading.Event()
    begun = threading.Semaphore(0)

    @server.tool(timeout=1)
    def block() -> None:
        begun.release()
        release.wait()

    async with opened(server, R) as client:
        told: list[str] = []
        for _ in range(8):
            client.send(call(R, 1, "block"))
            await trio.to_thread.run_sync(begun.acquire)
            autojump_clock.jump(1)
            told.append(refused(await client.receive_json()))
        client.send(call(R, 1, "block"))
        told.append(refused(await client.receive_json()))
        release.set()
    assert set(told[:8]) == {"block took longer than 1 s and was stopped"}
    stuck = "Busy: all 8 worker threads are stuck in abandoned calls"
    assert told[8] == f"{stuck}; try again in 1 s"


# Timeouts


@pytest.mark.parametrize("method", ["resources/read", "prompts/get"])
@pytest.mark.parametrize("revision", ALL)
async def test_resources_and_prompts_have_the_servers_timeout(
    revision: str, method: str, autojump_clock: trio.testing.MockClock
) -> None:
    busy = Busy(Limits(timeout=2))
    async with opened(busy.server, revision) as client:
        client.send(asking(revision, 1, method, {"name": "prompt", "uri": "slow://it"}))
        reply = await client.receive_json()
        assert reply["error"]["code"] == -32603
        assert reply["error"]["message"].endswith(
            "took longer than 2 s and was stopped"
        )
        assert (busy.running, busy.cleaned) == (0, 1)


async def test_a_tools_own_timeout_goes_before_the_servers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    busy = Busy(Limits(timeout=2), timeout=5)
    async with connect(busy.server, R) as client:
        began = trio.current_time()
        assert (
            await client.call_tool("work")
        ).text == "work took longer than 5 s and was stopped"
        assert trio.current_time() - began == pytest.approx(5)


# How limits are said


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10, "s", 10)),
        ("100/m", Rate(100, "m", 100)),
        ("1000/h:5", Rate(1000, "h", 5)),
    ],
)
def test_a_rate_is_read(text: str, rate: Rate) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "0/s",
        "10/d",
        "-1/s",
        "10/s:0",
        "1e3/s",
        "10 /s",
        "10/s\n",
        10,
        b"10/s",
        "\u0661/s",
    ],
)
def test_an_invalid_rate_is_refused(text: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^Limits\(rate\): expected '10/s', '100/m' or '1000/h'"
    ):
        Limits(rate=text)


@pytest.mark.parametrize(
    "name",
    ["max_in_flight", "max_in_flight_per_connection", "max_sessions", "max_result"],
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "10"])
def test_an_invalid_bound_is_refused(name: str, value: Any) -> None:
    with pytest.raises(
        ValueError,
        match=rf"^Limits\({name}\): expected a whole number of at least 1, got ",
    ):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "options",
    [{"rate": "x"}, {"max_in_flight": 0}, {"max_result": "1"}, {"timeout": 0}],
)
def test_a_tools_limits_are_checked_when_it_is_added(options: Json) -> None:
    async def add() -> None: ...

    with pytest.raises(
        ValueError, match=rf"^server.tool\({next(iter(options))}\): expected"
    ):
        Server("x").add_tool(add, **options)


async def test_a_call_refused_by_its_tools_rate_does_not_count_toward_the_overall_rate(
    autojump_clock: trio.testing.MockClock,
) -> None:
    busy = Busy(Limits(rate="3/h"), rate="1/h")
    busy.go.set()
    async with opened(busy.server, R) as client:
        replies = await client.exchange(*calls(R, 5, "work"))
        assert [bool(refused(reply)) for reply in replies].count(True) == 4
        replies = await client.exchange(*calls(R, 3))
    assert [refused(reply).partition(":")[0] for reply in replies] == [
        "",
        "",
        "Too many calls",
    ]


def test_limits_are_limits() -> None:
    with pytest.raises(TypeError, match=r"^Server\(limits\): expected"):
        Server("x", limits={"rate": "10/s"})  # type: ignore[arg-type]


# On every transport


def demo_like(**limits: Any) -> Server:
    server = Server("there", limits=Limits(**limits), grace=1)

    @server.tool
    async def quick() -> str:
        return "done"

    return server


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_burst_over_http_or_websocket_is_limited(
    scheme: str, revision: str
) -> None:
    from mcp_trio.serve import serve

    async with trio.open_nursery() as nursery:
        server = demo_like(rate="10/m")
        (url,) = await nursery.start(lambda **options: serve(server, http=0, **options))
        async with connect_to(url.replace("http", scheme, 1), revision) as client:
            results = [await client.call_tool("quick") for _ in range(100)]
        told = Counter(result.text for result in results)
        assert told.pop("done") == 10
        assert sum(told.values()) == 90
        assert all(
            text.startswith("Too many calls: 10 a minute are allowed; try again in ")
            for text in told
        )
        nursery.cancel_scope.cancel()


async def test_a_burst_over_http_and_sse_is_limited() -> None:
    async with site(demo_like(rate="10/m")) as there, there.wire() as wire:
        await wire.send(http_request("GET", "/sse", {"Accept": "text/event-stream"}))
        await wire.head()
        parser = EventParser()
        path = (await wire.event(parser)).data
        opening = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        asked = [message("initialize", opening, 100)] + [
            message("tools/call", {"name": "quick"}, id) for id in range(20)
        ]
        for body in asked:
            assert (
                await there.send("POST", path, HEADERS, json.dumps(body).encode())
            ).status == 202
        replies = [json.loads((await wire.event(parser)).data) for _ in asked]
        assert [bool(refused(reply)) for reply in replies] == [False] * 11 + [True] * 10
        assert replies[-1]["error"]["data"]["retryAfter"] > 0


# Floods over HTTP


async def flood(there: Site, path: str, count: int, **headers: str) -> list[Any]:
    async with there.wire() as wire:
        return [await wire.request("GET", path, headers) for _ in range(count)]


@pytest.mark.parametrize("path", ["/metrics", "/nothing", "/mcp", "/sse?x"])
async def test_a_flood_is_refused_before_anything_is_looked_at(path: str) -> None:
    origin = "http://localhost:1"
    async with site(demo_like(rate="1/h")) as there:
        responses = await flood(
            there, path, 30, Accept="application/json", Origin=origin
        )
        assert 429 not in [response.status for response in responses[:20]]
        assert {response.status for response in responses[20:]} == {429}
        last = responses[-1]
        assert 1 <= int(last.headers["retry-after"]) <= 180
        assert last.json["error"]["message"].startswith(
            "Too many requests; try again in "
        )
        assert last.headers["access-control-allow-origin"] == origin
        assert (await there.send("GET", "/healthz")).status == 200
        assert there.server.limiter.rate


async def test_floods_are_counted() -> None:
    async with site(demo_like(rate="1/s")) as there:
        responses = await flood(there, "/metrics", 60)
        assert 429 in {response.status for response in responses}
        while True:
            await trio.sleep(0.01)
            if (response := await there.send("GET", "/metrics")).status == 200:
                break
        assert b'mcp_http_refused_total{status="429"}' in response.body


async def test_a_body_of_a_flood_is_not_waited_for() -> None:
    async with site(demo_like(rate="1/h")) as there:
        await flood(there, "/metrics", 20)
        async with there.wire() as wire:
            await wire.send(
                http_request("POST", "/mcp", {**HEADERS, "Content-Length": "1000000"})
            )
            assert (await wire.response()).status == 429


async def test_an_asgi_host_passes_on_the_address_of_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = demo_like(rate="1/h")
    application = server.asgi()

    async def get(address: str) -> Json:
        sent: list[Json] = []

        async def receive() -> Json:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Json) -> None:
            sent.append(message)

        about = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": "/metrics",
            "query_string": b"",
        }
        about |= {
            "headers": [(b"host", b"localhost")],
            "server": ("localhost", 80),
            "client": (address, 1),
        }
        await application(about, receive, send)
        return sent[0]

    async with server.running():
        assert [(await get("192.0.2.1"))["status"] for _ in range(20)] == [200] * 20
        refused = await get("192.0.2.1")
        assert (refused["status"], dict(refused["headers"])[b"retry-after"]) == (
            429,
            b"180",
        )
        assert (await get("192.0.2.2"))["status"] == 200
    assert (
        "refused: 192.0.2.1 (429): Too many requests; try again in 180 s" in caplog.text
    )


async def test_without_a_rate_no_request_is_a_flood() -> None:
    async with site(demo_like()) as there:
        assert {
            response.status for response in await flood(there, "/metrics", 500)
        } == {200}


async def test_sessionless_requests_of_one_sender_are_bounded_together() -> None:
    busy = Busy(Limits(max_in_flight_per_connection=2))
    async with site(busy.server) as there, trio.open_nursery() as nursery:
        statuses: list[bool] = []

        async def one() -> None:
            response = await there.modern("tools/call", {"name": "work"})
            statuses.append(response.json["result"]["isError"])

        for _ in range(5):
            nursery.start_soon(one)
        while len(statuses) < 3:
            await trio.sleep(0.001)
        assert statuses == [True] * 3
        busy.go.set()
    assert statuses == [True] * 3 + [False] * 2
    assert reachable(busy.server.limiter, tuple) == []


def test_too_many_calls_has_a_code_that_every_revision_names() -> None:
    busy = Busy()
    for revision in busy.server.revisions.all:
        error = revision.error(TooManyCalls("no", retry_after=1.0))
        reply = {"jsonrpc": "2.0", "id": 1, "error": error}
        oracle = Oracle(revision.name)
        oracle.sent_by_client(asking(revision.name, 1, "tools/call", {"name": "x"}))
        assert oracle.check(reply) == []


async def test_the_older_revisions_client_gets_an_error_that_it_can_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with connect(Busy(Limits(rate="1/m")).server, OPENING[1]) as client:
        await client.call_tool("quick")
        with pytest.raises(RemoteError, match="try again in 60 s"):
            await client.call_tool("quick")


def test_without_a_rate_no_request_counts_as_a_flood() -> None:
    assert Busy().server.limiter.flood("192.0.2.1") == 0


async def test_a_principal_is_not_taken_for_what_else_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_trio.server.limiter.MOST_AT_ONCE", 1)
    signals = Signals()

    async def verify(token: str) -> str:
        return token

    server = make_guarded_server(signals, access=Access(verify))
    async with (
        guarded(server, token="subscriptions/listen") as there,
        there.by("somebody").wire() as wire,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(post_modern, there, calling("wait"))
        await signals.begun.wait()
        assert await listen(wire, there.by("somebody")) == 200
        signals.go.set()
