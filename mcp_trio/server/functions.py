"""A user's function: called with its arguments and its Context, in the loop or in a thread."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import trio

from ..protocol.errors import InvalidArguments
from ..protocol.model import Json
from . import docstrings
from .context import Context
from .dispatch import Request
from .schema import Parameters

Called = Callable[..., Any]


class Function:
    """A function that requests run: `async def` in the loop, `def`, which may block, in a thread.

    `kind` is what it is for, as its decorator is called; `name` is what it is known by among its kind.
    """

    listed: Any

    def __init__(self, function: Called, kind: str, name: str, **options: Any) -> None:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@server.{kind} goes on a function, not on {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"@server.{kind} goes on a function that returns its result; {function!r} yields")
        self.name = name
        self.label = f"{kind} {name}"
        self.parameters = Parameters(function, injected=Context, **options)
        self.properties: Json = self.parameters.schema.get("properties", {})
        self._function = self.parameters.call
        self._context_name = self.parameters.injected_name
        self._is_async = _is_async(function)

    def arguments(self, raw: bytes) -> dict[str, Any]:
        """Arguments as they came, typed. Raises InvalidArguments saying whose they are."""
        try:
            return self.parameters.decode(raw)
        except InvalidArguments as problem:
            raise InvalidArguments(problem.reason, of=self.label) from None

    def must_take_strings(self) -> None:
        """What the protocol passes as strings can be taken as strings alone."""
        for name, schema in self.properties.items():
            options = schema.get("anyOf", [schema])
            if not any(option.get("type", "string") == "string" for option in options):
                wanted = "annotate it with str, an Enum or a Literal"
                raise TypeError(f"{self.label}: argument {name!r} comes as a string; {wanted}")

    async def call(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Run it; it may change `arguments`."""
        if self._context_name is not None:
            arguments[self._context_name] = Context(request)
        if self._is_async:
            return await self._function(**arguments)
        call = functools.partial(self._function, **arguments)
        # A thread cannot be stopped: on cancellation it is left to end by itself, its result thrown away.
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=request.server.threads)


def described(function: Called, name: str | None = None, description: str | None = None, **given: Any) -> Json:
    """How a function is listed: its own name and docstring stand in for those that are not given."""
    named = _innermost(function)
    if description is None:
        description = docstrings.parse(named.__doc__).summary or None
    return {"name": name or getattr(named, "__name__", type(named).__name__), "description": description, **given}


def _innermost(function: Called) -> Called:
    """The function that a partial one, or one of many layers, has within."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _is_async(function: Called) -> bool:
    """Whether calling it gives something to await; it may be an object that can be called."""
    function = _innermost(function)
    called = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(inspect.unwrap(called)) or inspect.iscoroutinefunction(called)
