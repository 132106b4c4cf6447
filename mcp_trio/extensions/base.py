"""Extension: the base class of extensions of the protocol.

An extension is a subclass with an identifier and decorated methods:

    class Zone(Params):
        zone: str = "UTC"

    class Clock(Extension):
        identifier = "com.example/clock"

        @method("clock/now")
        async def now(self, params: Zone, ctx: ExtensionContext) -> dict[str, str]:
            return {"time": ...}

    server = Server("clock", extensions=[Clock()])

The server advertises it, checks that the client has declared it, and decodes the
params. The other methods of `Extension` are hooks, which a subclass may override.
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

# A prefix of labels separated by dots, a slash, and a name, as for keys in `_meta`.
_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_IDENTIFIER = re.compile(rf"{_LABEL}(?:\.{_LABEL})*/{_NAME}")

# The methods and notifications of the protocol, whose names extensions cannot use.
_OF_REVISIONS = frozenset().union(
    *(revision.requests | revision.server_notifications for revision in REVISIONS)
)


# The attribute of a function that the decorator `method` sets.
_MARK = "__mcp_method__"


class _Declared(Struct):
    """The arguments of the decorator `method`, stored on the function."""

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
    """The context of a request for a method of an extension.

    `protocol_revision` is the argument of `Extension.encode_result`.
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
                "ctx.notify: expected a notification that the extension declares "
                f"({known}), got {method!r}; add it to the class attribute "
                "`notifications`"
            )
        send_notification(self._request, method, to_builtins(params or {}))
        await self._checkpoint()

    @property
    def _questions(self) -> NoReturn:
        method = self._request.call.method
        raise RuntimeError(
            f"{method} cannot ask the client questions: only tools, prompts and "
            "resources can"
        )


class Extension:
    """The base class of extensions.

    Class attributes describe the extension; `settings` may also be set in `__init__`.

    `identifier` is its name, with a prefix that you own, such as "com.example/clock".
    `settings` are advertised in the server's capabilities.
    `in_sessions` says whether it exists in revisions that begin with `initialize`.
    `needs_declaration` says whether only clients that declared it may use its methods.
    `notifications` are the notifications that the server may send.
    `result_types` are the values of `resultType` in its results, except "complete".
    `listens_to` are its keys in the filter of `subscriptions/listen`.
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
                    f"class {cls.__name__}: expected a name of your own, got {name!r}, "
                    "which the protocol itself defines"
                )

    # Hooks

    async def listen(self, listening: Listening) -> Json:
        """Return the accepted part of the filter of a `subscriptions/listen` request.

        `listening.wanted` has the keys in `listens_to` that the client has sent.
        """
        return listening.wanted

    async def follow(self, listening: Listening) -> None:
        """Send notifications with `listening.notify`, until cancelled."""

    def takes_calls_of(self, tool: ServerTool) -> bool:
        """Return whether `call_tool` is used for a tool."""
        return True

    async def call_tool(
        self, request: Request, tool: ServerTool, proceed: Proceed
    ) -> bytes:
        """Wrap a tool call. Returns the encoded result.

        `proceed` continues the call, and returns its encoded result.
        """
        return await proceed()

    def list_tool(
        self, tool: ServerTool, listed: Tool, revision: Revision, is_declared: bool
    ) -> Tool | None:
        """Return the entry of a tool in a list, or None to hide the tool.

        The result must only depend on the arguments, because lists are cached.
        `is_declared` says whether the client has declared the extension. To change
        `listed`, make a copy.
        """
        return listed

    def use_store(self, store: Store) -> None:
        """Use this store for state that the server's processes share.

        If the server has a store, this is called before it runs.
        """

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run while the server runs."""
        yield

    async def settle(self, seconds: float) -> None:
        """Finish background work, within so many seconds, before the server stops.

        Clients are still served while this runs.
        """

    def gauges(self) -> list[Gauge]:
        """Return values for the metrics of an HTTP server.

        This is called for each request for the metrics, so it must be fast.
        """
        return []

    # For subclasses

    def declared(self, request: Request) -> Json | None:
        """Return the client's settings, or None if it did not declare the extension."""
        assert self.server.extensions is not None
        return self.server.extensions.declared(request).get(self.identifier)

    def encode_result(self, revision: Revision, result: object) -> bytes:
        """Encode a result, with the fields that every result has in this revision."""
        shaped = to_builtins(result) if isinstance(result, Struct) else result
        if shaped is None:
            shaped = {}
        if not isinstance(shaped, dict):
            raise TypeError(
                f"extension {self.identifier!r}: expected a Struct, a dictionary or "
                f"None as the result, got {result!r:.100}"
            )
        kind = shaped.get("resultType", "complete")
        if kind != "complete" and kind not in self.result_types:
            raise TypeError(
                f"extension {self.identifier!r}: got the undeclared resultType "
                f"{kind!r}; add it to the class attribute `result_types`"
            )
        if revision.opens:
            shaped = {name: shaped[name] for name in shaped if name != "resultType"}
        return encode(revision.result(shaped))

    # For the server

    def bind(self, server: Server[Any]) -> ExtensionHooks:
        """Add the extension to a server, and return its hooks."""
        if hasattr(self, "server"):
            raise ValueError(
                f"extension {self.identifier!r} already belongs to {self.server!r}; "
                "create another instance"
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
        """Return a hook, or None if the subclass does not override it."""
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
                f"{request.call.method} returned a result of {len(encoded):,} bytes; "
                f"at most {most:,} are allowed"
            )
        return encoded


def _declared_methods(cls: type) -> dict[str, tuple[str, _Declared]]:
    """Return the decorated methods of a class, by their name on the wire."""
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
            f"method {name!r}: expected a subclass of mcp_trio.extensions.Params as "
            f"the annotation of the parameter `params`, got {kind!r}"
        )
    return kind


def _attribute_of(
    kind: type[Params], named_by: str | None, method_name: str
) -> str | None:
    """Return the attribute for a parameter, given its name on the wire."""
    if named_by is None:
        return None
    names: Mapping[str, str] = dict(
        zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    )
    if named_by not in names:
        raise TypeError(
            f"method {method_name!r}: named_by: expected one of {', '.join(names)}, "
            f"got {named_by!r}"
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
