"""A server under load: how it is reached, what it is asked, and what it takes of the machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import msgspec

from ..client.client import INFO, OPENS
from ..client.http import mirrored
from ..client.http_connection import lines_of
from ..client.target import is_url, transport_of
from ..load_spec import UsageError
from ..protocol.params import VENDOR
from ..protocol.types import Json
from ..trace.format import Trace
from .load import Load, Run
from .transports import Http, Pipes, Request, WebSocket, Wire

# Seconds that a process has to end once its input has.
TO_END = 2.0


def request(
    method: str, params: Json, revision: str, *, fails: bool = False
) -> Request:
    """A request in the shape that a revision wants."""
    if not OPENS[revision]:
        declared = {
            "protocolVersion": revision,
            "clientInfo": INFO,
            "clientCapabilities": {},
        }
        meta = {VENDOR + key: value for key, value in declared.items()} | params.get(
            "_meta", {}
        )
        params = {**params, "_meta": meta}
    message = {
        "jsonrpc": "2.0",
        "method": method,
        **({"params": params} if params else {}),
    }
    return Request(
        msgspec.json.encode(message)[:-1], lines_of(mirrored(message)), fails
    )


def ask(wire: Wire, request: Request) -> Json:
    """A result, before there is a load. Raises UsageError."""
    answer = msgspec.json.decode(wire.ask(request.message(0), request.head, id=0))
    if "error" in answer:
        raise UsageError(
            f"the server answered with an error: {answer['error'].get('message')}"
        )
    if "result" not in answer:
        raise UsageError("what answered is no MCP server: it sends back what it gets")
    result: Json = answer["result"]
    return result


def recorded(trace: Trace, revision: str) -> list[Request]:
    """The requests of a trace that were answered in it. Raises UsageError."""
    sent, answered = {}, {}
    for line in trace.lines:
        for part in line.parts if line.message else ():
            if line.sender == "server" and "method" not in part:
                answered[part.get("id")] = part
            elif line.sender == "server" and "id" in part:
                raise UsageError(
                    f"{trace.path} is no load: the server asks for {part['method']} in it"
                )
            elif "method" in part and "id" in part and part["method"] != "initialize":
                sent[part["id"]] = part
    requests = []
    for id, part in sent.items():
        if id in answered:
            fails = "error" in answered[id] or answered[id]["result"].get(
                "isError", False
            )
            requests.append(
                request(part["method"], part.get("params", {}), revision, fails=fails)
            )
    if not requests:
        raise UsageError(
            f"{trace.path} is no load: there is no request in it that was answered"
        )
    return requests


class Reached(msgspec.Struct):
    """A server that has answered."""

    wires: Sequence[Wire]
    revision: str = ""
    name: str = ""
    pid: int | None = None
    start_up: float | None = (
        None  # seconds from the start of its process to its first answer
    )

    def open(self, revision: str) -> None:
        """Begin the conversation, on each wire that has one of its own. Raises UsageError."""
        first, *others = self.wires
        self._open(first, revision)
        for wire in others:
            if isinstance(wire, Http) and isinstance(first, Http):
                wire.fields = first.fields  # all connections are in one session
            else:
                self._open(wire, revision)

    def _open(self, wire: Wire, revision: str) -> None:
        params: Json = {}
        if OPENS[revision]:
            params = {
                "protocolVersion": revision,
                "capabilities": {},
                "clientInfo": INFO,
            }
        result = ask(
            wire,
            request(
                "initialize" if OPENS[revision] else "server/discover", params, revision
            ),
        )
        info = result.get("serverInfo") or result.get("_meta", {}).get(
            f"{VENDOR}serverInfo", {}
        )
        self.name = f"{info.get('name', '')} {info.get('version', '')}".strip()
        self.revision = result.get("protocolVersion", revision)
        if OPENS[revision]:
            if isinstance(wire, Http):
                wire.name_session(self.revision)
            wire.ask(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def tools(self) -> list[Json]:
        """The tools that it offers, page by page. Raises UsageError."""
        tools: list[Json] = []
        params: Json = {}
        while True:
            page = ask(self.wires[0], request("tools/list", params, self.revision))
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}

    def load(
        self,
        requests: Sequence[Request],
        window: int,
        seconds: float,
        calls: float = float("inf"),
        tell: Callable[[float], None] = lambda done: None,
    ) -> Run:
        """Put it under load, with so many requests under way on each wire. Raises UsageError."""
        for wire in self.wires:
            wire.read()  # where the server has closed what was idle, another takes its place
        return Load(self.wires, requests, window).drive(
            seconds, calls, tell, self.cpu_time
        )

    def memory(self) -> int | None:
        """The bytes that it and its children hold; None where that cannot be known."""
        pages = sum(int(fields.split()[1]) for fields in self._told("statm"))
        return pages * os.sysconf("SC_PAGE_SIZE") or None

    def cpu_time(self) -> float | None:
        """The seconds of processor time that they have taken; None where that cannot be known."""
        total = 0.0
        for fields in self._told("stat"):
            user, system = fields.rpartition(")")[2].split()[11:13]
            total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return total or None

    def _told(self, what: str) -> Iterator[str]:
        """What Linux tells of its process and those below, one after the other."""
        left = [self.pid] if self.pid else []
        while left:
            pid = left.pop()
            try:
                with (
                    open(f"/proc/{pid}/task/{pid}/children") as children,
                    open(f"/proc/{pid}/{what}") as file,
                ):
                    left += map(int, children.read().split())
                    yield file.read()
            except OSError:
                continue


@contextmanager
def spawned(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, until its input ends and it with it; one that stays is killed. Raises UsageError."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=env,
        )
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from None
    with process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(TO_END)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def reach(
    target: str | Sequence[str],
    revision: str,
    connections: int = 1,
    token: str = "",
    **options: Any,
) -> Iterator[Reached]:
    """The server at a URL, over so many connections, or of a command that is started for it. Raises UsageError."""
    if not isinstance(target, str):
        started = time.perf_counter()
        with spawned(target, **options) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            reached = Reached(
                [Pipes(process.stdout.fileno(), process.stdin.fileno())],
                pid=process.pid,
            )
            reached.open(revision)
            reached.start_up = time.perf_counter() - started
            yield reached
        return
    assert is_url(target)
    if (transport := transport_of(target)) == "sse":
        raise UsageError(
            f"{target}: HTTP+SSE is not measured; give the URL of the Streamable HTTP endpoint, or of a WebSocket"
        )
    kind = WebSocket if transport == "ws" else Http
    reached = Reached([kind(target, token) for _ in range(connections)])
    try:
        reached.open(revision)
        yield reached
    finally:
        for wire in reached.wires:
            wire.close()
