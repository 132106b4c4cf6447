"""What is served over HTTP, the same for every host: each request's way from its head to its response."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Coroutine, Sized
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from math import ceil
from time import perf_counter
from typing import Any, ClassVar

import msgspec
import trio

from ...auth.principal import Principal, can_stand_in_for
from ...protocol.errors import HeaderMismatch, UnsupportedVersion
from ...protocol.mirrored_headers import Mirror, mirrors
from ...protocol.revisions import Revision
from ...protocol.session import Answer, Batch, Call, Notice, Refusal
from ...server.app import Server
from ...server.conversation import Conversation
from ...server.event_log import SLOW
from ...server.execute import execute, finish
from ...server.features.tools import ServerTool
from ...server.handlers import handle_notification
from ...server.limiter import LISTENS
from ...server.request import Request
from ...server.runner import Rest, Spoiled, start
from ...server.serve_conversation import execute_batch, serve_conversation
from ..send_queue import QueuedWire, SendQueue
from . import authorization as bearer
from . import sse
from .event_stream import Stream
from .messages import (
    EVENTS,
    JSON,
    PLAIN,
    Fields,
    Head,
    Headers,
    Refused,
    Reply,
    error_reply,
    refusal,
    reply,
)
from .metrics import Metrics
from .rules import (
    HEALTH,
    LAST_EVENT,
    MCP,
    MESSAGES,
    METADATA,
    METRICS,
    SESSION,
    SSE,
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
from .sessions import HttpSession, Sessions
from .settings import DEFAULT_SETTINGS, HttpSettings

# Seconds for what is still to be written when everything was cancelled.
LAST_WORDS = 0.5
# Seconds after which a stream that is silent says a comment.
HEARTBEAT = 15.0
# What clients that mean well are answered too, and what is not worth a line in the log.
ORDINARY = frozenset({404, 405, 406, 415})


class Feed(msgspec.Struct, eq=False):
    """A response that is a stream of events. A host sends `headers`, and every block that `next` gives."""

    headers: ClassVar[Fields] = EVENTS
    service: Service
    stream: Stream
    after: int | None = None
    principal: Principal | None = None  # with whose end it ends too
    token: str = ""
    is_silent: bool = True

    @asynccontextmanager
    async def open(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        """While it is entered the stream is this feed's; what it needs besides runs in the host's nursery."""
        access = self.service.server.access
        if access is not None and self.principal is not None:
            nursery.start_soon(
                access.outlast,
                self.token,
                self.principal,
                partial(self.stream.detach, self),
            )
        nursery.start_soon(self._beat)
        self.stream.attach(self, self.after)
        self.service.metrics.streams += 1
        try:
            yield
        finally:
            self.service.metrics.streams -= 1
            self.stream.detach(self)

    async def next(self) -> bytes:
        """What has to be sent next; nothing at the end."""
        block = await self.stream.take(self)
        self.is_silent = block == sse.COMMENT
        return block

    async def _beat(self) -> None:
        """Have a comment said in silence. A task for all of them is cheaper than a scope for each block."""
        while True:
            self.is_silent = True
            await trio.sleep(HEARTBEAT)
            if self.is_silent:
                self.stream.beat(self)


class Exchange:
    """A POST with requests in it: a whole reply, or a stream as soon as one of them has something to say first.

    A host calls `begin` in the turn in which it has read the request. Where that gives no reply, the task in which it
    was called goes on with `rest`, while another takes the response from `response`. For the requests it is the
    channel.
    """

    # What most exchanges, which never wait, have no need of
    scope: trio.CancelScope | None = None
    token = ""
    _stream: Stream | None = None
    _reply: Reply | None = None
    _request: Request | None = None  # None: a batch
    _rest: Rest[bytes | None] | None = None
    _known: trio.Event | None = None  # of which kind the response is

    def __init__(
        self, service: Service, conversation: Conversation, headers: Headers
    ) -> None:
        self._service = service
        self._conversation = conversation
        self._session = (
            conversation
            if isinstance(conversation, HttpSession) and conversation.id
            else None
        )
        self._accepted = accepted(headers)
        self._started = perf_counter()

    def send(self, message: bytes) -> None:
        """Say something before the result. Where the client takes no stream, its session's own may carry it."""
        if self._accepted.stream:
            self._opened_stream().send(message)
        elif self._session:
            self._session.news.send(message)

    async def drained(self) -> None:
        """Wait while the client is too far behind."""
        if self._stream is not None:
            await self._stream.drained()

    def let_go(self, retry: int) -> None:
        """End the connection, not the request: a client that was told where it is comes back for the rest."""
        if self._accepted.stream and self._session and self._session.revision.primes:
            self._opened_stream().let_go(retry)

    # For the host

    def begin(self, work: Call | Batch) -> Reply | None:
        """Run a request, or a batch, until it first waits: its reply, if it is a whole one that never did."""
        server, conversation = self._service.server, self._conversation
        running: Coroutine[Any, Any, bytes | None]
        if isinstance(work, Call):
            principal = conversation.principal
            self._request = Request(
                work, conversation, self, server.environment, principal
            )
            running = execute(server, self._request)
        else:
            running = execute_batch(server, conversation, work.events, self)
        try:
            message, self._rest = start(running)
        except Spoiled as spoiled:
            self._end(spoiled.value)
            raise Spoiled(self._reply or self) from None
        if self._rest is None:
            self._end(message)
            return self._reply
        if isinstance(work, Call):
            server.note_that_it_waits(work)
        self._service.running.add(self)
        return None

    async def rest(self, scope: trio.CancelScope) -> None:
        """Go on with what waits, in the task that began it, under a scope that ends it."""
        if self._rest is None:
            return
        self.scope = scope
        message = None
        going_on: Rest[bytes | None] = self._rest
        if self._request is not None:
            server = self._service.server
            going_on = finish(server, self._request, self._rest, scope)
        if (
            (request := self._request)
            and request.principal
            and request.call.method == LISTENS
        ):
            going_on = self._outlasted(going_on, request.principal, scope)
        try:
            message = await going_on
        finally:
            self._end(message)
            self._service.running.discard(self)

    async def _outlasted(
        self,
        going_on: Rest[bytes | None],
        principal: Principal,
        scope: trio.CancelScope,
    ) -> bytes | None:
        """Go on for as long as the token is valid by which the principal has come."""
        access: Any = self._service.server.access
        async with trio.open_nursery() as nursery:
            nursery.start_soon(access.outlast, self.token, principal, scope.cancel)
            try:
                return await going_on
            finally:
                nursery.cancel_scope.cancel()

    async def response(self) -> Reply | Feed:
        """The response, as soon as it is known of which kind it is."""
        if self._reply is None and self._stream is None:
            self._known = trio.Event()
            await self._known.wait()
        return self._reply or Feed(self._service, self._opened_stream())

    def client_gone(self) -> None:
        """The connection has ended. Without a session nobody can come back: that cancels."""
        if self._session is None:
            self.stop()

    def stop(self) -> None:
        """Cancel what still runs."""
        if self.scope is not None:
            self.scope.cancel()

    # The response

    def _opened_stream(self) -> Stream:
        if self._stream is None:
            self._stream = self._session.open_stream() if self._session else Stream()
            self._tell_kind()
        return self._stream

    def _tell_kind(self) -> None:
        if self._known is not None:
            self._known.set()

    def _end(self, message: bytes | None) -> None:
        """Everything is answered; None: cancelled, which has no answer, so that a stream ends without one."""
        request, self._request = (
            self._request,
            None,
        )  # no circle, so that its memory is free at once
        method, error = (
            (request.call.method, request.error) if request else ("other", None)
        )
        outcome = "cancelled" if message is None else "error" if error else "ok"
        conversation = self._conversation
        if conversation.observer is not None and message is not None:
            conversation.observer(conversation, "server", message)
        seconds = perf_counter() - self._started
        self._service.metrics.count(method, outcome, seconds)
        if (
            seconds > SLOW and request and self._rest is None
        ):  # it has held up all others
            self._service.server.event_log.took(request, seconds)
        # An error says what it is by its status, and a new session is named in the head: they are no streams.
        prefers = self._accepted.prefers_stream and not error and method != "initialize"
        if self._stream is not None or (
            self._accepted.stream if message is None else prefers
        ):
            stream = self._opened_stream()
            if message is not None:
                stream.send(message)
            stream.close()
        elif message is None:
            self._reply = Reply(204)
        elif (
            request
            and method == "initialize"
            and not error
            and isinstance(self._conversation, HttpSession)
        ):
            self._reply = self._service.open_session(self._conversation, message)
        else:
            self._reply = reply(
                message, error, request.call.revision if request else None
            )
        self._tell_kind()


# The transport of the first revisions, HTTP+SSE: replies come on the stream of one GET, messages by POST


class LegacyFeed(Feed, kw_only=True):
    """The stream of one GET: first it says where to post to. Its conversation ends with it."""

    inbox: SendQueue
    address: str

    @asynccontextmanager
    async def open(self, nursery: trio.Nursery) -> AsyncIterator[None]:
        feeds, id = self.service.legacy_feeds, secrets.token_urlsafe(24).encode()
        feeds[b"session=" + id] = self
        try:
            async with super().open(nursery):
                self.stream.head = sse.encode(
                    b"/messages?session=" + id, name=b"endpoint"
                )
                nursery.start_soon(self._converse)
                yield
        finally:
            del feeds[b"session=" + id]

    async def _converse(self) -> None:
        wire = QueuedWire(self.inbox, self.stream)
        await serve_conversation(
            self.service.server,
            wire,
            self.principal,
            transport="sse",
            address=self.address,
        )
        self.stream.close()


def post_legacy(feeds: dict[bytes, LegacyFeed], head: Head, body: bytes) -> Reply:
    """Take a message. What it is answered with comes on the stream that the query names."""
    feed = feeds.get(head.query)
    if feed is None or not can_stand_in_for(head.principal, feed.principal):
        return refusal(
            404,
            "session: no stream of this name is open; GET /sse opens one and names it",
        )
    if feed.inbox.is_full:
        return refusal(503, "Too many messages that are not answered yet")
    feed.inbox.send(body)
    return Reply(202)


# The server's side


class Service:
    """One server's HTTP side. A host hands `admit` a request's head, and `answer` the head and the body."""

    def __init__(
        self, server: Server, settings: HttpSettings = DEFAULT_SETTINGS
    ) -> None:
        self.server = server
        self.guard = Guard(
            settings.allowed_hosts, settings.allowed_origins, cors=settings.cors
        )
        self.metrics = Metrics()
        self.sessions = Sessions()
        self.running: set[Exchange] = set()
        self.legacy_feeds: dict[bytes, LegacyFeed] = {}
        self.stopping = False
        self.bearers = bearer.Bearers(server, settings.path)
        self._routes = Routes(
            settings.path, (server.access and server.access.resource) or ""
        )
        self._revisions = {
            revision.name.encode(): revision for revision in server.revisions.all
        }

    def admit(self, head: Head) -> Reply | None:
        """Look at a head before there is a body: the refusal, where it need not come.

        One that has its route was let in before, and is now looked at for how often it comes alone.
        """
        is_known = bool(head.route)
        head.route = head.route or self._routes.find(head) or ""
        if self.server.limiter.rate and (reply := self._flood(head)):
            return reply
        if is_known:
            return None
        if not head.route:
            return refusal(404, "Nothing is served under this path")
        if head.route != HEALTH and (
            reply := self.guard.check(head)
        ):  # probes come by any name
            return reply
        if head.method == b"OPTIONS":
            return preflight(head)
        if self.server.access is not None and (reply := self.bearers.check(head)):
            return reply
        return check_request(head)

    def _flood(self, head: Head) -> Reply | None:
        """The refusal of what comes far too often, whatever it is."""
        if head.route == HEALTH or not (wait := self.server.limiter.flood(head.peer)):
            return None
        retry_after = ((b"Retry-After", b"%d" % ceil(wait)),)
        return refusal(
            429, f"Too many requests; try again in {ceil(wait)} s", retry_after
        )

    def note_refusal(self, head: Head, reply: Reply) -> None:
        """Count who was not let in, and put a line into the log; a host calls this for what never comes to `answer`."""
        if reply.status >= 400:
            self.metrics.refused[reply.status] += 1
            if reply.status not in ORDINARY:
                self.server.event_log.turned_away(head.peer, reply.status, reply.body)

    def answer(self, head: Head, body: bytes) -> Reply | Exchange | Feed:
        """Answer a request that was admitted. An exchange has begun, in this task, and waits."""
        try:
            if head.route == MCP:
                return (
                    self._post(head, body)
                    if head.method == b"POST"
                    else self._get_or_delete(head)
                )
            if head.route == SSE:
                inbox, stream = SendQueue(), Stream()
                return LegacyFeed(
                    self,
                    stream,
                    None,
                    head.principal,
                    head.token,
                    inbox=inbox,
                    address=head.peer,
                )
            if head.route == MESSAGES:
                return post_legacy(self.legacy_feeds, head, body)
            if head.route == METADATA:
                return self.bearers.metadata(head)
        except Refused as refused:
            self.note_refusal(head, refused.reply)
            return refused.reply
        text = (
            self.metrics.render(len(self.sessions), len(self.running))
            if head.route == METRICS
            else b"ok\n"
        )
        return Reply(200, text, PLAIN)

    async def wind_up(self, guests: Sized) -> None:
        """Stop: what runs finishes, within the grace; the rest is cancelled, and says its last words.

        Before that the streams end that no request ends, the subscriptions, and who has no more to ask.
        """
        self.stopping = True
        self.server.subscriptions.end_all()
        for session in self.sessions.values():
            session.news.close()
        for feed in self.legacy_feeds.values():
            feed.inbox.close()
        for seconds in (self.server.grace, LAST_WORDS):
            with trio.move_on_after(seconds):
                while guests:  # noqa: ASYNC110 (once, at the end)
                    await trio.sleep(0.02)
            for exchange in list(self.running):
                exchange.stop()

    def close(self) -> None:
        """End every session."""
        for session in list(self.sessions.values()):
            self.sessions.end(session)

    def open_session(self, session: HttpSession, message: bytes) -> Reply:
        """Reply to initialize: only now, that nothing has gone wrong, there is a session."""
        if not self.sessions.open(session):
            return refusal(503, "Too many sessions, and all of them busy")
        return Reply(200, message, (*JSON, (b"Mcp-Session-Id", session.id)))

    # The MCP endpoint

    def _post(self, head: Head, body: bytes) -> Reply | Exchange:
        version = head.headers.get(VERSION)
        stated = self._revisions.get(version or b"")
        conversation = None
        try:
            conversation = self._conversation(head, stated)
            if conversation.observer is not None:
                conversation.observer(conversation, "client", body)
            return self._post_in(conversation, head, body, stated, version)
        except Refused as refused:
            if self.server.on_message is not None:
                self._observe_refusal(conversation, head, body, refused.reply)
            raise

    def _conversation(self, head: Head, stated: Revision | None) -> HttpSession:
        """Return the session of a POST, or a conversation of only this message.

        Such a message may open a session.
        """
        if SESSION in head.headers and (stated is None or stated.opens):
            conversation = self._session(head)
        else:
            conversation = HttpSession(self.server, stated)
            conversation.principal = head.principal
        conversation.address = head.peer
        return conversation

    def _observe_refusal(
        self,
        conversation: HttpSession | None,
        head: Head,
        body: bytes,
        reply: Reply,
    ) -> None:
        if conversation is None:
            conversation = HttpSession(self.server)
            conversation.address = head.peer
            if conversation.observer is not None:
                conversation.observer(conversation, "client", body)
        if conversation.observer is not None and reply.body:
            conversation.observer(conversation, "server", reply.body)

    def _post_in(
        self,
        conversation: HttpSession,
        head: Head,
        body: bytes,
        stated: Revision | None,
        version: bytes | None,
    ) -> Reply | Exchange:
        event = conversation.session.receive(body)
        revision = (
            conversation.session.revision or stated
        )  # of what initialize has opened too
        if isinstance(event, Refusal):
            raise Refused(self._refused(event, revision, version))
        if type(event) is Call and not event.revision.opens:
            self._check_headers(head, event)
        elif revision is None or (isinstance(event, Answer) and revision.opens):
            self._session(head)  # says that there is none
        if type(event) is Call or (isinstance(event, Batch) and event.asks):
            exchange = Exchange(self, conversation, head.headers)
            if head.token:
                exchange.token = head.token
            return exchange.begin(event) or exchange
        if isinstance(event, Answer) and revision and not revision.opens:
            raise Refused(
                refusal(
                    400,
                    "Responses are not taken here: this revision's server asks by its results",
                )
            )
        parts = event.events if isinstance(event, Batch) else [event]
        for part in parts if conversation.id else ():  # of no session nothing is kept
            if isinstance(part, Answer):
                conversation.answer_question(part)
            elif isinstance(part, Notice):
                handle_notification(self.server, conversation, part)
        return Reply(202)

    def _check_headers(self, head: Head, call: Call) -> None:
        """Refuse a stateless request that its headers do not fit."""
        try:
            check_mirrored(call, head.headers)
            tool = (
                self.server.tools.get_for(head.principal, call.params.name)
                if call.method == "tools/call"
                else None
            )
            if tool is not None and (wanted := _mirrors(tool)):
                check_arguments(wanted, call, head.headers)
        except HeaderMismatch as error:
            raise Refused(error_reply(call.id, error, call.revision)) from None
        if call.method == "subscriptions/listen" and not accepted(head.headers).stream:
            raise Refused(
                refusal(
                    406, "Accept: text/event-stream is what a subscription answers with"
                )
            )

    def _refused(
        self, event: Refusal, revision: Revision | None, version: bytes | None
    ) -> Reply:
        """What is answered at once. A version that only the body or only the header has is a mismatch of the two."""
        error = event.error
        requested = (
            error.data["requested"]
            if isinstance(error, UnsupportedVersion) and error.data
            else None
        )
        if (
            version is not None
            and requested is not None
            and requested.encode() != version
        ):
            mismatch = HeaderMismatch(
                f"Header mismatch: MCP-Protocol-Version is not {requested!r}, as in the body"
            )
            newest = next(reversed(self.server.revisions.stateless.values()))
            return error_reply(msgspec.json.decode(event.data)["id"], mismatch, newest)
        return reply(event.data, error, revision if requested is None else None)

    def _get_or_delete(self, head: Head) -> Reply | Feed:
        """What only revisions with sessions have."""
        stated = self._revisions.get(head.headers.get(VERSION, b""))
        if stated is not None and not stated.opens:
            raise Refused(not_allowed(b"POST"))
        session = self._session(head)
        if head.method == b"GET":
            return Feed(
                self,
                *session.resumed(head.headers.get(LAST_EVENT)),
                head.principal,
                head.token,
            )
        self.sessions.end(session)
        return Reply(204)

    def _session(self, head: Head) -> HttpSession:
        """The session that a request names, with the version that was agreed in it. Raises Refused."""
        id, version = head.headers.get(SESSION), head.headers.get(VERSION)
        given = (
            f"MCP-Protocol-Version: {version.decode('latin-1')[:100]!r}"
            if version is not None
            else ""
        )
        if id is None:
            missing = "Mcp-Session-Id: missing; initialize gives one, unless a request says its own version"
            raise Refused(refusal(400, f"{missing} ({given})" if given else missing))
        session = self.sessions.find(id, head.principal)
        if session is None:
            raise Refused(
                refusal(
                    404,
                    "Mcp-Session-Id: no such session, or it has ended; initialize a new one",
                )
            )
        session.principal = (
            head.principal
        )  # with the scopes of the token that came with this request
        if version is not None and version != session.revision.name.encode():
            raise Refused(
                refusal(
                    400, f"{given} is not what was agreed on, {session.revision.name}"
                )
            )
        return session


@lru_cache(1024)
def _mirrors(tool: ServerTool) -> tuple[Mirror, ...]:
    return tuple(mirrors(tool.listed.input_schema))
