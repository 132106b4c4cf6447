"""The console: a page for people, served on loopback to whoever has its token.

Each page that is open has a client of its own in this process. It is one response that does not end, of JSON by line,
with what the client is answered and asked, and every message on any transport; what the page wants comes by POST.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from importlib.resources import files
from ipaddress import ip_address
from itertools import count
from typing import NoReturn

import msgspec
import trio
from quart import abort, request
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioResponse as Response

from ..auth.principal import owner
from ..client.client import Client, talk, ungrouped
from ..client.errors import RemoteError, ServerGone
from ..protocol import jsonrpc
from ..protocol.types import Json
from ..server.app import Server
from ..server.conversation import Conversation, Sender
from ..server.serve_conversation import serve_conversation
from ..trace.format import NOT_THAT, parsed
from ..transports.http.feed import HEARTBEAT
from ..transports.http.hypercorn_host import open_listeners, serve_app
from ..transports.http.rules import bare, is_loopback
from ..transports.http.service import LAST_WORDS
from ..transports.memory import memory_pair
from .message_tap import MessageTap, Passed

MOST_PAGES, MOST_CALLS = 16, 100
# Messages that a page is told of at a time, and how much it is shown of each.
AT_ONCE, SHOWN = 200, 64 * 1024
CAPABILITIES: Json = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {},
}
DECLINED = {"code": -1, "message": "The user has declined"}
ASSETS = {
    "": "html",
    "page.css": "css",
    "page.js": "javascript",
    "forms.js": "javascript",
    "results.js": "javascript",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src data:; media-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refuse(status: int, why: str) -> NoReturn:
    """End a request that cannot be served; it is answered with this."""
    abort(Response(f"{why}\n", status, content_type="text/plain; charset=utf-8"))


class Wanted(msgspec.Struct):
    """What a page wants of its client: to send a request, to cancel one, or to answer a question."""

    page: str
    key: str = ""
    method: str = ""
    params: Json = {}
    result: Json | None = None


class Page:
    """One page that is open, and its client."""

    client: Client
    nursery: trio.Nursery

    def __init__(self, server: Server, watch: MessageTap) -> None:
        self.id = secrets.token_urlsafe(8)
        self.talk = watch.talk("console")
        self.scope = trio.CancelScope()
        self.calls: dict[str, trio.CancelScope] = {}
        self._questions: dict[
            str, trio.MemorySendChannel[Json | None]
        ] = {}  # what takes the answer to each
        self.told: list[Json] = []  # and not sent yet
        self._server, self._watch = server, watch
        self._seen = 0
        self._numbers = count(1)

    async def run(self, revision: str, task_status: trio.TaskStatus[None]) -> None:
        """Be a client, until the scope is cancelled. Raises RemoteError where the server does not let it in."""
        ours, theirs = memory_pair()
        with self.scope, ungrouped():
            async with trio.open_nursery() as self.nursery:
                serving = partial(
                    serve_conversation, transport="console", observer=self._observe
                )
                self.nursery.start_soon(serving, self._server, theirs, owner())
                async with talk(
                    ours, revision, capabilities=CAPABILITIES, answer=self._ask
                ) as self.client:
                    opened = {
                        "page": self.id,
                        "talk": self.talk.number,
                        "revision": self.client.revision,
                    }
                    self.tell({"opened": opened, "server": self.client.server})
                    task_status.started()
                    await trio.sleep_forever()

    def _observe(self, conversation: Conversation, sender: Sender, data: bytes) -> None:
        self._watch.note(self.talk, sender, data)

    def tell(self, what: Json) -> None:
        """Have the page told something."""
        self.told.append(what)
        self._watch.news.unpark_all()

    async def next(self) -> bytes:
        """What the page is to be told next, a line each; an empty one when nothing happens for long."""
        with trio.move_on_after(HEARTBEAT):
            while not (
                self.told or self.scope.cancel_called or self._seen < self._watch.latest
            ):
                await self._watch.news.park()
        self.client.heard.clear()  # the page sees it pass
        passed = self._watch.since(self._seen, AT_ONCE)
        lines, self.told = self.told, []
        if passed and passed[0].number > self._seen + 1:
            lines.append({"missed": passed[0].number - self._seen - 1})
        lines += [{"row": _shown(one)} for one in passed]
        self._seen = passed[-1].number if passed else self._seen
        return b"".join([jsonrpc.encode(line) + b"\n" for line in lines] or [b"\n"])

    def request(self, wanted: Wanted) -> None:
        """Have a request sent; the page is told what came of it."""
        if len(self.calls) + len(self.told) >= MOST_CALLS or wanted.key in self.calls:
            refuse(409, "Too many requests are under way, or one of them is this")
        self.calls[wanted.key] = trio.CancelScope()
        self.nursery.start_soon(self._request, wanted)

    def cancel(self, wanted: Wanted) -> None:
        """Cancel a request, where it has not ended."""
        if wanted.key in self.calls:
            self.calls[wanted.key].cancel()

    def answer(self, wanted: Wanted) -> None:
        """Answer a question, where it is asked still."""
        with suppress(KeyError, trio.WouldBlock):
            self._questions[wanted.key].send_nowait(wanted.result)

    async def _request(self, wanted: Wanted) -> None:
        done: Json = {"done": wanted.key, "cancelled": True}
        with self.calls[wanted.key]:
            try:
                result = await self.client.request(
                    wanted.method, wanted.params, meta={"progressToken": wanted.key}
                )
                done = {"done": wanted.key, "result": result}
            except RemoteError as error:
                done = {
                    "done": wanted.key,
                    "error": {
                        "code": error.code,
                        "message": error.message,
                        "data": error.data,
                    },
                }
            except ServerGone as gone:
                done = {"done": wanted.key, "error": {"message": str(gone)}}
        del self.calls[wanted.key]
        self.tell(done)

    async def _ask(self, method: str, params: Json) -> Json:
        """Put a question to the page. Raises RemoteError where nobody wants to answer it."""
        key = f"question-{next(self._numbers)}"
        self._questions[key], answers = trio.open_memory_channel[Json | None](1)
        self.tell({"asked": key, "method": method, "params": params})
        try:
            answer = await answers.receive()
        finally:
            del self._questions[key]
            self.tell({"settled": key})
        if answer is None:
            raise RemoteError(DECLINED)
        return answer


def _shown(passed: Passed) -> Json:
    talk, text = passed.talk, passed.data[:SHOWN].decode(errors="replace")
    row = {
        "talk": talk.number,
        "transport": talk.transport,
        "client": talk.client,
        "size": len(passed.data),
    }
    row |= {
        "number": passed.number,
        "at": passed.at,
        "from": passed.sender,
        "text": text,
    }
    if len(passed.data) > SHOWN and (
        parts := parsed(passed.data, dict[str, msgspec.Raw])
    ):
        row["head"] = {
            key: value if len(bytes(value)) < AT_ONCE else {}
            for key, value in parts.items()
        }
    return row


class Console:
    """The pages that are open, and the application that serves them. It works in `nursery`."""

    nursery: trio.Nursery

    def __init__(
        self, server: Server, watch: MessageTap, host: str = "127.0.0.1"
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self.pages: dict[str, Page] = {}
        self.app = QuartTrio(__name__, static_folder=None)
        self.app.config["MAX_CONTENT_LENGTH"] = jsonrpc.MAX_MESSAGE
        self._server, self._watch, self._host = server, watch, host
        self.app.before_request(self._check)
        self.app.after_request(self._protect)
        for name in ASSETS:
            self.app.add_url_rule(
                f"/{name}", name or "page", partial(_asset, name, self.token)
            )
        self.app.add_url_rule("/events", "events", self._events)
        self.app.add_url_rule("/trace", "trace", self._trace)
        for act in (Page.request, Page.cancel, Page.answer):
            self.app.add_url_rule(
                f"/{act.__name__}",
                act.__name__,
                partial(self._do, act),
                methods=["POST"],
            )

    # Who may come in

    async def _check(self) -> None:
        """Refuse whoever does not have the token, and pages of other sites (CVE-2025-49596, DNS rebinding)."""
        origin = request.headers.get("Origin")
        if not self._is_ours(bare(request.host)):
            refuse(421, f"Host {request.host[:100]!r} is not served here")
        if origin is not None and origin != f"http://{request.host}":
            refuse(403, f"Origin {origin[:100]!r} is not allowed")
        given = (
            request.authorization.token
            if request.authorization
            else request.args.get("token")
        )
        if not secrets.compare_digest((given or "").encode(), self.token.encode()):
            refuse(
                401,
                "The token is missing or wrong: open the address that was printed, the whole of it",
            )

    def _is_ours(self, name: str) -> bool:
        """Whether no foreign page can come under this name: where all addresses are served, any of them is ours."""
        if is_loopback(name) or name == self._host:
            return True
        with suppress(ValueError):
            return ip_address(self._host).is_unspecified and bool(ip_address(name))
        return False

    async def _protect(self, response: Response) -> Response:
        response.headers.update(HEADERS)
        return response

    # What a page gets

    async def _events(self) -> Response:
        """The life of a page."""
        if len(self.pages) >= MOST_PAGES:
            refuse(503, f"{MOST_PAGES} pages are open already")
        revision = (
            request.args.get("revision") or self._server.revisions.newest_opening.name
        )
        response = Response(self._live(revision), content_type="application/x-ndjson")
        response.timeout = None
        return response

    async def _live(self, revision: str) -> AsyncIterator[bytes]:
        page = Page(self._server, self._watch)
        self.pages[page.id] = page
        try:
            yield jsonrpc.encode({"revisions": self._server.revisions.names}) + b"\n"
            await self.nursery.start(page.run, revision)
            while not page.scope.cancel_called:
                yield await page.next()
            yield await page.next()  # its last words
        except (RemoteError, ServerGone) as problem:
            yield jsonrpc.encode({"refused": str(problem)}) + b"\n"
        finally:
            page.scope.cancel()
            del self.pages[page.id]

    async def _trace(self) -> Response:
        """A conversation as a file."""
        number = request.args.get("talk", type=int, default=0)
        info = self._server.info
        trace = self._watch.trace(
            number, f"A conversation with {info.name}", f"{info.name} {info.version}"
        )
        if trace is None:
            refuse(404, "Of this conversation nothing is kept")
        name = {
            "Content-Disposition": f'attachment; filename="conversation-{number}.jsonl"'
        }
        return Response(trace.dump(), content_type="application/jsonl", headers=name)

    async def _do(self, act: Callable[[Page, Wanted], None]) -> Response:
        """What a page wants."""
        try:
            wanted = msgspec.json.decode(await request.get_data(), type=Wanted)
        except NOT_THAT as problem:
            refuse(400, str(problem))
        if (page := self.pages.get(wanted.page)) is None or page.scope.cancel_called:
            refuse(404, "This page is not open any more")
        act(page, wanted)
        return Response(status=202)

    async def wind_up(self) -> None:
        """Let what runs finish, within the grace; then end every page, and wait a little for who reads on."""
        with trio.move_on_after(self._server.grace):
            while any(page.calls for page in self.pages.values()):  # noqa: ASYNC110 (once, at the end)
                await trio.sleep(0.02)
        for page in self.pages.values():
            page.scope.cancel()
        self._watch.news.unpark_all()
        with trio.move_on_after(LAST_WORDS):
            while self.pages:  # noqa: ASYNC110
                await trio.sleep(0.02)


async def _asset(name: str, token: str) -> Response:
    text = (
        (files(__package__) / "assets" / (name or "page.html"))
        .read_text("utf-8")
        .replace("{{token}}", token)
    )
    return Response(text, content_type=f"text/{ASSETS[name]}; charset=utf-8")


async def serve_console(
    server: Server,
    host: str,
    port: int,
    *,
    stopping: trio.Event,
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve the console until `stopping` is set and what runs has finished. What comes after it has begun is seen.

    Its address, with the token, goes to stderr.
    """
    listeners = await open_listeners(host, port)
    bound = listeners[0].getsockname()[1]
    tap = MessageTap()
    server.on_message = tap.observe
    console = Console(server, tap, host)
    serving = partial(
        serve_app,
        console.app,
        listeners,
        stopping=stopping,
        wind_up=console.wind_up,
    )
    try:
        async with trio.open_nursery() as console.nursery:
            await console.nursery.start(serving)
            name = f"[{host}]" if ":" in host else host
            url = f"http://{name}:{bound}/?token={console.token}"
            print(f"Console: {url}", file=sys.stderr, flush=True)
            if not is_loopback(host):
                print(
                    f"Console: others can come to {host} too, and with the token use this server",
                    file=sys.stderr,
                )
            task_status.started(url)
    finally:
        server.on_message = None
