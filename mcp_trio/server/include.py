"""Including the features of one server in another.

The outer server has a stand-in for each feature of the inner server. A stand-in runs
the inner server's middleware and then the feature itself. The outer server's
middleware, limits and extensions apply to both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from ..protocol.types import (
    BlobContents,
    Implementation,
    PromptResult,
    StructuredContent,
    TextContents,
    ToolResult,
)
from .extension_points import ExtensionPoints
from .features.feature import Feature
from .features.prompts import ServerPrompt
from .features.resources import ServerResource
from .features.tools import ServerTool, check_tool_name
from .middleware import (
    Middleware,
    MiddlewareCall,
    call_with_middleware,
    read_with_middleware,
    render_with_middleware,
)
from .registry import Registry
from .request import Environment, Request


class HasFeatures(Protocol):
    """The attributes of a server that are used here."""

    info: Implementation
    tools: Registry[ServerTool]
    resources: Registry[ServerResource]
    templates: Registry[ServerResource]
    prompts: Registry[ServerPrompt]
    extensions: ExtensionPoints | None


class InnerServer(HasFeatures, Protocol):
    """The server that is included."""

    environment: Environment
    middleware_stack: tuple[Middleware, ...]


T = TypeVar("T", bound=Feature)
ServerT = TypeVar("ServerT", bound=InnerServer)


class IncludedTool(ServerTool):
    """A tool of an included server."""

    original: ServerTool

    def __init__(self, tool: ServerTool, name: str, server: InnerServer) -> None:
        vars(self).update(vars(tool))
        self.name = name
        self.label = f"tool {name}"
        self.listed = replace(tool.listed, name=name)
        self.original = tool
        self.server = server

    async def run(
        self, request: Request, raw: bytes
    ) -> str | StructuredContent | ToolResult:
        """Call the tool with encoded arguments, within its server's middleware."""
        tool = self.original
        stack = self.server.middleware_stack
        if not stack:
            return await tool.run(request, raw)
        environment = self.server.environment
        call = MiddlewareCall("tools/call", tool.name, request, raw, environment)
        return await call_with_middleware(stack, call, tool)


class IncludedResource(ServerResource):
    """A resource or a template of an included server. Its URI stays the same."""

    original: ServerResource

    def __init__(self, resource: ServerResource, server: InnerServer) -> None:
        vars(self).update(vars(resource))
        self.original = resource
        self.server = server

    async def read(
        self, request: Request, uri: str
    ) -> list[TextContents | BlobContents]:
        """Read the resource within its server's middleware."""
        stack = self.server.middleware_stack
        if not stack:
            return await self.original.read(request, uri)
        environment = self.server.environment
        call = MiddlewareCall("resources/read", uri, request, b"{}", environment)
        return await read_with_middleware(stack, call, self.original)


class IncludedPrompt(ServerPrompt):
    """A prompt of an included server."""

    original: ServerPrompt

    def __init__(self, prompt: ServerPrompt, name: str, server: InnerServer) -> None:
        vars(self).update(vars(prompt))
        self.name = name
        self.label = f"prompt {name}"
        self.listed = replace(prompt.listed, name=name)
        self.original = prompt
        self.server = server

    async def render(self, request: Request, raw: bytes) -> PromptResult:
        """Render the prompt with encoded arguments, within its server's middleware."""
        prompt = self.original
        stack = self.server.middleware_stack
        if not stack:
            return await prompt.render(request, raw)
        environment = self.server.environment
        call = MiddlewareCall("prompts/get", prompt.name, request, raw, environment)
        return await render_with_middleware(stack, call, prompt)


class Mirror(Generic[T]):
    """Keeps stand-ins for the features of one registry in another registry."""

    def __init__(
        self,
        inner: Registry[T],
        outer: Registry[T],
        prefix: str,
        stand_in: Callable[[T, str], T],
    ) -> None:
        self._inner = inner
        self._outer = outer
        self._prefix = prefix
        self._make_stand_in = stand_in
        # By the name of the original.
        self._stand_ins: dict[str, T] = {}

    def check(self) -> None:
        """Raise ValueError if the outer registry cannot include all features."""
        for item in list(self._inner.values()):
            self.check_is_free(item.name, item)

    def begin(self) -> None:
        """Add stand-ins for all features, and for those that are added later."""
        for item in list(self._inner.values()):
            self.added(item)
        self._inner.follow(self)

    # Called by the registry

    def check_is_free(self, name: str, item: T) -> None:
        """Raise ValueError if the outer registry already has the name."""
        if not item.is_includable:
            return
        outer_name = self._prefix + name
        if self._outer.kind == "tool":
            check_tool_name(outer_name)
        self._outer.check_is_free(outer_name, item)

    def added(self, item: T) -> None:
        """Add a stand-in for a feature."""
        if not item.is_includable:
            return
        stand_in = self._make_stand_in(item, self._prefix + item.name)
        self._stand_ins[item.name] = stand_in
        self._outer.add(stand_in)

    def removed(self, item: T) -> None:
        """Remove the stand-in, unless it was already removed from the outer server."""
        stand_in = self._stand_ins.pop(item.name, None)
        if stand_in is not None and self._outer.get(stand_in.name) is stand_in:
            self._outer.remove(stand_in.name)

    def replaced(self, before: T, item: T) -> None:
        """Replace the stand-in of a feature."""
        old = self._stand_ins.get(before.name)
        if old is not None and self._outer.get(old.name) is old:
            stand_in = self._make_stand_in(item, old.name)
            self._stand_ins[item.name] = stand_in
            self._outer.replace(stand_in)


class Inclusion(Generic[ServerT]):
    """The inclusion of one server in another."""

    def __init__(self, outer: HasFeatures, server: ServerT, prefix: str) -> None:
        self.server = server
        self.prefix = prefix
        self._outer = outer
        self._mirrors: tuple[Mirror[Any], ...] = (
            Mirror(server.tools, outer.tools, prefix, self._tool),
            Mirror(server.resources, outer.resources, "", self._resource),
            Mirror(server.templates, outer.templates, "", self._resource),
            Mirror(server.prompts, outer.prompts, prefix, self._prompt),
        )

    def begin(self) -> None:
        """Add the features to the outer server. Raises ValueError for a name clash."""
        for mirror in self._mirrors:
            mirror.check()
        for mirror in self._mirrors:
            mirror.begin()

    def original_of(self, item: Feature | None) -> Feature | None:
        """Return the original of a stand-in, or None for other features."""
        included = (IncludedTool, IncludedResource, IncludedPrompt)
        if isinstance(item, included) and item.server is self.server:
            return item.original
        return None

    def _tool(self, tool: ServerTool, name: str) -> ServerTool:
        included = IncludedTool(tool, name, self.server)
        extensions = self._outer.extensions
        included.call_hooks = () if extensions is None else extensions.call_hooks(tool)
        return included

    def _resource(self, resource: ServerResource, uri: str) -> ServerResource:
        return IncludedResource(resource, self.server)

    def _prompt(self, prompt: ServerPrompt, name: str) -> ServerPrompt:
        return IncludedPrompt(prompt, name, self.server)


def without_stand_ins(item: Feature) -> Feature:
    """Return the original if this is a stand-in, or else the feature itself."""
    while item.original is not None:
        item = item.original
    return item
