"""What a trace is replayed against, and how it is reached: a server in this process, a command, or a URL."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from functools import partial
from typing import Any, cast

import trio
from msgspec import UNSET

from ..auth.principal import owner
from ..client.client import Wire
from ..client.http import HttpWire, open_http
from ..client.http_connection import Connections, target_of
from ..client.stdio import LineWire, start
from ..client.target import is_url, transport_of
from ..client.transports import WIRES
from ..load_spec import UsageError, load
from ..server.app import Server
from ..server.serve_conversation import serve_conversation
from ..transports.http.server import serve_http
from ..transports.stdio import open_wire
from ..transports.websocket import serve_websocket
from .format import Line, Sender, Trace, Transport, line
from .sniffer import SniffedConnection

OpenWire = Callable[[], AbstractAsyncContextManager[Wire | LineWire]]
# A SPEC or a URL; a command; a server itself.
Target = str | list[str] | Server
# Bytes from which on a line goes in as many pieces as this, where shorter ones go byte by byte.
LONG = 4096
# Seconds in which a server has to let a client in.
TO_OPEN = 10.0


class Link:
    """What a replay needs of a transport; what the server has said is in `come`."""

    end = "the server has ended the conversation"

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._put, self.come = trio.open_memory_channel[Line](math.inf)
        self._start = trio.current_time()
        self._ends: dict[
            Any, Callable[[], None]
        ] = {}  # what ends each stream from this side

    async def send(self, line: Line) -> None:
        """Put on the wire what a client's line says."""
        raise NotImplementedError

    async def end_input(self) -> None:
        """Show the server, where it can be shown, that nothing more will be sent."""
        for end in self._ends.values():
            end()

    def note(self, sender: Sender, data: bytes | None = None, **parts: Any) -> None:
        """Something has come."""
        self._put.send_nowait(
            line(trio.current_time() - self._start, sender, data, **parts)
        )


class Wires(Link):
    """Messages; with a wire for each stream that the trace names."""

    def __init__(
        self, nursery: trio.Nursery, open_wire: OpenWire, byte_by_byte: bool
    ) -> None:
        super().__init__(nursery)
        self._open = open_wire
        self._byte_by_byte = byte_by_byte
        self._wires: dict[Any, Wire | LineWire] = {}

    async def open(self, stream: Any = UNSET) -> None:
        """Open another wire. Raises UsageError."""
        try:
            with trio.fail_after(TO_OPEN):
                self._wires[stream], self._ends[stream] = await self._nursery.start(
                    self._read, stream
                )
        except trio.TooSlowError:
            raise UsageError(
                f"there is somebody, but no conversation within {TO_OPEN:g} s"
            ) from None

    async def send(self, line: Line) -> None:
        """Send a message, or let what a line ends end."""
        if line.stream not in self._wires:
            await self.open(line.stream)
        wire = self._wires[line.stream]
        if line.data is not None and self._byte_by_byte and isinstance(wire, LineWire):
            data, size = line.data + b"\n", 1 + len(line.data) // LONG
            for at in range(0, len(data), size):
                wire.write(data[at : at + size])
        elif line.data is not None:
            wire.send(line.data)
        if line.ends:
            self._ends[line.stream]()

    async def _read(
        self,
        stream: Any,
        *,
        task_status: trio.TaskStatus[tuple[Wire, Callable[[], None]]],
    ) -> None:
        with trio.CancelScope() as scope:
            async with self._open() as wire:
                task_status.started(
                    (
                        wire,
                        wire.end_input if isinstance(wire, LineWire) else scope.cancel,
                    )
                )
                while messages := await wire.receive():
                    for message in messages:
                        self.note("server", message, stream=stream)
                with trio.move_on_after(1):
                    if isinstance(wire, LineWire) and wire.process:
                        self.end += f" (its process ended with exit code {await wire.process.wait()})"
        self.note("server", ends=True, stream=stream)
        if isinstance(wire, LineWire):
            self._put.close()


class Exchanges(Link):
    """HTTP as it was recorded: each request in its own words, on a connection of its own; read as the recorder does."""

    def __init__(self, nursery: trio.Nursery, url: str, trace: Trace) -> None:
        super().__init__(nursery)
        posts = [
            line.http.path.partition("?")[0]
            for line in trace.lines
            if line.http and line.http.method == "POST"
        ]
        self._recorded, self._endpoint = (
            max(posts, key=posts.count, default=""),
            target_of(url),
        )
        self._connections = Connections(url)

    async def send(self, line: Line) -> None:
        """Send a request, or close its connection."""
        if not line.ends:
            self._ends[line.stream] = await self._nursery.start(self._exchange, line)
        elif line.stream in self._ends:
            self._ends[line.stream]()

    async def _exchange(
        self, line: Line, *, task_status: trio.TaskStatus[Callable[[], None]]
    ) -> None:
        stream = await self._connections.connect()
        know_nothing = dict  # takes what a recorder would put into its header
        seen = SniffedConnection(
            self.note,
            know_nothing,
            self._connections.authority.decode(),
            cast(Any, iter([line.stream])),
        )
        seen.ask(line.http.method if line.http else "")
        with suppress(trio.BrokenResourceError):  # an answer can have come all the same
            await stream.send_all(self._request(line))
        with trio.CancelScope() as scope, suppress(trio.BrokenResourceError):
            task_status.started(scope.cancel)
            while seen.waiting and (chunk := await stream.receive_some()):
                seen.server(bytes(chunk))
        if not scope.cancelled_caught:
            seen.server(b"")
        await trio.aclose_forcefully(stream)

    def _request(self, line: Line) -> bytes:
        data = line.data or b""
        if not line.http:
            return data
        headers = {"host": self._connections.authority.decode()}
        headers |= {name.lower(): value for name, value in line.http.headers.items()}
        if data or line.http.method == "POST":
            headers["content-length"] = str(len(data))
        path = (
            self._endpoint
            if line.http.path.partition("?")[0] == self._recorded
            else line.http.path
        )
        lines = [
            f"{line.http.method} {path} HTTP/1.1",
            *(f"{name}: {headers[name]}" for name in headers),
        ]
        return "".join(f"{one}\r\n" for one in [*lines, ""]).encode("latin-1") + data


def reachable(target: Target) -> tuple[Transport, ...]:
    """The transports that lead to a target."""
    if isinstance(target, list):
        return ("stdio",)
    if isinstance(target, Server) or not is_url(target):
        return ("stdio", "http", "sse", "ws")
    return (transport_of(target),)


@asynccontextmanager
async def open_link(
    target: Target, over: Transport, trace: Trace, *, byte_by_byte: bool = False
) -> AsyncIterator[Wires | Exchanges]:
    """A way to a target over a transport, for one replay of a trace. Raises UsageError, OSError."""
    async with AsyncExitStack() as at_end:
        if over != "stdio" and not is_url(target):
            target = await at_end.enter_async_context(
                on_a_port(cast(str | Server, target), over)
            )
        if is_url(target):  # whether anybody is there at all: not each wire tells
            await trio.aclose_forcefully(await Connections(str(target)).connect())
        nursery = await at_end.enter_async_context(trio.open_nursery())
        at_end.callback(nursery.cancel_scope.cancel)
        if over == trace.header.transport == "http":
            yield Exchanges(nursery, str(target), trace)
            return
        on_stdio = (
            partial(start, patience=0) if isinstance(target, list) else _in_process
        )
        opens = {**WIRES, "stdio": on_stdio, "http": partial(open_http, kind=Faithful)}
        wires = Wires(nursery, partial(cast(Any, opens[over]), target), byte_by_byte)
        await wires.open()
        yield wires


class Faithful(HttpWire):
    """HTTP that hands on what the server has said, and nothing of its own."""

    def _fail(self, ids: list[Any], what: str, body: bytes = b"") -> None:
        ids.clear()
        if body:
            self.put(body)


def fresh(target: str | Server) -> Server:
    """The server that a SPEC names, loaded anew, so that nothing is left in it of a run before."""
    if isinstance(target, Server):
        return target
    for name in (target, target.rpartition(":")[0]):
        sys.modules.pop(name, None)
    server = load(target)
    sys.path[:] = dict.fromkeys(
        sys.path
    )  # each time it was loaded its folder was put there
    return server


@asynccontextmanager
async def _in_process(target: str | Server) -> AsyncIterator[LineWire]:
    """A server on pipes, as if it were a process of its own."""
    server = fresh(target)
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()

    async def serve() -> None:
        with os.fdopen(theirs_in), os.fdopen(theirs_out, "w"):
            async with open_wire(theirs_in, theirs_out) as wire:
                await serve_conversation(server, wire, owner(), transport="stdio")

    stdin, stdout = trio.lowlevel.FdStream(ours_out), trio.lowlevel.FdStream(ours_in)
    async with stdin, stdout, server.running(), trio.open_nursery() as nursery:
        wire = LineWire(stdin, stdout)
        nursery.start_soon(serve)
        nursery.start_soon(wire.run)
        yield wire
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def on_a_port(
    target: str | Server, over: Transport = "http"
) -> AsyncIterator[str]:
    """A server on a port of its own: the URL that leads there over a transport."""
    server, stopping = fresh(target), trio.Event()
    upgrade = partial(serve_websocket, server, stopping=stopping)
    async with server.running(), trio.open_nursery() as nursery:
        serve = partial(
            serve_http, server, "127.0.0.1", 0, stopping=stopping, upgrade=upgrade
        )
        [(host, port)] = await nursery.start(serve)
        yield f"{'ws' if over == 'ws' else 'http'}://{host}:{port}/{'sse' if over == 'sse' else 'mcp'}"
        nursery.cancel_scope.cancel()
