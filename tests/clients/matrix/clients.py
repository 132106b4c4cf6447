"""The clients of the matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Client:
    """A client that somebody else wrote, and what it is expected to do."""

    name: str
    title: str
    language: str
    packages: tuple[str, ...]
    """What is installed, with versions. The first is the client itself."""
    driver: str
    """The file or the folder of the driver, in `drivers`."""
    runs: Mapping[str, tuple[str, ...]] = field(hash=False)
    """The revisions that it uses on each transport."""
    is_core: bool = False
    """Whether CI runs it."""
    faults: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What fails by the client's own fault, and why.

    The key is a feature, alone or with where it fails: `feature transport/revision`,
    `feature transport` or `feature revision`.
    """


HANDSHAKE = ("2025-11-25",)
NEWEST = ("2026-07-28",)
BOTH = ("2025-11-25", "2026-07-28")

CLIENTS = [
    Client(
        "python-1",
        "Python SDK 1.x",
        "Python",
        ("mcp[ws]==1.30.0",),
        "python_sdk_1.py",
        {"stdio": HANDSHAKE, "http": HANDSHAKE, "sse": HANDSHAKE, "ws": HANDSHAKE},
        is_core=True,
        faults={
            "cancellation": "does not tell the server that a call was cancelled",
        },
    ),
    Client(
        "python-2",
        "Python SDK 2.x",
        "Python",
        ("mcp==2.3.0",),
        "python_sdk_2.py",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "typescript-1",
        "TypeScript SDK 1.x",
        "TypeScript",
        ("@modelcontextprotocol/sdk@1.32.2",),
        "sdk_1.mjs",
        {"stdio": HANDSHAKE, "http": HANDSHAKE, "sse": HANDSHAKE, "ws": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "typescript-2",
        "TypeScript SDK 2.x",
        "TypeScript",
        ("@modelcontextprotocol/client@2.4.0",),
        "sdk_2.mjs",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "go-sdk",
        "Go SDK",
        "Go",
        ("github.com/modelcontextprotocol/go-sdk@v1.8.0",),
        "go_sdk",
        {"stdio": BOTH, "http": BOTH, "sse": HANDSHAKE},
        is_core=True,
    ),
    Client(
        "rmcp",
        "Rust SDK",
        "Rust",
        ("rmcp@3.8.0",),
        "rmcp",
        {"stdio": BOTH, "http": BOTH},
        is_core=True,
    ),
]
