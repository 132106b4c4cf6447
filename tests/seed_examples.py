"""The JSON examples of the five seed documents, which lie beside the official schemas (`$MCP_SPEC_DIR/../seeds`).

    number  document
    0       2025-06-18: fenced blocks
    1       2025-11-25: plain text without fences or indentation; two of its snippets stand within one line of prose
    2       2024-10-07: fenced blocks
    3       2024-11-05: fenced blocks; one string is broken over lines, which strict JSON forbids
    4       the "pocket" profile on 2025-06-18: JSON for human eyes

Every example is given as it stands, in order, but for document 4, where three notations are no JSON and are rewritten:
comments (`// ...`) are dropped, the placeholder object `{ … }` becomes `{"…": "…"}`, and the fragment
`"capabilities": {...}` gets the braces around it that it lacks. Placeholders in strings (`"<tool-name>"`, `"…"`) stay.
Names in running prose (`method:"tools/list"`) are no examples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from oracle import spec_dir

REVISION = {
    0: "2025-06-18",
    1: "2025-11-25",
    2: "2024-10-07",
    3: "2024-11-05",
    4: "2025-06-18",
}

FENCED = re.compile(r"^ *```json\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
BARE_MEMBER = re.compile(r'^("\w+": \{.*\})$', re.MULTILINE)
LENIENT = json.JSONDecoder(strict=False)
"""Takes line ends within a string for what they are."""


def seed_files() -> dict[int, Path]:
    """Number -> file, of the seeds that are there."""
    return {
        int(path.name[:3]): path
        for path in sorted((spec_dir().parent / "seeds").glob("00[0-4]_*.txt"))
    }


def available() -> bool:
    """Whether all five seeds are there."""
    return len(seed_files()) == len(REVISION)


needs_seeds = pytest.mark.skipif(
    not available(), reason="the seeds are absent: set MCP_SPEC_DIR to their neighbour"
)


@cache
def examples(number: int) -> list[Any]:
    """Every JSON example of one seed, parsed, in order."""
    text = seed_files()[number].read_text(encoding="utf-8")
    if number == 1:
        return list(bare_objects(text))
    if number == 4:
        return list(bare_objects(plain_json(text)))
    return [LENIENT.decode(block) for block in FENCED.findall(text)]


def bare_objects(text: str) -> Iterator[Any]:
    """Each JSON object in a text without fences. A brace that opens no JSON is an error: nothing is passed over."""
    start = text.find("{")
    while start >= 0:
        example, end = LENIENT.raw_decode(text, start)
        yield example
        start = text.find("{", end)


def plain_json(text: str) -> str:
    """Document 4 with its notations rewritten as the module's docstring says."""
    text = STRING_OR_COMMENT.sub(lambda match: match[1] or "", text)
    text = text.replace("{ … }", '{"…": "…"}')
    return BARE_MEMBER.sub(r"{\1}", text)


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
