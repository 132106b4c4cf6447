"""One conversation as a state machine: what was agreed, and what a message means under it.

All state of the protocol is here; this file does not know what answers a request, nor over what it came. Hand
`receive` a message's bytes; it returns events, each of which already knows the revision that it is served by:

    Call     a request to carry out
    Notice   a notification to act on
    Answer   the client's reply to a question of ours
    Refusal  what to answer at once, and why
    Batch    several of these, to be answered together

A session opens with `initialize`; a request that says its own revision needs no opening and is served on any
session, beside the others.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from . import jsonrpc, params
from .errors import InvalidParams, InvalidRequest, MethodNotFound, NotInMeta, ProtocolError
from .jsonrpc import BadMessage, Envelope, Id
from .params import ClientCapabilities, ClientInfo, Meta, Params
from .revisions import Revision, Revisions


class Phase(Enum):
    """How far a session has come."""

    NEW = "nothing was agreed"
    OPENING = "initialize was answered"
    OPEN = "the client has said that it is ready"


class Call(Struct):
    """A request to carry out."""

    id: Id
    method: str
    params: Any
    raw: Raw
    revision: Revision

    @property
    def meta(self) -> Meta:
        """What the protocol reads in the request's `_meta`."""
        meta: Meta = self.params.meta
        return meta


class Notice(Struct):
    """A notification to act on."""

    method: str
    raw: Raw


class Answer(Struct):
    """The client's reply to a question: its result, or the error that it is."""

    id: Id
    result: Raw | None
    error: Raw | None


class Refusal(Struct):
    """What to answer at once, and the error that it holds."""

    data: bytes
    error: ProtocolError


class Batch(Struct):
    """Several events, to be answered together."""

    events: list[Event]


Event = Call | Notice | Answer | Refusal | Batch


class Session:
    """One client's conversation with one server; `stated` is the stateless revision that its transport names."""

    def __init__(self, revisions: Revisions, stated: Revision | None = None) -> None:
        self._revisions = revisions
        self._stated = stated
        self.phase = Phase.NEW
        self.revision: Revision | None = None
        self.capabilities = ClientCapabilities()
        self.client: ClientInfo | None = None
        self.log_level: str | None = None

    def receive(self, data: bytes | None) -> Event | None:
        """What a message means; None where it means nothing. None for data: a message too large to be taken."""
        if data is None:
            limit = jsonrpc.MAX_MESSAGE // 2**20
            return self._refuse(UNSET, InvalidRequest(f"Invalid request: a message is larger than {limit} MiB"))
        if jsonrpc.is_batch(data):
            return self._receive_batch(data)
        return self._receive_one(data)

    def _receive_one(self, data: bytes, *, in_batch: bool = False) -> Event | None:
        try:
            envelope = jsonrpc.decode(data)
        except BadMessage as bad:
            return None if bad.silent else self._refuse(bad.id, bad.error)
        method = envelope.method
        if method is UNSET:
            return self._answer(envelope)
        if envelope.id is UNSET:
            return self._notice(method, envelope.params)
        if in_batch and method == "initialize":
            return self._refuse(envelope.id, InvalidRequest("Invalid request: initialize must not be in a batch"))
        return self._call(method, envelope.id, envelope.params)

    def _receive_batch(self, data: bytes) -> Event:
        try:
            messages = jsonrpc.decode_batch(data)
        except BadMessage as bad:
            return self._refuse(UNSET, bad.error)
        if self.revision is None or not self.revision.batches:
            return self._refuse(UNSET, InvalidRequest("Invalid request: $: expected object, got array"))
        if not messages:
            return self._refuse(UNSET, InvalidRequest("Invalid request: an empty batch"))
        events = (self._receive_one(message, in_batch=True) for message in messages)
        return Batch([event for event in events if event is not None])

    def _call(self, method: str, id: Id, raw: Raw) -> Event:
        try:
            decoded: Params = params.decode(method, raw)
        except (msgspec.MsgspecError, RecursionError) as problem:
            return self._refuse_params(method, id, raw, problem)
        try:
            if method == "initialize" and self._stated is None:
                return self._initialize(id, raw, decoded)
            revision = self._revision_for(method, decoded.meta)
        except ProtocolError as error:
            return self._refuse(id, error, self._speaker(decoded.meta))
        return Call(id, method, decoded, raw, revision)

    def _revision_for(self, method: str, meta: Meta) -> Revision:
        """The revision that serves a request, the gate passed. Raises ProtocolError."""
        if meta is params.NO_META or (meta.version is UNSET and meta.capabilities is UNSET):
            revision = self._agreed(method)
        else:
            revision = self._declared(meta)
        if method not in revision.requests:
            raise MethodNotFound(f"Method not found: {method}")
        return revision

    def _agreed(self, method: str) -> Revision:
        if self.revision is not None:
            self.phase = Phase.OPEN
            return self.revision
        if self._stated is not None:
            if method not in self._stated.requests:
                raise MethodNotFound(f"Method not found: {method}")
            raise NotInMeta(f"Invalid params: $.params._meta['{params.VENDOR}protocolVersion']: missing")
        if method == "ping":
            return self._revisions.newest_opening
        if any(method in revision.requests for revision in self._revisions.opening.values()):
            raise InvalidRequest(f"Invalid request: {method} before initialize")
        if any(method in revision.requests for revision in self._revisions.stateless.values()):
            raise NotInMeta(f"Invalid params: $.params._meta['{params.VENDOR}protocolVersion']: missing")
        raise MethodNotFound(f"Method not found: {method}")

    def _declared(self, meta: Meta) -> Revision:
        if meta.version is UNSET:
            raise NotInMeta(f"Invalid params: $.params._meta['{params.VENDOR}protocolVersion']: missing")
        revision = self._revisions.declared(meta.version)
        if meta.capabilities is UNSET:
            raise NotInMeta(f"Invalid params: $.params._meta['{params.VENDOR}clientCapabilities']: missing")
        return revision

    def _initialize(self, id: Id, raw: Raw, opening: Any) -> Event:
        if self.revision is not None:
            raise InvalidRequest("Invalid request: this session was initialized before")
        self.revision = self._revisions.agree(opening.protocol_version)
        self.phase = Phase.OPENING
        self.capabilities = opening.capabilities
        self.client = opening.client_info
        return Call(id, "initialize", opening, raw, self.revision)

    def _notice(self, method: str, raw: Raw) -> Notice | None:
        """A notification that some revision in use knows; others are passed over, as JSON-RPC has it."""
        if method == "notifications/initialized" and self.phase is Phase.OPENING:
            self.phase = Phase.OPEN
        # Beside the agreed revision, requests of a stateless one may be under way and may be cancelled.
        spoken = [self.revision, *self._revisions.stateless.values()]
        if any(revision is not None and method in revision.notifications for revision in spoken):
            return Notice(method, raw)
        return None

    def _answer(self, envelope: Envelope) -> Event | None:
        if envelope.id is UNSET and envelope.error:
            return None  # the client could not read the id of something; there is nothing to answer
        if isinstance(envelope.id, UnsetType) or bool(envelope.result) == bool(envelope.error):
            return self._refuse(envelope.id, InvalidRequest("Invalid request: $.method: missing"))
        return Answer(envelope.id, envelope.result or None, envelope.error or None)

    def _refuse_params(self, method: str, id: Id, raw: Raw, problem: Exception) -> Refusal:
        """Params that do not fit: of an unknown method, the method is what is wrong."""
        try:
            meta: Meta = params.decode("", raw).meta
        except (msgspec.MsgspecError, RecursionError) as in_meta:
            return self._refuse(id, InvalidParams(f"Invalid params: {jsonrpc.explain(in_meta, '$.params')}"))
        speaker = self._speaker(meta)
        try:
            if method != "initialize" or self._stated is not None:
                self._revision_for(method, meta)
        except ProtocolError as error:
            return self._refuse(id, error, speaker)
        return self._refuse(id, InvalidParams(f"Invalid params: {jsonrpc.explain(problem, '$.params')}"), speaker)

    def _speaker(self, meta: Meta) -> Revision:
        """The revision in whose shape a refusal goes out."""
        stateless = self._revisions.stateless
        if meta.version is not UNSET and stateless:
            return stateless.get(meta.version, next(reversed(stateless.values())))
        return self.revision or self._stated or self._revisions.newest_opening

    def _refuse(self, id: Id | UnsetType, error: ProtocolError, revision: Revision | None = None) -> Refusal:
        revision = revision or self.revision or self._stated or self._revisions.newest_opening
        unread = None if id is UNSET and not revision.errors_without_id else id
        return Refusal(jsonrpc.encode_error(unread, revision.error(error)), error)
