"""Whatever arrives, the server goes on: 100,000 mutated messages to one process, whose memory stays level."""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from typing import Any

import pytest
from checked import ALL, OPENING, asking, call, cancelled, initialize, modern, notification

MESSAGES = 100_000
A_ROUND = 1_000
LIMIT = 60.0
SERVER = """
import trio
from mcp_trio import Context, Server
server = Server("fuzzed", pages=2)

@server.tool
async def get_weather(location: str, units: str = "metric") -> str: return location

@server.tool
async def calculate_sum(a: float, b: float) -> float: return a + b

@server.tool
async def wait(ctx: Context, seconds: float = 0) -> str:
    await ctx.progress(1)
    await trio.sleep(min(max(seconds, 0), 0.01))
    return "waited"

@server.resource("notes://{id}")
async def note(id: str) -> str: return id

@server.prompt
async def greet(who: str) -> str: return who

server.run()
"""


def seeds() -> list[Any]:
    """Valid messages of all revisions."""
    messages: list[Any] = [
        *[initialize(revision) for revision in OPENING],
        notification("notifications/initialized"),
        cancelled(1),
        {"jsonrpc": "2.0", "id": "ask-1", "result": {"action": "accept"}},
        {"jsonrpc": "2.0", "id": "ask-1", "error": {"code": 1, "message": "no"}},
        modern(9, "server/discover"),
        modern(9, "tools/call", {"name": "wait", "requestState": "AAAA", "inputResponses": {"a": {}}}),
    ]
    for revision in ALL:
        ref = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}}
        messages += [
            asking(revision, 1, "ping"),
            asking(revision, 2, "tools/list", {"cursor": "YWZ0ZXI6MQ=="}),
            call(revision, 3, "get_weather", {"location": "New York"}),
            call(revision, 4, "calculate_sum", {"a": 1, "b": 2.5}),
            asking(revision, "5", "tools/call", {"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}}),
            asking(revision, 6, "resources/read", {"uri": "notes://1"}),
            asking(revision, 7, "prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}),
            asking(revision, 8, "completion/complete", ref),
            asking(revision, 9, "resources/subscribe", {"uri": "notes://1"}),
            asking(revision, 10, "logging/setLevel", {"level": "debug"}),
        ]
    return messages


class Mutator:
    """Makes bad messages of good ones, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._valid = seeds()
        self._encoded = [json.dumps(message).encode() for message in self._valid]
        self._kinds: list[Callable[[bytes], bytes]] = [
            self._flip,
            self._cut,
            self._double,
            self._splice,
            self._nest,
            self._swap_a_type,
            self._swap_a_type,
            self._swap_a_type,
            self._in_an_array,
            lambda message: message,
        ]

    def message(self) -> bytes:
        message = self._random.choice(self._encoded)
        for _ in range(self._random.choice([1, 1, 1, 2, 3])):
            message = self._random.choice(self._kinds)(message)
        return message.replace(b"\n", b" ")[:200_000] or b"{"

    def _flip(self, message: bytes) -> bytes:
        changed = bytearray(message or b"x")
        for _ in range(self._random.randint(1, 4)):
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)

    def _cut(self, message: bytes) -> bytes:
        return message[: self._random.randint(0, len(message))]

    def _double(self, message: bytes) -> bytes:
        start = self._random.randint(0, len(message))
        end = self._random.randint(start, min(len(message), start + 40))
        return message[:end] + message[start:end] * self._random.randint(1, 3) + message[end:]

    def _splice(self, message: bytes) -> bytes:
        other = self._random.choice(self._encoded)
        return message[: self._random.randint(0, len(message))] + other[self._random.randint(0, len(other)) :]

    def _nest(self, message: bytes) -> bytes:
        deep = self._random.choice([10, 500, 1_000, 3_000]) if self._random.random() < 0.1 else 3
        at = self._random.randint(0, len(message))
        opening, closing = self._random.choice([(b"[", b"]"), (b'{"a":', b"}")])
        return message[:at] + opening * deep + b"1" + closing * deep + message[at:]

    def _in_an_array(self, message: bytes) -> bytes:
        return b"[" + b",".join([message] * self._random.randint(0, 3)) + b"]"

    def _swap_a_type(self, message: bytes) -> bytes:
        """One value anywhere, or one key, becomes something else."""
        try:
            tree = json.loads(message)
        except (ValueError, RecursionError):
            return message
        places = list(self._places(tree))
        if not places:
            return message
        holder, key = self._random.choice(places)
        values = [None, True, 0, -1, 1.5, 10**25, "", "x", "\ud800", [], {}, [1], {"a": 1}, "9" * 50, 1e308]
        holder[key] = self._random.choice(values)
        return json.dumps(tree).encode()

    def _places(self, tree: Any) -> Any:
        if isinstance(tree, dict | list):
            for key in tree if isinstance(tree, dict) else range(len(tree)):
                yield tree, key
                yield from self._places(tree[key])


class Process:
    """The server, and what it writes: read by a thread, so that neither side waits for the other."""

    def __init__(self, errors: Any) -> None:
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        self._process = Popen([sys.executable, "-c", SERVER], stdin=PIPE, stdout=PIPE, stderr=errors, env=env)
        self.pongs: set[str] = set()
        self.lines = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines += 1
            if b'"ping-' in line:
                reply = json.loads(line)
                for one in reply if isinstance(reply, list) else [reply]:
                    self.pongs.add(str(one.get("id")))

    def send(self, messages: list[bytes]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n".join([*messages, b""]))
        self._process.stdin.flush()

    def answers(self, name: str) -> bool:
        """Whether it answers a request, of a revision that needs no opening, within some seconds."""
        self.send([json.dumps(modern(name, "server/discover")).encode()])
        deadline = time.monotonic() + 20
        while name not in self.pongs and time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(0.001)
        return name in self.pongs

    @property
    def resident(self) -> int:
        """Its memory in bytes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(20)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to read the memory of a process")
@pytest.mark.parametrize("revision", [OPENING[0], "2025-03-26", OPENING[-1]])
def test_a_hundred_thousand_mutated_messages(revision: str) -> None:
    mutator = Mutator(seed=20241007)
    sizes = []
    with tempfile.TemporaryFile() as errors:
        process = Process(errors)
        try:
            begun = time.monotonic()
            process.send([json.dumps(initialize(revision)).encode()])
            assert process.answers("ping-first")
            for number in range(MESSAGES // A_ROUND):
                process.send([mutator.message() for _ in range(A_ROUND)])
                assert process.answers(f"ping-{number}"), f"no answer after {(number + 1) * A_ROUND} messages"
                sizes.append(process.resident)
                assert time.monotonic() - begun < LIMIT
            assert process.lines > MESSAGES // 4
            assert process.end() == 0
        finally:
            process.kill()
        errors.seek(0)
        assert b"Traceback" not in errors.read()
    level = max(sizes[10:20])
    assert max(sizes[-10:]) < level * 1.1 + 4 * 2**20, [size // 2**20 for size in sizes]


def test_the_same_seed_gives_the_same_messages() -> None:
    one, other = Mutator(5), Mutator(5)
    assert [one.message() for _ in range(50)] == [other.message() for _ in range(50)]
