"""Feature: the base class of tools, resources, prompts and completers."""

import inspect
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

import trio

from ...auth.principal import NO_SCOPES
from ...protocol.errors import InvalidParams
from ...protocol.types import Json, Model
from ..accounts import account_of
from ..context import Context
from ..exceptions import TimedOut
from ..request import Environment, Request
from ..schema import docstrings
from ..schema.signature import AnyFunction, Parameters, innermost, without_partials
from ..schema.strings import StringParameters


class Feature:
    """A function that a request runs: `async def` in the event loop, `def` in a thread.

    `kind` is the name of the decorator that registers it, such as "tool". `name` is
    unique among the features of this kind. `strings` says whether the protocol sends
    its arguments as strings.
    """

    listed: Model  # its entry in the protocol's lists
    number: int  # its number among the features of its kind, for pagination
    environment: Environment  # of the server that it was registered with
    scopes = NO_SCOPES  # required to see and to use it
    timeout: float | None = None
    # The feature of the included server that this is a stand-in for, if any.
    original: "Feature | None" = None
    # Whether a server that includes this feature's server gets the feature too.
    is_includable = True

    def __init__(
        self,
        function: AnyFunction,
        kind: str,
        name: str,
        *,
        input_schema: Mapping[str, Any] | None = None,
        strings: bool = False,
    ) -> None:
        if isinstance(function, type) or not callable(function):
            advice = ""
            if isinstance(function, str):
                advice = f"; for a name, write @server.{kind}(name={function!r})"
            raise TypeError(
                f"@server.{kind}: expected a function, got {function!r}{advice}"
            )
        if _is_generator(function):
            raise TypeError(
                f"@server.{kind}: expected a function that returns its result, "
                f"got the generator function {function!r}"
            )
        self.name = name
        self.label = f"{kind} {name}"
        self.parameters: Parameters
        if strings:
            self.parameters = StringParameters(
                function, of=self.label, injected=Context
            )
        else:
            self.parameters = Parameters(
                function, of=self.label, injected=Context, input_schema=input_schema
            )
        self.properties: Json = self.parameters.schema.get("properties", {})
        self._is_async = _is_async(function)

    def decode(self, raw: bytes) -> dict[str, Any]:
        """Decode arguments into keyword arguments. Raises InvalidParams.

        Null means no arguments, because Go clients encode an absent map as null.
        """
        try:
            return self.parameters.decode(raw)
        except InvalidParams:
            # Checked only now, because few clients send null.
            if bytes(raw) != b"null":
                raise
        return self.parameters.decode(b"{}")

    def call(self, request: Request, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Return an awaitable that runs the function, which may raise TimedOut.

        `arguments` may be modified. This method is not async, because that would add a
        frame to every call.
        """
        injected_name = self.parameters.injected_name
        if injected_name is not None:
            arguments[injected_name] = Context(request, self.environment)
        running: Awaitable[Any]
        if self._is_async:
            running = self.parameters.call(**arguments)
        else:
            running = self._run_in_thread(request, arguments)
        timeout = self.timeout or request.environment.limits.timeout
        if timeout is None:
            return running
        return self._run_within(timeout, running)

    async def _run_in_thread(self, request: Request, arguments: dict[str, Any]) -> Any:
        threads = request.environment.worker_threads
        assert threads is not None  # the server is running
        account = account_of(request.conversation, request.principal)
        call = partial(self.parameters.call, **arguments)
        value = await threads.run(call, account, self.label)
        if inspect.isawaitable(value):
            return await value
        return value

    async def _run_within(self, timeout: float, running: Awaitable[Any]) -> Any:
        with trio.move_on_after(timeout):
            return await running
        raise TimedOut(f"{self.name} took longer than {timeout:g} s and was stopped")


def listed_name(kind: str, name: object, function: AnyFunction) -> str:
    """Return the given name of a feature, or the function's name if it is None."""
    if isinstance(name, str):
        return name
    if name is not None:
        raise TypeError(f"@server.{kind}(name): expected a string, got {name!r}")
    named = without_partials(function)
    own_name: str = getattr(named, "__name__", type(named).__name__)
    return own_name


def listed_description(description: str | None, function: AnyFunction) -> str | None:
    """Return the given description, or the one in the docstring if it is None."""
    if description is not None:
        return description
    summary = docstrings.parse(without_partials(function).__doc__).summary
    return summary or None


def _is_generator(function: AnyFunction) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _is_async(function: AnyFunction) -> bool:
    """Return whether a function is async, inside partials and decorators."""
    plain = without_partials(function)
    layers = (plain, plain.__call__, innermost(function))
    return any(inspect.iscoroutinefunction(layer) for layer in layers)
