"""Traces that the tests of diagrams draw."""

import json
from typing import Any

from msgspec import Raw

from mcp_trio.trace.format import Header, Http, Line, Trace


def trace(*lines: Line, title: str = "A title", **header: Any) -> Trace:
    return Trace(
        Header(**{"mcp_trace": 1, "transport": "stdio", "title": title, **header}),
        list(lines),
    )


def line(t: float, sender: Any, message: Any = None, **more: Any) -> Line:
    if message is not None:
        more["message"] = Raw(
            message
            if isinstance(message, bytes)
            else json.dumps(message, ensure_ascii=False).encode()
        )
    return Line(t=t, sender=sender, **more)


def request(id: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method} | (
        {"params": params} if params is not None else {}
    )


def notification(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method} | (
        {"params": params} if params is not None else {}
    )


def result(id: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": value}


def error(id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "by hand", "version": "1"},
}

WELCOME = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "demo", "version": "1"},
}

FORM = {
    "message": "Which units?",
    "requestedSchema": {"type": "object", "properties": {"units": {"type": "string"}}},
}
SSE = Http(status=200, headers={"content-type": "text/event-stream"})


def post(t: float, stream: int, message: Any) -> Line:
    head = Http(
        method="POST",
        path="/mcp",
        headers={"mcp-session-id": "5f3a", "accept": "application/json"},
    )
    return line(t, "client", message, stream=stream, http=head)


def event(t: float, stream: int, message: Any = None, **more: str) -> Line:
    return line(t, "server", message, stream=stream, event={"event": "message", **more})


CONVERSATION = trace(
    post(0.0, 1, request(1, "initialize", OPENING)),
    line(
        0.0021,
        "server",
        result(1, WELCOME),
        stream=1,
        http=Http(status=200, headers={"mcp-session-id": "5f3a"}),
    ),
    post(0.0034, 2, notification("notifications/initialized")),
    line(0.0039, "server", stream=2, http=Http(status=202)),
    post(
        0.0051,
        3,
        request(
            "a",
            "tools/call",
            {"name": "get_weather", "arguments": {"location": "東京 🗼"}},
        ),
    ),
    line(0.0062, "server", stream=3, http=SSE),
    event(0.0063, 3, id="3-0", data=""),
    event(
        0.0071,
        3,
        notification(
            "notifications/progress", {"progressToken": "p", "progress": 1, "total": 4}
        ),
        id="3-1",
    ),
    event(0.0088, 3, request(1, "elicitation/create", FORM), id="3-2"),
    post(1.2513, 4, result(1, {"action": "accept", "content": {"units": "metric"}})),
    line(1.2518, "server", stream=4, http=Http(status=202)),
    event(
        1.2641,
        3,
        result(
            "a", {"content": [{"type": "text", "text": "18 °C, light rain. " * 20}]}
        ),
        id="3-3",
    ),
    line(1.2642, "server", stream=3, ends=True),
    post(1.3012, 5, request(2, "no/such/method")),
    line(
        1.3019,
        "server",
        error(2, -32601, "Method not found: no/such/method"),
        stream=5,
        http=Http(status=200),
    ),
    post(
        1.4001,
        6,
        [
            request(3, "ping"),
            notification("notifications/cancelled", {"requestId": 9}),
            7,
        ],
    ),
    line(1.4008, "server", [result(3, {})], stream=6, http=Http(status=200)),
    post(
        1.5002,
        7,
        request(4, "tools/call", {"name": "sleep", "arguments": {"seconds": 60}}),
    ),
    line(1.7003, "client", stream=7, ends=True),
    line(
        1.8004,
        "client",
        stream=8,
        raw='{"jsonrpc": \xff\x1b[31m\r\n',
        http=Http(method="POST", path="/mcp"),
    ),
    line(
        1.8009,
        "server",
        error(None, -32700, "Parse error"),
        stream=8,
        http=Http(status=400),
    ),
    title="A tool asks how to answer",
    revision="2025-11-25",
    transport="http",
    server="mcp_trio.demo",
    client="by hand",
    notes="A question inside a stream of events, a batch, a request that is given up, and bytes that are no JSON.",
)

HOSTILE = (
    "</script><script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    '"><svg onload=window.hurt=1><b>',
    "<!-- <script> {{data}} &lt;form&gt; javascript:window.hurt=1 http://evil.example/",
)


def hostile() -> Trace:
    said = [
        line(
            0,
            "client",
            request(text, text, {text: text, "name": text}),
            http=Http(method=text, path=text, headers={text: text}),
        )
        for text in HOSTILE
    ]
    answered = [
        line(
            1, "server", result(text, {text: text}), event={"event": text, "data": text}
        )
        for text in HOSTILE
    ]
    raw = [line(2, "server", raw=text) for text in HOSTILE]
    everywhere = " ".join(HOSTILE)
    about = dict.fromkeys(
        ("title", "revision", "server", "client", "notes"), everywhere
    )
    return trace(*said, *answered, *raw, **about)
