"""Extension: the base class of extensions of the protocol.

An extension is a subclass that names itself and decorates its methods:

    class Zone(Params):
        zone: str = "UTC"

    class Clock(Extension):
        identifier = "com.example/clock"

        @method("clock/now")
        async def now(self, params: Zone, ctx: ExtensionContext) -> dict[str, str]:
            return {"time": ...}

    server = Server("clock", extensions=[Clock()])

The server advertises it, checks that the client has declared it, and decodes the
params. Other methods of `Extension` are hooks: a subclass overrides those that it
needs.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, TypeVar, get_type_hints

from msgspec import Struct, to_builtins

from ..protocol.errors import InternalError
from ..protocol.extensions import ExtensionMethod
from ..protocol.jsonrpc import encode
from ..protocol.params import Params
from ..protocol.revisions import REVISIONS, Revision
from ..protocol.types import Json, Tool
from ..server.app import Server
from ..server.context import Context
from ..server.extension_points import (
    CallTool,
    ExtensionHandler,
    ExtensionHooks,
    Listening,
    Proceed,
    send_notification,
)
from ..server.features.tools import ServerTool
from ..server.gauges import Gauge
from ..server.request import Request
from ..stores.base import Store

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

# A prefix of labels with dots between them, a slash, and a name, as for keys of
# `_meta`.
_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_IDENTIFIER = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/{_NAME}")

# The methods and notifications that some revision has. Extensions cannot have the same.
_OF_REVISIONS = frozenset().union(
    *(revision.requests | revision.server_notifications for revision in REVISIONS)
)


# The attribute of a function that the decorator `method` sets.
_MARK = "__mcp_method__"


class _Declared(Struct):
    """What the decorator `method` notes on a function."""

    name: str
    named_by: str | None


def method(name: str, *, named_by: str | None = None) -> Callable[[F], F]:
    """Answer requests for a method with the decorated function.

    The function is async. It takes the params, a subclass of `Params`, and an
    `ExtensionContext`. It returns the result: a Struct or a dictionary, or None for an
    empty result. A result that is larger than `Limits.max_result` is an error, unless
    it is encoded already.

    Args:
        name: The method on the wire, such as "clock/now".
        named_by: The parameter that HTTP clients repeat in the header `Mcp-Name`, by
            its name on the wire.
    """

    def register(function: F) -> F:
        setattr(function, _MARK, _Declared(name, named_by))
        return function

    return register


class ExtensionContext(Context[Any]):
    """What a method of an extension sees of its request.

    `protocol_revision` is what `Extension.encode_result` takes.
    """

    protocol_revision: Revision

    def __init__(self, request: Request, extension: "Extension") -> None:
        super().__init__(request, request.environment)
        self.protocol_revision = request.call.revision
        self._extension = extension

    @property
    def settings(self) -> Json:
        """The client's settings for the extension."""
        return self._extension.declared(self._request) or {}

    async def notify(self, method: str, params: Json | Struct | None = None) -> None:
        """Send the client a notification of the extension, before the result.

        Args:
            method: The method of the notification.
            params: Its params.
        """
        declared = self._extension.notifications
        if method not in declared:
            known = ", ".join(sorted(declared)) or "none"
            raise ValueError(
                f"notification {method!r}: the extension declares {known}; add it to "
                "the class attribute `notifications`"
            )
        send_notification(self._request, method, to_builtins(params or {}))
        await self._checkpoint()

    @property
    def _questions(self) -> NoReturn:
        method = self._request.call.method
        raise RuntimeError(
            f"{method} cannot ask the client: only tools, prompts and resources can"
        )


class Extension:
    """The base class of extensions.

    Class attributes describe the extension; `settings` may also be set in `__init__`.

    `identifier` is its name, with a prefix that you own: "com.example/clock".
    `settings` are what the server says in its capabilities.
    `in_sessions` says whether revisions that begin with `initialize` have it too.
    `needs_declaration` says whether only clients that declared it may use its methods.
    `notifications` are the names of those that the server sends.
    `result_types` are the values of `resultType` that its results have, other than
    "complete".
    `listens_to` are its own names in the filter of `subscriptions/listen`.
    """

    identifier: ClassVar[str]
    settings: Mapping[str, Any] = MappingProxyType({})
    in_sessions: ClassVar[bool] = True
    needs_declaration: ClassVar[bool] = True
    notifications: ClassVar[frozenset[str] | tuple[str, ...]] = ()
    result_types: ClassVar[frozenset[str] | tuple[str, ...]] = ()
    listens_to: ClassVar[frozenset[str] | tuple[str, ...]] = ()

    server: Server[Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        identifier = getattr(cls, "identifier", None)
        if not isinstance(identifier, str) or not _IDENTIFIER.fullmatch(identifier):
            raise TypeError(
                f"class {cls.__name__}: expected an identifier such as "
                f"'com.example/clock', got {identifier!r}"
            )
        for name in (*cls.notifications, *_declared_methods(cls)):
            if name in _OF_REVISIONS:
                raise TypeError(
                    f"class {cls.__name__}: {name!r} belongs to the protocol itself"
                )

    # Hooks

    async def listen(self, listening: Listening) -> Json:
        """Return which part of a filter in `subscriptions/listen` is honored.

        `listening.wanted` has the names in `listens_to` that the client has sent.
        """
        return listening.wanted

    async def follow(self, listening: Listening) -> None:
        """Send the client's notifications with `listening.tell`, until cancelled."""

    def takes_calls_of(self, tool: ServerTool) -> bool:
        """Return whether `call_tool` is used for a tool."""
        return True

    async def call_tool(
        self, request: Request, tool: ServerTool, proceed: Proceed
    ) -> bytes:
        """Take part in a call of a tool. Returns the encoded result.

        `proceed` goes on with the call as if the extension were not there.
        """
        return await proceed()

    def list_tool(
        self, tool: ServerTool, listed: Tool, revision: Revision, is_declared: bool
    ) -> Tool | None:
        """Return a tool as it is listed for a client; None to leave it out.

        It must depend on the arguments only, because lists are kept. `is_declared` says
        whether the client has declared the extension. To change `listed`, make a copy.
        """
        return listed

    def use_store(self, store: Store) -> None:
        """Keep in this store what the server's processes are to share.

        The server calls this before it runs, if it was given a store.
        """

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run for as long as the server does."""
        yield

    async def settle(self, seconds: float) -> None:
        """End work in the background, within so many seconds, before the server stops.

        Clients are still served while this runs.
        """

    def gauges(self) -> list[Gauge]:
        """Return values to show in the metrics of a server on HTTP.

        This runs for each request of the metrics, so it must return quickly.
        """
        return []

    # For subclasses

    def declared(self, request: Request) -> Json | None:
        """Return the client's settings, or None if it has not declared this."""
        assert self.server.extensions is not None
        return self.server.extensions.declared(request).get(self.identifier)

    def encode_result(self, revision: Revision, result: object) -> bytes:
        """Encode a result with the fields of every result in this revision."""
        shaped = to_builtins(result) if isinstance(result, Struct) else result
        if shaped is None:
            shaped = {}
        if not isinstance(shaped, dict):
            raise TypeError(
                f"extension {self.identifier!r}: a result is a Struct, a dictionary or "
                f"None, not {result!r:.100}"
            )
        kind = shaped.get("resultType", "complete")
        if kind != "complete" and kind not in self.result_types:
            raise TypeError(
                f"extension {self.identifier!r}: add the resultType {kind!r} to "
                "the class attribute `result_types`"
            )
        if revision.opens:
            shaped = {name: shaped[name] for name in shaped if name != "resultType"}
        return encode(revision.result(shaped))

    # For the server

    def bind(self, server: Server[Any]) -> ExtensionHooks:
        """Belong to a server, and return what the extension adds to it."""
        if hasattr(self, "server"):
            raise ValueError(
                f"extension {self.identifier!r} belongs to {self.server!r} already; "
                "make another one"
            )
        self.server = server
        methods: dict[str, ExtensionMethod] = {}
        handlers: dict[str, ExtensionHandler] = {}
        for name, (attribute, declared) in _declared_methods(type(self)).items():
            function = getattr(self, attribute)
            kind = _params_of(function, name)
            methods[name] = ExtensionMethod(
                extension=self.identifier,
                params=kind,
                named_by=_attribute_of(kind, declared.named_by, name),
                in_sessions=self.in_sessions,
                needs_declaration=self.needs_declaration,
            )
            handlers[name] = partial(self._answer, function)
        return ExtensionHooks(
            identifier=self.identifier,
            settings=dict(self.settings),
            in_sessions=self.in_sessions,
            methods=methods,
            handlers=handlers,
            listens_to=frozenset(self.listens_to),
            accept_listening=self.listen,
            follow=self.follow,
            takes_calls_of=self.takes_calls_of,
            call_tool=self._overridden("call_tool"),
            list_tool=self._overridden("list_tool"),
            use_store=self._overridden("use_store"),
            running=self._overridden("running"),
            settle=self._overridden("settle"),
            gauges=self._overridden("gauges"),
        )

    def _overridden(self, hook: str) -> Any:  # noqa: ANN401 (hooks differ)
        """Return a hook, or None if the subclass does not have it."""
        if getattr(type(self), hook) is getattr(Extension, hook):
            return None
        return getattr(self, hook)

    async def _answer(
        self, function: Callable[..., Awaitable[Any]], request: Request
    ) -> bytes | None:
        """Answer a request for one of the extension's methods."""
        result = await function(request.call.params, ExtensionContext(request, self))
        if isinstance(result, bytes):
            return result
        encoded = self.encode_result(request.call.revision, result)
        most = request.environment.limits.max_result
        if len(encoded) > most:
            raise InternalError(
                f"{request.call.method} made a result of {len(encoded):,} bytes; at "
                f"most {most:,} are allowed"
            )
        return encoded


def _declared_methods(cls: type) -> dict[str, tuple[str, _Declared]]:
    """Return the methods on the wire that a class declares, with their attributes."""
    found = {}
    for attribute in dir(cls):
        declared = getattr(getattr(cls, attribute, None), _MARK, None)
        if isinstance(declared, _Declared):
            found[declared.name] = (attribute, declared)
    return found


def _params_of(function: Callable[..., Any], name: str) -> type[Params]:
    """Return the type of a method's params, from its annotations."""
    kind = get_type_hints(function).get("params")
    if not isinstance(kind, type) or not issubclass(kind, Params):
        raise TypeError(
            f"method {name!r}: annotate its parameter `params` with a subclass of "
            f"mcp_trio.extensions.Params, not {kind!r}"
        )
    return kind


def _attribute_of(
    kind: type[Params], named_by: str | None, method_name: str
) -> str | None:
    """Return the attribute for a parameter that is given by its name on the wire."""
    if named_by is None:
        return None
    names: Mapping[str, str] = dict(
        zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    )
    if named_by not in names:
        raise TypeError(
            f"method {method_name!r}: named_by={named_by!r} is not a parameter of "
            f"{kind.__name__}"
        )
    return names[named_by]


__all__ = [
    "CallTool",
    "Extension",
    "ExtensionContext",
    "Listening",
    "Proceed",
    "method",
]
