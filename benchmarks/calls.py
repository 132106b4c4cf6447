"""Tools called over stdio and WebSocket."""

from __future__ import annotations

from .contenders.table import OLDER
from .ratios import Ratio, faster, shorter
from .servers import Setup
from .workloads import PEERS, PYTHON, STDIO, STEPS, ToolLoad, Workload

WITH_FLOOR = ("mcp_trio", *PEERS, "floor_loop")
WITHOUT_FLOOR = ("mcp_trio", *PEERS)
# Those that accept lines of a megabyte.
WITH_LONG_LINES = tuple(name for name in WITH_FLOOR if name != "tiny")
# The low-level server of the Python SDK takes JSON Schemas.
WITH_SCHEMA = tuple(
    "python_sdk_lowlevel" if name == "python_sdk" else name for name in WITHOUT_FLOOR
)

ORDER: dict[str, object] = {
    "customer": {
        "name": "Ada Lovelace",
        "address": {"street": "12 St James's Square", "postcode": "10115"},
    },
    "items": [
        {"sku": f"AB100{number}", "quantity": number, "price": 2.5}
        for number in range(1, 6)
    ],
    "shipping": "express",
}
ROUTE: dict[str, object] = {
    "from": "Potsdam",
    "to": "Berlin",
    "mode": "ride",
    "stops": ["Babelsberg", "Wannsee"],
}

WORKLOADS: list[Workload] = [
    ToolLoad(
        "stdio_async", "stdio pipelined, async tool", STDIO, WITH_FLOOR, window=1000
    ),
    ToolLoad(
        "stdio_waits",
        "stdio pipelined, a tool that waits once",
        STDIO,
        (*WITHOUT_FLOOR, "floor_tasks"),
        "wait",
        window=1000,
    ),
    ToolLoad(
        "stdio_thread",
        "stdio pipelined, thread tool",
        STDIO,
        ("mcp_trio", *PYTHON),
        "block",
        window=1000,
    ),
    ToolLoad(
        "stdio_integer",
        "stdio pipelined, an integer with an output schema",
        STDIO,
        WITHOUT_FLOOR,
        "total",
        window=1000,
        full_only=True,
    ),
    ToolLoad(
        "stdio_object",
        "stdio pipelined, an object with an output schema",
        STDIO,
        WITHOUT_FLOOR,
        "user",
        window=1000,
    ),
    ToolLoad(
        "stdio_objects",
        "stdio pipelined, a list of 100 objects with an output schema",
        STDIO,
        WITHOUT_FLOOR,
        "users",
        window=50,
    ),
    ToolLoad(
        "stdio_nested",
        "stdio pipelined, nested arguments with constraints",
        STDIO,
        WITHOUT_FLOOR,
        "order",
        ORDER,
        window=200,
    ),
    ToolLoad(
        "stdio_schema",
        "stdio pipelined, a tool with a JSON Schema of its own",
        STDIO,
        WITH_SCHEMA,
        "route",
        ROUTE,
        window=200,
    ),
    ToolLoad(
        "stdio_one",
        "stdio one at a time, p50",
        STDIO,
        (*WITH_FLOOR, "floor_blocking"),
        unit="s",
    ),
    ToolLoad(
        "megabyte",
        "stdio, 1 MB in and out",
        STDIO,
        WITH_LONG_LINES,
        "echo",
        {"text": "x" * 10**6},
        window=2,
        full_only=True,
    ),
    ToolLoad(
        "progress",
        f"stdio, {STEPS} progress messages a call",
        STDIO,
        WITH_FLOOR,
        "progress",
        {"n": STEPS},
        window=4,
        full_only=True,
    ),
    ToolLoad(
        "list_tools",
        "stdio, a list of 1,000 tools",
        Setup("stdio", OLDER, tools=1000),
        WITH_FLOOR,
        tool="",
        window=4,
        full_only=True,
    ),
    ToolLoad(
        "websocket",
        "WebSocket, 50 at once",
        Setup("ws", OLDER),
        ("mcp_trio", "floor_websocket"),
        window=50,
    ),
]

STRUCTURED = {"python_sdk": 60, "typescript": 1.3, "rust": 4, "tiny": 3}
AHEAD = {
    "python_sdk": 1,
    "fastmcp": 1,
    "typescript": 1,
    "go": 1,
    "rust": 1,
    "tiny": 3,
}
AHEAD_WITH_SCHEMA = {
    "python_sdk_lowlevel" if name == "python_sdk" else name: bound
    for name, bound in AHEAD.items()
}


def compare_with_text(workload: str, title: str) -> Ratio:
    """Compare our throughput with structured results to that with text."""
    return Ratio(
        title,
        (workload, "mcp_trio"),
        ("stdio_async", "mcp_trio"),
        0.6,
        baseline="mcp_trio, a text",
    )


RATIOS = [
    *faster(
        "stdio_async",
        "stdio pipelined, async tool",
        {"python_sdk": 60, "typescript": 1.2, "tiny": 3, "floor_loop": 0.18},
    ),
    *faster("stdio_integer", "stdio pipelined, an integer", STRUCTURED),
    compare_with_text("stdio_integer", "stdio pipelined, an integer"),
    *faster("stdio_object", "stdio pipelined, an object", STRUCTURED),
    compare_with_text("stdio_object", "stdio pipelined, an object"),
    *faster("stdio_objects", "stdio pipelined, a list of 100 objects", AHEAD),
    *faster("stdio_nested", "stdio pipelined, nested arguments", AHEAD),
    *faster("stdio_schema", "stdio pipelined, a JSON Schema", AHEAD_WITH_SCHEMA),
    *faster(
        "stdio_waits",
        "stdio pipelined, a tool that waits once",
        {
            "python_sdk": 25,
            "typescript": 1.2,
            "rust": 1.2,
            "tiny": 2,
            "floor_tasks": 0.5,
        },
    ),
    *faster(
        "stdio_thread", "stdio pipelined, thread tool", {"python_sdk": 8, "tiny": 3}
    ),
    *shorter(
        "stdio_one",
        "stdio one at a time, p50",
        {"floor_blocking": 1.25, "python_sdk": 0.15, "tiny": 1 / 3},
    ),
    *faster(
        "megabyte",
        "stdio, 1 MB in and out",
        {"rust": 1.1, "python_sdk": 1.5},
    ),
    *faster(
        "progress",
        f"stdio, {STEPS} progress messages a call",
        {"go": 1.1, "typescript": 2, "tiny": 3},
    ),
    *faster("list_tools", "stdio, a list of 1,000 tools", {"tiny": 3}),
    *faster("websocket", "WebSocket, 50 at once", {"floor_websocket": 0.8}),
]
