"""Server: what a user builds.

What makes tools, resources and prompts is imported with the first of them.
"""

import inspect
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import trio
from msgspec.structs import replace

from ..auth.access import Access, Verify
from ..protocol.errors import ResourceNotFound
from ..protocol.revisions import PROFILES, REVISIONS, Revisions
from ..protocol.session import Call
from ..protocol.types import Icon, Implementation, Json
from .conversation import MessageObserver
from .event_log import EventLog
from .limiter import Limiter
from .limits import Limits, must_be_seconds
from .registry import Pages, Registry, in_pages_of
from .request import Environment
from .subscriptions import Subscriptions
from .worker_threads import WorkerThreads

if TYPE_CHECKING:
    from .features.completion import Completer
    from .features.prompts import ServerPrompt
    from .features.resources import ServerResource
    from .features.tools import ServerTool

F = TypeVar("F", bound=Callable[..., Any])
# The note on what a lifespan has raised, other than what came from the program that it served.
LIFESPAN_FAILED = "raised by the server's lifespan"


class Server:
    """Tools, resources and prompts under one name, served to any number of clients.

    `pages` is how many items a list shows at a time (by default all), or a function that cuts it otherwise.
    `limits` are what it lets in; `timeout`, which they have too, holds for every function that has none of its own.
    `grace` is what running requests get to finish in when the server stops. `secret` seals what clients carry between
    two calls; processes that stand in for one another need the same one (also from MCP_TRIO_SECRET). `access` controls
    who may use it over HTTP and WebSocket: an `Access`, or just its async function from a token to a principal.
    """

    def __init__(
        self,
        name: str,
        version: str = "0.1.0",
        *,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        website_url: str | None = None,
        instructions: str | None = None,
        profile: str | None = None,
        pages: int | Pages | None = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        grace: float = 5.0,
        secret: str | bytes | None = None,
        access: Access | Verify | None = None,
    ) -> None:
        if not (name and isinstance(name, str)):
            raise TypeError(
                f"Server(name) wants a string, not {name!r}; tools go on with @server.tool"
            )
        for what, given, wanted in (
            ("instructions", instructions, str | None),
            ("secret", secret, str | bytes | None),
            ("limits", limits, Limits | None),
        ):
            if not isinstance(given, wanted):
                raise TypeError(
                    f"Server({what}) wants {wanted}, not {type(given).__name__}"
                )
        must_be_seconds(timeout, "Server(timeout)")
        must_be_seconds(grace, "Server(grace)", besides=0)
        self.info = Implementation(
            name, version, title, description, icons, website_url
        )
        self.instructions = instructions
        self.use_profile(profile)
        self.subscriptions = Subscriptions()
        changed = self.subscriptions.changed
        cut = pages if callable(pages) else in_pages_of(pages)
        self.tools: Registry[ServerTool] = Registry("tool", cut, changed)
        self.resources: Registry[ServerResource] = Registry("resource", cut, changed)
        self.templates: Registry[ServerResource] = Registry("resource", cut, changed)
        self.prompts: Registry[ServerPrompt] = Registry("prompt", cut, changed)
        self.completers: dict[
            str, dict[str, Completer]
        ] = {}  # by what they complete, and the argument
        # The names of the tools that waited when they were last called.
        self.tools_that_wait: set[str] = set()
        secret = secret or os.environ.get("MCP_TRIO_SECRET") or secrets.token_bytes(32)
        secret = secret.encode() if isinstance(secret, str) else secret
        limits = limits or Limits()
        limits = replace(limits, timeout=timeout or limits.timeout)
        self.environment = Environment(limits, secret)
        self.limiter = Limiter(limits)
        self.event_log = EventLog()
        self.grace = grace
        self._lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
        self.is_running = False
        # Called with every message of the conversations that begin from now on.
        self.on_message: MessageObserver | None = None
        self.access = access if isinstance(access, Access | None) else Access(access)

    def __repr__(self) -> str:
        return f"<Server {self.info.name!r}: {len(self.tools)} tools>"

    def use_profile(self, profile: str | None) -> None:
        """Speak the revisions of a profile; None: all, as they are. Conversations that have begun stay as they are."""
        if profile is not None and profile not in PROFILES:
            raise ValueError(
                f"profile {profile!r}: it is one of {', '.join(PROFILES)}, or none"
            )
        self.revisions = Revisions(
            self.info, self.instructions, PROFILES[profile] if profile else REVISIONS
        )

    def use_limits(self, limits: Limits) -> None:
        """Hold everybody to these limits from now on; what was used up of others is forgotten."""
        self.environment.limits = limits
        self.limiter = Limiter(limits)

    @overload
    def tool(self, function: F, /, **options: Any) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool, at any time; clients hear of it.

        Options: name, title, description, annotations, icons, input_schema, output_schema, meta; what is not given is
        read from the function. Besides what `Limits` has for all: timeout, rate, max_in_flight, max_result. For those
        who lack one of the `scopes` there is no such tool.
        """
        if function is None:
            return partial(self.tool, **options)
        from .features.tools import ServerTool

        self.tools.add(ServerTool(function, **options))
        return function

    add_tool = tool

    def remove_tool(self, name: str) -> None:
        """Take a tool away, at any time; clients hear of it."""
        self.tools.remove(name)
        self.tools_that_wait.discard(name)

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function as what a URI reads as; `{name}` in the URI is the function's argument.

        Options: name, title, description, mime_type, size, icons, annotations, meta.
        """
        if not isinstance(uri, str):
            raise TypeError(
                f"server.resource wants a URI first, as in @server.resource('notes://{{id}}'), not {uri!r}"
            )
        return lambda function: self.add_resource(uri, function, **options)

    def add_resource(self, uri: str, function: F, **options: Any) -> F:
        """Register a resource, at any time; clients hear of it. Options as for `resource`."""
        from .features.resources import ServerResource

        resource = ServerResource(uri, function, **options)
        (self.templates if resource.template.names else self.resources).add(resource)
        return function

    def remove_resource(self, uri: str) -> None:
        """Take a resource away, at any time; clients hear of it."""
        (self.templates if uri in self.templates else self.resources).remove(uri)
        self.completers.pop(uri, None)

    def resource_updated(self, uri: str) -> None:
        """Say that a resource's contents have changed; who subscribed to it hears of it."""
        self.subscriptions.changed("resources", uri)

    @overload
    def prompt(self, function: F, /, **options: Any) -> F: ...
    @overload
    def prompt(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt, at any time; clients hear of it.

        Options: name, title, description, icons, meta.
        """
        if function is None:
            return partial(self.prompt, **options)
        from .features.prompts import ServerPrompt

        self.prompts.add(ServerPrompt(function, **options))
        return function

    add_prompt = prompt

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away, at any time; clients hear of it."""
        self.prompts.remove(name)
        self.completers.pop(name, None)

    def complete(self, of: str, argument: str) -> Callable[[F], F]:
        """Register what completes an argument of a prompt, or a variable of a resource's URI.

        The function gets the value so far, and if it takes a second parameter, the other arguments by name.
        """

        def register(function: F) -> F:
            from .features.completion import Completer

            completed = self.prompts.get(of) or self.templates.get(of)
            if completed is None:
                raise ValueError(
                    f"server.complete({of!r}): there is no such prompt or resource template; add it first"
                )
            if argument not in completed.properties:
                raise ValueError(
                    f"server.complete({of!r}, {argument!r}): it has {[*completed.properties] or 'none'}"
                )
            if argument in self.completers.get(of, ()):
                raise ValueError(
                    f"server.complete({of!r}, {argument!r}): this argument has a completer already"
                )
            self.completers.setdefault(of, {})[argument] = Completer(function, argument)
            return function

        return register

    def lifespan(self, function: F) -> F:
        """Register an async generator function: entered once a process, its value is `ctx.lifespan`."""
        if not inspect.isasyncgenfunction(inspect.unwrap(function)):
            raise TypeError(
                f"@server.lifespan goes on an async function that yields once, not on {function!r}"
            )
        if self._lifespan is not nullcontext:
            raise ValueError("this server has a lifespan already")
        enter = (
            asynccontextmanager(function)
            if inspect.isasyncgenfunction(function)
            else function
        )
        self._lifespan = partial(
            enter, *[self] * len(inspect.signature(function).parameters)
        )
        return function

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this is entered the server can be talked to; the lifespan lasts as long.

        Entered again meanwhile it does nothing more: whoever entered it first has to stay longest.
        """
        if self.is_running:
            yield
            return
        self.is_running = True
        try:
            async with self._lifespan() as self.environment.lifespan_value:
                self.subscriptions.token = trio.lowlevel.current_trio_token()
                threads = WorkerThreads(self.limits.max_in_flight)
                self.environment.worker_threads = threads
                yield
                self.subscriptions.token = None
        except Exception as error:
            if (
                self.subscriptions.token is None
            ):  # else it comes from the program that is served
                error.add_note(LIFESPAN_FAILED)
            raise
        finally:
            self.subscriptions.token = None
            self.environment.lifespan_value = None
            self.is_running = False

    @property
    def limits(self) -> Limits:
        """What the server lets in."""
        return self.environment.limits

    def note_that_it_waits(self, call: Call) -> None:
        """Remember that this call of a tool has waited."""
        if call.method == "tools/call":
            self.tools_that_wait.add(call.params.name)

    def note_that_it_did_not_wait(self, call: Call) -> None:
        """Remember that this call of a tool has not waited."""
        if call.method == "tools/call":
            self.tools_that_wait.discard(call.params.name)

    def features(self) -> dict[str, Json]:
        """The capabilities, as the newest revision names them."""
        features: dict[str, Json] = {"tools": {"listChanged": True}, "logging": {}}
        if self.resources or self.templates:
            features["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            features["prompts"] = {"listChanged": True}
        if self.completers:
            features["completions"] = {}
        return features

    def find_resource(self, uri: str) -> "ServerResource":
        """What reads a URI: the resource of that name, else the first template that it matches."""
        matching = (
            template
            for template in list(self.templates.values())
            if template.template.match(uri) is not None
        )
        if (found := self.resources.get(uri) or next(matching, None)) is None:
            raise ResourceNotFound(uri)
        return found
