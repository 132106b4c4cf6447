"""Server: the tools, resources and prompts that a user registers, under one name.

The classes behind the decorators are imported when they are first used, so a server
that only has tools does not load the others.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

import trio

from ..auth.access import Access, Verify
from ..auth.principal import NO_SCOPES, Principal, has_scopes
from ..protocol.errors import ResourceNotFound
from ..protocol.extensions import APPS, SKILLS, TASKS, ExtensionTable
from ..protocol.revisions import PROFILES, REVISIONS, Revisions
from ..protocol.session import Call
from ..protocol.types import Annotations, Icon, Implementation, Json, ToolAnnotations
from .context import StateT
from .conversation import Conversation, MessageObserver
from .event_log import EventLog
from .ledger import Ledger
from .limiter import Limiter
from .limits import Limits
from .options import check_name, check_options, signing_secret, with_timeout
from .registry import Pages, Registry, pages_of
from .request import Environment, RequestObserver, SessionObserver
from .subscriptions import ChangeRelay, Subscriptions
from .turns import Turns
from .worker_threads import WorkerThreads

if TYPE_CHECKING:
    from .extension_points import ExtensionPoints, ServerExtension
    from .features.completion import Completer
    from .features.prompts import ServerPrompt
    from .features.resources import ServerResource
    from .features.tools import ServerTool
    from .include import Inclusion
    from .middleware import Middleware
    from .shared_limiter import SharedLimiter
    from .shared_state import ProcessGroup, SharedState

# Whether a tool can be called by clients that do not support tasks.
TaskSupport = Literal["optional", "required"]
# Who may call a tool: the model, or the page of an app.
Visibility = Literal["model", "app"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
MiddlewareT = TypeVar("MiddlewareT", bound="Middleware")

# The note on an exception that the lifespan has raised.
LIFESPAN_FAILED = "raised by the server's lifespan"


class Server(Generic[StateT]):
    """The base class of `mcp_trio.Server`, which documents the arguments.

    It has everything except the methods that serve.
    """

    tools: Registry[ServerTool]
    resources: Registry[ServerResource]
    templates: Registry[ServerResource]
    prompts: Registry[ServerPrompt]
    # By the prompt's name or the template's URI, then by the argument's name.
    completers: dict[str, dict[str, Completer]]
    # Files and folders that the server was built from -> a function that reads them
    # again. `run --reload` calls it after a change.
    watched: dict[Path, Callable[[], object]]
    # The servers that this server includes, and the servers that include it.
    inclusions: tuple[Inclusion[Server[Any]], ...] = ()
    _included_by: tuple[Server[Any], ...] = ()
    # Called with each message of the conversations that begin after it was set.
    on_message: MessageObserver | None = None
    is_running = False
    # Divides the server's lists into pages.
    paginate: Pages
    # The first one is outermost.
    middleware_stack: tuple[Middleware, ...] = ()
    # Notified when each request begins and ends.
    request_observers: tuple[RequestObserver, ...] = ()
    # Notified when each session ends.
    session_observers: tuple[SessionObserver, ...] = ()
    # How many tasks this process runs at a time; None for the extension's default.
    task_slots: int | None = None
    # The store that the server's processes share, if any.
    shared_state: SharedState | None = None
    # Enforces rates across these processes, while the server runs.
    shared_limiter: SharedLimiter | None = None
    # The worker processes that serve the same port, if there are several.
    process_group: ProcessGroup | None = None
    # The processes that share the store: a `stores.peers.Peers`.
    peers: ChangeRelay | None = None
    # None if the server has no extensions.
    extensions: ExtensionPoints | None = None
    # Exceptions that stop a request from outside, and are not caught. While `serve`
    # receives Ctrl-C as a signal, a KeyboardInterrupt is a failure like any other.
    stops: tuple[type[BaseException], ...] = (trio.Cancelled, KeyboardInterrupt)

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
        lifespan: (
            Callable[..., AsyncIterator[StateT]]
            | Callable[..., AbstractAsyncContextManager[StateT]]
            | None
        ) = None,
        telemetry: bool = False,
        extensions: Iterable[ServerExtension] = (),
    ) -> None:
        check_name(name)
        check_options(instructions, secret, limits, timeout, grace)
        self.info = Implementation(
            name, version, title, description, icons, website_url
        )
        self.instructions = instructions
        self._extension_table = ExtensionTable()
        self.use_profile(profile)
        self._create_environment(with_timeout(limits or Limits(), timeout), secret)
        self.subscriptions = Subscriptions(self._scopes_of_resource, self.ledger)
        self._create_registries(pages)
        # The names of the tools that waited when they were last called.
        self.tools_that_wait: set[str] = set()
        # The number of tasks, of all conversations, that are idle: see `CallTasks`.
        self.idle_tasks = 0
        # Bound once, because thousands of conversations may refer to it.
        self.on_conversation_closed = self._conversation_closed
        self.event_log = EventLog()
        self.grace = grace
        self.telemetry = telemetry
        self.access = access if isinstance(access, Access | None) else Access(access)
        self._lifespan: Callable[[], AbstractAsyncContextManager[Any]] = nullcontext
        if lifespan is not None:
            self._set_lifespan(lifespan)
        self._add_extensions(extensions)

    def __repr__(self) -> str:
        return f"<Server {self.info.name!r}: {len(self.tools)} tools>"

    def _create_environment(self, limits: Limits, secret: str | bytes | None) -> None:
        self.environment = Environment(limits, signing_secret(secret))
        self.limiter = Limiter(limits)
        self.ledger = Ledger(limits.memory)
        self.turns = Turns()

    def _create_registries(self, pages: int | Pages | None) -> None:
        changed = self.subscriptions.note_change
        environment = self.environment
        paginate = pages if callable(pages) else pages_of(pages)
        self.paginate = paginate
        self.tools = Registry("tool", paginate, changed, environment)
        self.resources = Registry("resource", paginate, changed, environment)
        self.templates = Registry("resource", paginate, changed, environment)
        self.prompts = Registry("prompt", paginate, changed, environment)
        self.completers = {}
        self.watched = {}

    def use_profile(self, profile: str | None) -> None:
        """Serve the revisions of a profile, or all revisions if it is None.

        Existing conversations keep their revision. Raises ValueError.
        """
        if profile is None:
            served = REVISIONS
        elif profile in PROFILES:
            served = PROFILES[profile]
        else:
            known = ", ".join(PROFILES)
            raise ValueError(
                f"Server(profile): expected {known} or None, got {profile!r}"
            )
        self.revisions = Revisions(
            self.info, self.instructions, served, self._extension_table
        )

    def use_limits(self, limits: Limits) -> None:
        """Apply these limits from now on, and reset the rates of all clients.

        Args:
            limits: The limits, which replace all earlier ones.
        """
        self.environment.limits = limits
        self.limiter = Limiter(limits)
        self.ledger.budget = limits.memory
        if self.environment.worker_threads is not None:
            self.environment.worker_threads.most = limits.threads

    @property
    def limits(self) -> Limits:
        """The limits that apply to every client."""
        return self.environment.limits

    # Extensions

    def _add_extensions(self, extensions: Iterable[ServerExtension]) -> None:
        for extension in extensions:
            self.add_extension(extension)

    def add_extension(self, extension: ServerExtension) -> None:
        """Declare an extension of the protocol, before the server runs.

        Raises ValueError if one of its names belongs to another extension.
        """
        from .extension_points import ExtensionPoints

        if self.is_running:
            raise RuntimeError(
                f"server.add_extension({extension!r}): the server is already running; "
                "add extensions before, as in Server(extensions=[...])"
            )
        if self.extensions is None:
            self.extensions = ExtensionPoints(self._extension_table)
        self.extensions.add(extension.bind(self))
        self.refresh_call_hooks()
        for server in self._included_by:
            for declare in server._missing_extensions(self):
                declare()

    def use_tasks(self) -> None:
        """Declare the tasks extension, because a tool uses it."""
        raise NotImplementedError("only mcp_trio.Server supports tasks")

    @property
    def has_tasks(self) -> bool:
        """Whether the tasks extension is declared."""
        return TASKS in (self.extensions or ())

    def use_store(self, store: str) -> None:
        """Share the server's state with other processes, in the store at a URL."""
        raise NotImplementedError("only mcp_trio.Server supports stores")

    def use_apps(self) -> None:
        """Declare the apps extension, because a tool or a page uses it."""
        raise NotImplementedError("only mcp_trio.Server supports apps")

    def use_skills(self) -> None:
        """Declare the skills extension, unless it is already declared."""
        raise NotImplementedError("only mcp_trio.Server supports skills")

    def refresh_call_hooks(self) -> None:
        """Set the hooks of extensions that wrap the calls of each tool."""
        if self.extensions is not None:
            for tool in list(self.tools.values()):
                tool.call_hooks = self.extensions.call_hooks(tool)

    # Tools

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Json | None = None,
        timeout: float | None = None,
        rate: str | None = None,
        max_in_flight: int | None = None,
        max_result: int | None = None,
        scopes: Iterable[str] = NO_SCOPES,
        task: TaskSupport | None = None,
        ttl: float | None = None,
        poll_interval: float | None = None,
        retry: bool = False,
        manual_start: bool = False,
        ui: str | None = None,
        visibility: Iterable[Visibility] | None = None,
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Json | None = None,
        timeout: float | None = None,
        rate: str | None = None,
        max_in_flight: int | None = None,
        max_result: int | None = None,
        scopes: Iterable[str] = NO_SCOPES,
        task: TaskSupport | None = None,
        ttl: float | None = None,
        poll_interval: float | None = None,
        retry: bool = False,
        manual_start: bool = False,
        ui: str | None = None,
        visibility: Iterable[Visibility] | None = None,
    ) -> F | Callable[[F], F]:
        """Register the decorated function as a tool.

        Use it as `@server.tool` or as `@server.tool(...)`.

        Args:
            function: The function. Its parameters are the arguments of the tool.
            name: The tool's name; by default, the name of the function.
            title: Its name for people.
            description: What it does, for the model; by default, from the docstring.
            annotations: Hints about what it does.
            icons: Its icons.
            input_schema: The JSON Schema of its arguments; by default, from the
                parameters.
            output_schema: The JSON Schema of its structured content; by default, from
                the return annotation.
            meta: Its `_meta` in lists.
            timeout: How many seconds the function may take. Replaces the server's
                timeout.
            rate: How often each client may call it, such as "10/m". Applies in addition
                to the server's rate.
            max_in_flight: How many calls may run at the same time. Applies in addition
                to the server's number.
            max_result: The largest result in bytes. Replaces the server's size.
            scopes: The tool exists only for principals that have all of these scopes.
            task: "optional" makes a task of each call if the client supports tasks, and
                lets other clients wait for the result. "required" refuses other
                clients.
            ttl: How many seconds a task is kept.
            poll_interval: How many seconds clients wait between two polls of a task.
            retry: Run a task again if its process is lost. By default, the task fails.
            manual_start: The function starts its task itself, with `ctx.start_task()`,
                for example after asking the user something.
            ui: The URI of the page that shows the tool's results: see `Server.ui`.
            visibility: Who can call the tool: "model", "app" (the page), or both, which
                is the default.
        """

        def register(function: F) -> F:
            return self.add_tool(
                function,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                input_schema=input_schema,
                output_schema=output_schema,
                meta=meta,
                timeout=timeout,
                rate=rate,
                max_in_flight=max_in_flight,
                max_result=max_result,
                scopes=scopes,
                task=task,
                ttl=ttl,
                poll_interval=poll_interval,
                retry=retry,
                manual_start=manual_start,
                ui=ui,
                visibility=visibility,
            )

        return register if function is None else register(function)

    def add_tool(
        self,
        function: F,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        meta: Json | None = None,
        timeout: float | None = None,
        rate: str | None = None,
        max_in_flight: int | None = None,
        max_result: int | None = None,
        scopes: Iterable[str] = NO_SCOPES,
        task: TaskSupport | None = None,
        ttl: float | None = None,
        poll_interval: float | None = None,
        retry: bool = False,
        manual_start: bool = False,
        ui: str | None = None,
        visibility: Iterable[Visibility] | None = None,
    ) -> F:
        """Register a function as a tool. Connected clients are notified.

        The options are those of `tool`.
        """
        from .features.tools import ServerTool, app_meta, task_options

        if task is not None and not self.has_tasks:
            self.use_tasks()
        if ui is not None or visibility is not None:
            meta = app_meta(meta, ui, visibility)
            self.use_apps()

        tool = ServerTool(
            function,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            input_schema=input_schema,
            output_schema=output_schema,
            meta=meta,
            timeout=timeout,
            rate=rate,
            max_in_flight=max_in_flight,
            max_result=max_result,
            scopes=scopes,
            task=task_options(
                task=task,
                ttl=ttl,
                poll_interval=poll_interval,
                retry=retry,
                manual_start=manual_start,
            ),
        )
        if self.extensions is not None:
            tool.call_hooks = self.extensions.call_hooks(tool)
        self.tools.add(tool)
        return function

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Connected clients are notified. Raises KeyError.

        Args:
            name: The name of the tool.
        """
        self.tools.remove(name)
        self.tools_that_wait.discard(name)

    # Resources

    def resource(
        self,
        uri: str,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: Json | None = None,
        contents_meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> Callable[[F], F]:
        """Register the decorated function as a resource.

        A URI with variables, such as `notes://{id}`, is a resource template: the
        function takes each variable as an argument.

        Args:
            uri: The URI of the resource, or of the template.
            name: The resource's name; by default, the name of the function.
            title: Its name for people.
            description: What it contains; by default, from the docstring.
            mime_type: Its MIME type; by default, from the value that the function
                returns.
            size: Its size in bytes. Templates have none.
            icons: Its icons.
            annotations: Hints for the client, such as who it is for.
            meta: Its `_meta` in lists.
            contents_meta: The `_meta` of its contents.
            scopes: The resource exists only for principals that have all of these
                scopes.
        """
        if not isinstance(uri, str):
            raise TypeError(
                "server.resource: expected a URI first, as in "
                f"@server.resource('notes://{{id}}'), got {uri!r}"
            )

        def register(function: F) -> F:
            return self.add_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                size=size,
                icons=icons,
                annotations=annotations,
                meta=meta,
                contents_meta=contents_meta,
                scopes=scopes,
            )

        return register

    def add_resource(
        self,
        uri: str,
        function: F,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        icons: list[Icon] | None = None,
        annotations: Annotations | None = None,
        meta: Json | None = None,
        contents_meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> F:
        """Register a function that reads a resource. Connected clients are notified.

        The options are those of `resource`.
        """
        from .features.resources import ServerResource

        resource = ServerResource(
            uri,
            function,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            icons=icons,
            annotations=annotations,
            meta=meta,
            contents_meta=contents_meta,
            scopes=scopes,
        )
        if resource.template.names:
            self.templates.add(resource)
        else:
            self.resources.add(resource)
        return function

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template. Connected clients are notified.

        Raises KeyError.

        Args:
            uri: The URI of the resource or the template.
        """
        if uri in self.templates:
            self.templates.remove(uri)
        else:
            self.resources.remove(uri)
        self.completers.pop(uri, None)

    def resource_updated(self, uri: str) -> None:
        """Notify subscribed clients that the contents of a resource have changed.

        You may call this from any thread.

        Args:
            uri: The URI of the resource.
        """
        self.subscriptions.note_change("resources", uri)
        for server in self._included_by:
            server.resource_updated(uri)

    def find_resource(
        self, uri: str, principal: Principal | None = None
    ) -> ServerResource:
        """Return the resource with this URI, or else the first template that matches.

        Raises ResourceNotFound if there is none, or if the principal may not use it.
        Other templates that match are not considered.
        """
        resource = self._match_resource(uri)
        if resource is None or not has_scopes(principal, resource.scopes):
            raise ResourceNotFound(uri)
        return resource

    def _match_resource(self, uri: str) -> ServerResource | None:
        resource = self.resources.get(uri)
        if resource is not None:
            return resource
        # A copy, because another thread may add a template during the loop.
        for template in list(self.templates.values()):
            if template.template.match(uri) is not None:
                return template
        return None

    def _scopes_of_resource(self, uri: str) -> frozenset[str]:
        """Return the scopes that the resource at a URI requires."""
        if not self.resources.scopes and not self.templates.scopes:
            return NO_SCOPES
        resource = self._match_resource(uri)
        return NO_SCOPES if resource is None else resource.scopes

    # Prompts

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> Callable[[F], F]: ...
    def prompt(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> F | Callable[[F], F]:
        """Register the decorated function as a prompt.

        Use it as `@server.prompt` or as `@server.prompt(...)`.

        Args:
            function: The function. Its parameters are the arguments of the prompt.
            name: The prompt's name; by default, the name of the function.
            title: Its name for people.
            description: What it is for; by default, from the docstring.
            icons: Its icons.
            meta: Its `_meta` in lists.
            scopes: The prompt exists only for principals that have all of these scopes.
        """

        def register(function: F) -> F:
            return self.add_prompt(
                function,
                name=name,
                title=title,
                description=description,
                icons=icons,
                meta=meta,
                scopes=scopes,
            )

        return register if function is None else register(function)

    def add_prompt(
        self,
        function: F,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        meta: Json | None = None,
        scopes: Iterable[str] = NO_SCOPES,
    ) -> F:
        """Register a function as a prompt. Connected clients are notified.

        The options are those of `prompt`.
        """
        from .features.prompts import ServerPrompt

        prompt = ServerPrompt(
            function,
            name=name,
            title=title,
            description=description,
            icons=icons,
            meta=meta,
            scopes=scopes,
        )
        self.prompts.add(prompt)
        return function

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt. Connected clients are notified. Raises KeyError.

        Args:
            name: The name of the prompt.
        """
        self.prompts.remove(name)
        self.completers.pop(name, None)

    # Completion

    def complete(self, of: str, argument: str) -> Callable[[F], F]:
        """Register a function that completes an argument while a user types it.

        The function takes the text so far. If it has a second parameter, that is a
        dictionary of the other arguments. It returns a list of strings or a
        `Completion`.

        Args:
            of: The name of a prompt, or the URI of a resource template.
            argument: The name of the argument or the variable.
        """

        def register(function: F) -> F:
            self._add_completer(of, argument, function)
            return function

        return register

    def _add_completer(
        self, of: str, argument: str, function: Callable[..., Any]
    ) -> None:
        from .features.completion import Completer

        item = self.prompts.get(of) or self.templates.get(of)
        if item is None:
            raise ValueError(
                f"server.complete({of!r}): expected a prompt or a resource template "
                "of this server; register it first"
            )
        where = f"server.complete({of!r}, {argument!r})"
        if argument not in item.properties:
            known = ", ".join(item.properties) or "none"
            raise ValueError(f"{where}: expected one of its arguments: {known}")
        if argument in self.completers.get(of, ()):
            raise ValueError(f"{where}: this argument already has a completer")
        completer = Completer(function, argument)
        completer.environment = self.environment
        self.completers.setdefault(of, {})[argument] = completer

    def find_completer(self, of: str, argument: str) -> Completer | None:
        """Return the completer of an argument of a prompt or a template, or None."""
        own = self.completers.get(of, {}).get(argument)
        if own is not None:
            return own
        item = self.prompts.get(of) or self.templates.get(of)
        for inclusion in self.inclusions:
            original = inclusion.original_of(item)
            if original is not None:
                return inclusion.server.find_completer(original.name, argument)
        return None

    def use_completers(self, completers: dict[str, dict[str, Completer]]) -> None:
        """Replace all completers with these."""
        for by_argument in completers.values():
            for completer in by_argument.values():
                completer.environment = self.environment
        self.completers.clear()
        self.completers.update(completers)

    @property
    def has_completers(self) -> bool:
        """Whether this or an included server has a completer."""
        if self.completers:
            return True
        return any(inclusion.server.has_completers for inclusion in self.inclusions)

    # Middleware

    def middleware(self, function: MiddlewareT) -> MiddlewareT:
        """Register a function that wraps every tool call, resource read and prompt.

        The function that is registered first is the outermost.

        Args:
            function: `async def f(call, proceed)`, where `call` is a `MiddlewareCall`.
                It returns `await proceed(call)`, or another result instead. It may
                raise a `ToolError` to refuse the call.
        """
        from .middleware import check_middleware

        check_middleware(function)
        self.middleware_stack = (*self.middleware_stack, function)
        return function

    # Including other servers

    def include(self, other: Server[Any], /, *, prefix: str = "") -> None:
        """Add the features of another server, before this server runs.

        The functions of the other server get the value of its own lifespan, which is
        entered after that of this server. Its middleware runs inside this server's
        middleware. Features that are later added to it or removed from it are added or
        removed here too.

        Limits, access, store, profile, pages and instructions are those of this server.
        Raises ValueError if a name or a URI is already taken.

        Args:
            other: The server to include.
            prefix: A prefix for the names of its tools and prompts. URIs are unchanged.
        """
        from .include import Inclusion

        what = f"server.include({other!r}, prefix={prefix!r})"
        _check_inclusion(what, self, other, prefix)
        declarations = self._missing_extensions(other)
        inclusion = Inclusion(self, other, prefix)
        try:
            inclusion.begin()
        except ValueError as problem:
            raise ValueError(f"{what}: {problem}") from None
        for declare in declarations:
            declare()
        self.inclusions = (*self.inclusions, inclusion)
        other._included_by = (*other._included_by, self)

    def includes(self, other: Server[Any]) -> bool:
        """Return whether this server includes another one, or is the same."""
        if other is self:
            return True
        return any(inclusion.server.includes(other) for inclusion in self.inclusions)

    def _missing_extensions(self, other: Server[Any]) -> list[Callable[[], None]]:
        """Return functions that declare the extensions that only another server has.

        Raises ValueError for a user's own extension, whose object can only belong to
        one server.
        """
        if other.extensions is None:
            return []
        built_in = {
            TASKS: self.use_tasks,
            APPS: self.use_apps,
            SKILLS: self.use_skills,
        }
        declarations = []
        for extension in sorted(other.extensions.identifiers):
            if extension in (self.extensions or ()):
                continue
            if extension not in built_in:
                raise ValueError(
                    f"server.include({other!r}): it uses the extension {extension!r}; "
                    "add it to this server too, as in Server(extensions=[...])"
                )
            declarations.append(built_in[extension])
        return declarations

    # The lifespan

    @overload
    def lifespan(
        self, function: Callable[P, AsyncIterator[StateT]]
    ) -> Callable[P, AsyncIterator[StateT]]: ...
    @overload
    def lifespan(
        self, function: Callable[P, AbstractAsyncContextManager[StateT]]
    ) -> Callable[P, AbstractAsyncContextManager[StateT]]: ...
    def lifespan(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Register a function that runs before the first request and after the last.

        The lifespan is entered once per process. Tools, resources and prompts get the
        value that it yields as `ctx.lifespan`.

        Args:
            function: An async generator function that yields once, or a function that
                returns an async context manager. It may take one argument, the server.
        """
        self._set_lifespan(function)
        return function

    def _set_lifespan(self, function: Callable[..., Any]) -> None:
        if not inspect.isasyncgenfunction(inspect.unwrap(function)):
            raise TypeError(
                "@server.lifespan: expected an async function that yields once, "
                f"got {function!r}"
            )
        if self._lifespan is not nullcontext:
            raise ValueError("@server.lifespan: this server already has a lifespan")
        enter: Callable[..., AbstractAsyncContextManager[Any]] = function
        if inspect.isasyncgenfunction(function):
            enter = asynccontextmanager(function)
        if inspect.signature(function).parameters:
            enter = partial(enter, self)
        self._lifespan = enter

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Enter the lifespan, and accept conversations inside this block.

        Entering it again while the server runs does nothing. The first to enter must
        exit last.
        """
        if self.is_running:
            yield
            return
        try:
            async with self.within_lifespan():
                self.subscriptions.token = trio.lowlevel.current_trio_token()
                threads = WorkerThreads(self.limits.threads)
                self.environment.worker_threads = threads
                if self.extensions is None:
                    yield
                else:
                    async with self.extensions.running():
                        yield
                self.subscriptions.token = None
        except Exception as error:
            # If there is a token, the exception was raised inside the lifespan.
            if self.subscriptions.token is None:
                error.add_note(LIFESPAN_FAILED)
            raise
        finally:
            self.subscriptions.token = None

    @asynccontextmanager
    async def within_lifespan(self) -> AsyncIterator[None]:
        """Enter the lifespan of this server, and then those of included servers."""
        if self.is_running:
            yield
            return
        self.is_running = True
        try:
            async with AsyncExitStack() as stack:
                value = await stack.enter_async_context(self._lifespan())
                self.environment.lifespan_value = value
                for inclusion in self.inclusions:
                    within = inclusion.server.within_lifespan()
                    await stack.enter_async_context(within)
                yield
        finally:
            self.environment.lifespan_value = None
            self.is_running = False

    # For the transports and the handlers

    @property
    def scopes(self) -> frozenset[str]:
        """All scopes that tools, resources, templates and prompts require."""
        registries = (self.tools, self.resources, self.templates, self.prompts)
        return NO_SCOPES.union(*(registry.scopes for registry in registries))

    def observe_requests(self, observer: RequestObserver) -> None:
        """Notify an observer of every request that begins from now on.

        Args:
            observer: An object with the methods `began(request)` and `ended(request,
                seconds)`. They must return quickly, and must not raise exceptions.
        """
        self.request_observers = (*self.request_observers, observer)

    def observe_sessions(self, observer: SessionObserver) -> None:
        """Notify an observer of every session that ends from now on.

        Args:
            observer: An object with the method `session_ended(conversation)`.
        """
        self.session_observers = (*self.session_observers, observer)

    def stop_observing_sessions(self, observer: SessionObserver) -> None:
        """Stop notifying an observer of sessions.

        Args:
            observer: The object that was passed to `observe_sessions`.
        """
        self.session_observers = tuple(
            other for other in self.session_observers if other is not observer
        )

    def _conversation_closed(self, conversation: Conversation) -> None:
        """Remove the subscriptions of a client that has disconnected."""
        self.subscriptions.remove(conversation)
        for observer in self.session_observers:
            observer.session_ended(conversation)

    def stop_observing_requests(self, observer: RequestObserver) -> None:
        """Stop notifying an observer of requests.

        Args:
            observer: The object that was passed to `observe_requests`.
        """
        self.request_observers = tuple(
            other for other in self.request_observers if other is not observer
        )

    def features(self) -> dict[str, Json]:
        """Return the server's capabilities, as the newest revision names them."""
        features: dict[str, Json] = {"tools": {"listChanged": True}, "logging": {}}
        if self.resources or self.templates:
            features["resources"] = {"subscribe": True, "listChanged": True}
        if self.prompts:
            features["prompts"] = {"listChanged": True}
        if self.has_completers:
            features["completions"] = {}
        return features

    def note_that_it_waits(self, call: Call) -> None:
        """Note that this call of a tool has waited."""
        if call.method == "tools/call":
            self.tools_that_wait.add(call.params.name)

    def note_that_it_did_not_wait(self, call: Call) -> None:
        """Note that this call of a tool has not waited."""
        if call.method == "tools/call":
            self.tools_that_wait.discard(call.params.name)


def _check_inclusion(
    what: str, outer: Server[Any], other: Server[Any], prefix: str
) -> None:
    """Raise an error if one server cannot include another."""
    if not isinstance(other, Server):
        raise TypeError(f"server.include: expected a Server, got {other!r}")
    if not isinstance(prefix, str):
        raise TypeError(f"{what}: expected a string as the prefix")
    if outer.is_running:
        raise RuntimeError(
            f"{what}: the server is already running; include other servers before"
        )
    if other.includes(outer):
        raise ValueError(f"{what}: a server cannot include itself")
    if other.access is not None:
        raise ValueError(
            f"{what}: the included server has access=..., which would not apply; give "
            "it to the including server, and use scopes to restrict features"
        )
