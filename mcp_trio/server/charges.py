"""The memory that a request is charged for while it waits."""

from msgspec import Raw

from ..protocol.params import NO_META
from .accounts import account_of
from .ledger import Ledger, Priority
from .limiter import LISTENS
from .request import Request

# The bytes of a request without its params: its task, frames and table entries. On
# stdio, 13,000 small calls take 6,200 bytes each, and as many listens 6,800.
REQUEST_SIZE = 6 * 1024
# The bytes of a URI that a client listens to, in addition to its characters.
URI_SIZE = 256
# The bytes of decoded JSON in addition to its text: for each array, object and string,
# and for each further item.
VALUE_SIZE = 64
ITEM_SIZE = 32
# What characters begin with that take four bytes, in UTF-8 and as an escape.
FOUR_BYTES = (b"\xf0", b"\xf1", b"\xf2", b"\xf3", b"\xf4", b"\\ud", b"\\uD")

# Small requests are not charged while at most this number of requests wait, because
# together they take only a few megabytes.
FREE_REQUESTS = 500
FREE_PARAMS = 256


def charge_request(ledger: Ledger, request: Request, total: int) -> None:
    """Charge the account of a request that begins to wait, until `Ledger.release`.

    `total` is the number of requests that wait. Small ones may be free.
    """
    raw = bytes(request.call.raw)
    if request.call.method == LISTENS:
        _drop_raw(request)
        uris = request.call.params.notifications.resource_subscriptions
        request.kind = "listens"
        request.size = REQUEST_SIZE + sum(map(len, uris)) + URI_SIZE * len(uris)
        request.priority = Priority.STREAM
    elif total > FREE_REQUESTS or len(raw) > FREE_PARAMS:
        request.size = REQUEST_SIZE + params_size(raw)
    else:
        return
    ledger.add(account_of(request.conversation, request.principal), request)


def params_size(raw: bytes) -> int:
    """Return the memory for params, encoded and decoded, in bytes."""
    values = raw.count(b"{") + raw.count(b"[") + raw.count(b'"')
    decoded = len(raw) * _bytes_per_character(raw)
    return len(raw) + decoded + VALUE_SIZE * values + ITEM_SIZE * raw.count(b",")


def _bytes_per_character(raw: bytes) -> int:
    """Return how many bytes a character of a decoded string may take.

    In Python, the widest character of a string decides about all of them.
    """
    if raw.isascii() and b"\\u" not in raw:
        return 1
    if any(start in raw for start in FOUR_BYTES):
        return 4
    return 2


def _drop_raw(request: Request) -> None:
    """Drop everything but the filter of a subscription, which may last for days."""
    request.call.raw = Raw(b"{}")
    request.call.params.meta = NO_META
