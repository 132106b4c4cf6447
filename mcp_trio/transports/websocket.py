"""One client on a WebSocket: subprotocol `mcp`, one JSON-RPC message, or batch, a text frame.

A transport of our own: the specification names none, and allows it. The library does the handshake, reads frames and
answers pings and closes; the frames of our messages are written here, so that those of one turn leave in one write.
"""

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..auth.principal import Principal
from ..protocol.jsonrpc import MAX_MESSAGE
from ..server.app import Server
from ..server.serve_conversation import serve_conversation
from .send_queue import GONE, QueuedWire, SendQueue, after, let_go

if TYPE_CHECKING:
    from trio_websocket import WebSocketConnection

log = logging.getLogger("mcp_trio")

SUBPROTOCOL = "mcp"
HANDSHAKE_WITHIN = 5.0
PING_EVERY, PONG_WITHIN = 30.0, 30.0
# Seconds that a client has to take what is on its way, and then to close too.
CLOSE_WITHIN = 0.4
_PIECE = 2**16

# Why a connection is closed: RFC 6455, section 7.4.1.
GOING_AWAY, NOT_TEXT, NOT_ALLOWED, TOO_LARGE, NO_PONG = 1001, 1003, 1008, 1009, 1011
BAD_FRAMES = (1002, 1007)
_CLOSE = b"\x88"


def text_frame(message: bytes) -> bytes:
    """A whole message as a server sends it: not masked, not compressed (RFC 6455, section 5.2)."""
    size = len(message)
    if size < 126:
        return b"\x81%c%b" % (size, message)
    if size < 2**16:
        return b"\x81\x7e%b%b" % (size.to_bytes(2), message)
    return b"\x81\x7f%b%b" % (size.to_bytes(8), message)


class _Frames(trio.abc.Stream):
    """The stream as the library gets it: first the head that was read already; writes are joined, and never torn.

    Only `write` writes, so that whoever is cancelled while it waits for a write leaves no half of a frame behind.
    """

    def __init__(self, stream: trio.abc.Stream, head: bytes) -> None:
        self.incoming = SendQueue()
        self.outgoing = SendQueue(
            end=b""
        )  # closed behind a close frame: nothing may follow it
        self.drained = self.outgoing.drained
        self.close_code = GOING_AWAY
        self.unread = 0  # bytes since the last whole message
        self.signs_of_life = 0
        self.is_waited_for = False  # the client's next bytes, by the library
        self.accepted = trio.Event()
        self.handshake = trio.move_on_after(HANDSHAKE_WITHIN)
        self._stream = stream
        self._writing = trio.CancelScope(shield=True)
        request, end, behind = head.partition(b"\r\n\r\n")
        self._early = [behind, request + end]

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """What has come. A client that sends ever more and never ends a message has reached its end."""
        if len(self._early) < 2 and not self.accepted.is_set():
            await (
                self.accepted.wait()
            )  # the library would not look at frames that it is given before
        if self._early and (early := self._early.pop()):
            return early
        self.is_waited_for = True
        self.incoming.wake()  # the library has handled all that had come
        data = await self._stream.receive_some(max_bytes)
        self.is_waited_for = False
        self.signs_of_life += 1
        self.unread += len(data)
        return data if self.unread <= 2 * MAX_MESSAGE else b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Queue what the library has to say."""
        self.outgoing.send(bytes(data))
        if data[:1] == _CLOSE:
            self.outgoing.close()
        await self.drained()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until little is queued."""
        await self.drained()

    async def aclose(self) -> None:
        """The library gives up. The stream is closed by who opened the conversation."""
        self.handshake.cancel()

    def send(self, message: bytes) -> None:
        """Put one message on its way, in its frame."""
        self.outgoing.send(text_frame(message))

    def end(self, code: int) -> None:
        """Take no more messages; when those that came are done, close for this reason."""
        self.close_code = code
        self.incoming.close()

    def give_up(self, conversation: trio.CancelScope, code: int) -> None:
        """End the conversation at once, for this reason."""
        self.close_code = code
        conversation.cancel()

    def close(self) -> None:
        """Say why it ends, unless that was said; what is queued has little time left."""
        if self.accepted.is_set():
            self.outgoing.put(_CLOSE + b"\x02" + self.close_code.to_bytes(2))
        self.outgoing.close()
        self._writing.deadline = trio.current_time() + CLOSE_WITHIN

    async def write(self) -> None:
        """Write what is queued, until it is closed. All that is queued in one turn leaves together."""
        outgoing = self.outgoing
        with (
            suppress(*GONE),
            self._writing,
        ):  # where the client is gone, the reader sees it too
            while outgoing.size or not outgoing.closed:
                await outgoing.wait()
                piece = outgoing.block()[:_PIECE]
                await self._stream.send_all(piece)
                outgoing.gone(len(piece))
                self.signs_of_life += (
                    len(piece) == _PIECE
                )  # a little may leave though nobody reads
        outgoing.close(discard=True)


async def serve_websocket(
    server: Server,
    stream: trio.abc.Stream,
    head: bytes,
    stopping: trio.Event,
    principal: Principal | None = None,
    *,
    token: str = "",
    address: str = "",
) -> None:
    """Serve one client whose request to upgrade was read, and allowed, already; close the stream in the end.

    `head` is all that was read. Whatever the client does, nothing is raised. When `stopping` is set, what runs is
    finished, within the server's grace; then, or cancelled, it closes as a server does that goes away. It ends when
    the token by which the principal has come does.
    """
    frames = _Frames(stream, head)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames.write)
            try:
                async with trio.open_nursery() as conversation:
                    if connection := await _shake_hands(conversation, frames):
                        scope = conversation.cancel_scope
                        conversation.start_soon(_read, connection, frames, scope)
                        conversation.start_soon(_watch, connection, frames, scope)
                        conversation.start_soon(after, stopping, frames.incoming.close)
                        if principal is not None and server.access is not None:
                            withdrawn = partial(frames.give_up, scope, NOT_ALLOWED)
                            conversation.start_soon(
                                server.access.outlast, token, principal, withdrawn
                            )
                        await serve_conversation(
                            server,
                            QueuedWire(frames.incoming, frames),
                            principal,
                            transport="ws",
                            address=address,
                        )
                    conversation.cancel_scope.cancel()
            finally:
                frames.close()
    except Exception as problem:
        log.debug("a WebSocket connection failed: %r", problem)
    finally:
        await let_go(stream, CLOSE_WITHIN)


async def _shake_hands(
    nursery: trio.Nursery, frames: _Frames
) -> "WebSocketConnection | None":
    from trio_websocket import wrap_server_stream

    with frames.handshake:
        request = await wrap_server_stream(nursery, frames, 0, MAX_MESSAGE, _PIECE)
        offered = request.proposed_subprotocols
        if not offered or SUBPROTOCOL in offered:
            connection = await request.accept(
                subprotocol=SUBPROTOCOL if offered else None
            )
            frames.accepted.set()
            return connection
        await request.reject(
            400,
            body=b"of the subprotocols, this server speaks %r alone"
            % SUBPROTOCOL.encode(),
        )
    return None


async def _read(
    connection: "WebSocketConnection", frames: _Frames, conversation: trio.CancelScope
) -> None:
    """Pass messages on. The client's end is that of the conversation: a WebSocket closes both ways at once."""
    from trio_websocket import ConnectionClosed

    try:
        while True:
            text = await connection.get_message()
            frames.unread = 0
            if isinstance(text, bytes):
                frames.end(NOT_TEXT)
            elif (
                len(message := text.encode()) > MAX_MESSAGE
            ):  # the library counts characters
                frames.end(TOO_LARGE)
            else:
                frames.incoming.put(message)
                if (
                    frames.is_waited_for
                ):  # no end of what came together is still to be told
                    frames.incoming.wake()
                await frames.incoming.drained()
    except ConnectionClosed as closed:
        if closed.reason and closed.reason.code in BAD_FRAMES:
            frames.close_code = closed.reason.code  # the library does not say so itself
    conversation.cancel()


async def _watch(
    connection: "WebSocketConnection", frames: _Frames, conversation: trio.CancelScope
) -> None:
    """End the conversation with a client that shows no sign of life."""
    while True:
        await trio.sleep(PING_EVERY)
        signs = frames.signs_of_life
        with trio.move_on_after(PONG_WITHIN):
            await connection.ping()
        if frames.signs_of_life == signs:
            frames.give_up(conversation, NO_PONG)
