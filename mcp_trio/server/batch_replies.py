"""The replies to the requests in a batch, which are sent together."""

import msgspec
import trio

from ..protocol import jsonrpc
from ..protocol.errors import InternalError
from .accounts import Account
from .ledger import Ledger, Meter, Priority
from .limits import out_of_memory

# Bytes that the replies to one batch may have together.
MOST_BYTES = 16 * 2**20
# An error reply, which takes the place of one that is too large, has fewer bytes.
SMALL = 4096


class _Identified(msgspec.Struct):
    """What is needed of a reply to write another one in its place."""

    id: jsonrpc.Id


class BatchReplies:
    """Collects the replies to a batch, and charges them to the client.

    If their memory is needed for others, the batch is cancelled.
    """

    def __init__(
        self, ledger: Ledger, account: Account, scope: trio.CancelScope
    ) -> None:
        self._replies: list[bytes] = []
        self._size = 0
        self._is_given_up = False
        self._scope = scope
        self._meter = Meter(ledger, account, "replies", Priority.REQUEST, self._give_up)

    def add(self, message: bytes) -> None:
        """Add a reply, or an error if there is no room for it."""
        if self._size + len(message) > MOST_BYTES and len(message) > SMALL:
            message = _too_large(message)
        self._size += len(message)
        self._replies.append(message)
        self._meter.set(self._size)

    def joined(self) -> bytes | None:
        """Return all replies as one array, or None if there are none."""
        self._meter.close()
        if self._is_given_up:
            error = out_of_memory()
            return jsonrpc.encode_error(
                None, {"code": error.code, "message": error.message}
            )
        if not self._replies:
            return None
        return b"[%b]" % b",".join(self._replies)

    def _give_up(self) -> bool:
        """Forget the replies, and cancel the requests that still run."""
        self._is_given_up = True
        self._replies.clear()
        self._scope.cancel()
        return True


def _too_large(message: bytes) -> bytes:
    """Return an error in place of a reply."""
    id = msgspec.json.decode(message, type=_Identified).id
    most = f"{MOST_BYTES // 2**20} MiB"
    error = InternalError(
        f"The replies to this batch have more than {most}; send this request separately"
    )
    return jsonrpc.encode_error(id, {"code": error.code, "message": error.message})
