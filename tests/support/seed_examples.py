"""The JSON examples of the seed documents, from `data/seeds` (see `data/derive.py`).

    number  document
    0       2025-06-18
    1       2025-11-25
    2       2024-10-07
    3       2024-11-05
    4       the "pocket" profile on 2025-06-18

The examples are unchanged, and in order. Placeholders in strings (`"<tool-name>"`)
stay.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.support.paths import DATA

Message = dict[str, Any]

ANY_TEXT = "…"
"""A placeholder for any text in an example."""
REVISION = {
    0: "2025-06-18",
    1: "2025-11-25",
    2: "2024-10-07",
    3: "2024-11-05",
    4: "2025-06-18",
}


@cache
def examples(number: int) -> list[Any]:
    """Every JSON example of one seed, parsed, in order."""
    path = DATA / "seeds" / f"{number}.json"
    found: list[Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def messages(number: int) -> list[dict[str, Any]]:
    """The examples that are whole JSON-RPC messages."""
    return [example for example in examples(number) if "jsonrpc" in example]


def requests(number: int) -> list[dict[str, Any]]:
    """The requests of one seed."""
    return [
        message
        for message in messages(number)
        if "method" in message and "id" in message
    ]


def responses(number: int) -> list[dict[str, Any]]:
    """The responses of one seed, with a result or an error."""
    return [message for message in messages(number) if "method" not in message]


def notifications(number: int) -> list[dict[str, Any]]:
    """The notifications of one seed."""
    return [message for message in messages(number) if "id" not in message]


def exchanges(number: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each request with the response of the same id, where the seed shows both."""
    by_id = {response["id"]: response for response in responses(number)}
    return [
        (request, by_id[request["id"]])
        for request in requests(number)
        if request["id"] in by_id
    ]


def kind(example: Message) -> str:
    """What an example is of."""
    if "jsonrpc" in example:
        if "method" not in example:
            return "response"
        return "request" if "id" in example else "notification"
    if "capabilities" in example:
        return "capability"
    if "inputSchema" in example:
        return "tool"
    if "content" in example:
        return "result"
    if example.get("type") == "object":
        return "schema"
    if example.get("type") in ("text", "image", "audio", "resource_link", "resource"):
        return "content"
    raise AssertionError(f"an example of no known kind: {example}")


def contains(whole: Any, part: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            key in whole and contains(whole[key], part[key]) for key in part
        )
    return bool(whole == part)


def with_any_text(result: Message) -> Message:
    return {
        **result,
        "content": [
            {**item, "text": ANY_TEXT} if "text" in item else item
            for item in result["content"]
        ],
    }
