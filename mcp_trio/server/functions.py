"""A user's function: called with its arguments and its Context, in the loop or in a thread."""

import inspect
from typing import Any

import trio

from ..protocol.errors import InvalidArguments
from ..protocol.model import Json, Model
from . import docstrings, schema
from .context import Context
from .dispatch import Request

Called = schema.Function


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
        self.parameters = schema.Parameters(function, injected=Context, **options)
        self.properties: Json = self.parameters.schema.get("properties", {})
        layers = (schema.peeled(function), schema.peeled(function).__call__, schema.innermost(function))
        self._is_async = any(map(inspect.iscoroutinefunction, layers))

    def arguments(self, raw: bytes) -> dict[str, Any]:
        """Arguments as they came, typed. Raises InvalidArguments saying whose they are."""
        try:
            return self.parameters.decode(raw)
        except InvalidArguments as problem:
            raise InvalidArguments(problem.reason, of=self.label) from None

    def must_take_strings(self) -> None:
        """What the protocol passes as strings can be taken as strings alone."""
        for name, wanted in self.properties.items():
            options = wanted.get("anyOf", [wanted])
            if not any(option.get("type", "string") == "string" for option in options):
                raise TypeError(f"{self.label}: argument {name!r} comes as a string; use str, an Enum or a Literal")

    async def call(self, request: Request, arguments: dict[str, Any]) -> Any:
        """Run it; it may change `arguments`."""
        if self.parameters.injected_name is not None:
            arguments[self.parameters.injected_name] = Context(request)
        if self._is_async:
            return await self.parameters.call(**arguments)

        def call() -> list[Any]:  # in a list, as trio lets no thread return what is to be awaited
            return [self.parameters.call(**arguments)]

        # A thread cannot be stopped: on cancellation it is left to end by itself, its result thrown away.
        (value,) = await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=request.server.threads)
        return await value if inspect.isawaitable(value) else value


def described(kind: type[Model], function: Called, **given: Any) -> Json:
    """How a function is listed: its own name and docstring stand in for those that are not given."""
    decorator = f"@server.{kind.__name__.lower()}"
    if unknown := given.keys() - set(kind.__struct_fields__):
        raise TypeError(f"{decorator} has no option {unknown.pop()!r}; its docstring lists what it has")
    if not isinstance(given.get("name", ""), str | None):
        raise TypeError(f"{decorator}(name) wants a string, not {given['name']!r}")
    named = schema.peeled(function)
    name, summary = getattr(named, "__name__", type(named).__name__), docstrings.parse(named.__doc__).summary
    own = {"name": name, "description": summary or None}
    return {**own, **{option: value for option, value in given.items() if value is not None}}
