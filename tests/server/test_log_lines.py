"""One log line for each refusal, failure and slow call: readable and structured."""

import json
import logging
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from mcp_trio import Limits, Server, ToolError
from mcp_trio.cli.log_format import FORMATTERS
from mcp_trio.server import event_log as journal
from mcp_trio.server import execute as execute_module
from mcp_trio.server import serve_conversation as conversation_module
from tests.support.checked import ALL, Json, asking, call, opened
from tests.support.http_wire import HEADERS, site
from tests.support.http_wire import request as http_request
from tests.support.reachable import reachable

R = "2025-11-25"
EVIL = "x\nERROR mcp_trio: made up \x1b[31m\x9b\u2028"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[Json]]:
    """Return the log as `--log-format json` writes it."""
    caplog.set_level(logging.INFO, "mcp_trio")
    write = FORMATTERS["json"]().format
    return lambda: [json.loads(write(record)) for record in caplog.records]


def make_failing_server(limits: Limits | None = None) -> Server:
    server = Server("x", limits=limits, grace=1)

    @server.tool
    async def add(a: int, b: int = 1) -> str:
        return str(a + b)

    @server.tool
    async def fail(text: str = "") -> str:
        raise RuntimeError(f"swordfish {text}")

    @server.tool
    async def tell() -> str:
        raise ToolError("the bridge is up")

    @server.tool
    async def wait(seconds: float = 60.0) -> str:
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    async def hold() -> str:
        time.sleep(0.02)  # noqa: ASYNC251 (the block must be visible)
        return "held"

    return server


def about(line: Json) -> Json:
    """Return a line without the parts that differ between runs."""
    return {
        key: value
        for key, value in line.items()
        if key not in ("time", "message", "logger", "seconds")
    }


@pytest.mark.parametrize("revision", ALL)
async def test_a_failure_is_one_line_with_its_reference(
    revision: str, lines: Callable[[], list[Json]]
) -> None:
    async with opened(make_failing_server(), revision) as client:
        (reply,) = await client.exchange(call(revision, 1, "fail", {"text": EVIL}))
    (line,) = lines()
    traceback = line.pop("traceback")
    reference = line.pop("reference")
    assert f"(reference {reference})" in json.dumps(reply)
    assert "RuntimeError: swordfish" in traceback
    assert about(line) == {
        "level": "error",
        "event": "failed",
        "method": "tools/call",
        "tool": "fail",
        "revision": revision,
        "error": "RuntimeError",
    }
    assert line["message"] == f"tools/call failed (reference {reference})"
    assert line["time"].endswith("+00:00")


async def test_a_refusal_is_logged_with_its_sender_method_and_reason(
    lines: Callable[[], list[Json]], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(make_failing_server(Limits(rate="1/m")), R) as client:
        await client.exchange(call(R, 1, "add", {"a": 1}), call(R, 2, "add", {"a": 1}))
    (line,) = lines()
    why = "Too many calls: 1 a minute are allowed; try again in 60 s"
    assert line["message"] == f"refused: tools/call of add: {why}"
    assert about(line) == {
        "level": "warning",
        "event": "refused",
        "method": "tools/call",
        "tool": "add",
        "revision": R,
        "error": why,
    }


async def test_an_expected_failure_of_a_tool_is_logged_at_level_info(
    lines: Callable[[], list[Json]],
) -> None:
    async with opened(make_failing_server(), R) as client:
        await client.exchange(call(R, 1, "tell"))
    assert [(line["level"], line["message"]) for line in lines()] == [
        ("info", "failed: tools/call of tell: the bridge is up")
    ]


async def test_a_call_that_took_too_long_is_a_warning(
    lines: Callable[[], list[Json]], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(make_failing_server(Limits(timeout=2)), R) as client:
        client.send(call(R, 1, "wait"))
        await client.receive_json()
    assert [(line["level"], line["error"]) for line in lines()] == [
        ("warning", "wait took longer than 2 s and was stopped")
    ]


@pytest.mark.parametrize("tool", ["hold", "wait"])
async def test_a_slow_call_is_a_line(
    tool: str, lines: Callable[[], list[Json]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(make_failing_server(), R) as client:
        # From now on: on a busy machine, opening the session may be slow too.
        monkeypatch.setattr(execute_module, "SLOW", 0.005)
        monkeypatch.setattr(conversation_module, "SLOW", 0.005)
        client.send(call(R, 1, tool, {} if tool == "hold" else {"seconds": 0.02}))
        await client.receive_json()
        await client.quiet()
    (line,) = lines()
    assert (line["event"], line["tool"], line["level"]) == ("slow", tool, "warning")
    assert line["seconds"] > 0.005
    said = rf"slow: tools/call of {tool} took \d\.\d s"
    assert re.fullmatch(said, line["message"])


async def test_a_subscription_is_not_logged_as_slow(
    lines: Callable[[], list[Json]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute_module, "SLOW", 0.0)
    monkeypatch.setattr(conversation_module, "SLOW", 0.0)
    async with opened(make_failing_server(), ALL[-1]) as client:
        await client.exchange(
            asking(ALL[-1], 1, "subscriptions/listen", {"notifications": {}})
        )
        client.end()
        await client.ended()
    assert lines() == []


async def test_arguments_are_logged_only_on_request(
    lines: Callable[[], list[Json]],
) -> None:
    server = make_failing_server()
    async with opened(server, R) as client:
        await client.exchange(call(R, 1, "tell"))
        server.event_log.with_arguments = True
        await client.exchange(call(R, 2, "fail", {"text": "y" * 5000}))
    before, after = lines()
    assert "arguments" not in json.dumps(before)
    assert len(after["arguments"]) == journal.MOST_ARGUMENTS
    assert after["arguments"].startswith('{"text": "yyyy')
    assert "arguments {" in after["message"]


# Floods


async def test_a_flood_is_summed_up(
    lines: Callable[[], list[Json]], autojump_clock: trio.testing.MockClock
) -> None:
    async with opened(make_failing_server(Limits(rate="1/h")), R) as client:
        replies = await client.exchange(
            *[call(R, id, "add", {"a": 1}) for id in range(5000)]
        )
        assert len(replies) == 5000
        assert len(lines()) == journal.MOST_LINES
        await trio.sleep(1.1)
        last = lines()[-1]
        assert len(lines()) == journal.MOST_LINES + 1
        assert (last["message"], last["more"]) == (
            "refused: and 4,989 more within a second, by one client",
            4989,
        )
        await client.exchange(call(R, 1, "add", {"a": 1}))
        assert len(lines()) == journal.MOST_LINES + 2


async def test_many_senders_are_distinguished_within_bounds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = make_failing_server()
    async with server.running():
        for number in range(3 * journal.MOST_SENDERS):
            server.event_log.log_rejection(
                str(number), 421, b'{"error":{"message":"no"}}'
            )
        senders = reachable(server.event_log, tuple)
        assert len(senders) <= journal.MOST_SENDERS + 1
        await trio.sleep(1.1)
        assert reachable(server.event_log, tuple) == []


# Over HTTP


@pytest.mark.parametrize(
    ("data", "status", "why"),
    [
        (
            http_request("GET", "/metrics", {"Host": "evil.example"}),
            421,
            "Host 'evil.example' is not served here",
        ),
        (
            http_request("GET", "/metrics", {"Origin": "http://evil.example"}),
            403,
            "Origin 'http://evil.example'",
        ),
        (b"GET / HTTP/9.9\r\n\r\n", 400, "Bad request"),
        (b"nonsense\r\n\r\n", 400, "Bad request"),
        (
            http_request("GET", "/metrics", {"X-Large": "x" * 40_000}),
            431,
            "The head of a request is larger",
        ),
    ],
    ids=["host", "origin", "version", "nonsense", "large"],
)
async def test_a_request_that_is_turned_away_is_logged(
    data: bytes, status: int, why: str, lines: Callable[[], list[Json]]
) -> None:
    async with site(make_failing_server()) as there, there.wire() as wire:
        await wire.send(data)
        assert (await wire.response()).status == status
    (line,) = lines()
    assert (line["event"], line["status"], line["sender"]) == (
        "refused",
        status,
        "127.0.0.1",
    )
    assert line["error"].startswith(why)
    assert line["message"].startswith(f"refused: 127.0.0.1 ({status}): {why}")


@pytest.mark.parametrize("path", ["/nothing", "/mcp"])
async def test_ordinary_refusals_are_no_lines(
    path: str, lines: Callable[[], list[Json]]
) -> None:
    async with site(make_failing_server()) as there:
        assert (await there.send("PUT", path, HEADERS, b"{}")).status in (404, 405)
        assert (await there.send("OPTIONS", "/mcp", {})).status == 204
    assert lines() == []


async def test_a_line_over_http_names_the_address(
    lines: Callable[[], list[Json]],
) -> None:
    async with site(make_failing_server()) as there:
        await there.modern("tools/call", {"name": "fail"})
    (line,) = lines()
    assert line["sender"] == "127.0.0.1"


# Formats


def record(text: str, **fields: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "some.library",
        logging.WARNING,
        "x.py",
        1,
        "%s",
        (text,),
        fields.pop("exc_info", None),
    )
    made.__dict__.update(fields)
    return made


def failure(text: str) -> Any:
    try:
        raise ValueError(text)
    except ValueError as error:
        return type(error), error, error.__traceback__


def test_a_line_for_people_is_one_line() -> None:
    write = FORMATTERS["text"]().format
    assert write(record("all is well")) == "WARNING some.library: all is well"
    told = write(record(EVIL))
    assert (
        told == r"WARNING some.library: x\nERROR mcp_trio: made up \x1b[31m\x9b\u2028"
    )


def test_a_traceback_for_people_begins_no_line_of_its_own() -> None:
    told = FORMATTERS["text"]().format(record("it failed", exc_info=failure(EVIL)))
    first, *rest = told.split("\n")
    assert first == "WARNING some.library: it failed"
    assert all(line.startswith("  ") for line in rest)
    assert "\x1b" not in told
    assert r"made up \x1b[31m" in told


@pytest.mark.parametrize("form", FORMATTERS.values(), ids=FORMATTERS)
@pytest.mark.parametrize(
    "said", ["x" * 3_000_000, "\n" * 3_000_000], ids=["wide", "long"]
)
def test_a_traceback_is_no_larger_than_a_person_reads(
    form: type[logging.Formatter], said: str
) -> None:
    told = form().format(record("it failed", exc_info=failure(said)))
    assert "Traceback" in told
    assert "[truncated: 3,000," in told
    assert len(told) < 100_000


def test_a_line_for_programs_is_one_object() -> None:
    write = FORMATTERS["json"]().format
    told = write(
        record(
            EVIL + "\ud800",
            event="refused",
            seconds=1.5,
            sender="",
            exc_info=failure(EVIL),
        )
    )
    assert "\n" not in told
    assert "\x1b" not in told
    line = msgspec.json.decode(told)
    assert (line["event"], line["seconds"], line["level"]) == (
        "refused",
        1.5,
        "warning",
    )
    assert "sender" not in line
    assert "ValueError" in line["traceback"]


@pytest.mark.parametrize("format", FORMATTERS)
async def test_what_clients_say_makes_up_no_line(
    format: str,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = make_failing_server(Limits(rate="1/h"))
    server.event_log.with_arguments = True
    async with opened(server, R) as client:
        evil = call(R, EVIL, "fail", {"text": EVIL})
        await client.exchange(
            evil, {**evil, "id": EVIL + "2"}, call(R, 3, EVIL), asking(R, 4, EVIL)
        )
    async with site(server) as there, there.wire() as wire:
        await wire.send(
            http_request("GET", "/metrics", {"Host": "evil\x1b[31m\x9b.example"})
        )
        await wire.response()
    assert len(caplog.records) >= 2
    write = FORMATTERS[format]().format
    for told in map(write, caplog.records):
        beginnings = [line for line in told.split("\n") if not line.startswith("  ")]
        assert len(beginnings) == 1
        assert not any(character in told for character in "\x1b\x9b\u2028\r")


async def test_a_request_that_is_refused_for_its_session_is_a_line_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with site(make_failing_server()) as there:
        assert (
            await there.send("GET", "/mcp", {"Accept": "text/event-stream"})
        ).status == 400
    assert [record.event for record in caplog.records if hasattr(record, "event")] == [
        "refused"
    ]
