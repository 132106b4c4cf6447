"""A user's function: called with its arguments and its Context, in the loop or in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from ..protocol.errors import InvalidArguments
from .context import Context
from .schema import Parameters

if TYPE_CHECKING:
    from .dispatch import Request


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    called = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(inspect.unwrap(called)) or inspect.iscoroutinefunction(called)


def name_of(function: Callable[..., Any]) -> str:
    """A function's own name, also of a partial one or of an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


class Function:
    """A function that requests run: `async def` in the loop, `def`, which may block, in a thread."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self.parameters = parameters
        self._function = parameters.call
        self._context_name = parameters.injected_name
        self._is_async = is_async(function)

    async def call(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Run it; it may change `arguments`."""
        if self._context_name is not None:
            arguments[self._context_name] = Context(request)
        if self._is_async:
            return await self._function(**arguments)
        # A thread cannot be stopped: on cancellation it is left to end by itself, its result thrown away.
        return await trio.to_thread.run_sync(
            functools.partial(self._function, **arguments),
            abandon_on_cancel=True,
            limiter=request.server.threads,
        )


def only_strings(parameters: Parameters, what: str) -> None:
    """What the protocol passes as strings can be taken as strings alone."""
    for name, schema in parameters.schema.get("properties", {}).items():
        options = schema.get("anyOf", [schema])
        if not any(option.get("type", "string") == "string" for option in options):
            raise TypeError(f"{what}: argument {name!r} comes as a string; annotate it with str, an Enum or a Literal")


def as_arguments(parameters: Parameters, raw: bytes, of: str) -> dict[str, Any]:
    """Arguments, typed. Raises InvalidArguments saying whose they are."""
    try:
        return parameters.decode(raw)
    except InvalidArguments as problem:
        raise InvalidArguments(problem.reason, of=of) from None
