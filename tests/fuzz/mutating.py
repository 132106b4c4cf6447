"""Malformed inputs: valid ones with a few small changes, reproducible by their seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mcp_trio.trace.format import read
from tests.support.checked import (
    ALL,
    OPENING,
    asking,
    call,
    cancelled,
    initialize,
    modern,
    notification,
)
from tests.support.paths import TRACES

LARGEST = 200_000
WORDS = [
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\r\n",
    b"9" * 30,
    b"-1",
    b"%",
    b"\xef\xbb\xbf",
]


def seeds() -> list[Any]:
    """Return valid messages of all revisions."""
    messages: list[Any] = [
        *[initialize(revision) for revision in OPENING],
        notification("notifications/initialized"),
        cancelled(1),
        {"jsonrpc": "2.0", "id": "ask-1", "result": {"action": "accept"}},
        {"jsonrpc": "2.0", "id": "ask-1", "error": {"code": 1, "message": "no"}},
        modern(9, "server/discover"),
        modern(
            9,
            "tools/call",
            {"name": "wait", "requestState": "AAAA", "inputResponses": {"a": {}}},
        ),
    ]
    for revision in ALL:
        ref = {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "who", "value": "A"},
        }
        messages += [
            asking(revision, 1, "ping"),
            asking(revision, 2, "tools/list", {"cursor": "YWZ0ZXI6MQ=="}),
            call(revision, 3, "get_weather", {"location": "New York"}),
            call(revision, 4, "calculate_sum", {"a": 1, "b": 2.5}),
            asking(
                revision,
                "5",
                "tools/call",
                {"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}},
            ),
            asking(revision, 6, "resources/read", {"uri": "notes://1"}),
            asking(
                revision,
                7,
                "prompts/get",
                {"name": "greet", "arguments": {"who": "Ada"}},
            ),
            asking(revision, 8, "completion/complete", ref),
            asking(revision, 9, "resources/subscribe", {"uri": "notes://1"}),
            asking(revision, 10, "logging/setLevel", {"level": "debug"}),
        ]
    return messages


@cache
def recorded() -> list[bytes]:
    """Return what clients send in the golden traces, each message once."""
    lines = [
        line for path in sorted(TRACES.rglob("*.jsonl")) for line in read(path).lines
    ]
    said = (line.data for line in lines if line.sender == "client")
    return list(dict.fromkeys(data for data in said if data and len(data) < 5_000))


@cache
def messages() -> list[bytes]:
    return [*(json.dumps(message).encode() for message in seeds()), *recorded()]


class Mutator:
    """Makes malformed inputs. `words` are the tokens of the grammar."""

    def __init__(
        self,
        seed: object,
        corpus: Sequence[bytes],
        *,
        is_json: bool = False,
        words: Sequence[bytes] = (),
    ):
        self.random = random.Random(str(seed))
        self._corpus = corpus
        # The latest input.
        self.last = b""
        self._words = words or [
            b"\0",
            b"\xff",
            b"\xc3",
            b"\xed\xa0\x80",
            b"\r\n",
            b"9" * 30,
            b"-1",
            b"%",
            b"\xef\xbb\xbf",
        ]
        self._kinds: list[Callable[[bytes], bytes]] = [
            *(
                self._flip,
                self._cut,
                self._double,
                self._splice,
                self._insert_word,
                lambda data: data,
            ),
            *(
                [self._nest, *[self._swap_value] * 3, self._wrap_in_array]
                if is_json
                else [self._insert_word]
            ),
        ]

    def make(self) -> bytes:
        """Return the next input."""
        data = self.random.choice(self._corpus)
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            data = self.random.choice(self._kinds)(data)
        self.last = data[:LARGEST]
        return self.last

    def line(self) -> bytes:
        """Return the next input without line feeds."""
        return self.make().replace(b"\n", b" ") or b"{"

    def text(self) -> str:
        """Return the next input as text."""
        return self.make().decode(
            "utf-8", self.random.choice(["replace", "surrogateescape", "ignore"])
        )

    def pieces(self, data: bytes) -> list[bytes]:
        """Split data as a connection may deliver it: in pieces, or byte by byte."""
        if len(data) < 300 and self.random.random() < 0.1:
            return [data[at : at + 1] for at in range(len(data))]
        cuts = sorted(
            self.random.randint(0, len(data))
            for _ in range(self.random.choice([1, 1, 2, 5]))
        )
        return [
            data[one:other]
            for one, other in zip([0, *cuts], [*cuts, len(data)], strict=True)
        ]

    def _insert_word(self, data: bytes) -> bytes:
        at = self.random.randint(0, len(data))
        return (
            data[:at]
            + self.random.choice(self._words)
            + data[at + self.random.choice([0, 0, 1, 4]) :]
        )

    def _flip(self, data: bytes) -> bytes:
        changed = bytearray(data or b"x")
        for _ in range(self.random.randint(1, 4)):
            changed[self.random.randrange(len(changed))] = self.random.randrange(256)
        return bytes(changed)

    def _cut(self, data: bytes) -> bytes:
        return data[: self.random.randint(0, len(data))]

    def _double(self, data: bytes) -> bytes:
        start = self.random.randint(0, len(data))
        end = self.random.randint(start, min(len(data), start + 40))
        return data[:end] + data[start:end] * self.random.randint(1, 3) + data[end:]

    def _splice(self, data: bytes) -> bytes:
        other = self.random.choice(self._corpus)
        return (
            data[: self.random.randint(0, len(data))]
            + other[self.random.randint(0, len(other)) :]
        )

    def _nest(self, data: bytes) -> bytes:
        deep = (
            self.random.choice([10, 500, 1_000, 3_000])
            if self.random.random() < 0.1
            else 3
        )
        at = self.random.randint(0, len(data))
        opening, closing = self.random.choice([(b"[", b"]"), (b'{"a":', b"}")])
        return data[:at] + opening * deep + b"1" + closing * deep + data[at:]

    def _wrap_in_array(self, data: bytes) -> bytes:
        return b"[" + b",".join([data] * self.random.randint(0, 3)) + b"]"

    def _swap_value(self, data: bytes) -> bytes:
        """Replace one value, or one key, by something else."""
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return data
        places = list(self._places(tree))
        if not places:
            return data
        holder, key = self.random.choice(places)
        values = [
            None,
            True,
            0,
            -1,
            1.5,
            10**25,
            "",
            "x",
            "\ud800",
            [],
            {},
            [1],
            {"a": 1},
            "9" * 50,
            1e308,
        ]
        holder[key] = self.random.choice(values)
        return json.dumps(tree).encode()

    def _places(self, tree: Any) -> Any:
        if isinstance(tree, dict | list):
            for key in tree if isinstance(tree, dict) else range(len(tree)):
                yield tree, key
                yield from self._places(tree[key])
