"""Parsers of untrusted bytes, each with a check that must pass for any input."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import trio
import trio.testing

from mcp_trio import Server
from mcp_trio.client.event_parser import EventParser
from mcp_trio.protocol import jsonrpc
from mcp_trio.protocol.errors import HeaderMismatch, InvalidParams
from mcp_trio.protocol.framing import LineDecoder
from mcp_trio.protocol.mirrored_headers import mirrors
from mcp_trio.protocol.session import Answer, Batch, Call, Notice, Refusal, Session
from mcp_trio.server.features.uri_template import UriTemplate
from mcp_trio.server.schema.jsonschema import Validator
from mcp_trio.server.schema.signature import Parameters
from mcp_trio.server.sealed_state import seal, unseal
from mcp_trio.trace.diagram import in_terminal
from mcp_trio.trace.format import BadTrace, read
from mcp_trio.transports.http.messages import Head, Refused
from mcp_trio.transports.http.parser import RequestParser
from mcp_trio.transports.http.rules import (
    HEALTH,
    accepted,
    bare,
    check_arguments,
    check_mirrored,
)
from mcp_trio.transports.http.service import Service
from mcp_trio.transports.http.sessions import HttpSession, Sessions
from mcp_trio.transports.websocket import serve_websocket
from tests.support.http_wire import HEADERS, MODERN, make_server, message, request
from tests.support.samples import DRAFTS, MATCHES
from tests.support.smuggling import CANARY, CASES
from tests.support.websocket import UPGRADE, masked

from .mutating import TRACES, Mutator, messages

# Takes a mutator, and returns a function that checks one input.
Target = Callable[[Mutator], Callable[[], object]]
Read = tuple[bytes, bytes, dict[bytes, bytes], bytes, bool, bool]
SECRET = b"a secret key"


# JSON-RPC


def jsonrpc_messages() -> Mutator:
    return Mutator("jsonrpc", messages(), is_json=True)


def check_message(mutator: Mutator) -> Callable[[], object]:
    """Any message is an event or nothing, and a refusal is a valid message."""
    revisions = make_server().revisions
    opening, stated = list(revisions.opening.values()), [None, None, *revisions.all]

    def check_one() -> None:
        choose = mutator.random.choice
        session = Session(revisions, choose(stated), choose([None, *opening]))
        event = session.receive(mutator.make())
        assert event is None or isinstance(
            event, Call | Notice | Answer | Refusal | Batch
        )
        for part in event.events if isinstance(event, Batch) else [event]:
            if isinstance(part, Refusal):
                refused = json.loads(part.data)
                assert refused["error"]["code"] == part.error.code
                assert refused["jsonrpc"] == "2.0"

    return check_one


def check_lines(mutator: Mutator) -> Callable[[], object]:
    """The lines do not depend on how the bytes are split."""

    def check_one() -> None:
        data = b"\n".join(mutator.make() for _ in range(mutator.random.randrange(4)))
        whole = LineDecoder(3_000)
        expected = [*whole.feed(data), *whole.end()]
        split = LineDecoder(3_000)
        lines = []
        for piece in mutator.pieces(data):
            lines += split.feed(piece)
        assert [*lines, *split.end()] == expected

    return check_one


# HTTP


@cache
def streams() -> list[bytes]:
    bodies = [data for data in messages() if len(data) < 800][:200]
    told = [
        request("POST", "/mcp", {**HEADERS, "MCP-Protocol-Version": "2026-07-28"}, body)
        for body in bodies
    ]
    return [*(case.data[:4_000] for case in CASES.values()), *told, CANARY, UPGRADE]


WORDS = [
    *(
        b"\r\n",
        b"\r",
        b"\n",
        b"\r\n\r\n",
        b" ",
        b"\t",
        b":",
        b",",
        b";",
        b"\0",
        b"\x0b",
        b"\xff",
        b"0\r\n\r\n",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"chunked",
        b"Host: localhost\r\n",
        b"-",
        b"0x",
    ),
    *(
        b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
        b"Upgrade: websocket\r\n",
        b"Connection: close\r\n",
        b"HTTP/1.0",
    ),
    *(
        b"Expect: 100-continue\r\n",
        b"9" * 25,
        b"ffffffffffffffff",
        b"GET /healthz HTTP/1.1\r\n",
        b"CONNECT ",
        b"HEAD ",
    ),
]


def http_streams() -> Mutator:
    return Mutator("http", streams(), words=WORDS)


def read_requests(admit: Any, pieces: list[bytes]) -> tuple[list[Read], int | None]:
    """Return the requests of a stream, and the status if one is refused.

    Reading ends at a refused request, and at one that ends the connection.
    """
    parser = RequestParser(admit, "localhost")
    found: list[Read] = []
    for piece in pieces:
        parser.feed(piece)
    for one in parser.requests:
        if one.refused is not None:
            return found, one.refused.status
        assert one.route
        found.append(
            (
                one.method,
                one.target,
                one.headers,
                bytes(one.body),
                one.keeps_alive,
                one.upgrade,
            )
        )
        if not one.keeps_alive:
            break
    return found, None


def check_stream(mutator: Mutator) -> Callable[[], object]:
    """A stream is read in the same way as a whole and in pieces.

    An accepted request has only one header that states its length.
    """
    admit, choose = Service(make_server()).admit, mutator.random.choice

    def check_one() -> None:
        parts = [mutator.make()[:8_000] for _ in range(choose([1, 1, 2, 3]))]
        head, _, body = parts[-1].partition(b"\r\n\r\n")
        # The same head again, with another body.
        for _ in range(choose([0, 0, 1, 2])):
            at = mutator.random.randint(0, len(body))
            body = choose(
                [body, body[:at] + b"x" + body[at + 1 :], body[:at], b"\r\n" + body]
            )
            parts.append(head + b"\r\n\r\n" + body)
        data = b"".join(parts)
        expected = read_requests(admit, [data])
        for pieces in (parts, mutator.pieces(data)):
            assert read_requests(admit, pieces) == expected, pieces
        for _, _, headers, _, _, _ in expected[0]:
            assert not {b"content-length", b"transfer-encoding"} <= headers.keys()

    return check_one


VALUES = [
    *(
        b"localhost",
        b"[::1]:80",
        b"127.0.0.1:1",
        b"evil.example",
        b"http://localhost",
        b"https://evil.example:1",
        b"null",
    ),
    *(
        b"=?base64?SGVsbG8=?=",
        b"=?base64??=",
        b"text",
        b"a\tb",
        "é".encode(),
        b"\xff",
        b"\0",
        b"application/json",
    ),
    *(
        b"application/json; charset=utf-8",
        b"text/event-stream;q=0",
        b"*/*",
        b"application/json, text/event-stream",
    ),
    *(
        b"2026-07-28",
        b"tools/call",
        b"get_weather",
        b"1",
        b"1.0",
        b"9" * 30,
        b"true",
        b"-0",
        b"1e5",
        b"Mcp-Param-A, b",
    ),
]


def header_values() -> Mutator:
    return Mutator(
        "headers",
        VALUES,
        words=[
            b"=?base64?",
            b"?=",
            b";q=0",
            b",",
            b"\t",
            b" ",
            b"\x7f",
            b"[",
            b"]",
            b"@",
            b":",
        ],
    )


def check_headers(mutator: Mutator) -> Callable[[], object]:
    """Each header is accepted or refused, and no foreign host is accepted."""
    service = Service(make_server())
    names = [
        b"host",
        b"origin",
        b"accept",
        b"content-type",
        b"access-control-request-headers",
        b"mcp-method",
    ]
    names += [
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"last-event-id",
        b"mcp-param-n",
        b"upgrade",
    ]
    schema = {
        "properties": {
            "n": {"type": "integer", "x-mcp-header": "n"},
            "s": {"x-mcp-header": "Mcp-Name"},
        }
    }
    wanted = list(mirrors(schema))
    body = message(
        "tools/call", {"name": "add", "arguments": {"n": 1, "s": "x"}, "_meta": MODERN}
    )
    event = Session(service.server.revisions).receive(json.dumps(body).encode())
    assert isinstance(event, Call)

    def check_one() -> None:
        choose = mutator.random.choice
        headers = {
            choose(names): mutator.make().strip(b" \t")
            for _ in range(mutator.random.randrange(1, 5))
        }
        methods, targets = (
            [b"POST", b"GET", b"OPTIONS", b"HEAD"],
            [b"/mcp", b"/sse", b"http://" + mutator.make()],
        )
        head = Head(choose(methods), choose(targets), headers)
        refused = service.admit(head)
        if head.route and head.route != HEALTH and refused is None:
            assert (
                bare(head.headers[b"host"].decode("latin-1").lower()) != "evil.example"
            )
            assert service.guard.check(head) is None
        accepted(headers)
        for check in (
            check_mirrored,
            lambda call, given: check_arguments(wanted, call, given),
        ):
            try:
                check(event, headers)
            except HeaderMismatch:
                pass

    return check_one


# SSE


def event_ids() -> Mutator:
    ids = [
        b"0-1",
        b"0-2",
        b"1-1",
        b"1-10",
        b"-",
        b"0-",
        b"-1",
        b"0-999999999999999",
        b"00-1",
        b"2-1",
    ]
    return Mutator(
        "resumption",
        ids,
        words=[b"-", b"0", b"9" * 20, b"9" * 5_000, b"+1", b"_", "١".encode(), b"\0"],
    )


def check_event_id(mutator: Mutator) -> Callable[[], object]:
    """An event id of a stream resumes after this event; any other is refused."""
    server = make_server()
    session = HttpSession(server, Sessions(server.ledger))
    session.session.revision = server.revisions.opening["2025-11-25"]
    session.id = b"id"
    for stream in (session.open_stream(), session.open_stream()):
        for number in range(5):
            stream.send(b'{"number":%d}' % number)
        stream.close()

    def check_one() -> None:
        given = mutator.make()
        try:
            stream, after = session.resume(given)
        except Refused:
            stream = None
        if stream is None:
            assert not re.fullmatch(rb"[01]-\d{1,15}", given)
            return
        assert given == b"%b-%b" % (stream.name, given.partition(b"-")[2])
        stream.attach(reader := object(), after)
        block = stream.head + b"".join(stream._events[stream._sent :])
        stream.detach(reader)
        assert block.count(b"number") == max(0, 5 - max(after or 0, 0))

    return check_one


def event_streams() -> Mutator:
    corpus = [
        b"event: message\nid: 0-1\ndata: {}\n\n",
        b":\n\n",
        b"retry: 10\n\n",
        b"\xef\xbb\xbfdata: a\rdata: b\r\n\r\n",
    ]
    return Mutator(
        "events",
        corpus,
        words=[
            b"\n",
            b"\r",
            b"\r\n",
            b":",
            b" ",
            b"data",
            b"id: \0\n",
            b"\xff",
            b"retry: x\n",
        ],
    )


def check_event_stream(mutator: Mutator) -> Callable[[], object]:
    """The events do not depend on how the bytes are split."""

    def check_one() -> None:
        data = b"".join(mutator.make() for _ in range(3))
        split = EventParser()
        assert [
            event for piece in mutator.pieces(data) for event in split.feed(piece)
        ] == EventParser().feed(data)

    return check_one


# WebSocket


def frames() -> Mutator:
    say = [data for data in messages() if len(data) < 500][:100]
    whole = [masked(1, data) for data in say]
    parts = [
        masked(1, data[:20], final=False) + masked(9, b"ping") + masked(0, data[20:])
        for data in say[:20]
    ]
    others = [
        masked(8, b"\x03\xe8"),
        masked(2, b"binary"),
        masked(9, b""),
        masked(10, b""),
        masked(1, b"\xff"),
    ]
    return Mutator(
        "websocket",
        whole + parts + others,
        words=[b"\x81\xfe", b"\x88\x80", b"\x81\xff" + b"\xff" * 8, b"\0" * 4],
    )


def check_websocket(mutator: Mutator) -> Callable[[], object]:
    """The conversation ends with the connection, whatever the frames are."""
    server = Server("framed")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async def serve_connections(count: int) -> None:
        async with server.running():
            for _ in range(count):
                ours, theirs = trio.testing.memory_stream_pair()
                data = UPGRADE + b"".join(
                    mutator.make()[:4_000]
                    for _ in range(mutator.random.randrange(1, 6))
                )
                with trio.fail_after(30):
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(
                            serve_websocket, server, theirs, data, trio.Event()
                        )
                        await ours.send_eof()
                        while await ours.receive_some():
                            pass

    def check_one() -> int:
        trio.run(
            serve_connections, 100, clock=trio.testing.MockClock(autojump_threshold=0)
        )
        return 100

    return check_one


# URIs, schemas, states, traces


def uris() -> Mutator:
    corpus = [text.encode() for template, uri, _ in MATCHES for text in (template, uri)]
    return Mutator(
        "templates",
        corpus,
        words=[
            b"{x}",
            b"{+y}",
            b"/",
            b"%2F",
            b"%",
            b"{",
            b"}",
            b"\n",
            b"a" * 500,
            b"\xff",
        ],
    )


def check_template(mutator: Mutator) -> Callable[[], object]:
    """A template is refused with a ValueError, or matches quickly."""
    templates = [UriTemplate(template) for template, _, _ in MATCHES]

    def check_one() -> None:
        if mutator.random.random() < 0.3:
            try:
                templates[mutator.random.randrange(len(templates))] = UriTemplate(
                    mutator.text()
                )
            except ValueError:
                pass
        uri, begun = mutator.text(), time.perf_counter()
        found = mutator.random.choice(templates).match(uri)
        assert time.perf_counter() - begun < 0.25
        assert found is None or all(value for value in found.values())

    return check_one


def schemas() -> Mutator:
    corpus: list[Any] = [
        {
            "$schema": draft,
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 1}},
        }
        for draft in DRAFTS
    ]
    corpus += [
        {
            "$defs": {"a": {"type": "string"}},
            "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "#"}},
        },
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#"}, "maxItems": 3},
            ]
        },
        {
            "$id": "http://localhost/a",
            "properties": {"a": {"$ref": "b"}},
            "$defs": {"b": {"$id": "b", "type": "null"}},
        },
        {
            "if": {"type": "integer"},
            "then": {"multipleOf": 3},
            "else": {"format": "date"},
            "enum": [1, 2, None],
        },
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["a"],
            "dependentRequired": {"a": ["b"]},
        },
        {"a": 1},
        {"a": "x", "b": {"a": [1, 2.0]}},
        [],
        "x",
        None,
    ]
    return Mutator(
        "schemas", [json.dumps(one).encode() for one in corpus], is_json=True
    )


def check_schema(mutator: Mutator) -> Callable[[], object]:
    """A schema and a signature raise only ValueErrors, with a reason."""

    def f(
        a: int,
        b: list[float] | None = None,
        c: dict[str, Any] | str = "x",
        d: bool = False,
    ) -> None: ...

    parameters, known = Parameters(f), [Validator({}, what="none")]

    def decoded() -> Any:
        try:
            return json.loads(mutator.make())
        except (ValueError, RecursionError):
            return {}

    def check_one() -> None:
        schema, reasons = decoded(), list[str]()
        try:
            if isinstance(schema, dict) and mutator.random.random() < 0.3:
                known.append(Validator(schema, what="the schema"))
                del known[:-20]
            mutator.random.choice(known).check(decoded())
        except ValueError as refused:
            reasons.append(str(refused))
        try:
            parameters.decode(mutator.make())
        except InvalidParams as refused:
            reasons.append(str(refused))
        assert all(reasons)

    return check_one


def states() -> Mutator:
    contents = [b"{}", b'{"digest":"x","expires":1.0}', b"", b"\0" * 100]
    return Mutator(
        "states",
        [seal(SECRET, content).encode() for content in contents],
        words=[b"=", b"-", b"_", b"+", b"/", b" "],
    )


def check_state(mutator: Mutator) -> Callable[[], object]:
    """Only sealed states are accepted, without any change."""

    def check_one() -> None:
        given = mutator.text()
        try:
            content = unseal(SECRET, given)
        except ValueError:
            return
        assert given == seal(SECRET, content)
        assert content in (b"{}", b'{"digest":"x","expires":1.0}', b"", b"\0" * 100)

    return check_one


def traces() -> Mutator:
    files = [path.read_bytes() for path in sorted(TRACES.rglob("*.jsonl"))]
    return Mutator(
        "traces",
        [data for data in files if len(data) < 6_000],
        words=[b"\n", b"{", b"null", b'"raw":"x"', b"\xff"],
    )


def check_trace(mutator: Mutator) -> Callable[[], object]:
    """A trace is refused with BadTrace, or can be drawn and written again."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        path = Path(file.name)

    def check_one() -> None:
        path.write_bytes(mutator.make())
        try:
            trace = read(path)
        except BadTrace:
            return
        finally:
            path.unlink()
        path.write_bytes(trace.dump())
        again = read(path)
        assert (again.header, again.lines) == (trace.header, trace.lines)
        if mutator.random.random() < 0.1:
            in_terminal(trace, 80, False)

    return check_one


def check_encoding(mutator: Mutator) -> Callable[[], object]:
    """Any text that a tool returns is encoded as JSON in UTF-8."""

    def check_one() -> None:
        text = mutator.text() + mutator.random.choice(
            ["", "\ud800", "\udc00\ud800", "\0"]
        )
        assert isinstance(
            msgspec.json.decode(jsonrpc.encode({"text": text, text[:9]: [text]})), dict
        )

    return check_one


# Name -> number of inputs (a million together), mutator, check.
PARSERS: dict[str, tuple[int, Callable[[], Mutator], Target]] = {
    "jsonrpc": (250_000, jsonrpc_messages, check_message),
    "lines": (50_000, jsonrpc_messages, check_lines),
    "http": (250_000, http_streams, check_stream),
    "headers": (100_000, header_values, check_headers),
    "resumption": (50_000, event_ids, check_event_id),
    "events": (50_000, event_streams, check_event_stream),
    "websocket": (20_000, frames, check_websocket),
    "templates": (90_000, uris, check_template),
    "schemas": (30_000, schemas, check_schema),
    "states": (50_000, states, check_state),
    "encoding": (50_000, jsonrpc_messages, check_encoding),
    "traces": (10_000, traces, check_trace),
}
