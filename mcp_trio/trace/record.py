"""The recorder: a stand-in between a client and a server that passes everything on and writes down what it was.

What has come is passed on first, unchanged, and only then looked at.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import trio

from ..client.http_connection import Connections
from ..transports.address import parse_address
from ..transports.http.rules import is_loopback
from ..transports.send_queue import GONE
from ..transports.stdio import _Pipe, claim
from .format import VERSION, Header, Sender, Transport, encode, line, revision_in
from .sniffer import Connection, public, say

# Looks at what one side has sent; nothing is its end.
Tap = Callable[[bytes], None]
Change = Callable[[bytes], bytes]

LOST = (*GONE, OSError)
# Seconds of silence that end the output of a server whose process is over, while something else holds its pipe.
LAST_WORDS = 1.0


def create(path: Path) -> Path:
    """A new file; where there is one, it has -2, -3 and so on before its suffix, which is said. Raises OSError."""
    free = path
    for number in count(2):
        with suppress(FileExistsError):
            free.touch(0o600, exist_ok=False)
            break
        free = path.with_stem(f"{path.stem}-{number}")
    if free != path:
        say(f"{path} exists; this one is {free}")
    return free


class Recorder:
    """Writes a trace, each line at once and in one write, so that whatever ends us costs no more than one.

    The header is there from the start, with room for the revision and `paced`, put in when the conversation tells them.
    """

    def __init__(
        self, path: Path, *, transport: Transport = "stdio", **about: Any
    ) -> None:
        self.header = Header(mcp_trace=VERSION, transport=transport, **about)
        self._path = path
        self._file: int | None = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
        )
        self._began = time.monotonic()
        self._passed: deque[tuple[Tap, bytes]] = (
            deque()
        )  # and not looked at yet, in the order in which it came
        self._asked: dict[
            str | int, str
        ] = {}  # the methods of the client's requests that have no answer
        self._answered = (
            False  # whether one has that does more than open the conversation
        )
        full = msgspec.structs.replace(
            self.header, revision="year-mm-dd", transport="stdio", paced=True
        )
        self._room = len(encode(full))
        self._write_header()

    async def copy(
        self, source: Any, sink: Any, tap: Tap, change: Change = bytes
    ) -> bool:
        """Pass on what comes, and that it has ended; false where the sink does not take it any more.

        `send_eof` of the sink, or without it `aclose`, ends what it gets. Raises what the source raises.
        """
        while True:
            chunk = bytes(await source.receive_some())
            self._passed.append((tap, chunk))  # before anybody can answer it
            try:
                if changed := change(chunk):
                    await sink.send_all(changed)
                if not chunk:
                    await getattr(sink, "send_eof", sink.aclose)()
            except LOST:
                return False
            finally:
                self.look()
            if not chunk:
                return True

    def look(self) -> None:
        """Give what has passed to the taps."""
        while self._passed:
            tap, chunk = self._passed.popleft()
            tap(chunk)

    def note(self, sender: Sender, data: bytes | None = None, **about: Any) -> None:
        """One line: what a side has sent, be it a message or not. `about` are the other keys of the line."""
        noted = line(time.monotonic() - self._began, sender, data, **about)
        for part in noted.parts:
            self._learn(sender, part)
        self._write(encode(noted))

    def _learn(self, sender: Sender, message: Any) -> None:
        """What a message tells of the revision, and of whether the client asks for more only once it has an answer."""
        match sender, message:
            case "client", {"method": str(method), "id": str() | int() as id}:
                self._asked[id] = method
                self.know(paced=self._answered)
            case "server", {"id": str() | int() as id} if "method" not in message:
                self._answered |= self._asked.pop(id, "initialize") not in (
                    "initialize",
                    "server/discover",
                )
        if revision := revision_in(
            message
        ):  # what is agreed on outweighs what was declared
            self.know(
                revision=revision
                if "result" in message
                else self.header.revision or revision
            )

    def know(self, **more: Any) -> None:
        """Put into the header, where there is room, what has turned out of the revision, the transport or the pace."""
        header = msgspec.structs.replace(self.header, **more)
        if header != self.header and len(encode(header)) <= self._room:
            self.header = header
            self._write_header()

    def _write_header(self) -> None:
        self._write(encode(self.header)[:-1].ljust(self._room - 1) + b"\n", os.SEEK_SET)

    def _write(self, line: bytes, where: int = os.SEEK_END) -> None:
        """A file that cannot be written is given up; the conversation goes on."""
        try:
            if self._file is not None:
                os.lseek(self._file, 0, where)
                if os.write(self._file, line) < len(line):
                    raise OSError("no room is left")
        except OSError as problem:
            say(f"{self._path}: {problem}; nothing more is recorded")
            self.close()

    def close(self) -> None:
        """Nothing more comes."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# On standard input and output


class Descriptor(_Pipe):
    """One of the client's two descriptors, or of the server's."""

    async def receive_some(self) -> bytes:
        """Wait for what can be read; nothing at the end, or when stopped."""
        try:
            return await self.read(answered=False)
        except LOST:
            return b""

    async def send_all(self, data: bytes) -> None:
        """Write, at once where that is possible."""
        rest = memoryview(data)
        while rest := rest[self.try_write(rest) :]:
            await self.write(rest)

    async def aclose(self) -> None:
        """Let go of what is behind the descriptor; it stays open itself, on nothing."""
        self.restore()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self.fd)
        os.close(nothing)


class LineTap:
    """The tap of a stream of lines."""

    def __init__(self, recorder: Recorder, sender: Sender) -> None:
        self.ended = False
        self.begun = bytearray()  # a line whose end has not come
        self._note = partial(recorder.note, sender)

    def __call__(self, chunk: bytes) -> None:
        rest, *others = chunk.split(b"\n")
        self.begun += rest
        for begun in others:
            self._note(bytes(self.begun))
            self.begun = bytearray(begun)
        if not chunk and not self.ended:
            self.ended = True
            if self.begun:
                self._note(bytes(self.begun))
            self._note(ends=True)


async def record_stdio(command: Sequence[str], recorder: Recorder) -> int:
    """Stand between the client that has started us and a server, which is started here; its exit code.

    Raises OSError where it cannot be started.
    """
    asks, answers = LineTap(recorder, "client"), LineTap(recorder, "server")
    with closing(recorder), claim() as descriptors, ExitStack() as at_end:
        signals = at_end.enter_context(
            trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
        )
        from_client, to_client = ends = [Descriptor(fd) for fd in descriptors]
        for end in ends:
            at_end.callback(end.restore)
        process: Any = await trio.lowlevel.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        at_end.callback(process.kill)
        from_server = Descriptor(process.stdout.fileno())

        async def pass_on(source: Any, sink: Any, tap: Tap, reader: str) -> None:
            if not await recorder.copy(source, sink, tap):
                say(f"the {reader} does not read any more")
                await source.aclose()  # so that who writes learns of it, as we did

        async def pass_signals() -> None:
            async for number in signals:
                process.send_signal(number)

        async def end_its_output() -> None:
            await process.wait()
            while True:
                await trio.sleep(LAST_WORDS)
                from_server.stop()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_on, from_client, process.stdin, asks, "server")
            nursery.start_soon(pass_signals)
            nursery.start_soon(end_its_output)
            await pass_on(from_server, to_client, answers, "client")
            code: int = await process.wait()
            nursery.cancel_scope.cancel()
    answers(b"")
    if code or not asks.ended:
        how = (
            f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
        say(
            f"the server {how}{' in mid-line' * bool(answers.begun)}{', before the client did' * (not asks.ended)}"
        )
    return code if code >= 0 else 128 - code


# On the network


async def record_network(
    url: str,
    listen: str,
    recorder: Recorder,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Stand on `[HOST:]PORT` in front of the server at a URL (http, https, ws, wss), until cancelled.

    Started in a nursery, it gives its own URL. Raises ValueError, OSError.
    """
    recorder.know(transport="http")  # unless it turns out to be more
    with closing(recorder):
        upstream, numbers = Connections(url), count(1)
        host, port = parse_address(listen)
        listeners = await trio.open_tcp_listeners(port, host=host)
        own = f"{f'[{host}]' if ':' in host else host}:{listeners[0].socket.getsockname()[1]}"
        scheme = "http" if url.startswith("http") else "ws"
        task_status.started(urlsplit(url)._replace(scheme=scheme, netloc=own).geturl())

        async def serve(client: trio.SocketStream) -> None:
            await _stand_in(
                client,
                upstream,
                recorder,
                Connection(recorder.note, recorder.know, own, numbers),
            )

        await trio.serve_listeners(serve, listeners)


async def _stand_in(
    client: trio.SocketStream,
    upstream: Connections,
    recorder: Recorder,
    taps: Connection,
) -> None:
    """Pass on what both sides of one connection say, and how they end."""
    change = (
        bytes
        if is_loopback(upstream.host)
        else _renamed(upstream.authority, recorder, taps)
    )

    async def pass_on(source: Any, sink: Any, tap: Tap, change: Change) -> None:
        try:
            await recorder.copy(source, sink, tap, change)
        except LOST:
            tap(b"")
            _reset(client)
            _reset(getattr(server, "transport_stream", server))

    async with AsyncExitStack() as at_end:
        try:
            server: Any = await upstream.connect()
            at_end.push_async_callback(trio.aclose_forcefully, server)
            if isinstance(server, trio.SSLStream):
                await server.do_handshake()
        except LOST as problem:
            say(
                f"{public(upstream.url)} cannot be reached: {problem.__cause__ or problem}"
            )
            _reset(client)
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pass_on, client, server, taps.client, change)
            nursery.start_soon(pass_on, server, client, taps.server, bytes)
        taps.client(b"")
        taps.server(b"")


def _reset(stream: trio.SocketStream) -> None:
    """Close as one does whose connection broke."""
    with suppress(*LOST):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


def _renamed(name: bytes, recorder: Recorder, taps: Connection) -> Change:
    """Changes Host, and nothing else: a server elsewhere refuses who comes under a name that is not its own."""
    host = b"\r\nHost: %b\r\n" % name
    held = bytearray()  # a head that is not whole yet

    def change(data: bytes) -> bytes:
        held.extend(data)
        recorder.look()
        if taps.client.reads_head:
            return b""
        # No JSON body has such a line: within a string a line end is escaped.
        changed = re.sub(rb"(?i)\r\nhost:[^\r\n]*\r\n", host, held)
        held.clear()
        return changed

    return change
