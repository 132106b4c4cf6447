"""The public Server, and serving it: transports, signals and graceful shutdown."""

import gc
import signal
import threading
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, Literal, get_args

import trio
from msgspec import Struct

from .auth.principal import owner
from .server import app
from .server.context import StateT
from .server.serve_conversation import serve_conversation
from .server.shared_limiter import SharedLimiter
from .server.trio_loop import check_runs_on_trio
from .transports.address import parse_address
from .transports.http.settings import HttpSettings
from .transports.send_queue import call_when_set

if TYPE_CHECKING:
    from .extensions.apps import Csp, Permission
    from .server.extension_points import ServerExtension
    from .stores.base import Store
    from .stores.peers import Peers
    from .transports.http.asgi import Application
    from .transports.stdio import StdioWire

HttpEngine = Literal["native", "hypercorn"]

# The thresholds of Python's garbage collector. Ten thousand waiting requests are half a
# million objects that cannot be freed. With the default thresholds, the collector scans
# them so often that it takes half of the time of such a request.
GC_THRESHOLD = (3_000, 10, 50)


class Server(app.Server[StateT]):
    """A server with tools, resources and prompts, for any number of clients.

    In `Server[State]`, `State` is the type of the value that the lifespan yields.

    Args:
        name: The server's name. It is signed into the state that clients carry, so
            processes that serve the same clients need the same name.
        version: The server's version.
        title: Its name for people.
        description: What it is for.
        icons: Its icons.
        website_url: Its website.
        instructions: How to use the server, for the model.
        profile: "pocket" serves small agents that expect every field to be present.
        pages: The number of items on one page of a list, or a function that divides
            lists into pages. By default, each list is one page. Many clients read only
            the first page.
        timeout: How many seconds a function may take, unless it has its own timeout.
        limits: The rate of requests, how many run at once, the size of results, and
            more.
        grace: How many seconds running requests have to finish when the server stops.
        secret: Signs the state that clients carry between two calls. Processes that
            serve the same clients need the same secret, given here or as
            MCP_TRIO_SECRET.
        access: Controls who may use the server over HTTP and WebSocket: an `Access`, or
            only its async function from a token to a principal.
        lifespan: An async generator function that yields once: see `Server.lifespan`.
        telemetry: Report requests to OpenTelemetry. Needs the extra `otel`.
        extensions: Extensions of the protocol: see `mcp_trio.extensions`.
    """

    # None if the server's state does not outlive its process.
    _store: "Store | None" = None
    _peers: "Peers | None" = None

    def use_tasks(self) -> None:
        """Declare the tasks extension, with its defaults."""
        from .extensions.tasks import Tasks

        self.add_extension(Tasks())

    def add_extension(self, extension: "ServerExtension") -> None:
        """Declare an extension of the protocol, before the server runs.

        Raises ValueError if one of its names belongs to another extension.

        Args:
            extension: The extension, which belongs to this server from now on.
        """
        super().add_extension(extension)
        if self._store is not None and self.extensions is not None:
            self.extensions.use_store(self._store)

    def use_store(self, store: "str | Store") -> None:
        """Share sessions, tasks and more with the other processes that use this store.

        Call this before the server runs. Raises ValueError for an invalid URL.

        Args:
            store: A URL: `redis://HOST:PORT/DB`, `rediss://` for TLS, or `memory:`, the
                memory of this process, which is the default. Redis needs the extra
                `redis`.
        """
        from .stores.store_url import create_store

        if self.is_running:
            raise RuntimeError(
                "server.use_store(): the server is already running; call it before"
            )
        self._store = create_store(store) if isinstance(store, str) else store
        self.shared_state = None
        self.peers = self._peers = None
        if self._store.is_shared:
            from .stores.peers import Peers

            self.shared_state = self._store
            self.peers = self._peers = Peers(self._store, self.info.name)
        if self.extensions is not None:
            self.extensions.use_store(self._store)

    def use_apps(self) -> None:
        """Declare the apps extension, unless it is already declared."""
        from .extensions.apps import Apps

        if Apps.identifier not in (self.extensions or ()):
            self.add_extension(Apps())

    def use_skills(self) -> None:
        """Declare the skills extension, unless it is already declared."""
        declare_skills(self)

    def ui(
        self,
        uri: str,
        /,
        html: str | Path | Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        csp: "Csp | None" = None,
        permissions: "Iterable[Permission]" = (),
        domain: str | None = None,
        prefers_border: bool | None = None,
    ) -> None:
        """Add a page that hosts show instead of the text of a tool's result.

        Args:
            uri: The URI of the page, such as "ui://clock/main", for
                `@server.tool(ui=...)`.
            html: The document, the file that contains it, or a function that returns
                it.
            name: The page's name in lists of resources; by default, from the URI.
            title: Its name for people.
            description: What it shows.
            csp: The other origins that the page may use. Hosts block all others.
            permissions: What the page asks the browser for: "camera", "microphone",
                "geolocation" or "clipboardWrite".
            domain: The origin that the page asks for, in the form that the host
                documents.
            prefers_border: Whether the host draws a border around the page.
        """
        from .extensions.apps import add_page

        self.use_apps()
        add_page(
            self,
            uri,
            html,
            name=name,
            title=title,
            description=description,
            csp=csp,
            permissions=permissions,
            domain=domain,
            prefers_border=prefers_border,
        )

    def skills(self, folder: str | Path) -> None:
        """Serve the skills in a folder and its subfolders.

        The files are read now. Raises ValueError, with the file and the line, if one of
        them cannot be served. Needs the extra `skills`.

        Args:
            folder: The folder.
        """
        add_skills(self, folder)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the lifespan, and accept conversations inside this block.

        Entering it again while the server runs does nothing. The first to enter must
        exit last.
        """
        check_runs_on_trio("Server.running")
        async with AsyncExitStack() as stack:
            if not self.is_running:
                await self._start_to_run(stack)
            await stack.enter_async_context(super().running())
            yield

    async def _start_to_run(self, stack: AsyncExitStack) -> None:
        """Enter the contexts that the server needs while it runs."""
        if self._store is not None:
            await stack.enter_async_context(self._store.running())
        if self.shared_state is not None:
            self.shared_limiter = SharedLimiter(
                self.limiter, self.shared_state, self.info.name
            )
        if self._peers is not None:
            self._peers.relay_changes_for(self.subscriptions)
            await stack.enter_async_context(self._peers.running())
        if self.telemetry:
            from .telemetry import observing  # loads opentelemetry

            stack.enter_context(observing(self))

    async def serve(
        self,
        *,
        stdio: bool | tuple[int, int] = False,
        http: str | int | None = None,
        ws: str | int | None = None,
        console: str | int | None = None,
        http_engine: HttpEngine = "native",
        path: str = "/mcp",
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        cors: bool = False,
        stateless: bool = False,
        tls: tuple[str, str] | None = None,
        public_url: str | None = None,
        trusted_proxies: Iterable[str] = (),
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve on one or more transports, until the input ends or a signal arrives.

        Started with `nursery.start`, this returns the URLs once all are served. `http`,
        `ws` and `console` are addresses: `HOST:PORT`, or only a port, which other
        machines cannot reach. The options from `http_engine` on are for `http` and
        `ws`.

        Args:
            stdio: Serve on standard input and output, or on the two file descriptors
                that are given instead. When the input ends, the server stops.
            http: Serve HTTP, and WebSocket, on this address.
            ws: Serve only WebSocket on this address.
            console: Serve a page on this address that shows every message. Its URL is
                printed to stderr.
            http_engine: "native", or "hypercorn", which supports HTTP/2.
            path: The path of the endpoint.
            allowed_hosts: Values of the Host header to accept, in addition to those of
                this machine.
            allowed_origins: Values of the Origin header to accept, in addition to those
                of this machine.
            cors: Accept every origin, for development.
            stateless: Serve HTTP without sessions, so that every process can serve
                every request.
            tls: The file of a certificate, and the file of its key.
            public_url: The URL of the endpoint for clients, if a proxy is in front of
                it. Its host is accepted, and clients request tokens for this URL.
            trusted_proxies: The networks of proxies, such as 10.0.0.0/8, whose
                X-Forwarded-For header is trusted. Without them, all clients of a proxy
                share its address.
            task_status: Used by `nursery.start`.
        """
        await serve(
            self,
            stdio=stdio,
            http=http,
            ws=ws,
            console=console,
            http_engine=http_engine,
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            cors=cors,
            stateless=stateless,
            tls=tls,
            public_url=public_url,
            trusted_proxies=trusted_proxies,
            task_status=task_status,
        )

    def asgi(
        self,
        path: str = "/mcp",
        *,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        cors: bool = False,
        public_url: str | None = None,
        trusted_proxies: Iterable[str] = (),
        stateless: bool = False,
    ) -> "Application":
        """Return an ASGI 3 application that serves the same as `serve` over HTTP.

        The application that mounts it must enter `server.running()` in its own
        lifespan.

        Args:
            path: The path of the endpoint, as clients see it.
            allowed_hosts: As for `serve`.
            allowed_origins: As for `serve`.
            cors: As for `serve`.
            public_url: As for `serve`.
            trusted_proxies: As for `serve`.
            stateless: As for `serve`.
        """
        from .transports.http.asgi import Application

        settings = HttpSettings(
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            cors=cors,
            public_url=public_url,
            trusted_proxies=trusted_proxies,
            stateless=stateless,
        )
        return Application(self, settings)

    def run(self) -> None:
        """Start trio, and serve on standard input and output."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        if trio.lowlevel.in_trio_run() or not in_main_thread:
            raise RuntimeError(
                "Server.run() starts trio in the main thread, to handle signals. If "
                "trio is already running, use: await server.serve(stdio=True)"
            )
        trio.run(partial(self.serve, stdio=True))


def add_skills(server: app.Server[Any], folder: str | Path) -> None:
    """Serve the skills in a folder: see `Server.skills`."""
    try:
        from .extensions.skills import add_folder
    except ModuleNotFoundError as error:
        if error.name != "yaml":
            raise
        raise ImportError("skills need: pip install 'mcp_trio[skills]'") from None

    add_folder(server, Path(folder))
    declare_skills(server)


def declare_skills(server: app.Server[Any]) -> None:
    """Declare the skills extension, unless it is already declared."""
    from .extensions.skills import IDENTIFIER, Skills, add_skill_files

    add_skill_files(server)
    if IDENTIFIER not in (server.extensions or ()):
        server.add_extension(Skills())


class _Options(Struct):
    """The options of `serve`."""

    stdio: bool | tuple[int, int]
    http: str | int | None
    ws: str | int | None
    console: str | int | None
    http_engine: HttpEngine
    settings: HttpSettings


class Supervision(Struct):
    """What a worker process gets from its parent.

    `listeners` are the listening sockets for "http" and "ws". Setting `stop` stops the
    server gracefully, and setting `stop_at_once` stops it immediately. `busy_wait` says
    whether the server may poll for a moment before it sleeps.
    """

    listeners: Mapping[str, Sequence[socket]]
    stop: trio.Event
    stop_at_once: trio.Event
    busy_wait: bool


async def serve(
    server: app.Server[Any],
    *,
    stdio: bool | tuple[int, int] = False,
    http: str | int | None = None,
    ws: str | int | None = None,
    console: str | int | None = None,
    http_engine: HttpEngine = "native",
    path: str = "/mcp",
    allowed_hosts: Iterable[str] = (),
    allowed_origins: Iterable[str] = (),
    cors: bool = False,
    stateless: bool = False,
    tls: tuple[str, str] | None = None,
    public_url: str | None = None,
    trusted_proxies: Iterable[str] = (),
    supervision: Supervision | None = None,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a server, with the options of `Server.serve`.

    `supervision` is only given in a worker process.
    """
    check_runs_on_trio("Server.serve")
    if not stdio and http is None and ws is None and console is None:
        raise ValueError(
            "nothing to serve on: expected stdio=True or an address, such as "
            "http='127.0.0.1:8000'"
        )
    _check_addresses(http=http, ws=ws, console=console)
    if http_engine not in get_args(HttpEngine):
        raise ValueError(
            f"http_engine: expected 'native' or 'hypercorn', got {http_engine!r}"
        )
    settings = HttpSettings(
        path=path,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        cors=cors,
        stateless=stateless,
        tls=tls,
        public_url=public_url,
        trusted_proxies=trusted_proxies,
    )
    options = _Options(stdio, http, ws, console, http_engine, settings)
    await _run_until_stopped(
        server,
        partial(_run_transports, server, options, supervision),
        task_status,
        supervision,
    )


def _check_addresses(**addresses: str | int | None) -> None:
    """Check the addresses to listen on. Raises ValueError."""
    for option, address in addresses.items():
        try:
            if address is not None:
                parse_address(address)
        except ValueError as error:
            raise ValueError(f"{option}: {error}") from None


async def run_tasks(
    server: app.Server[Any],
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the tasks in a server's store until a signal arrives. Serve no requests."""
    check_runs_on_trio("run_tasks")

    async def wait(
        stopping: trio.Event, task_status: trio.TaskStatus[list[str]]
    ) -> None:
        task_status.started([])
        await stopping.wait()

    await _run_until_stopped(server, wait, task_status)


async def _run_until_stopped(
    server: app.Server[Any],
    run: Callable[[trio.Event, trio.TaskStatus[list[str]]], Awaitable[None]],
    task_status: trio.TaskStatus[list[str]],
    supervision: Supervision | None = None,
) -> None:
    """Run a server until a signal arrives or `run` returns.

    `run` takes an event that is set when it must return.
    """
    gc.set_threshold(*GC_THRESHOLD)
    serving = trio.Event()
    stopping = trio.Event()
    receiver = trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
    with receiver as signals, _without_interrupts(server):
        async with trio.open_nursery() as nursery:
            everything = nursery.cancel_scope
            nursery.start_soon(
                _stop_on_signal, server, signals, serving, stopping, everything
            )
            if supervision is not None:
                nursery.start_soon(
                    _stop_with_parent, server, supervision, stopping, everything
                )
            async with server.running():
                serving.set()
                await run(stopping, task_status)
                # The lifespan has this time to exit.
                everything.deadline = trio.current_time() + server.grace
            everything.cancel()
        if not serving.is_set():
            # A signal arrived before, so this is a normal exit, not a failure to start.
            task_status.started([])


@contextmanager
def _without_interrupts(server: app.Server[Any]) -> Iterator[None]:
    """Treat a KeyboardInterrupt as a failure of the tool: Ctrl-C is a signal here."""
    before = server.stops
    server.stops = (trio.Cancelled,)
    try:
        yield
    finally:
        server.stops = before


async def _stop_on_signal(
    server: app.Server[Any],
    signals: AsyncIterator[int],
    serving: trio.Event,
    stopping: trio.Event,
    everything: trio.CancelScope,
) -> None:
    """Stop gracefully on the first signal, and immediately on the second.

    A signal that arrives before the server is ready also stops it immediately. After
    that, Ctrl-C has its default action, which ends the process even if a tool or a
    lifespan cannot be cancelled.

    A repeated SIGTERM counts as one. If a client sends it to the process group, the
    server gets it twice when its parent, such as `uv run`, forwards it.
    """
    received = set[int]()
    async with trio.open_nursery() as nursery:
        async for number in signals:
            if number == signal.SIGTERM and number in received:
                continue
            if received or not serving.is_set():
                everything.cancel()
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            received.add(number)
            nursery.start_soon(_settle, server, stopping)


async def _stop_with_parent(
    server: app.Server[Any],
    supervision: Supervision,
    stopping: trio.Event,
    everything: trio.CancelScope,
) -> None:
    """Stop a worker process, gracefully or immediately, on its parent's command."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call_when_set, supervision.stop_at_once, everything.cancel)
        await supervision.stop.wait()
        await _settle(server, stopping)


async def _settle(server: app.Server[Any], stopping: trio.Event) -> None:
    """Let background work finish while clients can still poll it, then stop."""
    if server.extensions is not None:
        await server.extensions.settle(server.grace)
    stopping.set()


async def _run_transports(
    server: app.Server[Any],
    options: _Options,
    supervision: Supervision | None,
    stopping: trio.Event,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Run every transport until `stopping` is set and its requests have finished."""
    inherited = {} if supervision is None else supervision.listeners
    async with trio.open_nursery() as nursery:
        listeners = _Listeners(
            server,
            options.settings,
            stopping,
            nursery,
            inherited,
            busy_wait=supervision is None or supervision.busy_wait,
        )
        if options.console is not None:
            # First, because it only shows conversations that begin after it.
            await listeners.start_console(options.console)
        if options.http is not None:
            await listeners.start_http(options.http, options.http_engine)
        if options.ws is not None:
            await listeners.start_websocket(options.ws)
        task_status.started(listeners.urls)
        if options.stdio:
            await _serve_stdio(server, options.stdio, stopping)
            stopping.set()


class _Listeners:
    """Starts the transports that listen on a port, in a nursery."""

    def __init__(
        self,
        server: app.Server[Any],
        settings: HttpSettings,
        stopping: trio.Event,
        nursery: trio.Nursery,
        inherited: Mapping[str, Sequence[socket]],
        *,
        busy_wait: bool,
    ) -> None:
        self.urls: list[str] = []  # the endpoints
        self._server = server
        self._settings = settings
        self._stopping = stopping
        self._nursery = nursery
        # Transport -> listening sockets that the parent has opened.
        self._inherited = inherited
        self._busy_wait = busy_wait

    async def start_console(self, address: str | int) -> None:
        """Serve the web page for trying the server."""
        from .console.app import serve_console  # loads quart

        host, port = parse_address(address)
        start = partial(
            serve_console, self._server, host, port, stopping=self._stopping
        )
        await self._nursery.start(start)

    async def start_http(self, address: str | int, engine: HttpEngine) -> None:
        """Serve HTTP. The native engine also serves WebSocket."""
        if engine == "hypercorn":
            from .transports.http.hypercorn_host import serve_hypercorn

            await self._start("http", address, serve_hypercorn)
        else:
            await self._start("http", address, self._native(upgrades_only=False))

    async def start_websocket(self, address: str | int) -> None:
        """Serve WebSocket only."""
        await self._start("ws", address, self._native(upgrades_only=True))

    def _native(self, *, upgrades_only: bool) -> Callable[..., Awaitable[None]]:
        from .transports.http.server import serve_http  # loads httptools
        from .transports.websocket import serve_websocket  # loads wsproto

        upgrade = partial(serve_websocket, self._server, stopping=self._stopping)
        return partial(
            serve_http,
            upgrade=upgrade,
            upgrades_only=upgrades_only,
            busy_wait=self._busy_wait,
        )

    async def _start(
        self, scheme: str, address: str | int, run: Callable[..., Awaitable[None]]
    ) -> None:
        host, port = parse_address(address)
        start = partial(
            run,
            self._server,
            host,
            port,
            stopping=self._stopping,
            settings=self._settings,
            listeners=self._inherited.get(scheme, ()),
        )
        for bound in await self._nursery.start(start):
            self.urls.append(_url(scheme, bound, self._settings))


async def _serve_stdio(
    server: app.Server[Any], stdio: bool | tuple[int, int], stopping: trio.Event
) -> None:
    """Serve one conversation on standard input and output, until its input ends."""
    from .transports.stdio import claim, open_wire

    claimed = nullcontext(stdio) if isinstance(stdio, tuple) else claim()
    with claimed as descriptors, trio.CancelScope() as everything:
        async with open_wire(*descriptors) as wire, trio.open_nursery() as nursery:
            nursery.start_soon(_stop_stdio, wire, stopping, everything)
            nursery.start_soon(wire.cancel_after_input, everything, server.grace)
            await serve_conversation(server, wire, owner(), transport="stdio")
            nursery.cancel_scope.cancel()


async def _stop_stdio(
    wire: "StdioWire", stopping: trio.Event, everything: trio.CancelScope
) -> None:
    """Stop on a signal: as at the end of the input, or immediately if it has ended.

    A client that closes the input and then sends SIGTERM does not wait for replies. It
    sends SIGKILL next, so the tools and the lifespan must exit before that.
    """
    await stopping.wait()
    if wire.input_ended.is_set():
        everything.cancel()
    else:
        wire.end_input()


def _url(scheme: str, address: tuple[str, int], settings: HttpSettings) -> str:
    """Return the endpoint's URL, given the address that a socket is bound to."""
    host, port = address
    if ":" in host:
        host = f"[{host}]"
    if settings.tls is not None:
        scheme += "s"
    return f"{scheme}://{host}:{port}/{settings.path.strip('/')}"
