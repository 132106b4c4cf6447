"""What is served over HTTP, from a request's head to its response.

It is the same for every host: the native server and ASGI.
"""

from collections.abc import Awaitable, Callable, Sized
from functools import lru_cache, partial
from math import ceil
from typing import TYPE_CHECKING

import msgspec
import trio

from ...auth.access import Denied
from ...auth.resource_metadata import prefix_of
from ...protocol.errors import (
    HeaderMismatch,
    InvalidRequest,
    ServiceUnavailable,
    UnsupportedVersion,
)
from ...protocol.mirrored_headers import Mirror, mirrors
from ...protocol.revisions import Revision
from ...protocol.session import Answer, Batch, Call, Event, Notice, Refusal
from ...server.app import Server
from ...server.conversation import Sender
from ...server.features.tools import ServerTool
from ...server.gauges import Gauge, labels
from ...server.handlers import handle_notification
from .authorization import Bearers
from .event_stream import NOWHERE, EventStream
from .exchange import Exchange, ServiceState
from .feed import Feed
from .legacy_sse import LegacySse
from .messages import (
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
from .metrics import Metrics, store_gauges, thread_gauges
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
    not_allowed,
    preflight,
)
from .sessions import NO_SUCH_SESSION, HttpSession, NotHere, Sessions
from .settings import DEFAULT_SETTINGS, HttpSettings
from .trusted_proxies import TrustedProxies

if TYPE_CHECKING:
    from ...stores.peers import Peers
    from .shared_session import SharedHttpSession
    from .shared_sessions import SharedSessions
    from .shared_sse import SharedSse

# Seconds to write the remaining data after everything was cancelled.
LAST_WORDS = 0.5
# Seconds that idle connections stay open when this process stops and others go on. A
# request may be on its way, and its client would not know whether it was carried out.
DRAIN_TIME = 1.0
# What the ledger charges.
KINDS = frozenset(
    {
        *("bodies", "connections", "events", "listens"),
        *("replies", "requests", "sessions", "subscriptions"),
    }
)
# Refusals that well-meaning clients get too, and that are not worth a line in the log.
ORDINARY = frozenset({404, 405, 406, 415})
# What load balancers and orchestrators ask for.
PROBES = frozenset({HEALTH, READY})


class Pending(msgspec.Struct):
    """An answer that depends on the store, or on other processes."""

    wait: "Callable[[], Awaitable[Answered]]"


# What a host sends, and what else it may have to wait for first.
Answered = Reply | Exchange | Feed
AnswerNow = Answered | Pending


class Service:
    """One server's HTTP side.

    A host hands `admit` the head of a request, and `answer` the head and the body.
    """

    def __init__(
        self, server: Server, settings: HttpSettings = DEFAULT_SETTINGS
    ) -> None:
        self.server = server
        self.guard = Guard(settings.hosts, settings.origins, cors=settings.cors)
        resource = _resource_of(server, settings)
        self.bearers = Bearers(server, settings.path, resource)
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self.metrics = Metrics()
        server.observe_requests(self.metrics)
        self._served = server.revisions
        # The revision of requests that state none; None if they need a session.
        self._unstated: Revision | None = None
        if settings.stateless:
            self._served = server.revisions.without_sessions()
            self._unstated = next(iter(self._served.opening.values()))
        self.sessions = Sessions(server.ledger)
        self.shared: SharedSessions | None = None
        if server.peers is not None and not settings.stateless:
            self.sessions = self.shared = _shared_sessions(server)
        self.stopping = False
        if server.process_group is not None:
            server.process_group.use_page(self._render_metrics)
        self._state = ServiceState(server, self.metrics, self.sessions)
        prefix = prefix_of(resource, ("/" + settings.path.strip("/")).rstrip("/"))
        self._shared_sse: SharedSse | None = None
        if self.shared is not None:
            self._shared_sse = _shared_sse(
                server, self.metrics, prefix, self.shared.peers
            )
        self._legacy = self._shared_sse or LegacySse(server, self.metrics, prefix)
        self._routes = Routes(settings.path, resource, stateless=settings.stateless)
        self._revisions = {
            revision.name.encode(): revision for revision in self._served.all
        }

    # Checking heads

    def admission(self, peer: str) -> Callable[[Head], Reply | None]:
        """Return what checks the heads of a connection with this peer."""
        if self._proxies.trusts(peer):
            return self.admit_forwarded
        return self.admit

    def admit_forwarded(self, head: Head) -> Reply | None:
        """Check a head that a trusted proxy passes on.

        A head that has a route already has its client's address, too.
        """
        if not head.route:
            head.peer = self._proxies.client_of(head.headers) or head.peer
        return self.admit(head)

    def admit(self, head: Head) -> Reply | None:
        """Check a head before its body comes. Returns the refusal, if it is refused.

        A head that has a route already was admitted before, in the same form. Only its
        client's rate is checked again.
        """
        is_known = bool(head.route)
        if not is_known:
            head.route = self._routes.find(head) or ""
        if self.server.limiter.rate:
            flood = self._check_rate(head)
            if flood is not None:
                return flood
        if is_known:
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
            head.route = MCP  # a WebSocket has its conversation for itself
        # A health check may use any Host.
        if head.route not in PROBES:
            refused = self.guard.check(head)
            if refused is not None:
                return refused
        if head.method == b"OPTIONS":
            return preflight(head)
        if self.server.access is not None:
            refused = self.bearers.check(head)
            if refused is not None:
                return refused
        return check_request(head)

    def note_refusal(self, head: Head, reply: Reply) -> None:
        """Count a refusal and log it.

        A host calls this for requests that it does not hand to `answer`.
        """
        if reply.status >= 400:
            self.metrics.refused[reply.status] += 1
            if reply.status not in ORDINARY:
                self.server.event_log.log_rejection(head.peer, reply.status, reply.body)

    # Answering

    def answer(self, head: Head, body: bytes) -> AnswerNow:
        """Answer a request that was admitted.

        An exchange has begun in this task, and waits. Raises Spoiled, with a reply or
        an exchange, if it left a cancel scope open in the task. So does the `wait` of
        an answer that is pending.
        """
        try:
            if head.route == STATELESS:
                return self._post(head, body)
            if head.route != MCP:
                return self._answer_other(head, body)
            if head.method == b"POST":
                return self._post(head, body)
            return self._get_or_delete(head)
        except Refused as refused:
            self.note_refusal(head, refused.reply)
            return refused.reply
        except NotHere as missing:
            return self._pending(
                head, partial(self._load_and_answer, missing.id, head, body)
            )

    def _pending(self, head: Head, work: Callable[[], Awaitable[Answered]]) -> Pending:
        """Return an answer that is not known before the store was asked."""

        async def wait() -> Answered:
            try:
                return await work()
            except Refused as refused:
                response = refused.reply
            except ServiceUnavailable as away:
                response = refusal(503, away.message, retry_after(away))
            self.note_refusal(head, response)
            return response

        return Pending(wait)

    async def _load_and_answer(self, id: bytes, head: Head, body: bytes) -> Answered:
        """Answer a request in a session that another process may have opened."""
        assert self.shared is not None
        await self.shared.load(id, head.peer)
        if id not in self.sessions:
            raise Refused(NO_SUCH_SESSION)
        answer = self.answer(head, body)
        while isinstance(answer, Pending):
            answer = await answer.wait()
        return answer

    def _answer_other(self, head: Head, body: bytes) -> Reply | Feed | Pending:
        """Answer a request that is not for the MCP endpoint."""
        if head.route == SSE:
            return self._legacy.get(head)
        if head.route == MESSAGES:
            shared = self._shared_sse
            if shared is not None and not shared.has(head.query):
                return self._pending(head, partial(shared.pass_on, head, body))
            return self._legacy.post(head, body)
        if head.route in (METADATA, SSE_METADATA):
            return self.bearers.metadata(head)
        if head.route == METRICS:
            return self._answer_metrics()
        if head.route == READY:
            return self._readiness()
        return Reply(200, b"ok\n", PLAIN)

    def _answer_metrics(self) -> Reply | Pending:
        """Return the metrics of this process, or of all that serve this port."""
        group = self.server.process_group
        if group is None:
            return Reply(200, self._render_metrics(), PLAIN)

        async def collect() -> Answered:
            return Reply(200, await group.all_metrics(), PLAIN)

        return Pending(collect)

    def _render_metrics(self) -> bytes:
        return self.metrics.render(self._gauges())

    def _readiness(self) -> Reply:
        """Say whether every request can be served now, here or by another process."""
        store = self.server.shared_state
        if self.stopping and not self._others_go_on:
            return Reply(503, b"stopping\n", PLAIN)
        if store is not None and not store.is_available:
            return Reply(503, b"the store cannot be reached\n", PLAIN)
        return Reply(200, b"ok\n", PLAIN)

    def _gauges(self) -> list[Gauge]:
        """Return what the service holds now."""
        in_flight = {"": self.server.limiter.total}
        sessions = {"": len(self.sessions)}
        gauges = [
            Gauge("mcp_requests_in_flight", "Requests that are waiting.", in_flight),
            Gauge("mcp_sessions", "HTTP sessions that are open.", sessions),
        ]
        held = {labels(kind=kind): size for kind, size in self._held().items()}
        gauges.append(Gauge("mcp_held_bytes", "Bytes that are held for clients.", held))
        threads = self.server.environment.worker_threads
        if threads is not None:
            gauges += thread_gauges(threads)
        if self.server.shared_state is not None:
            gauges += store_gauges(self.server.shared_state)
        if self.server.extensions is not None:
            gauges += self.server.extensions.gauges()
        return gauges

    def _held(self) -> dict[str, int]:
        """Return the bytes that are held for clients, by kind."""
        by_kind = self.server.ledger.by_kind
        return {kind: by_kind[kind] for kind in sorted(KINDS | by_kind.keys())}

    def _post(self, head: Head, body: bytes) -> Reply | Exchange | Pending:
        """Answer a POST to the MCP endpoint, and show it to the message observer."""
        version = head.headers.get(VERSION)
        stated = self._unstated
        if version is not None:
            stated = self._revisions.get(version)
        try:
            conversation = self._find_conversation(head, stated)
        except Refused as refused:
            self._observe_stranger(head, body, refused.reply)
            raise
        if conversation.observer is not None:
            conversation.observer(conversation, "client", body)
        try:
            return self._receive(conversation, head, body, stated)
        except Refused as refused:
            _observe(conversation, "server", refused.reply.body)
            raise

    def _find_conversation(self, head: Head, stated: Revision | None) -> HttpSession:
        """Return the session that a POST names, or a conversation for this POST only.

        The latter becomes a session if the POST is an `initialize`.
        """
        is_in_session = SESSION in head.headers and head.route != STATELESS
        if is_in_session and (stated is None or stated.opens):
            conversation = self._find_session(head)
        else:
            if self.shared is not None and (stated is None or stated.opens):
                conversation = self.shared.new_conversation(stated)
            else:
                conversation = HttpSession(
                    self.server, self.sessions, stated, self._served
                )
            conversation.principal = head.principal
        conversation.address = head.peer
        return conversation

    def _observe_stranger(self, head: Head, body: bytes, reply: Reply) -> None:
        """Show a POST that belongs to no conversation, as a conversation of its own."""
        if self.server.on_message is not None:
            stranger = HttpSession(self.server, self.sessions)
            stranger.address = head.peer
            _observe(stranger, "client", body)
            _observe(stranger, "server", reply.body)

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
            self._check_headers(event, head)
        elif isinstance(event, Refusal):
            raise Refused(self._refusal_reply(event, revision, head))
        elif revision is None:
            raise Refused(self._revision_missing(head))
        if type(event) is Call or (isinstance(event, Batch) and event.expects_reply):
            takes = accepted(head.headers)
            sessions = self.sessions if head.route == MCP else None
            response = PostResponse(
                conversation, takes, sessions, head.headers, head.principal
            )
            if conversation.is_shared:
                response.requests = _requests_of(event)
            exchange = Exchange(self._state, conversation, response, head.token)
            return exchange.begin(event) or exchange
        if isinstance(event, Answer) and revision is not None:
            _check_answer(conversation, revision, head)
        # Without a session, the conversation ends here, and nothing can change in it.
        if not conversation.id:
            return Reply(202)
        if self.shared is not None:
            return self._pending(
                head, partial(self._take_shared, self.shared, conversation, event)
            )
        self._take_notices(conversation, event)
        return Reply(202)

    async def _take_shared(
        self, shared: "SharedSessions", conversation: HttpSession, event: Event | None
    ) -> Reply:
        """Act on a POST without requests, which may concern another process."""
        await shared.take(shared.as_shared(conversation), event)
        return Reply(202)

    def _revision_missing(self, head: Head) -> Reply:
        """Return the refusal of a request whose revision is not known."""
        if head.route == MCP:
            return _session_missing(head)
        versions = ", ".join(self._served.names)
        version = head.headers.get(VERSION, b"")
        return refusal(400, f"{_quoted(version)} is not one of {versions}")

    def _take_notices(self, conversation: HttpSession, event: Event | None) -> None:
        """Act on the notifications and answers of a POST, which have no reply."""
        parts = event.events if isinstance(event, Batch) else [event]
        for part in parts:
            if isinstance(part, Answer):
                conversation.answer_question(part)
            elif isinstance(part, Notice):
                handle_notification(self.server, conversation, part)

    def _check_headers(self, call: Call, head: Head) -> None:
        """Raise Refused if the headers of a stateless request do not fit its body."""
        try:
            named_by = self.server.revisions.extensions.named_by.get(call.method)
            check_mirrored(call, head.headers, named_by)
            if call.method == "tools/call":
                self._check_argument_headers(call, head)
        except HeaderMismatch as error:
            raise Refused(error_reply(call.id, error, call.revision)) from None
        if call.method == "subscriptions/listen" and not accepted(head.headers).stream:
            problem = "text/event-stream is what a subscription answers with"
            raise Refused(refusal(406, f"Accept: {problem}"))

    def _check_argument_headers(self, call: Call, head: Head) -> None:
        """Check the headers that repeat a tool's arguments. Raises HeaderMismatch."""
        tool = self.server.tools.get_for(head.principal, call.params.name)
        if tool is None:
            return
        mirrored = _mirrors_of(tool)
        if mirrored:
            check_arguments(mirrored, call, head.headers)

    def _refusal_reply(
        self, refused: Refusal, revision: Revision | None, head: Head
    ) -> Reply:
        """Return the reply to a body that the session has refused.

        An unsupported version that the header does not repeat is a header mismatch.
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
        newest = next(reversed(self._served.stateless.values()))
        id = msgspec.json.decode(refused.data)["id"]
        return error_reply(id, mismatch, newest)

    def _get_or_delete(self, head: Head) -> Reply | Feed | Pending:
        """Open a session's stream, or end the session."""
        stated = self._revisions.get(head.headers.get(VERSION, b""))
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
            raise Refused(self.bearers.refuse(head, denied)) from None
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
        """Open a stream of a session, which another process may have begun."""
        last_event = head.headers.get(LAST_EVENT)
        try:
            feed = self._feed(head, NOWHERE, None)
            return await shared.open_feed(session, last_event, feed)
        except Denied as denied:
            raise Refused(self.bearers.refuse(head, denied)) from None

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
        # The same principal, with the scopes of the token that this request has.
        session.principal = head.principal
        version = head.headers.get(VERSION)
        agreed = session.revision.name
        if version is not None and version != agreed.encode():
            problem = f"{_quoted(version)} is not what was agreed on, {agreed}"
            raise Refused(refusal(400, problem))
        return session

    # The end

    @property
    def _others_go_on(self) -> bool:
        """Whether other processes take the clients of this one."""
        group = self.server.process_group
        return group is not None and not group.is_stopping

    @property
    def drain_time(self) -> float:
        """Seconds that idle connections stay open when this process stops."""
        return min(DRAIN_TIME, self.server.grace) if self._others_go_on else 0.0

    async def wind_up(self, guests: Sized) -> None:
        """Let running requests finish, within the grace, then cancel them.

        `guests` are the host's open connections or requests. This returns as soon as
        all of them have ended.
        """
        self.stopping = True
        if self.shared is not None:
            self.shared.is_stopping = True
        self._end_idle()
        for seconds in (self.server.grace, LAST_WORDS):
            with trio.move_on_after(seconds):
                while guests:  # noqa: ASYNC110 (once, at the end)
                    await trio.sleep(0.02)
            for exchange in list(self._state.waiting):
                exchange.stop()

    def _end_idle(self) -> None:
        """End what would go on for as long as the client wants."""
        self.server.subscriptions.end_all()
        for session in self.sessions.values():
            session.close_announcements()
        self._legacy.end_input()

    def close(self) -> None:
        """End every session."""
        self.server.stop_observing_requests(self.metrics)
        self.sessions.close()
        self._legacy.close()


def _shared_sessions(server: Server) -> "SharedSessions":
    """Return the sessions that the processes of a server share."""
    from ...stores.peers import Peers
    from .shared_sessions import SharedSessions

    # The server itself knows its peers only as those that it tells of changes.
    assert isinstance(server.peers, Peers)
    return SharedSessions(server, server.peers, server.revisions)


def _shared_sse(
    server: Server, metrics: Metrics, prefix: str, peers: "Peers"
) -> "SharedSse":
    """Return HTTP+SSE, whose messages may be posted to any process."""
    from .shared_sse import SharedSse

    return SharedSse(server, metrics, prefix, peers)


def _requests_of(event: Call | Batch) -> PostedRequests:
    """Return the ids of the requests in a POST."""
    if isinstance(event, Call):
        return PostedRequests((event.id,))
    ids = [part.id for part in event.events if isinstance(part, Call)]
    return PostedRequests(tuple(ids), in_batch=True)


def _resource_of(server: Server, settings: HttpSettings) -> str:
    """Return the URL that clients use for the endpoint, or "" if nobody says."""
    if settings.public_url is not None:
        return settings.public_url
    access = server.access
    return access.resource or "" if access is not None else ""


def _opens_websocket(head: Head) -> bool:
    upgrade = head.headers.get(b"upgrade", b"")
    return head.method == b"GET" and upgrade.lower() == b"websocket"


def _observe(conversation: HttpSession, sender: Sender, data: bytes) -> None:
    """Show a message to the observer of a conversation, if it has one."""
    if conversation.observer is not None and data:
        conversation.observer(conversation, sender, data)


def _check_answer(conversation: HttpSession, revision: Revision, head: Head) -> None:
    """Raise Refused if nobody can have asked what a client answers."""
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


@lru_cache(1024)
def _mirrors_of(tool: ServerTool) -> tuple[Mirror, ...]:
    """Return the headers that repeat a tool's arguments."""
    return tuple(mirrors(tool.listed.input_schema))
