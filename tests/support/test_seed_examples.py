"""The reader of the seeds finds every example, and the oracle accepts them."""

from typing import Any

import pytest

from tests.support.oracle import Oracle, judge
from tests.support.seed_examples import (
    REVISION,
    examples,
    exchanges,
    notifications,
    requests,
    responses,
)

CONTENT = {
    "text": "TextContent",
    "image": "ImageContent",
    "audio": "AudioContent",
    "resource_link": "ResourceLink",
    "resource": "EmbeddedResource",
}


def kind(example: dict[str, Any]) -> str:
    """A short name for an example, to count by."""
    if "method" in example:
        return (
            f"{example['method']} {example['id']}"
            if "id" in example
            else example["method"]
        )
    if "jsonrpc" in example:
        return f"{'error' if 'error' in example else 'result'} {example['id']}"
    named = [
        key
        for key in ("capabilities", "inputSchema", "structuredContent")
        if key in example
    ]
    return named[0] if named else example["type"]


FIRST_SIX = [
    "capabilities",
    "tools/list 1",
    "result 1",
    "tools/call 2",
    "result 2",
    "notifications/tools/list_changed",
]

# Counted in the documents by eye.
KINDS = {
    0: [*FIRST_SIX, "text", "image", "audio", "resource_link", "resource"],
    1: [
        *FIRST_SIX,
        *["object", "object", "text", "image", "audio", "resource_link", "resource"],
        *[
            "inputSchema",
            "result 5",
            "inputSchema",
            "inputSchema",
            "inputSchema",
            "error 3",
            "result 4",
        ],
    ],
    2: [
        *["capabilities", "capabilities", "inputSchema", "inputSchema"],
        *FIRST_SIX[1:],
        *["error 3", "error 4", "result 5"],
    ],
    3: [*FIRST_SIX, "text", "image", "resource", "error 3", "result 4"],
    4: [
        "capabilities",
        "notifications/tools/list_changed",
        "tools/call 7",
        "structuredContent",
    ],
}


@pytest.mark.parametrize(
    ("number", "count"), [(0, 11), (1, 20), (2, 12), (3, 11), (4, 4)]
)
def test_every_example_is_read(number: int, count: int) -> None:
    assert [kind(example) for example in examples(number)] == KINDS[number]
    assert len(examples(number)) == count


@pytest.mark.parametrize(
    ("number", "answered"), [(0, 2), (1, 2), (2, 2), (3, 2), (4, 0)]
)
def test_requests_are_paired_with_their_responses(number: int, answered: int) -> None:
    pairs = exchanges(number)
    assert len(pairs) == answered
    assert [request["method"] for request, _ in pairs] == ["tools/list", "tools/call"][
        :answered
    ]
    assert all(request["id"] == response["id"] for request, response in pairs)
    assert len(notifications(number)) == 1


def test_the_pocket_seed_keeps_its_placeholders() -> None:
    fragment, _, call, result = examples(4)
    assert fragment == {"capabilities": {"tools": {"listChanged": True}}}
    assert requests(4) == [call]
    assert responses(4) == []
    assert call["params"] == {"name": "<tool-name>", "arguments": {"…": "…"}}
    assert result == {
        "content": [{"type": "text", "text": "…"}],
        "structuredContent": {},
        "isError": False,
    }


def test_a_string_broken_over_lines_keeps_its_line_ends() -> None:
    text = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
    assert [
        responses(number)[1]["result"]["content"][0]["text"] for number in (0, 1, 3)
    ] == [text] * 3


@pytest.mark.parametrize("number", REVISION)
def test_the_oracle_agrees_with_every_message(number: int) -> None:
    oracle = Oracle(REVISION[number])
    for request in requests(number):
        oracle.sent_by_client(request)
    for response in responses(number):
        if response["id"] > 2:
            oracle.sent_by_client({"id": response["id"], "method": "tools/call"})
        assert oracle.check(response) == []
    for notification in notifications(number):
        assert oracle.check(notification) == []


@pytest.mark.parametrize("number", REVISION)
def test_the_oracle_agrees_with_every_part(number: int) -> None:
    revision = REVISION[number]
    for example in examples(number):
        if "capabilities" in example:
            assert judge(revision, "ServerCapabilities", example["capabilities"]) == []
        elif "inputSchema" in example:
            assert judge(revision, "Tool", example) == []
        elif "structuredContent" in example:
            assert judge(revision, "CallToolResult", example) == []
        elif example.get("type") in CONTENT:
            assert judge(revision, CONTENT[example["type"]], example) == []
