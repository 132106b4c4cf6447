"""Tools: what a user registers, and a value becoming a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ..protocol.errors import InvalidArguments, ProtocolError
from ..protocol.model import CONTENT_TYPES, Content, Icon, Json, Text, Tool, ToolAnnotations, ToolResult
from .context import Context
from .docstrings import parse
from .failures import ToolError, expected_failure
from .functions import Function, as_arguments, name_of
from .schema import Parameters, Returned

if TYPE_CHECKING:
    from .dispatch import Request

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ServerTool:
    """A tool that can be listed and called."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        meta: Json | None = None,
    ) -> None:
        name = name or name_of(function)
        if not _NAME.fullmatch(name):
            raise ValueError(f"tool name {name!r}: 1 to 128 of the characters A-Z a-z 0-9 _ - . are wanted")
        parameters = Parameters(function, injected=Context, input_schema=input_schema)
        self._returned = Returned(function, output_schema=output_schema, unstructured=(*CONTENT_TYPES, ToolResult))
        self._function = Function(function, parameters)
        self._timeout = timeout
        self._label = f"tool {name}"
        self.listed = Tool(
            name=name,
            title=title,
            description=description if description is not None else parse(function.__doc__).summary or None,
            input_schema=parameters.schema,
            output_schema=self._returned.schema,
            annotations=annotations,
            icons=icons,
            meta=meta,
        )

    async def run(self, request: Request, raw: bytes) -> str | ToolResult:
        """Call it with arguments as they came: one plain text, or a result. Raises InvalidArguments."""
        arguments = as_arguments(self._function.parameters, raw, self._label)
        try:
            value = await self._call(request, arguments)
        except Exception as problem:
            failure = expected_failure(problem)
            if isinstance(failure, ProtocolError) and not isinstance(failure, InvalidArguments):
                raise failure from None
            if failure is None:
                raise
            return ToolResult([Text(str(failure))], is_error=True)
        return value if type(value) is str and self._returned.schema is None else self._result(value)

    async def _call(self, request: Request, arguments: dict[str, Any]) -> Any:
        timeout = self._timeout or request.server.timeout
        if timeout is None:
            return await self._function.call(request, arguments)
        with trio.move_on_after(timeout):
            return await self._function.call(request, arguments)
        raise ToolError(f"{self.listed.name} took longer than {timeout:g} s and was stopped")

    def _result(self, value: Any) -> ToolResult:
        """Any value that a function returns, as a result."""
        if isinstance(value, ToolResult):
            return self._checked(value)
        content = _content(value, self._returned.is_content)
        if content is not None and self._returned.schema is None:
            return ToolResult(content)
        structured = self._returned.check(value)
        text = msgspec.json.format(msgspec.json.encode(structured), indent=0).decode()
        return ToolResult([Text(text)], structured, wrapped=self._wrapped(structured))

    def _checked(self, result: ToolResult) -> ToolResult:
        """A result made by hand, its structured content held to the schema; an error need not have any."""
        if result.structured is msgspec.UNSET:
            if self._returned.schema is not None and not result.is_error:
                raise ValueError(f"{self.listed.name} promises structured content and returned none")
            return result
        structured = result.structured if result.is_error else self._returned.check(result.structured)
        return msgspec.structs.replace(result, structured=structured, wrapped=self._wrapped(structured))

    def _wrapped(self, structured: Any) -> bool:
        if self._returned.schema is None:
            return not isinstance(structured, dict)
        return not self._returned.is_object


def _content(value: Any, is_content: bool) -> list[Content] | None:
    """Text, content, or a list of those, as content; nothing at all as no content; None for any other value.

    An empty list is a list of those where the annotation says so.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [Text(value)]
    if isinstance(value, CONTENT_TYPES):
        return [value]
    is_list = isinstance(value, list | tuple) and (is_content or len(value) > 0)
    if is_list and all(isinstance(item, (str, *CONTENT_TYPES)) for item in value):
        return [Text(item) if isinstance(item, str) else item for item in value]
    return None
