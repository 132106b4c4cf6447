"""Record a conversation as a proxy between a client and a server.

All bytes are forwarded first, unchanged, and only then parsed.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Unpack
from urllib.parse import urlsplit

import msgspec
import trio

from ..client.http_connection import Connections
from ..protocol.framing import VerbatimLineDecoder
from ..transports.address import parse_address
from ..transports.http.rules import is_loopback
from ..transports.send_queue import DISCONNECTED
from ..transports.stdio import Pipe, claim
from .format import (
    FIRST_LINE,
    VERSION,
    Header,
    Sender,
    Transport,
    encode,
    line,
    revision_in,
)
from .privacy import Redactor
from .sniffer import LineFields, SniffedConnection, public, say

# Called with each chunk that one side has sent. An empty chunk is the end.
Tap = Callable[[bytes], None]
# Returns the bytes to forward instead of a chunk. They may be empty until more arrives.
Change = Callable[[bytes], bytes]

LOST = (*DISCONNECTED, OSError)
# A child process may keep a server's output open after its exit. The output is
# considered closed after this many seconds without data.
_SILENCE = 1.0
# Requests that open a conversation. A client always waits for their responses.
_OPENING_METHODS = ("initialize", "server/discover")


# The trace


def create(path: Path) -> Path:
    """Create an empty file and return its path. Raises OSError.

    If the file exists, -2, -3 and so on is added to the name, and this is reported on
    stderr.
    """
    free = path
    for number in count(2):
        try:
            free.touch(0o600, exist_ok=False)
            break
        except FileExistsError:
            free = path.with_stem(f"{path.stem}-{number}")
    if free != path:
        say(f"{path} exists; recording to {free}")
    return free


class TraceWriter:
    """Writes a trace. Each line is written immediately, so a crash loses at most one.

    The header is padded with spaces, so that it can be replaced later.
    """

    def __init__(self, path: Path, header: Header) -> None:
        longest = msgspec.structs.replace(
            header, revision="year-mm-dd", transport="stdio", paced=True
        )
        self._header_size = len(encode(longest))
        self._path = path
        self._file: int | None = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
        )
        self.write_header(header)

    def has_room_for(self, header: Header) -> bool:
        """Return whether a header fits into the space for it."""
        return len(encode(header)) <= self._header_size

    def write_header(self, header: Header) -> None:
        """Write the header, and overwrite the previous one."""
        text = encode(header).removesuffix(b"\n")
        self._write(text.ljust(self._header_size - 1) + b"\n", os.SEEK_SET)

    def write_line(self, data: bytes) -> None:
        """Add an encoded line."""
        self._write(data, os.SEEK_END)

    def _write(self, data: bytes, start: int) -> None:
        """Write at the beginning or the end. On failure, report it and stop writing."""
        if self._file is None:
            return
        try:
            os.lseek(self._file, 0, start)
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError("no space left on the device")
        except OSError as problem:
            say(f"{self._path}: {problem}; nothing more is recorded")
            self.close()

    def close(self) -> None:
        """Close the file. Later writes are dropped."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class Recorder:
    """Writes the lines of a conversation, and completes the header from them.

    The header is first written without the revision, and updated when the messages
    show the revision and whether the conversation is paced.
    """

    def __init__(
        self,
        path: Path,
        *,
        transport: Transport = "stdio",
        title: str = "",
        server: str = "",
        client: str = "",
        redactor: Redactor | None = None,
    ) -> None:
        self.redactor = redactor or Redactor()
        self.header = Header(
            mcp_trace=VERSION,
            transport=transport,
            title=title,
            server=self.redactor.command(server),
            client=client,
            cuts=True,
        )
        self._writer = TraceWriter(path, self.header)
        self._start = time.monotonic()
        # The methods of the client's requests that have no response yet.
        self._open_requests: dict[str | int, str] = {}
        # Whether a request after the opening has a response.
        self._has_response = False
        # The number of the next line.
        self._number = FIRST_LINE

    def note(
        self, sender: Sender, data: bytes | None = None, **fields: Unpack[LineFields]
    ) -> None:
        """Write a line: the data that a side has sent, and further fields."""
        noted = line(time.monotonic() - self._start, sender, data, **fields)
        for message in noted.parts:
            self._update_from(sender, message)
        noted = self.redactor.line(noted, self._number)
        self._number += 1
        self._writer.write_line(encode(noted))

    def _update_from(self, sender: Sender, message: Any) -> None:
        """Update the header from a message: the revision, and whether it is paced."""
        if sender == "client":
            self._note_request(message)
        else:
            self._note_response(message)
        revision = revision_in(message)
        if not revision:
            return
        # A response has the negotiated revision. Until then, it is the first revision
        # that a request declares.
        if "result" in message or not self.header.revision:
            self.update_header(revision=revision)

    def _note_request(self, message: Any) -> None:
        match message:
            case {"method": str(method), "id": str() | int() as id}:
                self._open_requests[id] = method
                self.update_header(paced=self._has_response)

    def _note_response(self, message: Any) -> None:
        match message:
            case {"method": _}:
                pass
            case {"id": str() | int() as id}:
                method = self._open_requests.pop(id, None)
                if method is not None and method not in _OPENING_METHODS:
                    self._has_response = True

    def update_header(
        self,
        *,
        revision: str | None = None,
        transport: Transport | None = None,
        paced: bool | None = None,
    ) -> None:
        """Update the header, if the result fits into the space for it."""
        header = msgspec.structs.replace(self.header)
        if revision is not None:
            header.revision = revision
        if transport is not None:
            header.transport = transport
        if paced is not None:
            header.paced = paced
        if header != self.header and self._writer.has_room_for(header):
            self.header = header
            self._writer.write_header(header)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


# Forwarding bytes


class ByteSource(Protocol):
    """A stream to receive from."""

    async def receive_some(self) -> bytes | bytearray:
        """Wait for a chunk, empty at the end."""


class ByteSink(Protocol):
    """A stream to send to."""

    async def send_all(self, data: bytes) -> None:
        """Send all of the data."""

    async def aclose(self) -> None:
        """Close the stream."""


class Forwarder:
    """Forwards bytes, and then passes them to taps in the order of their arrival."""

    def __init__(self) -> None:
        # The chunks that were not passed to their taps yet.
        self._unseen: deque[tuple[Tap, bytes]] = deque()

    async def forward(
        self, source: ByteSource, sink: ByteSink, tap: Tap, change: Change = bytes
    ) -> bool:
        """Forward chunks until the source ends, then end the sink.

        Returns False as soon as the sink is lost. Raises the exceptions of the source.
        """
        while True:
            chunk = bytes(await source.receive_some())
            # Queued before it is sent, so that a tap sees it before the answer to it.
            self._unseen.append((tap, chunk))
            try:
                changed = change(chunk)
                if changed:
                    await sink.send_all(changed)
                if not chunk:
                    await _end_sending(sink)
            except LOST:
                return False
            finally:
                self.run_taps()
            if not chunk:
                return True

    def run_taps(self) -> None:
        """Pass all queued chunks to their taps."""
        while self._unseen:
            tap, chunk = self._unseen.popleft()
            tap(chunk)


async def _end_sending(sink: ByteSink) -> None:
    if isinstance(sink, trio.abc.HalfCloseableStream):
        await sink.send_eof()
    else:
        await sink.aclose()


# On standard input and output


class Descriptor(Pipe):
    """A file descriptor of the client or of the server, as a stream."""

    async def receive_some(self) -> bytes:
        """Wait for a chunk, empty at the end or when stopped."""
        try:
            return await self.read(answered=False)
        except LOST:
            return b""

    async def send_all(self, data: bytes) -> None:
        """Write all of the data, and wait only if necessary."""
        rest = memoryview(data)
        while True:
            rest = rest[self.try_write(rest) :]
            if not rest:
                return
            await self.write(rest)

    async def aclose(self) -> None:
        """Close the file behind the descriptor, and open /dev/null in its place."""
        self.restore()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self.fd)
        os.close(null)


class LineTap:
    """A tap that notes each line that one side sends."""

    def __init__(self, recorder: Recorder, sender: Sender) -> None:
        self.ended = False
        # Whether the side has stopped in the middle of a line so far.
        self.is_mid_line = False
        self._lines = VerbatimLineDecoder()
        self._recorder = recorder
        self._sender: Sender = sender

    def __call__(self, chunk: bytes) -> None:
        """Note the lines that a chunk completes. An empty chunk is the end."""
        for data in self._lines.feed(chunk):
            self._recorder.note(self._sender, data)
        if chunk:
            self.is_mid_line = not chunk.endswith(b"\n")
        elif not self.ended:
            self.ended = True
            for data in self._lines.end():
                self._recorder.note(self._sender, data)
            self._recorder.note(self._sender, ends=True)


async def record_stdio(command: Sequence[str], recorder: Recorder) -> int:
    """Start a server, and relay between it and the client on stdin and stdout.

    Returns the exit code of the server. Raises OSError if it cannot be started.
    """
    with closing(recorder), claim() as (reading, writing), ExitStack() as cleanup:
        signals = cleanup.enter_context(
            trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
        )
        # Both may be the same open file. The first one knows its original mode, so it
        # is restored last.
        from_client = Descriptor(reading)
        cleanup.callback(from_client.restore)
        to_client = Descriptor(writing)
        cleanup.callback(to_client.restore)
        process = await trio.lowlevel.open_process(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        cleanup.callback(process.kill)
        relay = _StdioRelay(process, recorder)
        code = await relay.run(from_client, to_client, signals)
    relay.report_end(code)
    # Shells report signals in this way.
    return code if code >= 0 else 128 - code


class _StdioRelay:
    """The two directions between the client and the server's process."""

    def __init__(self, process: trio.Process, recorder: Recorder) -> None:
        self._process = process
        self._forwarder = Forwarder()
        self._client_tap = LineTap(recorder, "client")
        self._server_tap = LineTap(recorder, "server")
        # Its type depends on the platform.
        stdout: Any = process.stdout
        self._from_server = Descriptor(stdout.fileno())

    async def run(
        self,
        from_client: Descriptor,
        to_client: Descriptor,
        signals: AsyncIterator[int],
    ) -> int:
        """Relay until the server has exited, and return its exit code."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._relay_requests, from_client)
            nursery.start_soon(self._relay_signals, signals)
            nursery.start_soon(self._end_output_after_exit)
            await self._relay_replies(to_client)
            code = await self._process.wait()
            nursery.cancel_scope.cancel()
        return code

    # If one side stops reading, the connection to the other one is closed too, so that
    # it gets the same error as without a recorder.

    async def _relay_requests(self, from_client: Descriptor) -> None:
        to_server = self._process.stdin
        assert to_server is not None
        if not await self._forwarder.forward(from_client, to_server, self._client_tap):
            say("the server has stopped reading")
            await from_client.aclose()

    async def _relay_replies(self, to_client: Descriptor) -> None:
        source = self._from_server
        if not await self._forwarder.forward(source, to_client, self._server_tap):
            say("the client has stopped reading")
            await source.aclose()

    async def _relay_signals(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            self._process.send_signal(signal.Signals(number))

    async def _end_output_after_exit(self) -> None:
        await self._process.wait()
        while True:
            await trio.sleep(_SILENCE)
            self._from_server.stop()

    def report_end(self, code: int) -> None:
        """Report how the server exited, unless it exited normally."""
        if code == 0 and self._client_tap.ended:
            return
        words = [f"the server exited with code {code}"]
        if code < 0:
            words = [f"the server was terminated by {signal.Signals(-code).name}"]
        if self._server_tap.is_mid_line:
            words.append(" in the middle of a line")
        if not self._client_tap.ended:
            words.append(" before the client closed its input")
        say("".join(words))


# On the network


async def record_network(
    url: str,
    listen: str,
    recorder: Recorder,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen on `[HOST:]PORT` in front of the server at a URL, until cancelled.

    The URL is http, https, ws or wss. The task status is the URL for clients. Raises
    ValueError if the URL or the address is invalid, and OSError.
    """
    # The first messages may show that it is another transport over HTTP.
    recorder.update_header(transport="http")
    with closing(recorder):
        upstream = Connections(url)
        host, port = parse_address(listen)
        listeners = await trio.open_tcp_listeners(port, host=host)
        own_port = listeners[0].socket.getsockname()[1]
        own_host = f"[{host}]" if ":" in host else host
        own = f"{own_host}:{own_port}"
        task_status.started(_own_url(url, own))
        forwarder = Forwarder()
        numbers = count(1)

        async def serve(client: trio.SocketStream) -> None:
            taps = SniffedConnection(
                recorder.note, recorder.update_header, own, numbers
            )
            await _NetworkRelay(client, upstream, forwarder, taps).run()

        await trio.serve_listeners(serve, listeners)


def _own_url(url: str, authority: str) -> str:
    """Return the URL with another authority. The recorder does not use TLS."""
    scheme = "http" if url.startswith("http") else "ws"
    return urlsplit(url)._replace(scheme=scheme, netloc=authority).geturl()


class _NetworkRelay:
    """The two directions of one client's connection."""

    def __init__(
        self,
        client: trio.SocketStream,
        upstream: Connections,
        forwarder: Forwarder,
        taps: SniffedConnection,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._forwarder = forwarder
        self._taps = taps
        self._change: Change = bytes
        # A server on this machine accepts the recorder's host name.
        if not is_loopback(upstream.host):
            self._change = _HostRewriter(upstream.authority, forwarder, taps)

    async def run(self) -> None:
        """Connect to the server, and relay until both sides have ended."""
        try:
            server = await self._connect()
        except LOST as problem:
            reason = problem.__cause__ or problem
            say(f"{public(self._upstream.url)} cannot be reached: {reason}")
            _reset(self._client)
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._relay_requests, server)
                nursery.start_soon(self._relay_responses, server)
            self._taps.client(b"")
            self._taps.server(b"")
        finally:
            await trio.aclose_forcefully(server)

    async def _connect(self) -> trio.abc.Stream:
        """Return a connection to the server, after the TLS handshake, if any."""
        server = await self._upstream.connect()
        if isinstance(server, trio.SSLStream):
            try:
                await server.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(server)
                raise
        return server

    async def _relay_requests(self, server: trio.abc.Stream) -> None:
        tap = self._taps.client
        try:
            await self._forwarder.forward(self._client, server, tap, self._change)
        except LOST:
            tap(b"")
            self._reset_both(server)

    async def _relay_responses(self, server: trio.abc.Stream) -> None:
        tap = self._taps.server
        try:
            await self._forwarder.forward(server, self._client, tap)
        except LOST:
            tap(b"")
            self._reset_both(server)

    def _reset_both(self, server: trio.abc.Stream) -> None:
        _reset(self._client)
        if isinstance(server, trio.SSLStream):
            server = server.transport_stream
        _reset(server)


def _reset(stream: trio.abc.Stream) -> None:
    """Close a TCP connection with a reset, as if it was lost."""
    assert isinstance(stream, trio.SocketStream)
    with suppress(*LOST):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


class _HostRewriter:
    """Replaces the Host header, because a remote server rejects other names."""

    def __init__(
        self, authority: bytes, forwarder: Forwarder, taps: SniffedConnection
    ) -> None:
        self._header = b"\r\nHost: %b\r\n" % authority
        self._forwarder = forwarder
        self._taps = taps
        # The data of an incomplete head.
        self._held = bytearray()

    def __call__(self, data: bytes) -> bytes:
        """Return the data to forward, which is empty while a head is incomplete."""
        self._held += data
        # The tap knows whether the head is complete, so it needs the data first.
        self._forwarder.run_taps()
        if self._taps.client.reads_head:
            return b""
        # A JSON body cannot contain such a line, because strings escape line ends.
        changed = re.sub(rb"(?i)\r\nhost:[^\r\n]*\r\n", self._header, self._held)
        self._held.clear()
        return changed
