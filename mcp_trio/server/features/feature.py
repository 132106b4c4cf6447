"""TODO"""

import inspect
from collections.abc import Awaitable
from functools import partial
from typing import Any

import trio

from ...auth.principal import NO_SCOPES
from ...protocol import types as model
from ...protocol.types import (
    Json,
)
from ..context import Context
from ..exceptions import TimedOut
from ..request import Request
from ..schema import docstrings
from ..schema.signature import AnyFunction, Parameters, innermost, peeled
from ..worker_threads import WorkerThreads


class Feature:
    """A function that requests run: `async def` in the loop, `def`, which may block, in a thread.

    `kind` is what it is for, as its decorator is called; `name` is what it is known by among its kind.
    """

    listed: Any
    scopes = NO_SCOPES  # what a principal needs to use it, and to know of it
    timeout: float | None = None
    number: int  # its place in the order in which its kind was added

    def __init__(
        self, function: AnyFunction, kind: str, name: str, **options: Any
    ) -> None:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@server.{kind} goes on a function, not on {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(
            function
        ):
            raise TypeError(
                f"@server.{kind} goes on a function that returns its result; {function!r} yields"
            )
        self.name = name
        self.label = f"{kind} {name}"
        self.parameters = Parameters(
            function, of=self.label, injected=Context, **options
        )
        self.properties: Json = self.parameters.schema.get("properties", {})
        layers = (peeled(function), peeled(function).__call__, innermost(function))
        self._is_async = any(map(inspect.iscoroutinefunction, layers))

    def must_take_strings(self) -> None:
        """What the protocol passes as strings can be taken as strings alone."""
        for name, wanted in self.properties.items():
            options = wanted.get("anyOf", [wanted])
            if not any(option.get("type", "string") == "string" for option in options):
                raise TypeError(
                    f"{self.label}: argument {name!r} comes as a string; use str, an Enum or a Literal"
                )

    def call(self, request: Request, arguments: dict[str, Any]) -> Awaitable[Any]:
        """What runs it, for as long as it may take, when it is awaited; `arguments` may be changed. Raises TimedOut.

        Not async itself: that is a frame a call.
        """
        if self.parameters.injected_name is not None:
            arguments[self.parameters.injected_name] = Context(request)
        calling = (
            self.parameters.call(**arguments)
            if self._is_async
            else self._in_thread(request.environment.worker_threads, arguments)
        )
        timeout = self.timeout or request.environment.limits.timeout
        return calling if timeout is None else self._in_time(calling, timeout)

    async def _in_thread(
        self, threads: WorkerThreads | None, arguments: dict[str, Any]
    ) -> Any:
        assert threads is not None  # the server runs
        value = await threads.run(partial(self.parameters.call, **arguments))
        return await value if inspect.isawaitable(value) else value

    async def _in_time(self, calling: Awaitable[Any], timeout: float) -> Any:
        with trio.move_on_after(timeout):
            return await calling
        raise TimedOut(f"{self.name} took longer than {timeout:g} s and was stopped")


def described(kind: type[model.Model], function: AnyFunction, **given: Any) -> Json:
    """How a function is listed: its own name and docstring stand in for those that are not given."""
    decorator = f"@server.{kind.__name__.lower()}"
    if unknown := given.keys() - set(kind.__struct_fields__):
        raise TypeError(
            f"{decorator} has no option {unknown.pop()!r}; its docstring lists what it has"
        )
    if not isinstance(given.get("name", ""), str | None):
        raise TypeError(f"{decorator}(name) wants a string, not {given['name']!r}")
    named = peeled(function)
    name, summary = (
        getattr(named, "__name__", type(named).__name__),
        docstrings.parse(named.__doc__).summary,
    )
    own = {"name": name, "description": summary or None}
    return {
        **own,
        **{option: value for option, value in given.items() if value is not None},
    }
