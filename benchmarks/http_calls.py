"""Tools called over HTTP."""

from __future__ import annotations

from .contenders.table import NEWEST, OLDER
from .ratios import Bounds, Ratio, faster, shorter
from .servers import Setup
from .workloads import HTTP_NEWEST, PEERS, ToolLoad, Workload

WITHOUT_FLOOR = ("mcp_trio", "python_sdk_streams", *PEERS)
WITH_FLOOR = (*WITHOUT_FLOOR, "floor_httptools")

WORKLOADS: list[Workload] = [
    ToolLoad(
        "http_session",
        "HTTP, 16 connections, 2025-11-25 with a session",
        Setup("http", OLDER, 16),
        WITH_FLOOR,
    ),
    ToolLoad(
        "http_sessionless",
        "HTTP, 16 connections, 2025-11-25 without a session",
        Setup("stateless", OLDER, 16, session=False),
        WITH_FLOOR,
        full_only=True,
    ),
    ToolLoad(
        "http_newest", "HTTP, 16 connections, 2026-07-28", HTTP_NEWEST, WITH_FLOOR
    ),
    ToolLoad(
        "http_object",
        "HTTP, 16 connections, 2026-07-28, an object with an output schema",
        HTTP_NEWEST,
        WITHOUT_FLOOR,
        "user",
    ),
    ToolLoad(
        "http_hypercorn",
        "HTTP under hypercorn, 16 connections, 2025-11-25",
        Setup("http", OLDER, 16),
        (
            "mcp_trio_hypercorn",
            "python_sdk_streams",
            "python_sdk",
            "python_sdk_trio",
            "floor_hypercorn",
        ),
    ),
    ToolLoad(
        "http_1",
        "HTTP, 1 connection, 2026-07-28",
        Setup("stateless", NEWEST),
        WITH_FLOOR,
        full_only=True,
    ),
    ToolLoad(
        "http_64",
        "HTTP, 64 connections, 2026-07-28",
        Setup("stateless", NEWEST, 64),
        WITH_FLOOR,
        full_only=True,
    ),
]

# The bound applies to the Python SDK with its defaults. With JSON replies, it is only
# shown.
PEER_BOUNDS: Bounds = {
    "python_sdk_streams": 20,
    "python_sdk": None,
    "typescript": 10,
    "go": 4,
    "rust": 1.2,
    "tiny": 3,
}


def peers(workload: str, title: str) -> list[Ratio]:
    """Compare throughput with that of the peers, and p99 with the Rust SDK's."""
    return [
        *faster(workload, title, PEER_BOUNDS),
        *shorter(workload, f"{title}, p99", {"rust": 1}, part="p99"),
    ]


FLOOR = {"floor_httptools": 0.4}

RATIOS = [
    *peers("http_session", "HTTP, 2025-11-25 with a session"),
    *faster("http_session", "HTTP, 2025-11-25 with a session", FLOOR),
    *peers("http_sessionless", "HTTP, 2025-11-25 without a session"),
    *faster("http_sessionless", "HTTP, 2025-11-25 without a session", FLOOR),
    *peers("http_newest", "HTTP, 2026-07-28"),
    *faster("http_newest", "HTTP, 2026-07-28", FLOOR),
    *peers("http_object", "HTTP, 2026-07-28, an object"),
    *peers("http_1", "HTTP, 2026-07-28, 1 connection"),
    *peers("http_64", "HTTP, 2026-07-28, 64 connections"),
    *faster(
        "http_hypercorn",
        "HTTP under hypercorn",
        {"python_sdk_streams": 2, "python_sdk": None, "floor_hypercorn": 0.8},
        ours="mcp_trio_hypercorn",
    ),
]
