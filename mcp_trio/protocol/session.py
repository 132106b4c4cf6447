"""One conversation between a client and the server, as a state machine.

`Session.receive` takes the bytes of one message and returns an event:

    Call     a request to run
    Notice   a notification to act on
    Answer   the client's response to a request from the server
    Refusal  an error response to send at once
    Batch    several of these events, whose responses are sent together

The session does not depend on transports, or on the code that runs requests.

The rules
---------

A session is NEW until `initialize` negotiates a revision, and OPEN from then on. The
negotiated revision is `Session.revision`. A transport may also name a revision with
each message, in a header: the *stated* revision.

There are two families of revisions. The *opening* ones begin with `initialize`, where
the client also declares its capabilities. The *stateless* ones have no `initialize`:
the `_meta` of each request has the revision and the client's capabilities. A server
that supports both families serves both in any session.

This table shows which revision serves a request. The first matching line applies.

    Request                                     Served by
    ------------------------------------------  ----------------------------------------
    `initialize`, without a version in `_meta`
        in a NEW session                        the requested opening revision, or the
                                                newest one; the session is now OPEN
        in an OPEN session                      refused: InvalidRequest
    any with a version in `_meta`               the stateless revision of that name
        that the server does not support        refused: UnsupportedVersion
        without capabilities                    refused: NotInMeta
    any with only capabilities in `_meta`       refused: NotInMeta
    any with neither
        in an OPEN session                      the negotiated revision
        if an opening revision is stated        the stated revision
        `ping`                                  the newest opening revision
        a method of an opening revision         refused: InvalidRequest, because
                                                `initialize` has to come first
        a method of a stateless revision        refused: NotInMeta
        any other method                        refused: MethodNotFound

If the stated revision is stateless, the last four lines consider only that revision,
and `initialize` does not exist. A method that the chosen revision does not have is
refused with MethodNotFound, even if its params are invalid too.

A method of an extension exists if the server has the extension in that revision. If the
client has not declared the extension, a stateless revision refuses the method with
MissingClientCapability, and an opening revision with MethodNotFound.
"""

from typing import Any

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType

from . import jsonrpc, params
from .errors import (
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    NotInMeta,
    ProtocolError,
)
from .revisions import Revision, Revisions

# Events


class Call(Struct):
    """A request to run."""

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
    """The client's response to a request from the server: a result or an error."""

    id: jsonrpc.Id
    result: Raw | None
    error: Raw | None


class Refusal(Struct):
    """An encoded error response to send at once, and its error."""

    data: bytes
    error: ProtocolError


class Batch(Struct):
    """Several events, whose responses are sent together."""

    events: "list[Event]"

    @property
    def expects_reply(self) -> bool:
        """Whether any of the events needs a response."""
        return any(isinstance(event, Call | Refusal) for event in self.events)


Event = Call | Notice | Answer | Refusal | Batch


# The state machine


class Session(Struct, eq=False, gc=False):
    """The protocol state of one client's conversation with one server."""

    revisions: Revisions
    # The revision that the transport names with each message.
    stated: Revision | None = None
    # The revision that `initialize` negotiated; None while the session is new.
    revision: Revision | None = None
    # The client's capabilities, from `initialize`.
    capabilities: params.ClientCapabilities = params.NO_CAPABILITIES
    # The client's name and version, from `initialize`.
    client: params.ClientInfo | None = None
    # The log level, from `logging/setLevel`.
    log_level: str | None = None
    # The features that the server advertised in its response to `initialize`.
    offered: str = ""

    def receive(self, data: bytes | None) -> Event | None:
        """Return the event for a message, or None if the message can be ignored.

        `data` is None if the transport dropped a message because it was too large.
        """
        if data is None:
            limit = jsonrpc.MAX_MESSAGE // 2**20
            return self._refuse_unread(f"a message is larger than {limit} MiB")
        if data.lstrip()[:1] == b"[":
            return self._receive_batch(data)
        return self._receive_one(data)

    def _receive_batch(self, data: bytes) -> Event:
        try:
            messages = jsonrpc.decode_batch(data)
        except jsonrpc.BadMessage as bad:
            return self._refuse(UNSET, bad.error)
        revision = self.revision or self.stated
        if revision is None or not revision.batches:
            return self._refuse_unread("$: expected object, got array")
        if not messages:
            return self._refuse_unread("an empty batch")
        events: list[Event] = []
        for message in messages:
            event = self._receive_one(message, in_batch=True)
            if event is not None:
                events.append(event)
        return Batch(events)

    def _receive_one(self, data: bytes, *, in_batch: bool = False) -> Event | None:
        try:
            envelope = jsonrpc.decode(data)
        except jsonrpc.BadMessage as bad:
            return None if bad.silent else self._refuse(bad.id, bad.error)
        method = envelope.method
        if method is UNSET:
            return self._receive_response(envelope)
        if envelope.id is UNSET:
            return self._receive_notification(method, envelope.params)
        if in_batch and method == "initialize":
            error = InvalidRequest("Invalid request: initialize must not be in a batch")
            return self._refuse(envelope.id, error)
        return self._receive_request(method, envelope.id, envelope.params)

    # Requests

    def _receive_request(self, method: str, id: jsonrpc.Id, raw: Raw) -> Event:
        meta = params.NO_META
        try:
            decoded, problem = self._decode_params(method, raw)
            meta = decoded.meta
            is_opening = method == "initialize" and self._may_open(meta)
            revision = None if is_opening else self._choose_revision(method, meta)
            # Only now, because an unknown method takes precedence over invalid params.
            if problem is not None:
                raise problem
            if revision is None:
                revision = self._open(decoded)
            return Call(id, method, decoded, raw, revision)
        except ProtocolError as error:
            return self._refuse(id, error, meta)

    def _decode_params(self, method: str, raw: Raw) -> tuple[Any, InvalidParams | None]:
        """Return a request's params and None.

        If they are invalid, return only their `_meta`, and the error. Raises
        InvalidParams if `_meta` is invalid too.
        """
        try:
            return params.decode_params(
                method, raw, self.revisions.extensions.params
            ), None
        except (MsgspecError, RecursionError) as problem:
            error = _invalid_params(problem)
        if bytes(raw) == b"null":
            # Go clients encode absent params as null.
            return self._decode_params(method, Raw(b"{}"))
        try:
            return params.decode_meta(raw), error
        except (MsgspecError, RecursionError) as problem:
            raise _invalid_params(problem) from None

    def _may_open(self, meta: params.Meta) -> bool:
        """Return whether `initialize` opens the session."""
        if meta.version is not UNSET:
            return False
        return self.stated is None or self.stated.opens

    def _open(self, opening: params.InitializeParams) -> Revision:
        """Open the session, and return the negotiated revision."""
        if self.revision is not None:
            raise InvalidRequest("Invalid request: this session was initialized before")
        self.revision = self.revisions.opening.get(
            opening.protocol_version, self.revisions.newest_opening
        )
        self.client = params.shared_client_info(opening.client_info)
        # Most clients have no capabilities, so their sessions share one object.
        if opening.capabilities != params.NO_CAPABILITIES:
            extensions = self.revisions.extensions
            self.capabilities = extensions.bounded(opening.capabilities)
        return self.revision

    def _choose_revision(self, method: str, meta: params.Meta) -> Revision:
        """Return the revision that serves a request. Raises ProtocolError."""
        if meta is params.NO_META or (
            meta.version is UNSET and meta.capabilities is UNSET
        ):
            agreed = self.revision or self.stated
            if agreed is not None and agreed.opens:
                revision = agreed
            else:
                revision = self._revision_before_opening(method)
        elif meta.version is UNSET:
            raise _not_in_meta("protocolVersion")
        else:
            revision = self.revisions.declared(meta.version)
            if meta.capabilities is UNSET:
                raise _not_in_meta("clientCapabilities")
        if method not in revision.requests:
            self._check_extension(method, meta, revision)
        return revision

    def _check_extension(
        self, method: str, meta: params.Meta, revision: Revision
    ) -> None:
        """Check that an extension has a method, and that the client may use it.

        Raises MethodNotFound or MissingClientCapability.
        """
        extensions = self.revisions.extensions
        added = extensions.methods.get(method)
        if added is not None and (added.in_sessions or not revision.opens):
            if not added.needs_declaration:
                return
            identifier = added.extension
            capabilities = self.capabilities if revision.opens else meta.capabilities
            if extensions.declares(capabilities, identifier):
                return
            if not revision.opens:
                raise MissingClientCapability({"extensions": {identifier: {}}})
        raise MethodNotFound(f"Method not found: {method}")

    def _revision_before_opening(self, method: str) -> Revision:
        """Return the revision for a request without `_meta` in a new session.

        Raises ProtocolError.
        """
        if self.stated is not None:
            # A stateless revision: an opening one would have been chosen before.
            if self.revisions.serves(self.stated, method):
                raise _not_in_meta("protocolVersion")
            return self.stated
        if method != "ping" and self._is_known(method, self.revisions.opening):
            raise InvalidRequest(f"Invalid request: {method} before initialize")
        if self._is_known(method, self.revisions.stateless):
            raise _not_in_meta("protocolVersion")
        return self.revisions.newest_opening

    def _is_known(self, method: str, revisions: dict[str, Revision]) -> bool:
        return any(
            self.revisions.serves(revision, method) for revision in revisions.values()
        )

    # Notifications and responses

    def _receive_notification(self, method: str, raw: Raw) -> Notice | None:
        """Return a Notice, or None for an unknown notification, which is ignored."""
        # A request of a stateless revision may run in any session, and be cancelled.
        revisions = [self.revision, self.stated, *self.revisions.stateless.values()]
        for revision in revisions:
            if revision is not None and method in revision.notifications:
                return Notice(method, raw)
        return None

    def _receive_response(self, envelope: jsonrpc.Envelope) -> Event | None:
        id = envelope.id
        result = envelope.result or None
        error = envelope.error or None
        if id is UNSET and error is not None:
            # The client reports that it could not read the id of one of our messages.
            return None
        if isinstance(id, UnsetType) or (result is None) == (error is None):
            missing = InvalidRequest("Invalid request: $.method: missing")
            return self._refuse(id, missing)
        return Answer(id, result, error)

    # Refusals

    def _refuse_unread(self, reason: str) -> Refusal:
        """Refuse a message whose id is unknown."""
        return self._refuse(UNSET, InvalidRequest(f"Invalid request: {reason}"))

    def _refuse(
        self,
        id: jsonrpc.Id | UnsetType,
        error: ProtocolError,
        meta: params.Meta = params.NO_META,
    ) -> Refusal:
        """Return a Refusal, encoded for the revision that the client seems to use."""
        stateless = self.revisions.stateless
        if meta.version is not UNSET and stateless:
            newest = next(reversed(stateless.values()))
            revision = stateless.get(meta.version, newest)
        else:
            revision = self.revision or self.stated or self.revisions.newest_opening
        response_id: jsonrpc.Id | UnsetType | None = id
        if id is UNSET and not revision.errors_without_id:
            response_id = None
        data = jsonrpc.encode_error(response_id, revision.error(error))
        # Breaks the cycle of the error and its frames, which keep the message alive.
        error.__traceback__ = None
        return Refusal(data, error)


def _not_in_meta(key: str) -> NotInMeta:
    place = f"$.params._meta['{params.VENDOR}{key}']"
    return NotInMeta(f"Invalid params: {place}: missing")


def _invalid_params(problem: Exception) -> InvalidParams:
    # Null is accepted for optional fields, but no client should send it.
    reason = jsonrpc.explain(problem, "$.params").replace(" or null, got ", ", got ")
    return InvalidParams(f"Invalid params: {reason}")
