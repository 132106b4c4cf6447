"""The answers of all floors: the same tools, with almost no protocol.

The tools `wait` and `block` neither wait nor block.
"""

import os
from typing import Any

import msgspec

encode = msgspec.json.encode


class Arguments(msgspec.Struct):
    """The arguments of all tools."""

    a: int = 0
    b: int = 0
    text: str = ""
    n: int = 0


class Meta(msgspec.Struct):
    """The only key of _meta that a floor reads."""

    token: int | str | None = msgspec.field(default=None, name="progressToken")


class Params(msgspec.Struct):
    """The parameters of all methods."""

    name: str = ""
    arguments: Arguments = msgspec.field(default_factory=Arguments)
    version: str = msgspec.field(default="", name="protocolVersion")
    meta: Meta = msgspec.field(default_factory=Meta, name="_meta")


class Request(msgspec.Struct):
    """A request, or a notification if it has no id."""

    method: str
    id: int | str | None = None
    params: Params = msgspec.field(default_factory=Params)


decode = msgspec.json.Decoder(Request).decode
REPLY = (
    b'{"jsonrpc":"2.0","id":%b,'
    b'"result":{"content":[{"type":"text","text":%b}],"isError":false}}'
)
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'


def tool(
    name: str, description: str = "Add two numbers.", **types: str
) -> dict[str, Any]:
    """Return a tool for tools/list."""
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
    """Return the messages that answer a message. The last one is the reply, if any."""
    request = decode(message)
    if request.id is None:
        return []
    if request.method != "tools/call":
        return [answer_other(request)]
    arguments = request.params.arguments
    match request.params.name:
        case "echo":
            return [REPLY % (encode(request.id), encode(arguments.text))]
        case "progress":
            return [
                *progress(request),
                REPLY % (encode(request.id), b'"%d"' % arguments.n),
            ]
        case "grow":
            return [CHANGED, REPLY % (encode(request.id), encode(grow()))]
    return [REPLY % (encode(request.id), b'"%d"' % (arguments.a + arguments.b))]


def progress(request: Request) -> list[bytes]:
    """Return the notifications of one call."""
    params = {
        "progressToken": request.params.meta.token,
        "progress": 0,
        "total": request.params.arguments.n,
    }
    head = {"jsonrpc": "2.0", "method": "notifications/progress"}
    steps = range(1, request.params.arguments.n + 1)
    return [encode({**head, "params": {**params, "progress": step}}) for step in steps]


def grow() -> str:
    """Add a tool and return its name."""
    name = f"grown_{len(TOOLS)}"
    TOOLS.append(tool(name, **NUMBERS))
    LISTED[0] = encode(TOOLS)
    return name


def answer_other(request: Request) -> bytes:
    """Return the reply to a request that is not a call of a tool."""
    if request.method == "tools/list":
        result = b'{"tools":%b}' % LISTED[0]
    elif request.method == "initialize":
        result = encode(
            {
                "protocolVersion": request.params.version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "floor", "version": "1"},
            }
        )
    else:
        result = b"{}"
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(request.id), result)
