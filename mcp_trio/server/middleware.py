"""Middleware: functions around tool calls, resource reads and prompts."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..protocol.types import (
    BlobContents,
    PromptResult,
    StructuredContent,
    TextContents,
    ToolResult,
)
from .context import Context
from .request import Environment, Request

if TYPE_CHECKING:
    from .features.prompts import ServerPrompt
    from .features.resources import ServerResource
    from .features.tools import ServerTool

MiddlewareMethod = Literal["tools/call", "resources/read", "prompts/get"]


class MiddlewareCall:
    """A tool call, a resource read or a prompt, as middleware sees it.

    Attributes:
        method: `tools/call`, `resources/read` or `prompts/get`.
        name: The name of the tool or the prompt, or the URI of the resource.
        context: The request's context, as functions get it. `context.state` passes
            values to them.
    """

    def __init__(
        self,
        method: MiddlewareMethod,
        name: str,
        request: Request,
        raw: bytes,
        environment: Environment,
    ) -> None:
        self.method = method
        self.name = name
        self.request = request
        self.context: Context[Any] = Context(request, environment)
        self._raw = raw
        self._arguments: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<MiddlewareCall {self.method} {self.name}>"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as the client sent them, before they are validated.

        You may change them. A resource has none, as its variables are in the URI.
        """
        if self._arguments is None:
            self._arguments = msgspec.json.decode(self._raw, type=dict[str, Any])
        return self._arguments

    @arguments.setter
    def arguments(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments

    def encoded_arguments(self) -> bytes:
        """Return the arguments as JSON, including changes."""
        if self._arguments is None:
            return self._raw
        return msgspec.json.encode(self._arguments)


# `await proceed(call)` runs the inner middleware and the function. It returns a
# ToolResult for a tool call, a list of contents for a read, and a PromptResult for a
# prompt.
Proceed: TypeAlias = Callable[[MiddlewareCall], Awaitable[Any]]
Middleware: TypeAlias = Callable[[MiddlewareCall, Proceed], Awaitable[Any]]


def check_middleware(function: object) -> None:
    """Raise TypeError unless this is `async def function(call, proceed)`."""
    what = f"server.middleware: expected async def f(call, proceed), got {function!r}"
    if not callable(function) or isinstance(function, type):
        raise TypeError(what)
    if not inspect.iscoroutinefunction(inspect.unwrap(function)) and not (
        inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    ):
        raise TypeError(f"{what}, which is not async")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as problem:
        raise TypeError(f"{what}: {problem}") from None


async def call_with_middleware(
    stack: tuple[Middleware, ...], call: MiddlewareCall, tool: ServerTool
) -> ToolResult:
    """Call a tool within the middleware. The first one is outermost."""
    checked: ToolResult | None = None
    request = call.request
    most = tool.largest_result(request)

    async def innermost(call: MiddlewareCall) -> ToolResult:
        nonlocal checked
        value = await tool.run(request, call.encoded_arguments())
        if isinstance(value, str):
            checked = tool.as_result(value, most)
        elif isinstance(value, StructuredContent):
            checked = value.as_tool_result()
        else:
            checked = value
        return checked

    result = await _run(stack, call, innermost)
    # A result that the middleware has made must match the output schema too.
    return checked if result is checked else tool.as_result(result, most)


async def read_with_middleware(
    stack: tuple[Middleware, ...], call: MiddlewareCall, resource: ServerResource
) -> list[TextContents | BlobContents]:
    """Read a resource within the middleware."""
    uri = call.name

    async def innermost(call: MiddlewareCall) -> list[TextContents | BlobContents]:
        return await resource.read(call.request, uri)

    return resource.as_contents(uri, await _run(stack, call, innermost))


async def render_with_middleware(
    stack: tuple[Middleware, ...], call: MiddlewareCall, prompt: ServerPrompt
) -> PromptResult:
    """Render a prompt within the middleware."""

    async def innermost(call: MiddlewareCall) -> PromptResult:
        return await prompt.render(call.request, call.encoded_arguments())

    return prompt.as_result(await _run(stack, call, innermost))


def _run(
    stack: tuple[Middleware, ...], call: MiddlewareCall, innermost: Proceed
) -> Awaitable[Any]:
    """Run the middleware around the innermost function."""
    proceed = innermost
    for middleware in reversed(stack):
        proceed = _bound(middleware, proceed)
    return proceed(call)


def _bound(middleware: Middleware, proceed: Proceed) -> Proceed:
    def run(call: MiddlewareCall) -> Awaitable[Any]:
        return middleware(call, proceed)

    return run
