"""Targets: the servers that a trace can be replayed against.

A target is a server object, a SPEC that a server is loaded from, the command of a
server, or a URL. This process serves server objects and SPECs: on pipes for stdio, and
on a free port for the other transports.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple, cast

import trio
from msgspec import UNSET, UnsetType

from ..auth.principal import owner
from ..client.client import ClientWire
from ..client.http import open_http
from ..client.http_connection import Connections, target_of
from ..client.stdio import LineWire, open_stdio
from ..client.target import is_url, transport_of
from ..client.transports import WIRES
from ..load_spec import UsageError, load
from ..server.app import Server
from ..server.serve_conversation import serve_conversation
from ..transports.http.server import serve_http
from ..transports.stdio import open_wire
from ..transports.websocket import serve_websocket
from .format import Http, Line, Sender, Trace, Transport
from .format import line as line_of
from .plan import has_requests
from .privacy import PLACEHOLDER
from .sniffer import SniffedConnection

OpenWire = Callable[[], AbstractAsyncContextManager[ClientWire | LineWire]]
# The number of a stream. UNSET is the conversation's only or first one.
Stream = int | UnsetType
# A SPEC or a URL; a command; a server object.
Target = str | list[str] | Server
# Lines up to this size are written byte by byte, and longer ones in this many pieces.
LONG = 4096
# Seconds that a server has to open a conversation.
OPEN_TIMEOUT = 10.0


class Credentials(NamedTuple):
    """The headers that a replay adds, to authenticate to the server at a URL."""

    token: str = ""
    headers: Sequence[tuple[str, str]] = ()

    def fields(self) -> dict[str, str]:
        """Return the headers, with names in lower case."""
        fields = {}
        if self.token:
            fields["authorization"] = f"Bearer {self.token}"
        for name, value in self.headers:
            fields[name.lower()] = value
        return fields

    def only_token(self, over: Transport) -> str:
        """Return the token for a transport that sends no other header.

        Raises UsageError if there are other headers.
        """
        fields = self.fields()
        scheme, _, token = fields.pop("authorization", "").partition(" ")
        if fields or (scheme and scheme.lower() != "bearer"):
            raise UsageError(
                f"--header: over {over}, a replay of messages can only send the header "
                "Authorization: Bearer; use --token, or a trace recorded over http"
            )
        return token


NO_CREDENTIALS = Credentials()


class Link:
    """A replay's connection to its target.

    `received` has everything that the server sends, as lines of a trace.
    """

    end_reason = "the server has ended the conversation"

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._put, self.received = trio.open_memory_channel[Line](math.inf)
        self._start = trio.current_time()
        # Notes on the run that are not differences.
        self.remarks: list[str] = []
        # The functions that end each stream from this side.
        self._ends: dict[Stream, Callable[[], None]] = {}

    async def send(self, line: Line) -> None:
        """Send a client's line."""
        raise NotImplementedError

    async def end_input(self) -> None:
        """End every stream, because nothing more will be sent."""
        for end in self._ends.values():
            end()

    def note(
        self,
        sender: Sender,
        data: bytes | None = None,
        *,
        stream: Stream = UNSET,
        http: Http | UnsetType = UNSET,
        event: dict[str, str] | UnsetType = UNSET,
        raw: str | UnsetType = UNSET,
        ends: bool = False,
        cut: bool = False,
    ) -> None:
        """Add something that the server sent to `received`, as a line."""
        received = line_of(
            trio.current_time() - self._start,
            sender,
            data,
            stream=stream,
            http=http,
            event=event,
            raw=raw,
            ends=ends,
            cut=cut,
        )
        self._put.send_nowait(received)


class MessageLink(Link):
    """A link that carries messages over any transport, on a wire for each stream."""

    def __init__(
        self, nursery: trio.Nursery, open_wire: OpenWire, byte_by_byte: bool
    ) -> None:
        super().__init__(nursery)
        self._open_wire = open_wire
        self._byte_by_byte = byte_by_byte
        self._wires: dict[Stream, ClientWire | LineWire] = {}

    async def open(self, stream: Stream = UNSET) -> None:
        """Open the wire of a stream. Raises UsageError."""
        try:
            with trio.fail_after(OPEN_TIMEOUT):
                await self._nursery.start(self._read, stream)
        except trio.TooSlowError:
            raise UsageError(
                "connected, but the server did not open a conversation within "
                f"{OPEN_TIMEOUT:g} s"
            ) from None

    async def send(self, line: Line) -> None:
        """Send a line's message, and end its stream if the line does."""
        if line.stream not in self._wires:
            await self.open(line.stream)
        wire = self._wires[line.stream]
        if line.data is not None:
            if self._byte_by_byte and isinstance(wire, LineWire):
                _write_in_pieces(wire, line.data)
            else:
                wire.send(line.data)
        if line.ends:
            self._ends[line.stream]()

    async def _read(
        self, stream: Stream, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Open a wire and receive its messages, until one side ends it."""
        with trio.CancelScope() as scope:
            async with self._open_wire() as wire:
                self._wires[stream] = wire
                if isinstance(wire, LineWire):
                    self._ends[stream] = wire.end_input
                else:
                    self._ends[stream] = scope.cancel
                task_status.started()
                while messages := await wire.receive():
                    for message in messages:
                        self.note("server", message, stream=stream)
                if isinstance(wire, LineWire):
                    await self._note_exit_code(wire)
        self.note("server", ends=True, stream=stream)
        if isinstance(wire, LineWire):
            self._put.close()

    async def _note_exit_code(self, wire: LineWire) -> None:
        """Add the exit code of the server's process to the reason for the end."""
        if wire.process is None:
            return
        with trio.move_on_after(1):
            code = await wire.process.wait()
            self.end_reason += f" (its process ended with exit code {code})"


def _write_in_pieces(wire: LineWire, message: bytes) -> None:
    data = message + b"\n"
    size = 1 + len(message) // LONG
    for index in range(0, len(data), size):
        wire.write(data[index : index + size])


class HttpLink(Link):
    """A link that repeats recorded HTTP requests, each on a separate connection.

    The responses are parsed by the same code that records them.
    """

    def __init__(
        self, nursery: trio.Nursery, url: str, trace: Trace, credentials: Credentials
    ) -> None:
        super().__init__(nursery)
        self._recorded_path = _endpoint_of(trace)
        self._path = target_of(url)
        self._url = url
        self._credentials = credentials.fields()
        self._connections = Connections(url)

    async def send(self, line: Line) -> None:
        """Send a request, or close its connection."""
        if not line.ends:
            await self._nursery.start(self._exchange, line)
        elif line.stream in self._ends:
            self._ends[line.stream]()

    async def _exchange(
        self, line: Line, *, task_status: trio.TaskStatus[None]
    ) -> None:
        """Send a request and receive its response, until one side ends it."""
        stream = await self._connections.connect()
        tap = self._tap(line)
        # A server may answer without reading all of the request.
        with suppress(trio.BrokenResourceError):
            await stream.send_all(self._request(line))
        with trio.CancelScope() as scope, suppress(trio.BrokenResourceError):
            self._ends[line.stream] = scope.cancel
            task_status.started()
            while tap.waiting:
                chunk = await stream.receive_some()
                if not chunk:
                    break
                tap.server(bytes(chunk))
        if not scope.cancelled_caught:
            tap.server(b"")
        await trio.aclose_forcefully(stream)

    def _tap(self, line: Line) -> SniffedConnection:
        """Return the sniffer that parses the response to a request."""

        def update_header(**fields: object) -> None:
            """Ignore updates of the header, which only a recorder writes."""

        tap = SniffedConnection(
            self.note,
            update_header,
            self._connections.authority.decode(),
            cast(Iterator[int], iter([line.stream])),
        )
        tap.begin_exchange(line.http.method if line.http else "")
        return tap

    def _request(self, line: Line) -> bytes:
        """Return the bytes of a recorded request, for this target."""
        data = line.data or b""
        if not line.http:
            # These bytes were sent instead of HTTP.
            return data
        path = line.http.path
        if path.partition("?")[0] == self._recorded_path:
            path = self._path
        elif re.search(r"=(&|$)", path.partition("?")[2]):
            self._remark_once(
                f"the trace does not contain the query values of {path}, so they were "
                "sent empty; to keep them, record with --keep-query"
            )
        headers = {"host": self._connections.authority.decode()}
        for name, value in line.http.headers.items():
            if not PLACEHOLDER.search(value):
                headers[name.lower()] = value
        headers.update(self._credentials)
        if data or line.http.method == "POST":
            headers["content-length"] = str(len(data))
        head = f"{line.http.method} {path} HTTP/1.1\r\n"
        for name, value in headers.items():
            head += f"{name}: {value}\r\n"
        head += "\r\n"
        return head.encode("latin-1") + data

    def _remark_once(self, remark: str) -> None:
        if remark not in self.remarks:
            self.remarks.append(remark)


def _endpoint_of(trace: Trace) -> str:
    """Return the path of the endpoint in a trace, if any.

    It is the path of most POST requests, or on HTTP+SSE of most GET requests.
    """
    method = "GET" if trace.header.transport == "sse" else "POST"
    requests = [line.http for line in trace.lines if isinstance(line.http, Http)]
    paths = [
        request.path.partition("?")[0]
        for request in requests
        if request.method == method
    ]
    return max(paths, key=paths.count, default="")


def reachable(target: Target) -> tuple[Transport, ...]:
    """Return the transports that a target supports."""
    if isinstance(target, list):
        return ("stdio",)
    if isinstance(target, Server) or not is_url(target):
        return ("stdio", "http", "sse", "ws")
    return (transport_of(target),)


@asynccontextmanager
async def open_link(
    target: Target,
    over: Transport,
    trace: Trace,
    credentials: Credentials = NO_CREDENTIALS,
    *,
    byte_by_byte: bool = False,
) -> AsyncIterator[Link]:
    """Open a link to a target, for one replay. Raises UsageError, OSError.

    `credentials` is for a URL.
    """
    async with _served(target, over) as place:
        if is_url(place):
            await _check_that_it_listens(str(place))
        async with trio.open_nursery() as nursery:
            if over == trace.header.transport and has_requests(trace):
                yield HttpLink(nursery, str(place), trace, credentials)
            else:
                remarks: list[str] = []
                opener = _opener(place, over, credentials, remarks)
                link = MessageLink(nursery, opener, byte_by_byte)
                link.remarks = remarks
                await link.open()
                yield link
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def _served(target: Target, over: Transport) -> AsyncIterator[Target]:
    """Serve a target in this process at a URL, if the transport needs one."""
    if over == "stdio" or isinstance(target, list) or is_url(target):
        yield target
        return
    async with serve_on_free_port(target, over) as url:
        yield url


async def _check_that_it_listens(url: str) -> None:
    """Connect once, as not every wire reports a failure to. Raises OSError."""
    stream = await Connections(url).connect()
    await trio.aclose_forcefully(stream)


def _opener(
    target: Target, over: Transport, credentials: Credentials, remarks: list[str]
) -> OpenWire:
    """Return the function that opens a wire to a target. Raises UsageError.

    The wire may add to the remarks when it is closed.
    """
    if isinstance(target, list):
        return partial(_open_command, target, remarks)
    if over == "stdio":
        return partial(_in_process, target)
    url = cast(str, target)
    token = credentials.only_token(over)
    if over == "http":
        return partial(open_http, url, token, verbatim=True)
    return partial(WIRES[over], url, token)


@asynccontextmanager
async def _open_command(
    command: list[str], remarks: list[str]
) -> AsyncIterator[LineWire]:
    """Start a command and open a wire to it. At the end, kill it and its children.

    Raises OSError.
    """
    if sys.platform == "win32":
        async with open_stdio(command, patience=0, verbatim=True) as wire:
            yield wire
        return
    try:
        # In a separate process group, the command can be killed with its children.
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
        )
    except OSError as error:
        raise type(error)(f"{command[0]} cannot be started: {error.strerror}") from None
    assert process.stdio is not None
    stdio = process.stdio
    wire = LineWire(stdio.send_stream, stdio.receive_stream, process, verbatim=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run)
        try:
            yield wire
        finally:
            wire.end_input()
            has_ended = process.poll() is not None
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
                if has_ended:
                    remarks.append(
                        "the server has ended, but a process that it started was still "
                        "running; it was killed"
                    )
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()


def fresh(target: str | Server) -> Server:
    """Load the server of a SPEC again, so that replays do not share state."""
    if isinstance(target, Server):
        return target
    for name in (target, target.rpartition(":")[0]):
        sys.modules.pop(name, None)
    server = load(target)
    # Loading adds the folder of the SPEC to the path each time.
    sys.path[:] = dict.fromkeys(sys.path)
    return server


@asynccontextmanager
async def _in_process(target: str | Server) -> AsyncIterator[LineWire]:
    """Serve a server on pipes, as if it ran in another process.

    Raises UsageError on Windows, where trio cannot wait for pipes.
    """
    if sys.platform == "win32":
        raise UsageError(
            "on Windows, a SPEC cannot be replayed over stdio; give a command instead: "
            "-- python -m mcp_trio run SPEC"
        )
    server = fresh(target)
    server_input, client_output = os.pipe()
    client_input, server_output = os.pipe()

    async def serve() -> None:
        with os.fdopen(server_input), os.fdopen(server_output, "w"):
            async with open_wire(server_input, server_output) as wire:
                await serve_conversation(server, wire, owner(), transport="stdio")

    stdin = trio.lowlevel.FdStream(client_output)
    stdout = trio.lowlevel.FdStream(client_input)
    async with stdin, stdout, server.running(), trio.open_nursery() as nursery:
        wire = LineWire(stdin, stdout, verbatim=True)
        nursery.start_soon(serve)
        nursery.start_soon(wire.run)
        yield wire
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def serve_on_free_port(
    target: str | Server, over: Transport = "http"
) -> AsyncIterator[str]:
    """Serve a server on a free port, and yield the URL for a transport."""
    server = fresh(target)
    stopping = trio.Event()
    upgrade = partial(serve_websocket, server, stopping=stopping)
    serve = partial(
        serve_http, server, "127.0.0.1", 0, stopping=stopping, upgrade=upgrade
    )
    async with server.running(), trio.open_nursery() as nursery:
        [(host, port)] = await nursery.start(serve)
        scheme = "ws" if over == "ws" else "http"
        path = "sse" if over == "sse" else "mcp"
        yield f"{scheme}://{host}:{port}/{path}"
        nursery.cancel_scope.cancel()
