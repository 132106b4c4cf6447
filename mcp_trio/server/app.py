"""Server: what a user builds.

What makes tools, resources and prompts is imported with the first of its kind: a server pays for what it has.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

import trio

from ..protocol.errors import ResourceNotFound
from ..protocol.model import Icon, Implementation, Json
from ..protocol.params import Filter
from ..protocol.revisions import PROFILES, REVISIONS, Revisions
from .registry import Pages, Registry, in_pages_of
from .seal import Seal
from .subscriptions import Subscriptions

if TYPE_CHECKING:
    from .prompts import Completer, ServerPrompt
    from .resources import ServerResource
    from .tools import ServerTool

F = TypeVar("F", bound=Callable[..., Any])
THREADS = 64


class Server:
    """Tools, resources and prompts under one name, served to any number of clients.

    `pages` is how many items a list shows at a time (by default all), or a function that cuts it otherwise.
    `timeout` holds for every tool that has none of its own. `grace` is what running requests get to finish in when
    the server stops. `secret` seals what clients carry between two calls; processes that stand in for one another
    need the same one (also from MCP_TRIO_SECRET).
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
        grace: float = 5.0,
        secret: str | bytes | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"Server(name) wants a string, not {name!r}; tools go on with @server.tool")
        must_be_seconds(timeout, "Server(timeout)")
        must_be_seconds(grace or None, "Server(grace)")
        self.info = Implementation(name, version, title, description, icons, website_url)
        self.instructions = instructions
        self.use_profile(profile)
        self.subscriptions = Subscriptions()
        cut = pages if callable(pages) else in_pages_of(pages)
        self.tools: Registry[ServerTool] = Registry("tool", cut, self._teller("tools"))
        self.resources: Registry[ServerResource] = Registry("resource", cut, self._teller("resources"))
        self.templates: Registry[ServerResource] = Registry("resource", cut, self._teller("resources"))
        self.prompts: Registry[ServerPrompt] = Registry("prompt", cut, self._teller("prompts"))
        self.completers: dict[tuple[str, str], Completer] = {}
        self.threads = trio.CapacityLimiter(THREADS)
        self.timeout = timeout
        self.grace = grace
        self.lifespan_value: Any = None
        self._lifespan: Callable[..., Any] | None = None
        self._running = False
        self.seal = Seal(_as_bytes(secret or os.environ.get("MCP_TRIO_SECRET") or secrets.token_bytes(32)))

    def __repr__(self) -> str:
        return f"<Server {self.info.name!r}: {len(self.tools)} tools>"

    def use_profile(self, profile: str | None) -> None:
        """Speak the revisions of a profile; None: all, as they are. Conversations that have begun stay as they are."""
        if profile is not None and profile not in PROFILES:
            raise ValueError(f"profile {profile!r}: it is one of {', '.join(PROFILES)}, or none")
        self.revisions = Revisions(self.info, self.instructions, PROFILES[profile] if profile else REVISIONS)

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool. Options: name, title, description, annotations, icons, input_schema,
        output_schema, timeout, meta; what is not given is read from the function."""
        if function is not None:
            return self.add_tool(function, **options)
        return lambda wrapped: self.add_tool(wrapped, **options)

    def add_tool(self, function: F, **options: Any) -> F:
        """Register a tool, at any time; clients hear of it. Options as for `tool`."""
        from .tools import ServerTool

        must_be_function(function, "server.tool")
        must_be_seconds(options.get("timeout"), "server.tool(timeout)")
        tool = ServerTool(function, **options)
        self.tools.add(tool.listed.name, tool)
        return function

    def remove_tool(self, name: str) -> None:
        """Take a tool away, at any time; clients hear of it."""
        self.tools.remove(name)

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function as what a URI reads as; `{name}` in the URI is the function's argument.

        Options: name, title, description, mime_type, size, icons, annotations, meta.
        """
        if not isinstance(uri, str):
            raise TypeError(f"server.resource wants a URI first, as in @server.resource('notes://{{id}}'), not {uri!r}")
        return lambda function: self.add_resource(uri, function, **options)

    def add_resource(self, uri: str, function: F, **options: Any) -> F:
        """Register a resource, at any time; clients hear of it. Options as for `resource`."""
        from .resources import ServerResource

        must_be_function(function, "server.resource")
        resource = ServerResource(uri, function, **options)
        registry = self.templates if resource.template.names else self.resources
        registry.add(uri, resource)
        return function

    def remove_resource(self, uri: str) -> None:
        """Take a resource away, at any time; clients hear of it."""
        (self.templates if uri in self.templates else self.resources).remove(uri)

    def resource_updated(self, uri: str) -> None:
        """Say that a resource's contents have changed; who subscribed to it hears of it."""
        self.subscriptions.resource_updated(uri)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a prompt. Options: name, title, description, icons, meta."""
        if function is not None:
            return self.add_prompt(function, **options)
        return lambda wrapped: self.add_prompt(wrapped, **options)

    def add_prompt(self, function: F, **options: Any) -> F:
        """Register a prompt, at any time; clients hear of it. Options as for `prompt`."""
        from .prompts import ServerPrompt

        must_be_function(function, "server.prompt")
        prompt = ServerPrompt(function, **options)
        self.prompts.add(prompt.listed.name, prompt)
        return function

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away, at any time; clients hear of it."""
        self.prompts.remove(name)

    def complete(self, of: str, argument: str) -> Callable[[F], F]:
        """Register what completes an argument of a prompt, or a variable of a resource's URI.

        The function gets the value so far, and if it takes a second parameter, the other arguments by name.
        """

        def register(function: F) -> F:
            from .prompts import Completer

            must_be_function(function, "server.complete")
            if (known := self._arguments_of(of)) is None:
                raise ValueError(f"server.complete({of!r}): there is no such prompt or resource template; add it first")
            if argument not in known:
                raise ValueError(f"server.complete({of!r}, {argument!r}): it has {', '.join(known) or 'no arguments'}")
            if (of, argument) in self.completers:
                raise ValueError(f"server.complete({of!r}, {argument!r}): this argument has a completer already")
            self.completers[of, argument] = Completer(function)
            return function

        return register

    def _arguments_of(self, name: str) -> list[str] | None:
        """The arguments of a prompt, or the variables of a template; None where there is neither."""
        if (prompt := self.prompts.get(name)) is not None:
            return [argument.name for argument in prompt.listed.arguments or []]
        template = self.templates.get(name)
        return None if template is None else template.template.names

    def lifespan(self, function: F) -> F:
        """Register an async generator function: entered once a process, its value is `ctx.lifespan`."""
        if not inspect.isasyncgenfunction(inspect.unwrap(function)):
            raise TypeError(f"@server.lifespan goes on an async function that yields once, not on {function!r}")
        if self._lifespan is not None:
            raise ValueError("this server has a lifespan already")
        hidden = inspect.isasyncgenfunction(function)
        self._lifespan = asynccontextmanager(function) if hidden else function
        return function

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While this is entered the server can be talked to; the lifespan lasts as long.

        Entered again meanwhile it does nothing more: whoever entered it first has to stay longest.
        """
        if self._running:
            yield
            return
        self._running = True
        try:
            async with self._entered_lifespan():
                self.subscriptions.start(trio.lowlevel.current_trio_token())
                yield
        finally:
            self.subscriptions.start(None)
            self._running = False

    @asynccontextmanager
    async def _entered_lifespan(self) -> AsyncIterator[None]:
        if self._lifespan is None:
            yield
            return
        async with self._lifespan(*[self] * len(inspect.signature(self._lifespan).parameters)) as self.lifespan_value:
            try:
                yield
            finally:
                self.lifespan_value = None

    def features(self) -> dict[str, Json]:
        """The capabilities, as the newest revision names them."""
        features: dict[str, Json] = {"tools": {"listChanged": True}}
        if self.resources or self.templates:
            features["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            features["prompts"] = {"listChanged": True}
        if self.completers:
            features["completions"] = {}
        features["logging"] = {}
        return features

    def heard(self, wanted: Filter) -> Filter:
        """What of a wanted filter this server can tell."""
        features = self.features()
        return Filter(
            tools_list_changed=wanted.tools_list_changed,
            prompts_list_changed=wanted.prompts_list_changed and "prompts" in features,
            resources_list_changed=wanted.resources_list_changed and "resources" in features,
            resource_subscriptions=wanted.resource_subscriptions if "resources" in features else [],
        )

    def find_resource(self, uri: str) -> ServerResource:
        """What reads a URI: the resource of that name, else the first template that it matches."""
        if (resource := self.resources.get(uri)) is not None:
            return resource
        for template in self.templates:
            if template.template.match(uri) is not None:
                return template
        raise ResourceNotFound(uri)

    async def serve(self, *, stdio: bool = False) -> None:
        """Serve until the input ends or the process is told to stop."""
        from ..serve import serve

        await serve(self, stdio=stdio)

    def run(self) -> None:
        """Serve on standard input and output, from a program that is not async itself."""
        trio.run(lambda: self.serve(stdio=True))

    def _teller(self, kind: str) -> Callable[[], None]:
        return lambda: self.subscriptions.list_changed(kind)


def _as_bytes(secret: str | bytes) -> bytes:
    return secret.encode() if isinstance(secret, str) else secret


def must_be_function(thing: Any, decorator: str) -> None:
    """A decorator's argument is a function; TypeError says what else it was."""
    if isinstance(thing, type) or not callable(thing):
        raise TypeError(f"@{decorator} goes on a function, not on {thing!r}")
    if inspect.isgeneratorfunction(thing) or inspect.isasyncgenfunction(thing):
        raise TypeError(f"@{decorator} goes on a function that returns its result; {thing!r} yields")


def must_be_seconds(given: Any, what: str) -> None:
    """A duration is a positive number, or None; ValueError says what else it was."""
    if given is not None and not (isinstance(given, int | float) and given > 0):
        raise ValueError(f"{what} wants a positive number of seconds, not {given!r}")
