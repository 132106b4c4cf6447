"""One client on a WebSocket, with one JSON-RPC message or batch per frame.

The specification has no WebSocket transport, but allows custom ones. The subprotocol is
`mcp`. trio-websocket does the handshake, answers pings and close frames, and refuses
invalid frames. Messages are read here, so that the memory of incomplete ones can be
charged and freed, and written here, so that those of one turn need one write.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..auth.principal import Principal
from ..protocol.jsonrpc import MAX_MESSAGE
from ..server.accounts import Account, account_at
from ..server.app import Server
from ..server.ledger import Ledger, Meter, Priority
from ..server.serve_conversation import serve_conversation
from .message_reader import BAD_FRAME, NOT_UTF8, MessageReader
from .send_queue import (
    DISCONNECTED,
    NO_HEADERS,
    ChargedQueue,
    QueuedWire,
    call_when_set,
    close_gracefully,
)

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

log = logging.getLogger("mcp_trio")

SUBPROTOCOL = "mcp"
HANDSHAKE_TIMEOUT = 5.0
PING_INTERVAL = 30.0
PONG_TIMEOUT = 30.0
# Seconds that a client has to read the queue, and then to close its side.
CLOSE_TIMEOUT = 0.4
# The most bytes in one read, or in one write.
_PIECE = 2**16

# The status codes of close frames: RFC 6455, section 7.4.1.
GOING_AWAY = 1001
NOT_ALLOWED = 1008
NO_PONG = 1011
TRY_LATER = 1013
# The first byte of a close frame.
_CLOSE = b"\x88"


def text_frame(message: bytes) -> bytes:
    """Return a message in one unmasked frame (RFC 6455, section 5.2)."""
    size = len(message)
    if size < 126:
        return b"\x81%c%b" % (size, message)
    if size < 2**16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), message)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), message)


class FrameStream(trio.abc.Stream):
    """The stream that trio-websocket uses, in front of the real one.

    The library first reads the head, which was read already. Then it reads all frames
    except those of messages, which are queued in `incoming`. What it writes is queued
    together with the frames of messages. Only `write` writes to the real stream, so
    cancelling a task that waits for a write never leaves half a frame.

    It is also the channel on which the server sends messages.
    """

    def __init__(
        self, stream: trio.abc.Stream, head: bytes, ledger: Ledger, account: Account
    ) -> None:
        self.incoming = ChargedQueue(ledger, account, "bodies", Priority.REQUEST)
        # Closed after a close frame, because nothing may follow it.
        self.outgoing = ChargedQueue(
            ledger, account, "replies", Priority.STREAM, end=b""
        )
        self._unread_meter = Meter(
            ledger, account, "bodies", Priority.REQUEST, self.drop_partial_message
        )
        self._is_dropped = False
        self.drained = self.outgoing.drained
        self.close_code = GOING_AWAY
        self._reader = MessageReader()
        self._unread = 0  # bytes since the last whole message
        # Changes whenever the client sends something or reads a large piece.
        self.activity = 0
        self.accepted = trio.Event()
        self.handshake = trio.move_on_after(HANDSHAKE_TIMEOUT)
        self._stream = stream
        self._writing = trio.CancelScope(shield=True)
        request, end, following = head.partition(b"\r\n\r\n")
        # What was read already, in reverse order: the request, then what followed it.
        self._early = [following, request + end]

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Read messages until a frame for the library arrives, and return that one.

        Returns the end of input if a client keeps sending and never ends a message.
        """
        if len(self._early) < 2 and not self.accepted.is_set():
            # The library ignores frames that it reads before it has accepted.
            await self.accepted.wait()
        if self._early:
            early = self._early.pop()
            if self._early:
                return early
            self._reader.put(early)
        while True:
            if self._reader.needs_input:
                has_ended = not await self._receive(max_bytes)
                if has_ended:
                    return b""
            else:
                # All of it was read before, and other tasks should run in between.
                await trio.lowlevel.checkpoint()
            for_library = await self._read_frames()
            if self._is_dropped or self._unread > 2 * MAX_MESSAGE:
                return b""
            if for_library:
                return for_library

    async def _receive(self, max_bytes: int | None) -> bool:
        """Wait for input. Returns False at its end."""
        # All messages of the earlier input are queued.
        self.incoming.wake()
        data = await self._stream.receive_some(max_bytes)
        self.activity += 1
        self._unread += len(data)
        self._reader.put(data)
        return len(data) > 0

    async def _read_frames(self) -> bytes:
        """Read a few frames, and queue messages. Returns the frames for the library."""
        messages, for_library = self._reader.read()
        self._unread_meter.set(self._reader.size)
        for message in messages:
            self._unread = 0
            self.incoming.put(message)
        if self._reader.problem and not self.incoming.closed:
            self.end_input(self._reader.problem)
        await self.incoming.drained()
        return for_library

    def drop_partial_message(self) -> bool:
        """Close the connection, because the memory of a partial message is needed."""
        self._is_dropped = True
        self._reader.refuse(TRY_LATER)
        self.end_input(TRY_LATER)
        return True

    def discard(self) -> None:
        """Drop all messages. The connection has ended."""
        self.incoming.close(discard=True)
        self.outgoing.close(discard=True)
        self._reader.refuse(GOING_AWAY)
        self._unread_meter.close()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Queue what the library writes."""
        self.outgoing.send(bytes(data))
        if data[:1] == _CLOSE:
            self.outgoing.close()
        await self.drained()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until little is queued."""
        await self.drained()

    async def aclose(self) -> None:
        """Cancel the handshake. `serve_websocket` closes the stream."""
        self.handshake.cancel()

    def send(self, message: bytes) -> None:
        """Queue a message in a frame."""
        self.outgoing.send(text_frame(message))

    def end_input(self, code: int) -> None:
        """Accept no more messages. Close when those that arrived are answered."""
        self.close_code = code
        self.incoming.close()

    def abort(self, conversation: trio.CancelScope, code: int) -> None:
        """Cancel the conversation, and close."""
        self.close_code = code
        conversation.cancel()

    def close(self) -> None:
        """Send a close frame, unless one was sent. Limit the time for all writes."""
        if self.accepted.is_set():
            self.outgoing.put(_CLOSE + b"\x02" + self.close_code.to_bytes(2))
        self.outgoing.close()
        self._writing.deadline = trio.current_time() + CLOSE_TIMEOUT

    async def write(self) -> None:
        """Write messages from the queue until it is closed.

        Everything that is queued in one turn is written together.
        """
        outgoing = self.outgoing
        # If the client has disconnected, the reader notices it too.
        with suppress(*DISCONNECTED), self._writing:
            while outgoing.size or not outgoing.closed:
                await outgoing.wait()
                piece = outgoing.next_block()[:_PIECE]
                await self._stream.send_all(piece)
                outgoing.mark_written(len(piece))
                # The system accepts a small piece even if the client reads nothing.
                if len(piece) == _PIECE:
                    self.activity += 1
        outgoing.close(discard=True)
        # Nothing can be answered any more.
        self.incoming.close()


async def serve_websocket(
    server: Server,
    stream: trio.abc.Stream,
    head: bytes,
    stopping: trio.Event,
    principal: Principal | None = None,
    *,
    token: str = "",
    address: str = "",
    headers: Mapping[bytes, bytes] = NO_HEADERS,
) -> None:
    """Serve one client whose upgrade request was read and admitted. Closes the stream.

    `head` is all that was read, and `headers` are those in it. No exception is raised,
    whatever the client does. When `stopping` is set, running requests have the server's
    grace period to finish, and the connection is closed as "going away". On
    cancellation it is closed in the same way. It is also closed when the token of its
    principal is no longer valid.
    """
    account = account_at(address, principal)
    frames = FrameStream(stream, head, server.ledger, account)

    async def converse(
        connection: "WebSocketConnection", nursery: trio.Nursery
    ) -> None:
        scope = nursery.cancel_scope
        nursery.start_soon(_await_close, connection, frames, scope)
        nursery.start_soon(_watch, connection, frames, scope)
        nursery.start_soon(call_when_set, stopping, frames.incoming.close)
        if principal is not None and server.access is not None:
            abort = partial(frames.abort, scope, NOT_ALLOWED)
            nursery.start_soon(server.access.outlast, token, principal, abort)
        wire = QueuedWire(frames.incoming, frames, headers)
        await serve_conversation(
            server, wire, principal, transport="ws", address=address
        )

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.write)
            try:
                async with trio.open_nursery() as conversation:
                    connection = await _shake_hands(conversation, frames)
                    if connection is not None:
                        await converse(connection, conversation)
                    conversation.cancel_scope.cancel()
            finally:
                frames.close()
    except Exception as problem:
        log.debug("a WebSocket connection failed: %r", problem)
    finally:
        frames.discard()
        await close_gracefully(stream, CLOSE_TIMEOUT)


async def _shake_hands(
    nursery: trio.Nursery, frames: FrameStream
) -> "WebSocketConnection | None":
    """Accept the client, unless it offers only other subprotocols."""
    from trio_websocket import wrap_server_stream

    with frames.handshake:
        request = await wrap_server_stream(nursery, frames, 0, MAX_MESSAGE, _PIECE)
        offered = request.proposed_subprotocols
        if not offered or SUBPROTOCOL in offered:
            chosen = SUBPROTOCOL if offered else None
            connection = await request.accept(subprotocol=chosen)
            frames.accepted.set()
            return connection
        message = f"Sec-WebSocket-Protocol: this server only supports {SUBPROTOCOL!r}"
        await request.reject(400, body=message.encode())
    return None


async def _await_close(
    connection: "WebSocketConnection",
    frames: FrameStream,
    conversation: trio.CancelScope,
) -> None:
    """Wait until the client closes, and then cancel the conversation."""
    from trio_websocket import ConnectionClosed

    try:
        # The library gets no messages, so this only raises.
        await connection.get_message()
    except ConnectionClosed as closed:
        # Close with the same code as the library did for a bad frame.
        if closed.reason and closed.reason.code in (BAD_FRAME, NOT_UTF8):
            frames.close_code = closed.reason.code
    conversation.cancel()


async def _watch(
    connection: "WebSocketConnection",
    frames: FrameStream,
    conversation: trio.CancelScope,
) -> None:
    """Close the connection of a client that does not answer pings."""
    while True:
        await trio.sleep(PING_INTERVAL)
        activity = frames.activity
        with trio.move_on_after(PONG_TIMEOUT):
            await connection.ping()
        if frames.activity == activity:
            frames.abort(conversation, NO_PONG)
