"""What a server offers, each made of a function: tools, resources and prompts, and what completes their arguments."""

import inspect
import re
from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
import trio

from ..protocol import model
from ..protocol.jsonrpc import encode
from ..protocol.model import CONTENT_TYPES, Json, PromptMessage, PromptResult, Text, TextContents, ToolResult
from . import docstrings, schema
from .access import as_scopes
from .app import Server
from .context import Context, TimedOut
from .dispatch import Request
from .limits import must_be_limits, read_rate
from .registry import NO_SCOPES

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CONTENTS = (TextContents, model.BlobContents)
_VARIABLE = re.compile(r"\{(\+?)(\w+)\}")
# The most values that a completion may have, as the specification says.
MAX_VALUES = 100


class Function:
    """A function that requests run: `async def` in the loop, `def`, which may block, in a thread.

    `kind` is what it is for, as its decorator is called; `name` is what it is known by among its kind.
    """

    listed: Any
    scopes = NO_SCOPES  # what a principal needs to use it, and to know of it
    timeout: float | None = None
    number: int  # its place in the order in which its kind was added

    def __init__(self, function: schema.Function, kind: str, name: str, **options: Any) -> None:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"@server.{kind} goes on a function, not on {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"@server.{kind} goes on a function that returns its result; {function!r} yields")
        self.name = name
        self.label = f"{kind} {name}"
        self.parameters = schema.Parameters(function, of=self.label, injected=Context, **options)
        self.properties: Json = self.parameters.schema.get("properties", {})
        layers = (schema.peeled(function), schema.peeled(function).__call__, schema.innermost(function))
        self._is_async = any(map(inspect.iscoroutinefunction, layers))

    def must_take_strings(self) -> None:
        """What the protocol passes as strings can be taken as strings alone."""
        for name, wanted in self.properties.items():
            options = wanted.get("anyOf", [wanted])
            if not any(option.get("type", "string") == "string" for option in options):
                raise TypeError(f"{self.label}: argument {name!r} comes as a string; use str, an Enum or a Literal")

    def call(self, request: Request, arguments: dict[str, Any]) -> Awaitable[Any]:
        """What runs it, for as long as it may take, when it is awaited; `arguments` may be changed. Raises TimedOut.

        Not async itself: that is a frame a call.
        """
        if self.parameters.injected_name is not None:
            arguments[self.parameters.injected_name] = Context(request)
        calling = self.parameters.call(**arguments) if self._is_async else self._in_thread(request.server, arguments)
        timeout = self.timeout or request.server.limits.timeout
        return calling if timeout is None else self._in_time(calling, timeout)

    async def _in_thread(self, server: Server, arguments: dict[str, Any]) -> Any:
        value = await server.threads.run(partial(self.parameters.call, **arguments))
        return await value if inspect.isawaitable(value) else value

    async def _in_time(self, calling: Awaitable[Any], timeout: float) -> Any:
        with trio.move_on_after(timeout):
            return await calling
        raise TimedOut(f"{self.name} took longer than {timeout:g} s and was stopped")


def described(kind: type[model.Model], function: schema.Function, **given: Any) -> Json:
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


class ServerTool(Function):
    """A tool that can be listed and called."""

    def __init__(
        self,
        function: schema.Function,
        *,
        timeout: float | None = None,
        rate: str | None = None,
        max_in_flight: int | None = None,
        max_result: int | None = None,
        scopes: Iterable[str] = NO_SCOPES,
        **listed: Any,
    ) -> None:
        must_be_limits("server.tool", timeout=timeout, rate=rate, max_in_flight=max_in_flight, max_result=max_result)
        listed = described(model.Tool, function, **listed)
        if not _NAME.fullmatch(listed["name"]):
            raise ValueError(f"tool name {listed['name']!r}: 1 to 128 of the characters A-Z a-z 0-9 _ - . are wanted")
        super().__init__(function, "tool", listed["name"], input_schema=listed.get("input_schema"))
        output_schema, content = listed.get("output_schema"), (*CONTENT_TYPES, ToolResult)
        self._returned = schema.Returned(function, output_schema=output_schema, content=content)
        self.timeout, self.max_in_flight, self.max_result = timeout, max_in_flight, max_result
        self.rate = read_rate(rate) if rate else None
        self.is_limited = rate is not None or max_in_flight is not None
        self.scopes = as_scopes(scopes, "server.tool(scopes)")
        listed |= {"input_schema": self.parameters.schema, "output_schema": self._returned.schema}
        self.listed = model.Tool(**listed)

    async def run(self, request: Request, raw: bytes) -> str | ToolResult:
        """Call it with arguments as they came: one plain text, or a result. Raises InvalidArguments."""
        value = await self.call(request, self.parameters.decode(raw))
        return value if type(value) is str and self._returned.schema is None else self._result(value)

    def _result(self, value: Any) -> ToolResult:
        """Any value that a function returns, as a result."""
        if isinstance(value, ToolResult):
            return self._checked(value)
        content = _content(value, self._returned.is_content)
        if content is not None and self._returned.schema is None:
            return ToolResult(content)
        structured = self._returned.check(value)
        text = Text(msgspec.json.format(msgspec.json.encode(structured), indent=0).decode())
        return ToolResult([text], structured, wrapped=self._wrapped(structured))

    def _checked(self, result: ToolResult) -> ToolResult:
        """A result made by hand, its structured content held to the schema; an error need not have any."""
        if result.structured is msgspec.UNSET:
            if self._returned.schema is not None and not result.is_error:
                raise ValueError(f"{self.name} promises structured content and returned none")
            return result
        structured = result.structured if result.is_error else self._returned.check(result.structured)
        return msgspec.structs.replace(result, structured=structured, wrapped=self._wrapped(structured))

    def _wrapped(self, structured: Any) -> bool:
        return not (isinstance(structured, dict) if self._returned.schema is None else self._returned.is_object)


def _content(value: Any, is_content: bool) -> list[model.Content] | None:
    """Text, content, or a list of those, as content; nothing at all as no content; None for any other value.

    An empty list is a list of those where the annotation says so.
    """
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    if (not items and not is_content) or not all(isinstance(item, (str, *CONTENT_TYPES)) for item in items):
        return None
    return [Text(item) if isinstance(item, str) else item for item in items]


class UriTemplate:
    """A URI with variables: `{name}` matches up to the next slash, however that is written, `{+name}` anything.

    Matching looks for each fixed part once, from left to right, so its time is linear in the URI's length.
    """

    def __init__(self, template: str) -> None:
        pieces = _VARIABLE.split(template)
        literals, self.names = pieces[::3], pieces[2::3]
        if re.search("[{}]", "".join(literals)):
            raise ValueError(f"resource {template!r}: variables are written {{name}} or {{+name}}")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"resource {template!r}: each variable needs a name of its own")
        if not all(literals[1:-1]):
            raise ValueError(f"resource {template!r}: something fixed is wanted between two variables")
        self._within_one_segment = [name for name, sign in zip(self.names, pieces[1::3], strict=True) if not sign]
        fixed = [re.escape(literal) for literal in literals]
        fixed[-1] += r"\Z"
        # Atomic groups: once a fixed part is found, no other place is tried for it.
        self._pattern = re.compile(fixed[0] + "".join(f"(?>(.+?){after})" for after in fixed[1:]), re.DOTALL)

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables' values, percent-decoded; None for a URI of another form."""
        if (found := self._pattern.match(uri)) is None:
            return None
        values = dict(zip(self.names, map(unquote, found.groups()), strict=True))
        return None if any("/" in values[name] for name in self._within_one_segment) else values


class ServerResource(Function):
    """A resource, or a family of them, that can be listed and read."""

    def __init__(self, uri: str, function: schema.Function, *, size: int | None = None, **listed: Any) -> None:
        if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
            raise ValueError(f"resource {uri!r}: a URI starts with a scheme, such as notes://")
        self.template = UriTemplate(uri)
        variables = self.template.names
        super().__init__(function, "resource", uri)
        if sorted(variables) != sorted(self.properties):
            found = f"the URI has {variables or 'none'}, the function {list(self.properties) or 'none'}"
            raise TypeError(f"{self.label}: URI's variables and parameters must have the same names; {found}")
        self.must_take_strings()
        listed = described(model.Resource, function, **listed)
        self.listed = model.ResourceTemplate(uri, **listed) if variables else model.Resource(uri, size=size, **listed)

    async def read(self, request: Request, uri: str) -> list[TextContents | model.BlobContents]:
        """What the URI reads as."""
        value = await self.call(request, self.parameters.decode(encode(self.template.match(uri))))
        given = isinstance(value, list) and len(value) > 0 and all(isinstance(item, _CONTENTS) for item in value)
        return [self._contents(uri, item) for item in (value if given else [value])]

    def _contents(self, uri: str, value: Any) -> TextContents | model.BlobContents:
        if isinstance(value, _CONTENTS):
            return value
        if isinstance(value, str):
            return TextContents(uri, value, mime_type=self.listed.mime_type or "text/plain")
        if isinstance(value, bytes | bytearray | memoryview):
            return model.BlobContents(uri, bytes(value), mime_type=self.listed.mime_type or "application/octet-stream")
        return TextContents(uri, encode(value).decode(), mime_type=self.listed.mime_type or "application/json")


class ServerPrompt(Function):
    """A prompt that can be listed and filled in."""

    def __init__(self, function: schema.Function, **listed: Any) -> None:
        listed = described(model.Prompt, function, **listed)
        super().__init__(function, "prompt", listed["name"])
        self.must_take_strings()
        required = self.parameters.schema.get("required", [])
        arguments = [
            model.PromptArgument(key, description=taken.get("description"), required=key in required)
            for key, taken in self.properties.items()
        ]
        self.listed = model.Prompt(**listed, arguments=arguments or None)

    async def fill(self, request: Request, raw: bytes) -> PromptResult:
        """The prompt with these arguments. Raises InvalidArguments."""
        value = await self.call(request, self.parameters.decode(raw))
        if isinstance(value, PromptResult):
            return value
        items = value if isinstance(value, list) else [value]
        said = [Text(item) if isinstance(item, str) else item for item in items]
        messages = [item if isinstance(item, PromptMessage) else PromptMessage("user", item) for item in said]
        return PromptResult(messages, description=self.listed.description)


class Completer(Function):
    """A function that completes one argument: from what is typed so far, and, if it likes, the other arguments."""

    def __init__(self, function: schema.Function, name: str) -> None:
        super().__init__(function, "complete", name)
        if len(self.properties) not in (1, 2):
            raise TypeError("a completer takes the value so far, and may take a dict of the other arguments")

    async def complete(self, request: Request, value: str, others: dict[str, str]) -> model.Completion:
        """What the value may become."""
        found = await self.call(request, dict(zip(self.properties, (value, others), strict=False)))
        by_hand = isinstance(found, model.Completion)
        values = found.values if by_hand else list(found)
        if isinstance(found, str) or not all(isinstance(item, str) for item in values):
            raise TypeError(f"a completer returned {found!r}; a list of strings or a Completion is wanted")
        total, more = (found.total, found.has_more) if by_hand else (len(values), False)
        return model.Completion(values[:MAX_VALUES], total, more or len(values) > MAX_VALUES)
