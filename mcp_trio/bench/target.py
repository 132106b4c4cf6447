"""The server under load: connect to it, and measure its CPU time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
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
from .load import Load, MixLoad, Run
from .transports import (
    HttpLoadConnection,
    LoadConnection,
    LoadRequest,
    StdioLoadConnection,
    WebSocketLoadConnection,
)

# Seconds that a process has to exit after the end of its input.
EXIT_TIMEOUT = 2.0
# The longest think time, in seconds.
_MAX_THINK = 60.0
_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


# Requests


def request(
    method: str, params: Json, revision: str, *, fails: bool = False
) -> LoadRequest:
    """Return a request for a revision. If `fails`, the expected reply is an error."""
    if not OPENS[revision]:
        params = {**params, "_meta": _client_meta(params, revision)}
    message: Json = {"jsonrpc": "2.0", "method": method}
    if params:
        message["params"] = params
    start = msgspec.json.encode(message).removesuffix(b"}")
    return LoadRequest(start, lines_of(mirrored(message)), fails, method)


def _client_meta(params: Json, revision: str) -> Json:
    """Return the `_meta` of a request, which describes the client."""
    meta: Json = {
        f"{VENDOR}protocolVersion": revision,
        f"{VENDOR}clientInfo": INFO,
        f"{VENDOR}clientCapabilities": {},
    }
    meta.update(params.get("_meta", {}))
    return meta


def recorded(
    trace: Trace, revision: str, think_factor: float = 0.0
) -> list[LoadRequest]:
    """Return the requests of a trace that have a response in it. Raises UsageError.

    The think time of each is the time that the client waited in the trace, multiplied
    by a factor.
    """
    sent, answered = _messages_by_id(trace)
    pauses = _pauses(trace)
    requests = []
    for id, message in sent.items():
        if id in answered:
            params = message.get("params", {})
            fails = _is_failure(answered[id])
            made = request(message["method"], params, revision, fails=fails)
            think = min(pauses[id] * think_factor, _MAX_THINK)
            requests.append(msgspec.structs.replace(made, think=think))
    if not requests:
        raise UsageError(
            f"{trace.path} cannot be used as a load: no request in it was answered"
        )
    return requests


def conversations(
    traces: Sequence[Trace], revision: str, think_factor: float
) -> list[list[LoadRequest]]:
    """Return the requests of each trace that can be used as a load in a revision.

    Raises UsageError if there is no such trace.
    """
    found = []
    problems = []
    for trace in traces:
        if trace.header.revision != revision:
            given = trace.header.revision
            problems.append(f"{trace.path}: expected revision {revision}, got {given}")
            continue
        try:
            found.append(recorded(trace, revision, think_factor))
        except UsageError as problem:
            problems.append(str(problem))
    if not found:
        raise UsageError(problems[0])
    return found


def _pauses(trace: Trace) -> dict[Any, float]:
    """Return the time that the client waited before each request, by its id."""
    pauses = {}
    before = trace.lines[0].t if trace.lines else 0.0
    for line in trace.lines:
        if line.sender == "client" and line.message:
            for message in line.parts:
                if isinstance(message, dict) and "method" in message:
                    pauses[message.get("id")] = max(0.0, line.t - before)
        before = line.t
    return pauses


def _messages_by_id(trace: Trace) -> tuple[dict[Any, Json], dict[Any, Json]]:
    """Return the client's requests and the server's responses. Raises UsageError."""
    requests: dict[Any, Json] = {}
    responses: dict[Any, Json] = {}
    for line in trace.lines:
        if not line.message:
            continue
        for message in line.parts:
            if "method" not in message:
                if line.sender == "server":
                    responses[message.get("id")] = message
            elif "id" not in message:
                continue
            elif line.sender == "server":
                raise UsageError(
                    f"{trace.path} cannot be used as a load: "
                    f"the server sends {message['method']} requests in it"
                )
            elif message["method"] != "initialize":
                requests[message["id"]] = message
    return requests, responses


def _is_failure(response: Json) -> bool:
    if "error" in response:
        return True
    is_error: bool = response["result"].get("isError", False)
    return is_error


def _result_of(connection: LoadConnection, request: LoadRequest) -> Json:
    """Send a request outside of a load, and return its result. Raises UsageError."""
    reply = connection.ask(request.message(0), request.head, id=0)
    message = msgspec.json.decode(reply)
    if "error" in message:
        raise UsageError(
            f"the server answered with an error: {message['error'].get('message')}"
        )
    if "result" not in message:
        raise UsageError("this is not an MCP server: it sends back what it receives")
    result: Json = message["result"]
    return result


# The server


class BenchTarget(msgspec.Struct):
    """A server with open connections, ready for a load."""

    connections: Sequence[LoadConnection]
    revision: str = ""
    name: str = ""
    pid: int | None = None
    # Seconds from the start of the process to its first reply.
    start_up: float | None = None

    def open(self, revision: str) -> None:
        """Open the conversation, or one for each connection if the transport needs it.

        Raises UsageError.
        """
        first, *others = self.connections
        self._open(first, revision)
        for connection in others:
            if isinstance(connection, HttpLoadConnection):
                # All HTTP connections share one session.
                assert isinstance(first, HttpLoadConnection)
                connection.session_headers = first.session_headers
            else:
                self._open(connection, revision)

    def _open(self, connection: LoadConnection, revision: str) -> None:
        if OPENS[revision]:
            self._initialize(connection, revision)
        else:
            discover = request("server/discover", {}, revision)
            self._set_server_info(_result_of(connection, discover), revision)

    def _initialize(self, connection: LoadConnection, revision: str) -> None:
        params = {
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": INFO,
        }
        initialize = request("initialize", params, revision)
        self._set_server_info(_result_of(connection, initialize), revision)
        if isinstance(connection, HttpLoadConnection):
            connection.name_session(self.revision)
        connection.ask(_INITIALIZED)

    def _set_server_info(self, result: Json, revision: str) -> None:
        """Set the server's name and revision from its first result."""
        info = result.get("serverInfo")
        if not info:
            info = result.get("_meta", {}).get(f"{VENDOR}serverInfo", {})
        self.name = f"{info.get('name', '')} {info.get('version', '')}".strip()
        self.revision = result.get("protocolVersion", revision)

    def tools(self) -> list[Json]:
        """Return all tools of the server. Raises UsageError."""
        tools: list[Json] = []
        params: Json = {}
        while True:
            list_tools = request("tools/list", params, self.revision)
            page = _result_of(self.connections[0], list_tools)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return tools
            params = {"cursor": page["nextCursor"]}

    def load(
        self,
        requests: Sequence[LoadRequest],
        window: int,
        seconds: float,
        calls: float = float("inf"),
        report_progress: Callable[[float], None] = lambda done: None,
    ) -> Run:
        """Keep `window` requests in flight on each connection. Raises UsageError.

        The load ends after so many seconds or calls. `report_progress` is called with
        the seconds since its last call.
        """
        for connection in self.connections:
            # This reopens an idle connection that the server has closed.
            connection.read()
        load = Load(self.connections, requests, window)
        return load.drive(seconds, calls, report_progress, self.cpu_time)

    def load_mix(
        self,
        mix: Sequence[Sequence[LoadRequest]],
        users: int,
        seconds: float,
        report_progress: Callable[[float], None] = lambda done: None,
    ) -> Run:
        """Simulate users who repeat conversations on each connection.

        See `load`. Raises UsageError.
        """
        for connection in self.connections:
            connection.read()
        load = MixLoad(self.connections, mix, users)
        return load.drive(seconds, float("inf"), report_progress, self.cpu_time)

    def memory(self) -> int | None:
        """Return the bytes that the server and its children use, None if unknown."""
        if sys.platform == "win32":
            return None
        pages = 0
        for fields in self._proc_files("statm"):
            pages += int(fields.split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") or None

    def cpu_time(self) -> float | None:
        """Return the CPU time of the server and its children, None if unknown."""
        if sys.platform == "win32":
            return None
        ticks = os.sysconf("SC_CLK_TCK")
        total = 0.0
        for fields in self._proc_files("stat"):
            # The name of the program, in parentheses, may contain spaces.
            user, system = fields.rpartition(")")[2].split()[11:13]
            total += (int(user) + int(system)) / ticks
        return total or None

    def _proc_files(self, name: str) -> Iterator[str]:
        """Yield a file of /proc, on Linux, for the process and all its descendants."""
        remaining = [self.pid] if self.pid else []
        while remaining:
            pid = remaining.pop()
            try:
                children = ""
                # Each thread may have started processes.
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{thread}/children") as file:
                        children += file.read()
                with open(f"/proc/{pid}/{name}") as file:
                    content = file.read()
            except OSError:
                continue
            remaining += map(int, children.split())
            yield content


@contextmanager
def spawned(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process. At the end, close its input, and kill it if it does not exit.

    Raises UsageError if it cannot be started.
    """
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
                process.wait(EXIT_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


def reach(
    target: str | Sequence[str],
    revision: str,
    connections: int = 1,
    token: str = "",
    *,
    env: Mapping[str, str] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> AbstractContextManager[BenchTarget]:
    """Connect to a server at a URL, or start one with a command. Raises UsageError.

    `connections` and `token` are for a URL, `env` and `stderr` for a command.
    """
    if isinstance(target, str):
        return _reach_url(target, revision, connections, token)
    return _reach_command(target, revision, env, stderr)


@contextmanager
def _reach_command(
    command: Sequence[str],
    revision: str,
    env: Mapping[str, str] | None,
    stderr: int | IO[bytes] | None,
) -> Iterator[BenchTarget]:
    started = time.perf_counter()
    with spawned(command, env, stderr) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        connection = StdioLoadConnection(
            process.stdout.fileno(), process.stdin.fileno()
        )
        target = BenchTarget([connection], pid=process.pid)
        target.open(revision)
        target.start_up = time.perf_counter() - started
        yield target


@contextmanager
def _reach_url(
    url: str, revision: str, number: int, token: str
) -> Iterator[BenchTarget]:
    assert is_url(url)
    transport = transport_of(url)
    if transport == "sse":
        raise UsageError(
            f"{url}: expected a Streamable HTTP or WebSocket endpoint, got HTTP+SSE, "
            "which bench does not support"
        )
    with ExitStack() as cleanup:
        connections: list[LoadConnection] = []
        for _ in range(number):
            connection: LoadConnection
            if transport == "ws":
                connection = WebSocketLoadConnection(url, token)
            else:
                connection = HttpLoadConnection(url, token)
            cleanup.callback(connection.close)
            connections.append(connection)
        target = BenchTarget(connections)
        target.open(revision)
        yield target
