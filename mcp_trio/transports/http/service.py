"""The service over HTTP, from a request's head to its response.

It is the same for both hosts: the native server and ASGI.
"""

from collections.abc import Awaitable, Callable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import msgspec
import trio

from ...auth.access import Denied
from ...auth.principal import has_scopes
from ...auth.resource_metadata import prefix_of
from ...protocol.errors import (
    HeaderMismatch,
    InvalidRequest,
    ServiceUnavailable,
    UnsupportedVersion,
)
from ...protocol.revisions import Revision
from ...protocol.session import Answer, Batch, Call, Event, Notice, Refusal
from ...server.accounts import account_at
from ...server.app import Server
from ...server.conversation import Sender
from ...server.handlers import handle_notification
from ...server.ledger import STEP, Priority
from .authorization import BearerAuth
from .event_stream import NOWHERE, EventStream
from .exchange import Exchange, ServiceState
from .feed import Feed
from .legacy_sse import LegacySse
from .messages import (
    OUT_OF_MEMORY,
    PLAIN,
    Head,
    PostedRequests,
    Refused,
    Reply,
    error_reply,
    refusal,
    reply,
    retry_after,
)
from .metrics import Metrics
from .metrics_page import MetricsRenderer
from .response import PostResponse
from .rules import (
    HEALTH,
    LAST_EVENT,
    MCP,
    MESSAGES,
    METADATA,
    METRICS,
    READY,
    SESSION,
    SSE,
    SSE_METADATA,
    STATELESS,
    VERSION,
    Guard,
    Routes,
    accepted,
    check_arguments,
    check_mirrored,
    check_request,
    check_version,
    not_allowed,
    preflight,
)
from .sessions import NO_SUCH_SESSION, HttpSession, SessionNotLoaded, Sessions
from .settings import DEFAULT_SETTINGS, HttpSettings
from .trusted_proxies import TrustedProxies

if TYPE_CHECKING:
    from .shared_session import SharedHttpSession
    from .shared_sessions import SharedSessions
    from .shared_sse import SharedSse

# Seconds to write the remaining data after all requests were cancelled.
FINAL_WRITE_TIME = 0.5
# Seconds that idle connections stay open when this process stops and others continue. A
# request may be on its way, and its client could not tell whether it was carried out.
DRAIN_TIME = 1.0
# The statuses of refusals that are not logged, as well-behaved clients get them too.
ORDINARY = frozenset({404, 405, 406, 415})
# The routes that load balancers and orchestrators request.
PROBES = frozenset({HEALTH, READY})
# How often a body is in memory while it is sent to another process: the body itself, a
# message, an operation of the store, and the bytes that are written to the store.
COPIES = 4


class Pending(msgspec.Struct):
    """An answer that depends on the store, or on other processes."""

    wait: "Callable[[], Awaitable[Answered]]"


# What a host sends, and what it may have to wait for first.
Answered = Reply | Exchange | Feed
AnswerNow = Answered | Pending


class Service:
    """Serves one server over HTTP.

    A host passes the head of a request to `admit`, and then the head and the body to
    `answer`.
    """

    def __init__(
        self, server: Server, settings: HttpSettings = DEFAULT_SETTINGS
    ) -> None:
        self.server = server
        self.guard = Guard(settings.hosts, settings.origins, cors=settings.cors)
        resource = _resource_of(server, settings)
        self.bearer_auth = BearerAuth(server, settings.path, resource)
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._routes = Routes(settings.path, resource, stateless=settings.stateless)
        self._revisions = server.revisions
        # The revision of requests that state none; None if they need a session.
        self._default_revision: Revision | None = None
        if settings.stateless:
            self._revisions = server.revisions.without_sessions()
            self._default_revision = next(iter(self._revisions.opening.values()))
        self._revisions_by_name = {
            revision.name.encode(): revision for revision in self._revisions.all
        }
        self.stopping = False
        self.metrics = Metrics()
        server.observe_requests(self.metrics)
        self.shared = _open_shared_sessions(server, settings)
        self.sessions: Sessions
        if self.shared is None:
            self.sessions = Sessions(server.ledger, server.environment)
        else:
            self.sessions = self.shared
        self._state = ServiceState(server, self.metrics, self.sessions)
        self._metrics_page = MetricsRenderer(server, self.metrics, self.sessions)
        if server.process_group is not None:
            server.process_group.use_page(self._metrics_page.render)
        path = "/" + settings.path.strip("/")
        prefix = prefix_of(resource, path.rstrip("/"))
        self._shared_sse = _open_shared_sse(server, self.metrics, prefix, self.shared)
        self._legacy_sse = self._shared_sse or LegacySse(server, self.metrics, prefix)

    # Checking heads

    def admission(self, peer: str) -> Callable[[Head], Reply | None]:
        """Return the function that checks heads on a connection with this peer."""
        if self._proxies.trusts(peer):
            return self.admit_forwarded
        return self.admit

    def admit_forwarded(self, head: Head) -> Reply | None:
        """Check a head that a trusted proxy forwards.

        A head that already has a route also has its client's address.
        """
        if not head.route:
            head.peer = self._proxies.client_of(head.headers) or head.peer
        return self.admit(head)

    def admit(self, head: Head) -> Reply | None:
        """Check a head before its body is read. Returns the refusal, if it is refused.

        A head that already has a route is identical to one that was admitted before.
        Only its client's rate is checked again.
        """
        was_admitted = bool(head.route)
        if not was_admitted:
            head.route = self._routes.find(head) or ""
        if self.server.limiter.rate:
            refused = self._check_rate(head)
            if refused is not None:
                return refused
        if was_admitted:
            return None
        return self._check_head(head)

    def _check_rate(self, head: Head) -> Reply | None:
        """Refuse a client that sends far too many requests."""
        if head.route in PROBES:
            return None
        wait = self.server.limiter.flood(head.peer)
        if not wait:
            return None
        seconds = ceil(wait)
        retry_after = ((b"Retry-After", b"%d" % seconds),)
        return refusal(429, f"Too many requests; try again in {seconds} s", retry_after)

    def _check_head(self, head: Head) -> Reply | None:
        if not head.route:
            return refusal(404, "Nothing is served under this path")
        if head.route == STATELESS and _opens_websocket(head):
            head.route = MCP  # a WebSocket is a conversation, not a stateless request
        # A health check may use any Host.
        if head.route not in PROBES:
            refused = self.guard.check(head)
            if refused is not None:
                return refused
        if head.method == b"OPTIONS":
            return preflight(head)
        if self.server.access is not None:
            refused = self.bearer_auth.check(head)
            if refused is not None:
                return refused
        head.accepted = accepted(head.headers)
        return check_request(head)

    def note_refusal(self, head: Head, reply: Reply) -> None:
        """Count a refusal and log it.

        A host calls this for requests that it does not pass to `answer`.
        """
        if reply.status >= 400:
            self.metrics.refused[reply.status] += 1
            if reply.status not in ORDINARY:
                self.server.event_log.log_rejection(head.peer, reply.status, reply.body)

    # Answering

    def answer(self, head: Head, body: bytes) -> AnswerNow:
        """Answer a request that was admitted.

        If this returns an exchange, its request has started in this task and waits. If
        the request left a cancel scope open in the task, this raises ScopeLeaked with a
        reply or an exchange, and so does the `wait` of a pending answer.
        """
        try:
            if head.route not in (MCP, STATELESS):
                return self._answer_other(head, body)
            if head.method == b"POST":
                return self._post(head, body)
            return self._get_or_delete(head)
        except Refused as refused:
            self.note_refusal(head, refused.reply)
            return refused.reply
        except SessionNotLoaded as missing:
            return self._pending(
                head, partial(self._load_and_answer, missing.id, head, body)
            )

    def _pending(self, head: Head, work: Callable[[], Awaitable[Answered]]) -> Pending:
        """Return an answer that depends on the store."""

        async def wait() -> Answered:
            try:
                return await work()
            except Refused as refused:
                response = refused.reply
            except ServiceUnavailable as unavailable:
                response = refusal(503, unavailable.message, retry_after(unavailable))
            self.note_refusal(head, response)
            return response

        return Pending(wait)

    @contextmanager
    def _charging_wait(self, head: Head, size: int) -> Iterator[None]:
        """Charge the client for a body that waits for the store.

        Raises Refused if its memory is needed for other clients. No request may begin
        in this block, because its cancel scopes would be inside this one.
        """
        if size <= STEP:
            yield
            return
        with trio.CancelScope() as scope:

            def give_up() -> bool:
                scope.cancel()
                return True

            account = account_at(head.peer, head.principal)
            holding = self.server.ledger.hold(
                account, "bodies", size, Priority.REQUEST, give_up
            )
            try:
                yield
            finally:
                holding.release()
        if scope.cancelled_caught:
            raise Refused(OUT_OF_MEMORY)

    async def _load_and_answer(self, id: bytes, head: Head, body: bytes) -> Answered:
        """Answer a request in a session that another process may have opened."""
        assert self.shared is not None
        with self._charging_wait(head, len(body)):
            await self.shared.load(id, head.peer)
        if id not in self.sessions:
            raise Refused(NO_SUCH_SESSION)
        answer = self.answer(head, body)
        while isinstance(answer, Pending):
            answer = await answer.wait()
        return answer

    def _answer_other(self, head: Head, body: bytes) -> Reply | Feed | Pending:
        """Answer a request that is not for the MCP endpoint."""
        shared = self._shared_sse
        if head.route == SSE:
            if shared is not None:
                return self._pending(head, partial(shared.open, head))
            return self._legacy_sse.get(head)
        if head.route == MESSAGES:
            if shared is not None and not shared.has(head.query):
                return self._pending(head, partial(self._forward, shared, head, body))
            return self._legacy_sse.post(head, body)
        if head.route in (METADATA, SSE_METADATA):
            return self.bearer_auth.metadata(head)
        if head.route == METRICS:
            return self._answer_metrics()
        if head.route == READY:
            return self._answer_readiness()
        return Reply(200, b"ok\n", PLAIN)

    async def _forward(self, shared: "SharedSse", head: Head, body: bytes) -> Reply:
        """Send a message of HTTP+SSE to the process that has the stream."""
        with self._charging_wait(head, COPIES * len(body)):
            return await shared.forward(head, body)

    def _answer_metrics(self) -> Reply | Pending:
        """Return the metrics of this process, or of all that serve this port."""
        group = self.server.process_group
        if group is None:
            return Reply(200, self._metrics_page.render(), PLAIN)

        async def collect() -> Answered:
            return Reply(200, await group.all_metrics(), PLAIN)

        return Pending(collect)

    def _answer_readiness(self) -> Reply:
        """Return whether every request can be served now, by any process."""
        store = self.server.shared_state
        if self.stopping and not self._others_continue:
            return Reply(503, b"stopping\n", PLAIN)
        if store is not None and not store.is_available:
            return Reply(503, b"the store cannot be reached\n", PLAIN)
        return Reply(200, b"ok\n", PLAIN)

    def _post(self, head: Head, body: bytes) -> Reply | Exchange | Pending:
        """Answer a POST to the MCP endpoint, and pass it to the message observer."""
        version = head.headers.get(VERSION)
        stated = self._default_revision
        if version is not None:
            stated = self._revisions_by_name.get(version)
        try:
            conversation = self._find_conversation(head, stated)
        except Refused as refused:
            self._observe_without_conversation(head, body, refused.reply)
            raise
        if conversation.observer is not None:
            conversation.observer(conversation, "client", body)
        try:
            return self._receive(conversation, head, body, stated)
        except Refused as refused:
            _observe(conversation, "server", refused.reply.body)
            raise

    def _find_conversation(self, head: Head, stated: Revision | None) -> HttpSession:
        """Return the session that a POST names, or a new conversation.

        A new conversation becomes a session if the POST is an `initialize`.
        """
        is_in_session = SESSION in head.headers and head.route != STATELESS
        if is_in_session and (stated is None or stated.opens):
            conversation = self._find_session(head)
        else:
            if self.shared is not None and (stated is None or stated.opens):
                conversation = self.shared.new_conversation(stated)
            else:
                conversation = HttpSession(
                    self.server, self.sessions, stated, self._revisions
                )
            conversation.principal = head.principal
        conversation.address = head.peer
        return conversation

    def _observe_without_conversation(
        self, head: Head, body: bytes, reply: Reply
    ) -> None:
        """Pass the observer a refused POST, as a conversation of its own."""
        if self.server.on_message is not None:
            conversation = HttpSession(self.server, self.sessions)
            conversation.address = head.peer
            _observe(conversation, "client", body)
            _observe(conversation, "server", reply.body)

    def _receive(
        self,
        conversation: HttpSession,
        head: Head,
        body: bytes,
        stated: Revision | None,
    ) -> Reply | Exchange | Pending:
        """Decode the body of a POST, check it against the headers, and act on it."""
        event = conversation.session.receive(body)
        # If this was an `initialize`, the session has its revision from now on.
        revision = conversation.session.revision or stated
        if type(event) is Call and not event.revision.opens:
            self._check_headers(event, head, stated)
        elif isinstance(event, Refusal):
            raise Refused(self._refusal_reply(event, revision, head))
        elif revision is None:
            raise Refused(self._revision_missing(head))
        if type(event) is Call or (isinstance(event, Batch) and event.expects_reply):
            exchange = self._new_exchange(conversation, head, event)
            return exchange.begin(event) or exchange
        if isinstance(event, Answer) and revision is not None:
            _check_answer(conversation, revision, head)
        # Without a session, the conversation ends here, so nothing can change in it.
        if not conversation.id:
            return Reply(202)
        if self.shared is not None:
            return self._pending(
                head,
                partial(
                    self._handle_shared_notices,
                    self.shared,
                    conversation,
                    event,
                    head,
                    len(body),
                ),
            )
        self._handle_notices(conversation, event)
        return Reply(202)

    def _new_exchange(
        self, conversation: HttpSession, head: Head, event: Call | Batch
    ) -> Exchange:
        """Return the exchange for a POST with requests, which has not begun yet."""
        sessions = self.sessions if head.route == MCP else None
        response = PostResponse(
            conversation,
            head.accepted,
            sessions,
            head.headers,
            head.principal,
        )
        if conversation.is_shared:
            response.requests = _requests_of(event)
        return Exchange(self._state, conversation, response, head.token)

    async def _handle_shared_notices(
        self,
        shared: "SharedSessions",
        conversation: HttpSession,
        event: Event | None,
        head: Head,
        size: int,
    ) -> Reply:
        """Act on a POST without requests, which may concern another process."""
        with self._charging_wait(head, size):
            await shared.handle_post(shared.as_shared(conversation), event)
        return Reply(202)

    def _revision_missing(self, head: Head) -> Reply:
        """Return the refusal of a request whose revision is not known."""
        if head.route == MCP:
            return _session_missing(head)
        versions = ", ".join(self._revisions.names)
        version = head.headers.get(VERSION, b"")
        return refusal(400, f"{_quoted(version)} is not one of {versions}")

    def _handle_notices(self, conversation: HttpSession, event: Event | None) -> None:
        """Act on the notifications and answers of a POST, which have no reply."""
        parts = event.events if isinstance(event, Batch) else [event]
        for part in parts:
            if isinstance(part, Answer):
                conversation.answer_question(part)
            elif isinstance(part, Notice):
                handle_notification(self.server, conversation, part)

    def _check_headers(self, call: Call, head: Head, stated: Revision | None) -> None:
        """Raise Refused if the headers of a stateless request do not match its body."""
        headers = head.headers
        try:
            if call.revision is not stated:
                check_version(call, headers)
            named_by = self.server.revisions.extensions.named_by.get(call.method)
            check_mirrored(call, headers, named_by)
            if call.method == "tools/call":
                self._check_argument_headers(call, head)
        except HeaderMismatch as error:
            raise Refused(error_reply(call.id, error, call.revision)) from None
        if call.method == "subscriptions/listen" and not head.accepted.stream:
            problem = "text/event-stream is what a subscription answers with"
            raise Refused(refusal(406, f"Accept: {problem}"))

    def _check_argument_headers(self, call: Call, head: Head) -> None:
        """Check the headers that repeat a tool's arguments. Raises HeaderMismatch."""
        tool = self.server.tools.get(call.params.name)
        if tool is None or not tool.mirrored_arguments:
            return
        if has_scopes(head.principal, tool.scopes):
            check_arguments(tool.mirrored_arguments, call, head.headers)

    def _refusal_reply(
        self, refused: Refusal, revision: Revision | None, head: Head
    ) -> Reply:
        """Return the reply to a body that the session has refused.

        If the header has another version than a body with an unsupported one, this is
        a header mismatch.
        """
        error = refused.error
        is_unknown = revision is None and head.route == STATELESS
        if is_unknown and isinstance(error, InvalidRequest):
            return self._revision_missing(head)
        if not isinstance(error, UnsupportedVersion) or not error.data:
            return reply(refused.data, error, revision)
        requested = error.data["requested"]
        version = head.headers.get(VERSION)
        if version is None or version == requested.encode():
            return reply(refused.data, error, None)
        mismatch = HeaderMismatch(
            f"Header mismatch: MCP-Protocol-Version is not {requested!r}, "
            "as in the body"
        )
        newest = next(reversed(self._revisions.stateless.values()))
        id = msgspec.json.decode(refused.data)["id"]
        return error_reply(id, mismatch, newest)

    def _get_or_delete(self, head: Head) -> Reply | Feed | Pending:
        """Open a session's stream, or end the session."""
        stated = self._revisions_by_name.get(head.headers.get(VERSION, b""))
        if stated is not None and not stated.opens:
            # This revision has no sessions.
            raise Refused(not_allowed(b"POST"))
        session = self._find_session(head)
        if self.shared is not None:
            work = self._end_shared if head.method == b"DELETE" else self._get_shared
            shared_session = self.shared.as_shared(session)
            return self._pending(head, partial(work, self.shared, shared_session, head))
        if head.method == b"DELETE":
            self.sessions.end(session)
            return Reply(204)
        try:
            stream, after = session.resume(head.headers.get(LAST_EVENT))
        except Denied as denied:
            raise Refused(self.bearer_auth.refuse(head, denied)) from None
        return self._feed(head, stream, after)

    async def _end_shared(
        self, shared: "SharedSessions", session: "SharedHttpSession", head: Head
    ) -> Reply:
        """End a session at all processes."""
        await shared.end_everywhere(session.id)
        return Reply(204)

    async def _get_shared(
        self, shared: "SharedSessions", session: "SharedHttpSession", head: Head
    ) -> Feed:
        """Open a stream of a session, which may belong to another process."""
        last_event = head.headers.get(LAST_EVENT)
        try:
            feed = self._feed(head, NOWHERE, None)
            return await shared.open_feed(session, last_event, feed)
        except Denied as denied:
            raise Refused(self.bearer_auth.refuse(head, denied)) from None

    def _feed(self, head: Head, stream: EventStream, after: int | None) -> Feed:
        return Feed(
            stream,
            self.metrics,
            after,
            self.server.access,
            head.principal,
            head.token,
        )

    def _find_session(self, head: Head) -> HttpSession:
        """Return the session that a request names. Raises Refused."""
        id = head.headers.get(SESSION)
        if id is None:
            raise Refused(_session_missing(head))
        session = self.sessions.find(id, head.principal)
        if session is None:
            raise Refused(NO_SUCH_SESSION)
        # The principal is the same, but its token may have other scopes now.
        session.principal = head.principal
        version = head.headers.get(VERSION)
        negotiated = session.revision.name
        if version is not None and version != negotiated.encode():
            problem = f"{_quoted(version)} is not what was agreed on, {negotiated}"
            raise Refused(refusal(400, problem))
        return session

    # Shutting down

    @property
    def _others_continue(self) -> bool:
        """Whether other processes continue to serve the clients of this one."""
        group = self.server.process_group
        return group is not None and not group.is_stopping

    @property
    def drain_time(self) -> float:
        """Seconds that idle connections stay open when this process stops."""
        return min(DRAIN_TIME, self.server.grace) if self._others_continue else 0.0

    async def shut_down(self, remaining: Sized) -> None:
        """Let running requests finish within the grace period, then cancel them.

        `remaining` are the host's open connections or requests. This returns as soon as
        it is empty.
        """
        self.stopping = True
        if self.shared is not None:
            self.shared.is_stopping = True
        self._end_idle()
        for seconds in (self.server.grace, FINAL_WRITE_TIME):
            with trio.move_on_after(seconds):
                while remaining:  # noqa: ASYNC110 (once, at the end)
                    await trio.sleep(0.02)
            for exchange in list(self._state.waiting):
                exchange.stop()

    def _end_idle(self) -> None:
        """End subscriptions and streams, which would last for as long as the client."""
        self.server.subscriptions.end_all()
        for session in self.sessions.values():
            session.close_announcements()
        self._legacy_sse.end_input()

    def close(self) -> None:
        """End every session."""
        self.server.stop_observing_requests(self.metrics)
        self.sessions.close()
        self._legacy_sse.close()


def _open_shared_sessions(
    server: Server, settings: HttpSettings
) -> "SharedSessions | None":
    """Return the sessions that the processes of a server share, if they share any."""
    if server.peers is None or settings.stateless:
        return None
    from ...stores.peers import Peers
    from .shared_sessions import SharedSessions

    # The server knows its peers only by a narrower interface.
    assert isinstance(server.peers, Peers)
    return SharedSessions(server, server.peers, server.revisions)


def _open_shared_sse(
    server: Server, metrics: Metrics, prefix: str, shared: "SharedSessions | None"
) -> "SharedSse | None":
    """Return HTTP+SSE whose messages may be posted to any process that shares them."""
    if shared is None:
        return None
    from .shared_sse import SharedSse

    return SharedSse(server, metrics, prefix, shared.peers)


def _requests_of(event: Call | Batch) -> PostedRequests:
    """Return the ids of the requests in a POST."""
    if isinstance(event, Call):
        return PostedRequests((event.id,))
    ids = [part.id for part in event.events if isinstance(part, Call)]
    return PostedRequests(tuple(ids), in_batch=True)


def _resource_of(server: Server, settings: HttpSettings) -> str:
    """Return the URL that clients use for the endpoint, or "" if it is not known."""
    if settings.public_url is not None:
        return settings.public_url
    access = server.access
    return access.resource or "" if access is not None else ""


def _opens_websocket(head: Head) -> bool:
    upgrade = head.headers.get(b"upgrade", b"")
    return head.method == b"GET" and upgrade.lower() == b"websocket"


def _observe(conversation: HttpSession, sender: Sender, data: bytes) -> None:
    """Pass a message to the observer of a conversation, if it has one."""
    if conversation.observer is not None and data:
        conversation.observer(conversation, sender, data)


def _check_answer(conversation: HttpSession, revision: Revision, head: Head) -> None:
    """Raise Refused if the server cannot have asked what a client answers."""
    if not revision.opens:
        problem = "this revision's server asks by its results"
        raise Refused(refusal(400, f"Responses are not taken here: {problem}"))
    if head.route == STATELESS:
        problem = "without sessions, the server asks nothing in this revision"
        raise Refused(refusal(400, f"Responses are not taken here: {problem}"))
    if not conversation.id:
        raise Refused(_session_missing(head))


def _session_missing(head: Head) -> Reply:
    """Return the refusal of a request that needs a session and names none."""
    problem = "missing; initialize gives one, unless a request says its own version"
    version = head.headers.get(VERSION)
    given = f" ({_quoted(version)})" if version is not None else ""
    return refusal(400, f"Mcp-Session-Id: {problem}{given}")


def _quoted(version: bytes) -> str:
    """Return the header with a protocol version, for a message."""
    return f"MCP-Protocol-Version: {version.decode('latin-1')[:100]!r}"
