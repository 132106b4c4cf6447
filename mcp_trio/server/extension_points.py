"""The hooks through which extensions change a server.

An extension is any object with a method `bind` that returns its hooks. Built-in and
users' extensions derive from `mcp_trio.extensions.base.Extension`. The server only uses
hooks, so it does not depend on extensions.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from msgspec import UNSET, Struct, json

from ..protocol.errors import MissingClientCapability
from ..protocol.extensions import ExtensionMethod, ExtensionTable
from ..protocol.jsonrpc import encode_notification
from ..protocol.params import VENDOR
from ..protocol.revisions import Revision
from ..protocol.types import Json, Tool
from .features.tools import ServerTool
from .gauges import Gauge
from .request import Request

# Returns the encoded result of a request. None means an empty result.
ExtensionHandler = Callable[[Request], Awaitable[bytes | None]]
# Continues a tool call, and returns its encoded result.
Proceed = Callable[[], Awaitable[bytes]]
# Wraps a tool call.
CallTool = Callable[[Request, ServerTool, Proceed], Awaitable[bytes]]
# Returns the entry of a tool in a list, or None to hide the tool. The arguments are the
# tool, its entry, the revision, and whether the client has declared the extension.
ListTool = Callable[[ServerTool, Tool, Revision, bool], Tool | None]


class Listening:
    """A `subscriptions/listen` request for notifications of an extension.

    `wanted` is the part of the filter that belongs to the extension.
    """

    def __init__(self, request: Request, wanted: Json) -> None:
        self.request = request
        self.wanted = wanted

    def notify(self, method: str, params: Json) -> None:
        """Send a notification of the extension that names this subscription."""
        meta = {VENDOR + "subscriptionId": self.request.call.id}
        send_notification(self.request, method, {"_meta": meta, **params})


class ExtensionHooks(Struct, frozen=True, kw_only=True):
    """The hooks of one extension for one server. Hooks that are None are not used."""

    identifier: str
    settings: Json
    in_sessions: bool
    methods: Mapping[str, ExtensionMethod] = {}
    handlers: Mapping[str, ExtensionHandler] = {}
    # The keys in the filter of `subscriptions/listen` that belong to the extension.
    listens_to: frozenset[str] = frozenset()
    # Returns the part of the filter that is honored.
    accept_listening: Callable[[Listening], Awaitable[Json]] | None = None
    # Runs after the acknowledgment, until the subscription ends.
    follow: Callable[[Listening], Awaitable[None]] | None = None
    # Whether `call_tool` is used for a tool.
    takes_calls_of: Callable[[ServerTool], bool] | None = None
    call_tool: CallTool | None = None
    list_tool: ListTool | None = None
    # Entered while the server runs.
    running: Callable[[], AbstractAsyncContextManager[None]] | None = None
    # Called with the store that the server's processes share, before the server runs.
    use_store: Callable[[Any], None] | None = None
    # Finishes background work, within so many seconds, before the server stops.
    settle: Callable[[float], Awaitable[None]] | None = None
    # Returns the metrics of the extension.
    gauges: Callable[[], list[Gauge]] | None = None


class ServerExtension(Protocol):
    """The interface of an extension."""

    def bind(self, server: Any) -> ExtensionHooks:  # noqa: ANN401 (a Server)
        """Return the extension's hooks for this server."""


class ExtensionPoints:
    """The extensions of one server, if it has any."""

    def __init__(self, table: ExtensionTable) -> None:
        # Shared with the server's revisions.
        self.table = table
        self.handlers: dict[str, ExtensionHandler] = {}
        self._hooks: dict[str, ExtensionHooks] = {}

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._hooks

    @property
    def identifiers(self) -> frozenset[str]:
        """The identifiers of the extensions."""
        return frozenset(self._hooks)

    def add(self, hooks: ExtensionHooks) -> None:
        """Add an extension. Raises ValueError if one of its names is already used."""
        if hooks.identifier in self._hooks:
            raise ValueError(
                f"extension {hooks.identifier!r}: this server already has it"
            )
        for other in self._hooks.values():
            same = hooks.methods.keys() & other.methods.keys()
            same |= hooks.listens_to & other.listens_to
            if same:
                raise ValueError(
                    f"extension {hooks.identifier!r}: {min(same)!r} already belongs to "
                    f"{other.identifier!r}; rename one of them"
                )
        self._hooks[hooks.identifier] = hooks
        self.table.add(hooks.identifier, hooks.methods)
        self.handlers.update(hooks.handlers)

    # Declarations

    def advertised(self, request: Request) -> dict[str, Json]:
        """Return the extensions to advertise to a client, with their settings.

        In `initialize` they are only advertised to a client that sent extensions
        itself, because older clients do not know this capability.
        """
        revision = request.call.revision
        if revision.opens and request.call.params.capabilities.extensions is UNSET:
            return {}
        return {
            hooks.identifier: hooks.settings
            for hooks in self._hooks.values()
            if hooks.in_sessions or not revision.opens
        }

    def declared(self, request: Request) -> dict[str, Json]:
        """Return the client's settings for each extension that it has declared."""
        return self.table.declared(request.capabilities)

    # Tools

    def call_hooks(self, tool: ServerTool) -> tuple[CallTool, ...]:
        """Return the hooks that wrap calls of a tool."""
        found = []
        for hooks in self._hooks.values():
            if hooks.call_tool is None:
                continue
            if hooks.takes_calls_of is None or hooks.takes_calls_of(tool):
                found.append(hooks.call_tool)
        return tuple(found)

    def list_hooks(self, request: Request) -> tuple[tuple[str, bool], ...]:
        """Return the extensions that change this list of tools.

        Each is paired with whether the client has declared it.
        """
        listing = [hooks for hooks in self._hooks.values() if hooks.list_tool]
        if not listing:
            return ()
        declared = self.declared(request)
        return tuple(
            (hooks.identifier, hooks.identifier in declared) for hooks in listing
        )

    def listed_tool(
        self,
        tool: ServerTool,
        revision: Revision,
        hooks: Iterable[tuple[str, bool]],
    ) -> Tool | None:
        """Return the entry of a tool in a list, or None if it is hidden.

        `hooks` is the return value of `list_hooks`.
        """
        listed: Tool | None = tool.listed
        for identifier, is_declared in hooks:
            list_tool = self._hooks[identifier].list_tool
            if listed is not None and list_tool is not None:
                listed = list_tool(tool, listed, revision, is_declared)
        return listed

    # Subscriptions

    async def listen(self, request: Request) -> list["FollowedListening"]:
        """Return the extensions whose notifications a client subscribes to.

        Raises MissingClientCapability if it has not declared one of them.
        """
        if not any(hooks.listens_to for hooks in self._hooks.values()):
            return []
        wanted = json.decode(request.call.raw)["notifications"]
        found = []
        for hooks in self._hooks.values():
            own = {name: wanted[name] for name in hooks.listens_to & wanted.keys()}
            if not own:
                continue
            if hooks.identifier not in self.declared(request):
                raise MissingClientCapability({"extensions": {hooks.identifier: {}}})
            if hooks.accept_listening is not None:
                listening = Listening(request, own)
                accepted = await hooks.accept_listening(listening)
                found.append(FollowedListening(listening, accepted, hooks.follow))
        return found

    # Running

    def use_store(self, store: Any) -> None:  # noqa: ANN401 (see SharedState)
        """Let the extensions use a store for their state."""
        for hooks in self._hooks.values():
            if hooks.use_store is not None:
                hooks.use_store(store)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the extensions inside this block."""
        async with AsyncExitStack() as stack:
            for hooks in self._hooks.values():
                if hooks.running is not None:
                    await stack.enter_async_context(hooks.running())
            yield

    async def settle(self, seconds: float) -> None:
        """Finish the extensions' background work, within so many seconds."""
        for hooks in list(self._hooks.values()):
            if hooks.settle is not None:
                await hooks.settle(seconds)

    def gauges(self) -> list[Gauge]:
        """Return the metrics of the extensions."""
        gauges: list[Gauge] = []
        for hooks in self._hooks.values():
            if hooks.gauges is not None:
                gauges += hooks.gauges()
        return gauges


class FollowedListening(Struct):
    """An accepted `Listening`, its accepted filter, and the hook that serves it."""

    listening: Listening
    accepted: Json
    _follow: Callable[[Listening], Awaitable[None]] | None

    async def run(self) -> None:
        """Serve the subscription until it is cancelled."""
        if self._follow is not None:
            await self._follow(self.listening)


def send_notification(request: Request, method: str, params: Json) -> None:
    """Send a notification of an extension, unless the request is over."""
    if request.is_over:
        return
    message = encode_notification(method, params)
    request.conversation.send(message, request.channel)
