"""Each kind of bad input or failure has its code; the connection stays usable."""

import json
import logging
import sys
from typing import Any

import pytest
import trio

from mcp_trio import (
    Context,
    InvalidParams,
    ProtocolError,
    ResourceNotFound,
    Server,
    ToolError,
    UrlElicitationRequired,
)
from mcp_trio.client.errors import RemoteError
from tests.support.checked import (
    ALL,
    OPENING,
    asking,
    call,
    connect,
    notification,
    opened,
    ping,
    raw,
)

PARSE, REQUEST, METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
DEEP = 100_000
BEYOND = "9" * 5_000  # more digits than any integer is read with

MALFORMED: list[
    tuple[str, bytes, int, Any, str]
] = [  # name, message, code, id of the reply, text of its error
    (
        "not UTF-8",
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        PARSE,
        None,
        "not UTF-8 (byte 34)",
    ),
    ("only a byte", b"\xff", PARSE, None, "not UTF-8 (byte 0)"),
    (
        "half a surrogate",
        b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        PARSE,
        None,
        "surrogate",
    ),
    (
        "a byte order mark",
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
        PARSE,
        None,
        "byte 0",
    ),
    ("no JSON", b"hello", PARSE, None, "byte 0"),
    ("cut short", b'{"jsonrpc":"2.0","id":1,"meth', PARSE, None, "truncated"),
    (
        "more behind it",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} 5',
        PARSE,
        None,
        "byte 42",
    ),
    ("wrong, then no JSON", b'{"jsonrpc":1,"id":1 no', PARSE, None, "malformed"),
    ("opening brackets", b"[" * DEEP, PARSE, None, "nested too deeply"),
    (
        "brackets in params",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * DEEP,
        PARSE,
        None,
        "deeply",
    ),
    (
        "wrong, then brackets",
        b'{"jsonrpc":1,"a":' + b"[" * DEEP,
        PARSE,
        None,
        "nested too deeply",
    ),
    ("a number", b"5", REQUEST, None, "$: expected object, got integer"),
    ("a string", b'"ping"', REQUEST, None, "$: expected object, got string"),
    ("null", b"null", REQUEST, None, "$: expected object, got null"),
    ("nothing in it", b"{}", REQUEST, None, "$.jsonrpc: missing"),
    ("no jsonrpc", b'{"id":1,"method":"ping"}', REQUEST, 1, "$.jsonrpc: missing"),
    (
        "jsonrpc 1.0",
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        REQUEST,
        1,
        "$.jsonrpc: invalid enum value '1.0'",
    ),
    (
        "jsonrpc a number",
        b'{"jsonrpc":2.0,"id":1,"method":"ping"}',
        REQUEST,
        1,
        "$.jsonrpc",
    ),
    ("no method", b'{"jsonrpc":"2.0","id":1}', REQUEST, 1, "$.method: missing"),
    ("no method, no id", b'{"jsonrpc":"2.0"}', REQUEST, None, "$.method: missing"),
    (
        "method a number",
        b'{"jsonrpc":"2.0","id":1,"method":5}',
        REQUEST,
        1,
        "$.method: expected string, got integer",
    ),
    (
        "method null",
        b'{"jsonrpc":"2.0","id":1,"method":null}',
        REQUEST,
        1,
        "$.method: expected string, got null",
    ),
    (
        "Method",
        b'{"jsonrpc":"2.0","id":1,"Method":"ping"}',
        REQUEST,
        1,
        "$.method: missing",
    ),
    (
        "id null",
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        REQUEST,
        None,
        "$.id: expected integer or string",
    ),
    (
        "id a fraction",
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        REQUEST,
        None,
        "$.id",
    ),
    ("id 1.0", b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', REQUEST, None, "$.id"),
    ("id true", b'{"jsonrpc":"2.0","id":true,"method":"ping"}', REQUEST, None, "$.id"),
    ("id a list", b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', REQUEST, None, "$.id"),
    (
        "id beyond bounds",
        f'{{"jsonrpc":"2.0","id":{BEYOND},"method":"ping"}}'.encode(),
        REQUEST,
        None,
        "$.id",
    ),
    (
        "a result without id",
        b'{"jsonrpc":"2.0","result":{}}',
        REQUEST,
        None,
        "$.method: missing",
    ),
    (
        "id twice",
        b'{"jsonrpc":"2.0","id":1,"id":null,"method":"ping"}',
        REQUEST,
        None,
        "$.id",
    ),
]


def make_frail_server() -> Server:
    server = Server("frail")

    @server.tool
    async def add(a: int, b: int = 1) -> str:
        return str(a + b)

    @server.tool
    async def anything(value: Any) -> str:
        return "taken"

    @server.tool
    async def expected() -> str:
        raise ToolError("the bridge is up")

    @server.tool
    async def unexpected() -> str:
        raise RuntimeError("password: swordfish")

    @server.tool
    async def leave() -> str:
        sys.exit("password: swordfish")

    @server.tool
    def leave_in_thread() -> str:
        sys.exit("password: swordfish")

    @server.tool
    async def leave_in_nursery() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
        return "stayed"

    @server.tool
    async def late_group() -> str:
        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("password: swordfish")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)
        return "stayed"

    @server.tool
    async def expected_in_nursery() -> str:
        async with trio.open_nursery():
            raise ToolError("the bridge is up")

    return server


def message_of(reply: Any) -> str:
    """Return the message of an error response or of a result with isError."""
    if "error" in reply:
        error = reply["error"]
        return str(error.get("data", {}).get("reason", error["message"]))
    result = reply["result"]
    if "toolResult" in result:
        return str(result["toolResult"])
    assert result["isError"] is True
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("data", "code", "id", "says"),
    [case[1:] for case in MALFORMED],
    ids=[c[0] for c in MALFORMED],
)
async def test_a_malformed_message(
    revision: str, data: bytes, code: int, id: Any, says: str
) -> None:
    async with opened(make_frail_server(), revision) as client:
        (reply,) = await client.exchange(data)
        assert reply["error"]["code"] == code
        assert says in reply["error"]["message"]
        assert reply.get("id") == id
        assert ("id" in reply) == (id is not None or revision < "2025-11-25")
        assert len(await client.exchange(ping(revision))) == 1


@pytest.mark.parametrize("revision", ALL)
async def test_all_of_them_at_once_are_refused_one_by_one_and_a_ping_is_answered(
    revision: str,
) -> None:
    async with opened(make_frail_server(), revision) as client:
        replies = await client.exchange(
            *[case[1] for case in MALFORMED], ping(revision)
        )
    assert [reply.get("id") for reply in replies] == [
        *[case[3] for case in MALFORMED],
        "ping",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":5}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized","params":[]}',
        b'{"jsonrpc":"2.0","method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":77,"result":{}}',
        b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"what?"}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
        b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}',
    ],
)
@pytest.mark.parametrize("revision", OPENING)
async def test_what_is_not_answered(revision: str, data: bytes) -> None:
    async with opened(make_frail_server(), revision) as client:
        (pong,) = await client.exchange(data, ping(revision))
    assert pong["id"] == "ping"


async def test_an_answer_with_both_a_result_and_an_error_is_refused() -> None:
    async with raw(make_frail_server()) as client:
        (reply,) = await client.exchange(
            {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}
        )
    assert reply["error"] == {
        "code": REQUEST,
        "message": "Invalid request: $.method: missing",
    }


@pytest.mark.parametrize(
    "id",
    [
        0,
        -1,
        2**31,
        2**53 + 1,
        2**63,
        2**64,
        10**30,
        10**4000,
        "",
        "0",
        "\0",
        "é",
        "x" * 256,
    ],
)
async def test_an_id_is_returned_unchanged(id: Any) -> None:
    async with raw(make_frail_server()) as client:
        sent = (
            json.dumps(id)
            if not isinstance(id, int) or id < 10**300
            else f"1{'0' * 4000}"
        )
        reply, refused = await client.exchange(
            b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % sent.encode(),
            b'{"jsonrpc":"2.0","id":%b,"method":"pong"}' % sent.encode(),
        )
    assert reply["id"] == refused["id"] == id
    assert type(reply["id"]) is type(id)


async def test_of_two_equal_keys_the_last_counts() -> None:
    async with opened(make_frail_server(), "2025-06-18") as client:
        first, second = await client.exchange(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/destroy","method":"ping"}',
            b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":5,"params":{"name":"add","arguments":{"a":1}}}',
        )
    assert first == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert second["result"]["content"][0]["text"] == "2"


@pytest.mark.parametrize("revision", ALL)
async def test_a_message_that_is_too_large_is_refused_and_the_next_one_answered(
    revision: str,
) -> None:
    async with opened(make_frail_server(), revision) as client:
        client.send_too_large()
        reply, pong = await client.exchange(ping(revision))
    assert reply["error"] == {
        "code": REQUEST,
        "message": "Invalid request: a message is larger than 4 MiB",
    }
    assert pong["id"] == "ping"


PARAMS_CASES = [
    ("tools/call", {}, "$.params.name: missing"),
    ("tools/call", {"name": 5}, "$.params.name: expected string, got integer"),
    ("tools/call", {"name": None}, "$.params.name: expected string, got null"),
    ("tools/list", {"cursor": 5}, "$.params.cursor: expected string, got integer"),
    ("resources/read", {}, "$.params.uri: missing"),
    ("prompts/get", {"arguments": {}}, "$.params.name: missing"),
    (
        "completion/complete",
        {"argument": {"name": "a", "value": ""}},
        "$.params.ref: missing",
    ),
    (
        "completion/complete",
        {"ref": {"type": "ref/x"}, "argument": {}},
        "$.params.ref.type: invalid value 'ref/x'",
    ),
    (
        "tools/call",
        {"name": "add", "_meta": {"progressToken": 1.5}},
        "$.params._meta.progressToken",
    ),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(("method", "params", "says"), PARAMS_CASES)
async def test_params_that_do_not_fit(
    revision: str, method: str, params: Any, says: str
) -> None:
    async with opened(make_frail_server(), revision) as client:
        (reply,) = await client.exchange(asking(revision, 1, method, params))
    assert reply["error"]["code"] == PARAMS
    assert says in message_of(reply)


@pytest.mark.parametrize("params", [5, "x", [], [1], True])
@pytest.mark.parametrize("revision", OPENING)
async def test_params_other_than_an_object_are_refused(
    revision: str, params: Any
) -> None:
    async with opened(make_frail_server(), revision) as client:
        (reply,) = await client.exchange(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        )
    assert reply["error"]["code"] == PARAMS
    assert "$.params: expected object" in message_of(reply)


BAD_ARGUMENTS = [
    ({}, "Missing required argument: a"),
    ({"a": "1"}, "a"),
    ({"a": None}, "a"),
    ({"a": 1.5}, "a"),
    ({"a": True}, "a"),
    ({"a": 1, "c": 2}, "Unknown argument: c"),
    (None, "Missing required argument: a"),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(("arguments", "says"), BAD_ARGUMENTS)
async def test_arguments_that_do_not_fit(
    revision: str, arguments: Any, says: str
) -> None:
    message = asking(revision, 1, "tools/call", {"name": "add", "arguments": arguments})
    async with opened(make_frail_server(), revision) as client:
        (reply,) = await client.exchange(message)
    assert says in message_of(reply)
    if revision < "2025-11-25":
        assert reply["error"]["code"] == PARAMS
    else:
        assert reply["result"]["isError"] is True


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize("arguments", [[], [1], "x", 1, 1.5, True])
async def test_arguments_that_are_not_an_object_are_a_protocol_error(
    revision: str, arguments: Any
) -> None:
    message = asking(revision, 1, "tools/call", {"name": "add", "arguments": arguments})
    async with opened(make_frail_server(), revision) as client:
        (reply,) = await client.exchange(message)
    assert reply["error"]["code"] == PARAMS
    assert "$: expected object, got" in message_of(reply)


@pytest.mark.parametrize("depth", [500, 900, 1000, 1100, 5000])
async def test_deep_arguments_are_answered_or_refused_and_harm_nothing(
    depth: int,
) -> None:
    nested = b"[" * depth + b"]" * depth
    message = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"anything","arguments":{"value":%b}}}'
        % nested
    )
    async with raw(make_frail_server()) as client:
        await client.open("2025-11-25")
        (reply,) = await client.exchange(message)
        assert "result" in reply or "deep" in reply["error"]["message"]
        (pong,) = await client.exchange(ping("2025-11-25"))
    assert pong["id"] == "ping"


# Failures of tools


@pytest.mark.parametrize("tool", ["expected", "expected_in_nursery"])
@pytest.mark.parametrize("revision", ALL)
async def test_an_expected_failure_is_reported_in_the_words_of_the_tool(
    revision: str, tool: str
) -> None:
    async with opened(make_frail_server(), revision) as client:
        (reply,) = await client.exchange(call(revision, 1, tool))
    assert "result" in reply
    assert message_of(reply) == "the bridge is up"


@pytest.mark.parametrize(
    "tool", ["unexpected", "leave", "leave_in_thread", "leave_in_nursery", "late_group"]
)
@pytest.mark.parametrize("revision", ALL)
async def test_an_unexpected_failure_is_masked(
    revision: str, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(make_frail_server(), revision) as client:
        client.send(call(revision, 1, tool))
        reply = await client.receive_json()
        assert len(await client.exchange(ping(revision))) == 1
    assert "swordfish" not in json.dumps(reply)
    reference = (
        message_of(reply).removeprefix("Internal error (reference ").removesuffix(")")
    )
    assert len(reference) == 8
    (record,) = caplog.records
    assert reference in record.getMessage()
    assert "swordfish" in caplog.text


class Locked(InvalidParams):
    """A user's own kind of error."""


RAISED: list[
    tuple[ProtocolError, int | None, int | None]
] = [  # raised, code up to 2025-11-25, code in 2026; None: isError
    (InvalidParams("no such city"), PARAMS, PARAMS),
    (Locked("no such city"), PARAMS, PARAMS),
    (ResourceNotFound("a://b"), -32002, PARAMS),
    (ProtocolError("no such city"), None, None),
]


@pytest.mark.parametrize("revision", ALL)
@pytest.mark.parametrize(
    ("error", "old", "new"), RAISED, ids=lambda value: type(value).__name__
)
async def test_an_error_of_the_protocol_raised_in_a_tool(
    revision: str, error: ProtocolError, old: int | None, new: int | None
) -> None:
    server = Server("x")

    @server.tool
    async def fail() -> str:
        raise error

    async with opened(server, revision) as client:
        (reply,) = await client.exchange(call(revision, 1, "fail"))
    code = old if revision in OPENING else new
    assert reply.get("error", {}).get("code") == code
    assert error.message in message_of(reply)


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_can_say_that_the_user_has_to_visit_a_page_first(
    revision: str,
) -> None:
    server = Server("x")
    page = {
        "mode": "url",
        "message": "Log in",
        "url": "https://example.com",
        "elicitationId": "1",
    }

    @server.tool
    async def fail() -> str:
        raise UrlElicitationRequired("log in first", [page])

    async with opened(server, revision) as client:
        (reply,) = await client.exchange(call(revision, 1, "fail"))
    if revision == "2025-11-25":
        assert reply["error"]["code"] == -32042
        assert reply["error"]["data"] == {"elicitations": [page]}
    else:
        assert message_of(reply) == "log in first"


async def test_an_error_whose_data_cannot_be_json_is_masked() -> None:
    server = Server("x")

    @server.tool
    async def fail() -> str:
        raise InvalidParams("bad", data={"what": object()})

    async with opened(server, "2025-06-18") as client:
        (reply,) = await client.exchange(call("2025-06-18", 1, "fail"))
        assert "Internal error" in message_of(reply)


@pytest.mark.parametrize("revision", ALL)
async def test_failures_of_resources_prompts_and_completions_are_masked_too(
    revision: str,
) -> None:
    server = Server("x")

    @server.resource("a://b")
    async def read() -> str:
        raise RuntimeError("swordfish")

    @server.prompt
    async def prompt(a: str = "") -> int:
        return 5

    @server.complete("prompt", "a")
    async def completer(typed: str) -> list[str]:
        raise RuntimeError("swordfish")

    ref = {
        "ref": {"type": "ref/prompt", "name": "prompt"},
        "argument": {"name": "a", "value": ""},
    }
    async with connect(server, revision) as client:
        for method, params in (
            ("resources/read", {"uri": "a://b"}),
            ("prompts/get", {"name": "prompt"}),
            ("completion/complete", ref),
        ):
            with pytest.raises(RemoteError) as caught:
                await client.request(method, params)
            assert caught.value.code == INTERNAL
            assert caught.value.message.startswith("Internal error (reference ")


async def test_a_failure_while_a_request_is_stopped_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("x")

    @server.tool
    async def stubborn(ctx: Context) -> str:
        async def fail_at_the_end() -> None:
            try:
                await trio.sleep_forever()
            finally:
                raise RuntimeError("could not clean up")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_at_the_end)
            nursery.start_soon(trio.sleep_forever)
        return "never"

    async with opened(server, "2025-06-18") as client:
        await client.exchange(call("2025-06-18", 1, "stubborn"))
        gone = notification("notifications/cancelled", {"requestId": 1})
        (pong,) = await client.exchange(gone, ping("2025-06-18"))
    assert pong["id"] == "ping"
    assert "could not clean up" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_a_tool_error_keeps_its_words_outside_of_tools_too(method: str) -> None:
    server = Server("failing")

    @server.prompt
    async def fail() -> str:
        raise ToolError("the cellar is flooded")

    @server.resource("cellar://state")
    async def state() -> str:
        raise ToolError("the cellar is flooded")

    async with connect(server) as client:
        with pytest.raises(RemoteError, match="the cellar is flooded") as caught:
            await client.request(method, {"name": "fail", "uri": "cellar://state"})
        assert caught.value.code == -32603


def test_a_message_that_is_not_text_is_refused_where_the_error_is_made() -> None:
    message: Any = 5
    with pytest.raises(
        TypeError, match=r"^InvalidParams\(message\): expected str, got 5$"
    ):
        InvalidParams(message)
