"""The console's web application, for browsers that have its token.

A page consists of assets and of one endless response, which has a line of JSON for each
event. The page posts its commands.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from importlib.resources import files
from ipaddress import ip_address

import msgspec
import trio
from quart import request
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioResponse as Response

from ..client.errors import RemoteError, ServerGone
from ..protocol import jsonrpc
from ..server.app import Server
from ..trace.format import DECODE_ERRORS
from ..transports.address import bind
from ..transports.http.hypercorn_host import limit_unread_time, serve_app
from ..transports.http.rules import bare, is_loopback
from ..transports.http.service import FINAL_WRITE_TIME
from .message_tap import MessageTap
from .page import ConsolePage, PageCommand, refuse

MAX_PAGES = 16

# The files of a page, by their paths, and their subtypes of text.
ASSETS = {
    "": "html",
    "page.css": "css",
    "page.js": "javascript",
    "forms.js": "javascript",
    "results.js": "javascript",
    "tasks.js": "javascript",
}

PAGE = "page"
ASSET_ENDPOINTS = {name or PAGE for name in ASSETS}

# The commands that a page may post, by path.
COMMANDS: dict[str, Callable[[ConsolePage, PageCommand], None]] = {
    "request": ConsolePage.request,
    "cancel": ConsolePage.cancel,
    "answer": ConsolePage.answer,
}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src data:; media-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'; require-trusted-types-for 'script';"
        " trusted-types 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Console:
    """The application and its open pages, whose tasks run in `nursery`."""

    nursery: trio.Nursery

    def __init__(
        self, server: Server, tap: MessageTap, host: str = "127.0.0.1"
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self.pages: dict[str, ConsolePage] = {}
        self.app = QuartTrio(__name__, static_folder=None)
        self.app.config["MAX_CONTENT_LENGTH"] = jsonrpc.MAX_MESSAGE
        self._server = server
        self._tap = tap
        self._host = host
        self.app.before_request(self._check)
        self.app.after_request(self._protect)
        self._add_routes()

    def _add_routes(self) -> None:
        for name in ASSETS:
            asset = partial(_asset, name)
            self.app.add_url_rule(f"/{name}", name or PAGE, asset)
        self.app.add_url_rule("/events", "events", self._events)
        self.app.add_url_rule("/trace", "trace", self._trace)
        for name, command in COMMANDS.items():
            run = partial(self._run_command, command)
            self.app.add_url_rule(f"/{name}", name, run, methods=["POST"])

    # Access

    async def _check(self) -> None:
        """Refuse requests without the token, and those that other sites cause.

        The checks of Host and Origin protect against DNS rebinding (CVE-2025-49596).
        The assets contain no data and need no token: the page takes the token from the
        URL that was opened, removes it from the address bar, and sends it in a header.
        """
        if not self._is_own_name(bare(request.host)):
            refuse(
                421,
                f"Host {request.host[:100]!r} is not allowed: "
                "open the URL that was printed",
            )
        origin = request.headers.get("Origin")
        if origin is not None and origin != f"http://{request.host}":
            refuse(403, f"Origin {origin[:100]!r} is not allowed")
        if request.endpoint in ASSET_ENDPOINTS:
            return
        given = request.authorization.token if request.authorization else None
        if not secrets.compare_digest((given or "").encode(), self.token.encode()):
            refuse(
                401,
                "The token is missing or wrong: open the complete URL that was printed",
            )

    def _is_own_name(self, name: str) -> bool:
        """Return whether a host name cannot belong to another site.

        If the console listens on all addresses, every IP address is accepted.
        """
        if is_loopback(name) or name == self._host:
            return True
        with suppress(ValueError):
            ip_address(name)
            return ip_address(self._host).is_unspecified
        return False

    async def _protect(self, response: Response) -> Response:
        """Add the headers that protect a page from other sites."""
        response.headers.update(HEADERS)
        return response

    # Requests of a page

    async def _events(self) -> Response:
        """Open a page. The response lasts until the page is closed."""
        if len(self.pages) >= MAX_PAGES:
            refuse(503, f"{MAX_PAGES} pages are already open: close one")
        default = self._server.revisions.newest_opening.name
        revision = request.args.get("revision") or default
        response = Response(self._live(revision), content_type="application/x-ndjson")
        response.timeout = None
        return response

    async def _live(self, revision: str) -> AsyncIterator[bytes]:
        page = ConsolePage(self._server, self._tap)
        self.pages[page.id] = page
        try:
            yield jsonrpc.encode({"revisions": self._server.revisions.names}) + b"\n"
            await self.nursery.start(page.run, revision)
            while not page.scope.cancel_called:
                yield await page.next()
            # The last events, such as the result of a request.
            yield await page.next()
        except (RemoteError, ServerGone) as problem:
            yield jsonrpc.encode({"refused": str(problem)}) + b"\n"
        finally:
            page.scope.cancel()
            del self.pages[page.id]
            self._tap.wake_readers()

    async def _trace(self) -> Response:
        """Return a conversation as a file."""
        number = request.args.get("talk", type=int, default=0)
        info = self._server.info
        title = f"A conversation with {info.name}"
        trace = self._tap.trace(number, title, f"{info.name} {info.version}")
        if trace is None:
            refuse(404, "No messages of this conversation are kept any more")
        disposition = f'attachment; filename="conversation-{number}.jsonl"'
        return Response(
            trace.dump(),
            content_type="application/jsonl",
            headers={"Content-Disposition": disposition},
        )

    async def _run_command(
        self, run: Callable[[ConsolePage, PageCommand], None]
    ) -> Response:
        """Run a command that a page posted."""
        try:
            command = msgspec.json.decode(await request.get_data(), type=PageCommand)
        except DECODE_ERRORS as problem:
            refuse(400, str(problem))
        page = self.pages.get(command.page)
        if page is None or page.scope.cancel_called:
            refuse(404, "This page is not connected any more: reload it")
        run(page, command)
        return Response(status=202)

    # Shutting down

    async def shut_down(self) -> None:
        """Wait for the requests in progress, within the server's grace period.

        Then close every page, and wait a moment until their clients have read the end.
        """
        with trio.move_on_after(self._server.grace):
            while any(page.calls for page in self.pages.values()):
                await self._tap.wait()
        for page in self.pages.values():
            page.scope.cancel()
        self._tap.wake_readers()
        with trio.move_on_after(FINAL_WRITE_TIME):
            while self.pages:
                await self._tap.wait()


async def _asset(name: str) -> Response:
    file = files(__package__) / "assets" / (name or "page.html")
    text = file.read_text("utf-8")
    return Response(text, content_type=f"text/{ASSETS[name]}; charset=utf-8")


async def serve_console(
    server: Server,
    host: str,
    port: int,
    *,
    stopping: trio.Event,
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve the console until `stopping` is set and the requests in progress are done.

    It shows conversations that begin after it was started. Its URL, which includes the
    token, is printed to stderr and passed to `task_status`.
    """
    listeners = limit_unread_time(await bind(host, port))
    bound = listeners[0].getsockname()[1]
    tap = MessageTap()
    console = Console(server, tap, host)
    serving = partial(
        serve_app,
        console.app,
        listeners,
        stopping=stopping,
        shut_down=console.shut_down,
    )
    with tap.attached_to(server):
        async with trio.open_nursery() as nursery:
            console.nursery = nursery
            await nursery.start(serving)
            url = _url(host, bound, console.token)
            _announce(url, host)
            task_status.started(url)


def _url(host: str, port: int, token: str) -> str:
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}/?token={token}"


def _announce(url: str, host: str) -> None:
    print(f"Console: {url}", file=sys.stderr, flush=True)
    if not is_loopback(host):
        warning = (
            f"Console: other machines can reach {host} too, "
            "and anyone with the token can use this server"
        )
        print(warning, file=sys.stderr)
