"""A session and its streams as records of a store."""

from typing import Literal

from msgspec import Struct, json

from ...auth.principal import Principal
from ...protocol.jsonrpc import Id
from ...protocol.params import NO_CAPABILITIES, ClientCapabilities, ClientInfo


class SessionRecord(Struct, omit_defaults=True):
    """What all processes know about a session.

    `home` is the process that sends the session's announcements. Those up to the
    position `sent` in their log were sent to the client. `claims` counts how often
    another process has become the home.
    """

    revision: str
    home: str
    # The name of the principal; None if clients need no token.
    principal: str | None = None
    capabilities: ClientCapabilities = NO_CAPABILITIES
    client: ClientInfo | None = None
    offered: str = ""
    log_level: str | None = None
    is_initialized: bool = False
    subscriptions: list[str] = []
    sent: int = 0
    claims: int = 0


class StreamRecord(Struct, omit_defaults=True):
    """What other processes need to know about a stream: the requests it replies to."""

    requests: list[Id]
    in_batch: bool = False
    principal: str | None = None
    scopes: list[str] = []

    def stored_principal(self) -> Principal | None:
        """Return the principal, with the scopes that it had."""
        if self.principal is None:
            return None
        return Principal(self.principal, frozenset(self.scopes))


class SessionChanges(Struct, frozen=True):
    """What a client has set in a session at one process."""

    log_level: str | None
    is_initialized: bool
    subscribed: frozenset[str]
    unsubscribed: frozenset[str]

    def __bool__(self) -> bool:
        """Return whether there are any."""
        was_set = self.log_level is not None or self.is_initialized
        return was_set or bool(self.subscribed or self.unsubscribed)

    def apply(self, record: SessionRecord) -> None:
        """Apply the changes to a record, which others may have changed too."""
        if self.log_level is not None:
            record.log_level = self.log_level
        if self.is_initialized:
            record.is_initialized = True
        kept = [uri for uri in record.subscriptions if uri not in self.unsubscribed]
        added = self.subscribed.difference(kept)
        record.subscriptions = [*kept, *sorted(added)]


# The first byte of an entry in the log of a stream. The message follows it.
EntryKind = Literal[b"m", b"s", b"l", b"e"]
MESSAGE: EntryKind = b"m"
# An announcement that a client was reading when it was stored.
SENT: EntryKind = b"s"
# The reply. The stream ends with it.
LAST: EntryKind = b"l"
# The end of the stream, if it is not the reply.
END: EntryKind = b"e"
ENDS = frozenset({LAST, END})

encode_record = json.Encoder().encode
decode_session = json.Decoder(SessionRecord).decode
decode_stream = json.Decoder(StreamRecord).decode
