"""What is served over HTTP, the same for every host: each request's way from its head to its response."""

from collections.abc import Sized
from functools import lru_cache
from typing import Any

import msgspec
import trio

from ...protocol.errors import HeaderMismatch, UnsupportedVersion
from ...protocol.revisions import Revision
from ...protocol.session import Answer, Batch, Call, Refusal
from ...server.app import Server
from ...server.dispatch import Conversation, Work
from ...server.offers import ServerTool
from . import endpoint
from .endpoint import Fields, Guard, Head, Refused, Reply, refusal
from .exchange import Exchange, Feed, LegacyFeed, post_legacy
from .metrics import Metrics
from .streams import NOWHERE, HttpSession, Sessions

# Seconds for what is still to be written when everything was cancelled.
LAST_WORDS = 0.5


class Service:
    """One server's HTTP side. A host hands `admit` a request's head, and `answer` the head and the body."""

    def __init__(self, server: Server, path: str = "/mcp", **guarding: Any) -> None:
        self.server = server
        self.guard = Guard(**guarding)
        self.metrics = Metrics()
        self.sessions = Sessions()
        self.running: set[Exchange] = set()
        self.legacy_feeds: dict[bytes, LegacyFeed] = {}
        self.stopping = False
        self._routes = endpoint.Routes(path)
        self._stateless = {name.encode(): revision for name, revision in server.revisions.stateless.items()}

    def admit(self, head: Head) -> Reply | None:
        """Look at a head before there is a body: the refusal, where it need not come."""
        route, reply = self._routes.find(head), None
        if route is None:
            reply = refusal(404, "Nothing is served under this path")
        elif route != endpoint.HEALTH:  # probes come by whatever name
            reply = self.guard.check(head)
        if reply is None and route is not None:
            head.route = route
            # Whether the sender has access at all is to be checked here, but not for OPTIONS.
            reply = endpoint.preflight(head) if head.method == b"OPTIONS" else endpoint.check_request(head)
        if reply is not None and reply.status >= 400:
            self.metrics.refused[reply.status] += 1
        return reply

    def answer(self, head: Head, body: bytes) -> Reply | Exchange | Feed:
        """Answer a request that was admitted. An exchange has begun, in this task, and waits."""
        try:
            if head.route == endpoint.MCP:
                return self._post(head, body) if head.method == b"POST" else self._get_or_delete(head)
            if head.route == endpoint.SSE:
                return LegacyFeed(self)
            if head.route == endpoint.MESSAGES:
                return post_legacy(self.legacy_feeds, head, body)
        except Refused as refused:
            self.metrics.refused[refused.reply.status] += 1
            return refused.reply
        text = self.metrics.render(len(self.sessions), len(self.running)) if head.route == endpoint.METRICS else b"ok\n"
        return Reply(200, text, endpoint.PLAIN)

    def extra(self, head: Head) -> Fields:
        """The headers that every response to this request has, whatever it is."""
        return self.guard.cors(head) if b"origin" in head.headers else ()

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

    def expire(self) -> None:
        """End the sessions that nobody uses. To be called now and then."""
        self.sessions.expire(trio.current_time())

    def open_session(self, session: HttpSession, revision: Revision, message: bytes) -> Reply:
        """Reply to initialize: only now, that nothing has gone wrong, there is a session."""
        if not self.sessions.open(session, revision, trio.current_time()):
            return refusal(503, "Too many sessions, and all of them busy")
        return Reply(200, message, (*endpoint.JSON, (b"Mcp-Session-Id", session.id)))

    # The MCP endpoint

    def _post(self, head: Head, body: bytes) -> Reply | Exchange:
        version = head.headers.get(endpoint.VERSION)
        stated = self._stateless.get(version) if version is not None else None
        if stated is not None:
            conversation = Conversation(self.server, NOWHERE, stated)
        else:
            conversation = self._session(head) if endpoint.SESSION in head.headers else HttpSession(self.server)
        event = conversation.session.receive(body)
        revision = stated or conversation.session.revision  # of what initialize has opened too
        if isinstance(event, Refusal):
            return self._refused(event, revision, version)
        if type(event) is Call and not event.revision.opens:
            self._check_headers(head, event)
        elif revision is None:
            self._session(head)  # says that there is none
        parts = event.events if isinstance(event, Batch) else [event]
        if isinstance(event, Work) and any(isinstance(part, Call | Refusal) for part in parts):
            exchange = Exchange(self, conversation, head.headers)
            return exchange.begin(event) or exchange
        if stated is not None and isinstance(event, Answer):
            raise Refused(refusal(400, "Responses are not taken here: this revision's server asks by its results"))
        for part in parts:
            conversation.note(part)
        return Reply(202)

    def _check_headers(self, head: Head, call: Call) -> None:
        """Refuse a stateless request that its headers do not fit."""
        try:
            endpoint.check_mirrored(call, head.headers)
            tool = self.server.tools.get(call.params.name) if call.method == "tools/call" else None
            if tool is not None and (wanted := _mirrors(tool)):
                endpoint.check_arguments(wanted, call, head.headers)
        except HeaderMismatch as error:
            raise Refused(endpoint.error_reply(call.id, error, call.revision)) from None
        if call.method == "subscriptions/listen" and not endpoint.accepts(head.headers)[1]:
            raise Refused(refusal(406, "Accept: text/event-stream is what a subscription answers with"))

    def _refused(self, event: Refusal, revision: Revision | None, version: bytes | None) -> Reply:
        """What is answered at once. A version that only the body or only the header has is a mismatch of the two."""
        error = event.error
        if isinstance(error, UnsupportedVersion) and version is not None and error.data is not None:
            requested = error.data["requested"]
            if requested.encode() != version:
                mismatch = HeaderMismatch(f"Header mismatch: MCP-Protocol-Version is not {requested!r}, as in the body")
                newest = next(reversed(self._stateless.values()))
                return endpoint.error_reply(msgspec.json.decode(event.data)["id"], mismatch, newest)
        return Reply(endpoint.status_of(error, revision), event.data, endpoint.JSON)

    def _get_or_delete(self, head: Head) -> Reply | Feed:
        """What only revisions with sessions have."""
        if head.headers.get(endpoint.VERSION) in self._stateless:
            raise Refused(endpoint.not_allowed(b"POST"))
        session = self._session(head)
        if head.method == b"GET":
            return Feed(self, *session.resumed(head.headers.get(endpoint.LAST_EVENT)))
        self.sessions.end(session)
        return Reply(204)

    def _session(self, head: Head) -> HttpSession:
        """The session that a request names, with the version that was agreed in it. Raises Refused."""
        id, version = head.headers.get(endpoint.SESSION), head.headers.get(endpoint.VERSION)
        given = f"MCP-Protocol-Version: {version.decode('latin-1')[:100]!r}" if version is not None else ""
        if id is None:
            missing = "Mcp-Session-Id: missing; initialize gives one, unless a request says its own version"
            raise Refused(refusal(400, f"{missing} ({given})" if given else missing))
        session = self.sessions.find(id, None, trio.current_time())
        if session is None:
            raise Refused(refusal(404, "Mcp-Session-Id: no such session, or it has ended; initialize a new one"))
        agreed = session.revision.name
        if version is not None and version != agreed.encode():
            raise Refused(refusal(400, f"{given} is not what was agreed on, {agreed}"))
        return session


@lru_cache(1024)
def _mirrors(tool: ServerTool) -> tuple[endpoint.Mirror, ...]:
    return tuple(endpoint.mirrors(tool.listed.input_schema))
