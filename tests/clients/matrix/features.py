"""The features of the matrix, and what a client should see of `server.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.clients.matrix.server import PAGED_TOOLS

TOOLS = [
    "add_tool", "ask_model", "ask_roots", "ask_user", "change_note", "count", "drop", "fail", "greet",
    "measure", "plan", "revision", "show", "talk", "wait_for_ever", "was_cancelled",
]  # fmt: skip
REVISION = object()
"""The revision that the client is expected to use."""


@dataclass(frozen=True)
class Contains:
    """Matches a text that contains this text: clients add their own words to errors."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.text in other


@dataclass(frozen=True)
class Feature:
    """Something that a client can do."""

    name: str
    description: str
    """What the client does."""
    expected: Any
    """What the client sees."""
    first: str = ""
    """The first revision that has it."""
    last: str = "9999"
    """The last revision that has it."""
    transports: tuple[str, ...] = ("stdio", "http", "sse", "ws")
    server: str = "server"
    """The server in `server.py` that shows it."""

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    def exists(self, transport: str, revision: str) -> bool:
        """Return whether the protocol has the feature here."""
        return transport in self.transports and self.first <= revision <= self.last


CLEAN_EXIT = Feature(
    "clean_exit",
    "leave, so that the server ends and its lifespan has run to its end",
    "ended",
    transports=("stdio",),
)
TOOL_FEATURES = [
    Feature("tools", "list the tools", TOOLS),
    Feature("call", "call a tool with a text that is not ASCII", "Hello, Zoë 🎉!"),
    Feature("no_arguments", "call a tool without parameters", REVISION),
    Feature(
        "nested_arguments",
        "pass an object that contains a list of objects",
        "Oslo via Bergen (2): by train cheap",
    ),
    Feature(
        "parallel_calls",
        "make ten calls at once",
        [f"Hello, {number}!" for number in range(10)],
    ),
    Feature(
        "structured_results",
        "get structured content",
        {"city": "Oslo", "celsius": 4.5},
        first="2025-06-18",
    ),
    Feature(
        "content_types",
        "get a text, an image, a sound, a link and an embedded resource in one result",
        ["text", "image", "audio", "resource_link", "resource"],
        first="2025-06-18",
    ),
    Feature(
        "tool_errors", "see why a tool failed", Contains("the printer is out of paper")
    ),
    Feature(
        "bad_arguments", "see that arguments are invalid", True, first="2025-11-25"
    ),
    Feature("unknown_tool", "see the error code for an unknown tool", -32602),
    Feature(
        "pagination",
        "list the tools of a server that sends pages",
        PAGED_TOOLS,
        server="paged",
    ),
]
CALL_FEATURES = [
    Feature(
        "progress",
        "get progress notifications",
        [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]],
        first="2025-03-26",
    ),
    Feature("logging", "get log messages", [["info", "working"]]),
    Feature("cancellation", "cancel a call, which ends the tool", "cancelled"),
    Feature(
        "elicitation",
        "fill in a form for the server",
        "3 days in Rome",
        first="2025-06-18",
    ),
    Feature("sampling", "ask the model for the server", "The model says: Oslo"),
    Feature("roots", "tell the server the roots", "file:///work"),
]
RESOURCE_FEATURES = [
    Feature(
        "resources",
        "list and read resources",
        {
            "uris": ["note://picture", "note://today"],
            "text": "Buy bread.",
            "blob": "iVBORw",
        },
    ),
    Feature(
        "templates",
        "list resource templates and read a resource of one",
        {"templates": ["note://by-day/{day}"], "text": "Nothing to do on Monday."},
    ),
    Feature("subscriptions", "hear that a resource has changed", "notified"),
    Feature(
        "prompts",
        "list and get prompts",
        {"names": ["recommend"], "text": "What should I see in Rome?"},
    ),
    Feature("completion", "complete an argument of a prompt", ["Osaka", "Oslo"]),
    Feature("list_changes", "hear of a new tool and list it", True),
]
CONNECTION_FEATURES = [
    Feature("ping", "ping the server", "pong", last="2025-11-25"),
    Feature(
        "resumption",
        "come back for the result of a call whose stream the server closed",
        "back again",
        first="2025-11-25",
        last="2025-11-25",
        transports=("http",),
    ),
    Feature(
        "reconnect", "disconnect and connect again", ["Hello, first!", "Hello, second!"]
    ),
    CLEAN_EXIT,
]
GROUPS = {
    "Tools": TOOL_FEATURES,
    "During a call": CALL_FEATURES,
    "Resources, prompts and lists": RESOURCE_FEATURES,
    "Connections": CONNECTION_FEATURES,
}
FEATURES = [feature for group in GROUPS.values() for feature in group]
