"""One client on a WebSocket: subprotocol `mcp`, one JSON-RPC message or batch a frame.

The specification has no WebSocket transport, but allows custom ones. trio-websocket
does the handshake, reads frames, and answers pings and closes. The frames of our
messages are written here, so that those of one turn leave in one write.
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
from .send_queue import GONE, NO_HEADERS, ChargedQueue, QueuedWire, after, let_go

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

log = logging.getLogger("mcp_trio")

SUBPROTOCOL = "mcp"
HANDSHAKE_WITHIN = 5.0
PING_EVERY = 30.0
PONG_WITHIN = 30.0
# Seconds that a client has to read the queue, and then to close its side.
CLOSE_WITHIN = 0.4
# The most bytes in one write.
_PIECE = 2**16

# Why a connection is closed: RFC 6455, section 7.4.1.
GOING_AWAY = 1001
NOT_TEXT = 1003
NOT_ALLOWED = 1008
TOO_LARGE = 1009
NO_PONG = 1011
TRY_LATER = 1013
BAD_FRAMES = (1002, 1007)
# The first byte of a close frame.
_CLOSE = b"\x88"


def text_frame(message: bytes) -> bytes:
    """Return a message in one plain frame (RFC 6455, section 5.2)."""
    size = len(message)
    if size < 126:
        return b"\x81%c%b" % (size, message)
    if size < 2**16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), message)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), message)


class FrameStream(trio.abc.Stream):
    """The connection as the library sees it, between the library and the real stream.

    The library first reads the head, which was read already. What it writes is queued
    together with the frames of our messages. Only `write` writes to the real stream, so
    cancelling whoever waits for a write leaves no half of a frame behind.

    It is also the channel on which the server sends messages.
    """

    def __init__(
        self, stream: trio.abc.Stream, head: bytes, ledger: Ledger, account: Account
    ) -> None:
        self.incoming = ChargedQueue(ledger, account, "bodies", Priority.REQUEST)
        # Closed behind a close frame, because nothing may follow it.
        self.outgoing = ChargedQueue(
            ledger, account, "replies", Priority.STREAM, end=b""
        )
        self._unread_meter = Meter(
            ledger, account, "bodies", Priority.REQUEST, self.give_up_message
        )
        self._is_given_up = False
        self.drained = self.outgoing.drained
        self.close_code = GOING_AWAY
        self.unread = 0  # bytes since the last whole message
        self.signs_of_life = 0
        self.is_waited_for = False  # whether the library waits for the client's bytes
        self.accepted = trio.Event()
        self.handshake = trio.move_on_after(HANDSHAKE_WITHIN)
        self._stream = stream
        self._writing = trio.CancelScope(shield=True)
        request, end, behind = head.partition(b"\r\n\r\n")
        # What was read already, last first: the request, then what came behind it.
        self._early = [behind, request + end]

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Read on, for the library.

        A client that sends ever more and never ends a message has reached its end.
        """
        if len(self._early) < 2 and not self.accepted.is_set():
            # The library ignores frames that it is given before it has accepted.
            await self.accepted.wait()
        if self._early:
            early = self._early.pop()
            if early:
                return early
        self.is_waited_for = True
        # The library has handled everything that came before.
        self.incoming.wake()
        data = await self._stream.receive_some(max_bytes)
        self.is_waited_for = False
        self.signs_of_life += 1
        self.unread += len(data)
        self._unread_meter.set(self.unread)
        if self._is_given_up or self.unread > 2 * MAX_MESSAGE:
            return b""
        return data

    def took_message(self) -> None:
        """Note that a message is complete."""
        self.unread = 0
        self._unread_meter.set(0)

    def give_up_message(self) -> bool:
        """End the connection, as the memory of a partial message is needed."""
        self._is_given_up = True
        self.end(TRY_LATER)
        return True

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
        """Give up the handshake, as the library does. Our caller closes the stream."""
        self.handshake.cancel()

    def send(self, message: bytes) -> None:
        """Queue one message in its frame."""
        self.outgoing.send(text_frame(message))

    def end(self, code: int) -> None:
        """Take no more messages. Close when those that came are done."""
        self.close_code = code
        self.incoming.close()

    def give_up(self, conversation: trio.CancelScope, code: int) -> None:
        """Cancel the conversation, and close."""
        self.close_code = code
        conversation.cancel()

    def close(self) -> None:
        """Send a close frame, unless one was sent. What is queued must leave soon."""
        if self.accepted.is_set():
            self.outgoing.put(_CLOSE + b"\x02" + self.close_code.to_bytes(2))
        self.outgoing.close()
        self._writing.deadline = trio.current_time() + CLOSE_WITHIN

    async def write(self) -> None:
        """Write messages from the queue until it is closed.

        Everything that is queued in one turn leaves together.
        """
        outgoing = self.outgoing
        # If the client is gone, the reader sees it too.
        with suppress(*GONE), self._writing:
            while outgoing.size or not outgoing.closed:
                await outgoing.wait()
                piece = outgoing.block()[:_PIECE]
                await self._stream.send_all(piece)
                outgoing.gone(len(piece))
                # The system takes a small piece even if the client reads nothing.
                if len(piece) == _PIECE:
                    self.signs_of_life += 1
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
    """Serve one client whose upgrade request was read and allowed; close the stream.

    `head` is all that was read, and `headers` are those in it. Whatever the client
    does, nothing is raised. When `stopping` is set, running requests finish within the
    server's grace, and the connection is closed as "going away". This also happens on
    cancellation. The connection ends too when the token of its principal is no longer
    valid.
    """
    account = account_at(address, principal)
    frames = FrameStream(stream, head, server.ledger, account)

    async def converse(
        connection: "WebSocketConnection", nursery: trio.Nursery
    ) -> None:
        scope = nursery.cancel_scope
        nursery.start_soon(_read, connection, frames, scope)
        nursery.start_soon(_watch, connection, frames, scope)
        nursery.start_soon(after, stopping, frames.incoming.close)
        if principal is not None and server.access is not None:
            withdrawn = partial(frames.give_up, scope, NOT_ALLOWED)
            nursery.start_soon(server.access.outlast, token, principal, withdrawn)
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
        await let_go(stream, CLOSE_WITHIN)


async def _shake_hands(
    nursery: trio.Nursery, frames: FrameStream
) -> "WebSocketConnection | None":
    """Accept the client, unless it offers only subprotocols other than ours."""
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


async def _read(
    connection: "WebSocketConnection",
    frames: FrameStream,
    conversation: trio.CancelScope,
) -> None:
    """Pass messages on until the client closes, which ends the conversation."""
    from trio_websocket import ConnectionClosed

    try:
        while True:
            text = await connection.get_message()
            frames.took_message()
            await _take(text, frames)
    except ConnectionClosed as closed:
        # The library does not report bad frames as the reason for our close.
        if closed.reason and closed.reason.code in BAD_FRAMES:
            frames.close_code = closed.reason.code
    conversation.cancel()


async def _take(text: str | bytes, frames: FrameStream) -> None:
    """Pass one message on, or end the conversation because of it."""
    if isinstance(text, bytes):
        frames.end(NOT_TEXT)
        return
    message = text.encode()
    # The library's own limit counts characters.
    if len(message) > MAX_MESSAGE:
        frames.end(TOO_LARGE)
        return
    frames.incoming.put(message)
    if frames.is_waited_for:
        # Otherwise more messages of the same read are about to come.
        frames.incoming.wake()
    await frames.incoming.drained()


async def _watch(
    connection: "WebSocketConnection",
    frames: FrameStream,
    conversation: trio.CancelScope,
) -> None:
    """End the conversation with a client that shows no sign of life."""
    while True:
        await trio.sleep(PING_EVERY)
        signs = frames.signs_of_life
        with trio.move_on_after(PONG_WITHIN):
            await connection.ping()
        if frames.signs_of_life == signs:
            frames.give_up(conversation, NO_PONG)
