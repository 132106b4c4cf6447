"""What every floor answers: the same calls, and next to nothing of the protocol. Waiting and blocking cost nothing."""

import os
from typing import Any

import msgspec

encode = msgspec.json.encode


class Arguments(msgspec.Struct):
    """Those of all tools."""

    a: int = 0
    b: int = 0
    text: str = ""
    n: int = 0


class Meta(msgspec.Struct):
    """What a floor reads of it."""

    token: int | str | None = msgspec.field(default=None, name="progressToken")


class Params(msgspec.Struct):
    """Those of all methods."""

    name: str = ""
    arguments: Arguments = msgspec.field(default_factory=Arguments)
    version: str = msgspec.field(default="", name="protocolVersion")
    meta: Meta = msgspec.field(default_factory=Meta, name="_meta")


class Request(msgspec.Struct):
    """A request, or a notification where there is no id."""

    method: str
    id: int | str | None = None
    params: Params = msgspec.field(default_factory=Params)


decode = msgspec.json.Decoder(Request).decode
REPLY = b'{"jsonrpc":"2.0","id":%b,"result":{"content":[{"type":"text","text":%b}],"isError":false}}'
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


def tool(
    name: str, description: str = "Add two numbers.", **types: str
) -> dict[str, Any]:
    """A tool as a list has it."""
    properties = {key: {"type": kind} for key, kind in types.items()}
    schema = {"type": "object", "properties": properties, "required": list(types)}
    return {"name": name, "description": description, "inputSchema": schema}


NUMBERS = {"a": "integer", "b": "integer"}
TOOLS = [
    tool("add", **NUMBERS),
    tool("wait", "Add two numbers after a turn of the loop.", **NUMBERS),
    tool("block", "Add two numbers in a thread.", **NUMBERS),
    tool("echo", "Give the text back.", text="string"),
    tool("progress", "Tell of n steps, then answer.", n="integer"),
    tool(
        "grow", "Add a tool, so that those who listen hear that the list has changed."
    ),
    *(
        tool(f"tool_{number}", **NUMBERS)
        for number in range(int(os.environ.get("BENCH_TOOLS", "0")))
    ),
]
LISTED = [encode(TOOLS)]


def answer(message: bytes) -> list[bytes]:
    """What goes out for one message: nothing, a reply, or a reply with notifications before it."""
    request = decode(message)
    if request.id is None:
        return []
    if request.method != "tools/call":
        return [other(request)]
    called = request.params.arguments
    match request.params.name:
        case "echo":
            return [REPLY % (encode(request.id), encode(called.text))]
        case "progress":
            return [
                *progress(request),
                REPLY % (encode(request.id), b'"%d"' % called.n),
            ]
        case "grow":
            return [CHANGED, REPLY % (encode(request.id), encode(grow()))]
    return [REPLY % (encode(request.id), b'"%d"' % (called.a + called.b))]


def progress(request: Request) -> list[bytes]:
    """The notifications of one call."""
    told = {
        "progressToken": request.params.meta.token,
        "progress": 0,
        "total": request.params.arguments.n,
    }
    head = {"jsonrpc": "2.0", "method": "notifications/progress"}
    steps = range(1, request.params.arguments.n + 1)
    return [encode({**head, "params": {**told, "progress": step}}) for step in steps]


def grow() -> str:
    """The name of one more tool."""
    name = f"grown_{len(TOOLS)}"
    TOOLS.append(tool(name, **NUMBERS))
    LISTED[0] = encode(TOOLS)
    return name


def other(request: Request) -> bytes:
    """The reply to what is no call."""
    if request.method == "tools/list":
        result = b'{"tools":%b}' % LISTED[0]
    elif request.method == "initialize":
        capabilities = {"tools": {"listChanged": True}}
        info = {"name": "floor", "version": "1"}
        version = request.params.version
        result = encode(
            {
                "protocolVersion": version,
                "capabilities": capabilities,
                "serverInfo": info,
            }
        )
    else:
        result = b"{}"
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(request.id), result)
