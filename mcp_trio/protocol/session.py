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

from typing import Any

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType

from . import jsonrpc, params
from .errors import (
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NotInMeta,
    ProtocolError,
)
from .revisions import Revision, Revisions


class Call(Struct):
    """A request to carry out."""

    id: jsonrpc.Id
    method: str
    params: Any
    raw: Raw
    revision: Revision


class Notice(Struct):
    """A notification to act on."""

    method: str
    raw: Raw


class Answer(Struct):
    """The client's reply to a question: its result, or the error that it is."""

    id: jsonrpc.Id
    result: Raw | None
    error: Raw | None


class Refusal(Struct):
    """What to answer at once, and the error that it holds."""

    data: bytes
    error: ProtocolError


class Batch(Struct):
    """Several events, to be answered together."""

    events: "list[Event]"

    @property
    def asks(self) -> bool:
        """Whether something in it is to be answered."""
        return any(isinstance(event, Call | Refusal) for event in self.events)


Event = Call | Notice | Answer | Refusal | Batch


class Session(Struct, eq=False):
    """One client's conversation with one server."""

    revisions: Revisions
    stated: Revision | None = (
        None  # what its transport says of each message, where there may be no opening
    )
    revision: Revision | None = None  # what `initialize` agreed on
    capabilities: params.ClientCapabilities = params.NO_CAPABILITIES
    log_level: str | None = None
    offered: str = ""  # the names of the features that the client was told of when it opened the session

    def receive(self, data: bytes | None) -> Event | None:
        """What a message means; None where it means nothing. None for data: a message too large to be taken."""
        if data is None:
            limit = jsonrpc.MAX_MESSAGE // 2**20
            return self._refuse(
                UNSET,
                InvalidRequest(
                    f"Invalid request: a message is larger than {limit} MiB"
                ),
            )
        return (
            self._receive_batch(data)
            if data.lstrip()[:1] == b"["
            else self._receive_one(data)
        )

    def _receive_one(self, data: bytes, *, in_batch: bool = False) -> Event | None:
        try:
            envelope = jsonrpc.decode(data)
        except jsonrpc.BadMessage as bad:
            return None if bad.silent else self._refuse(bad.id, bad.error)
        method = envelope.method
        if method is UNSET:
            return self._answer(envelope)
        if envelope.id is UNSET:
            return self._notice(method, envelope.params)
        if in_batch and method == "initialize":
            return self._refuse(
                envelope.id,
                InvalidRequest("Invalid request: initialize must not be in a batch"),
            )
        return self._call(method, envelope.id, envelope.params)

    def _receive_batch(self, data: bytes) -> Event:
        try:
            messages = jsonrpc.decode_batch(data)
        except jsonrpc.BadMessage as bad:
            return self._refuse(UNSET, bad.error)
        revision = self.revision or self.stated
        if revision is None or not revision.batches:
            return self._refuse(
                UNSET, InvalidRequest("Invalid request: $: expected object, got array")
            )
        if not messages:
            return self._refuse(
                UNSET, InvalidRequest("Invalid request: an empty batch")
            )
        events = (self._receive_one(message, in_batch=True) for message in messages)
        return Batch([event for event in events if event is not None])

    def _call(self, method: str, id: jsonrpc.Id, raw: Raw) -> Event:
        meta = params.NO_META
        try:
            decoded, problem = _decoded(method, raw)
            meta = decoded.meta
            opens = (
                method == "initialize"
                and (self.stated is None or self.stated.opens)
                and meta.version is UNSET
            )
            revision = None if opens else self._revision_for(method, meta)
            if (
                problem is not None
            ):  # only now: of an unknown method, the method is what is wrong
                raise problem
            return Call(id, method, decoded, raw, revision or self._initialize(decoded))
        except ProtocolError as error:
            return self._refuse(id, error, meta)

    def _revision_for(self, method: str, meta: params.Meta) -> Revision:
        """The revision that serves a request, the gate passed. Raises ProtocolError."""
        if meta is params.NO_META or (
            meta.version is UNSET and meta.capabilities is UNSET
        ):
            revision = self._agreed(method)
        elif meta.version is UNSET:
            raise _missing("protocolVersion")
        else:
            revision = self.revisions.declared(meta.version)
            if meta.capabilities is UNSET:
                raise _missing("clientCapabilities")
        if method not in revision.requests:
            raise MethodNotFound(f"Method not found: {method}")
        return revision

    def _agreed(self, method: str) -> Revision:
        """The revision of a request that says none."""
        if (agreed := self.revision or self.stated) and agreed.opens:
            return agreed
        opening = [] if self.stated else self.revisions.opening.values()
        if method != "ping" and any(
            method in revision.requests for revision in opening
        ):
            raise InvalidRequest(f"Invalid request: {method} before initialize")
        stateless = [self.stated] if self.stated else self.revisions.stateless.values()
        if any(method in revision.requests for revision in stateless):
            raise _missing("protocolVersion")
        return (
            self.stated or self.revisions.newest_opening
        )  # for a ping, or a method that none of them has

    def _initialize(self, opening: Any) -> Revision:
        """The revision that the client wants, or the newest that opens so."""
        if self.revision is not None:
            raise InvalidRequest("Invalid request: this session was initialized before")
        self.revision = self.revisions.opening.get(
            opening.protocol_version, self.revisions.newest_opening
        )
        if opening.capabilities != params.NO_CAPABILITIES:
            self.capabilities = opening.capabilities
        return self.revision

    def _notice(self, method: str, raw: Raw) -> Notice | None:
        """A notification that some revision in use knows; others are passed over, as JSON-RPC has it."""
        # Beside the agreed revision, requests of a stateless one may be under way and may be cancelled.
        spoken = [self.revision, self.stated, *self.revisions.stateless.values()]
        is_known = any(
            revision is not None and method in revision.notifications
            for revision in spoken
        )
        return Notice(method, raw) if is_known else None

    def _answer(self, envelope: jsonrpc.Envelope) -> Event | None:
        if envelope.id is UNSET and envelope.error:
            return None  # the client could not read the id of something; there is nothing to answer
        if isinstance(envelope.id, UnsetType) or bool(envelope.result) == bool(
            envelope.error
        ):
            return self._refuse(
                envelope.id, InvalidRequest("Invalid request: $.method: missing")
            )
        return Answer(envelope.id, envelope.result or None, envelope.error or None)

    def _refuse(
        self,
        id: jsonrpc.Id | UnsetType,
        error: ProtocolError,
        meta: params.Meta = params.NO_META,
    ) -> Refusal:
        """A refusal, in the shape of the revision that the client speaks, as far as it is known."""
        stateless = self.revisions.stateless
        if meta.version is not UNSET and stateless:
            revision = stateless.get(meta.version, next(reversed(stateless.values())))
        else:
            revision = self.revision or self.stated or self.revisions.newest_opening
        unread = None if id is UNSET and not revision.errors_without_id else id
        return Refusal(jsonrpc.encode_error(unread, revision.error(error)), error)


def _missing(key: str) -> NotInMeta:
    return NotInMeta(f"Invalid params: $.params._meta['{params.VENDOR}{key}']: missing")


def _decoded(method: str, raw: Raw) -> tuple[params.Params, InvalidParams | None]:
    """A request's params; or its `_meta` alone, and what is wrong. Raises InvalidParams where `_meta` is wrong too."""
    try:
        return params.decode(method, raw), None
    except (MsgspecError, RecursionError) as problem:
        wrong = InvalidParams(f"Invalid params: {jsonrpc.explain(problem, '$.params')}")
    if not method:
        raise wrong
    return _decoded("", raw)[0], wrong
