"""Tools: what a user registers, and a value becoming a result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import trio

from ..protocol.model import CONTENT_TYPES, Content, Text, Tool, ToolResult
from .dispatch import Request
from .failures import ToolError
from .functions import Called, Function, described
from .schema import Returned

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ServerTool(Function):
    """A tool that can be listed and called."""

    def __init__(
        self,
        function: Called,
        *,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **listed: Any,
    ) -> None:
        listed = described(function, **listed)
        if not _NAME.fullmatch(listed["name"]):
            raise ValueError(f"tool name {listed['name']!r}: 1 to 128 of the characters A-Z a-z 0-9 _ - . are wanted")
        super().__init__(function, "tool", listed["name"], input_schema=input_schema)
        self._returned = Returned(function, output_schema=output_schema, unstructured=(*CONTENT_TYPES, ToolResult))
        self._timeout = timeout
        self.listed = Tool(**listed, input_schema=self.parameters.schema, output_schema=self._returned.schema)

    async def run(self, request: Request, raw: bytes) -> str | ToolResult:
        """Call it with arguments as they came: one plain text, or a result. Raises InvalidArguments."""
        value = await self._call_in_time(request, self.arguments(raw))
        return value if type(value) is str and self._returned.schema is None else self._result(value)

    async def _call_in_time(self, request: Request, arguments: dict[str, Any]) -> Any:
        timeout = self._timeout or request.server.timeout
        if timeout is None:
            return await self.call(request, arguments)
        with trio.move_on_after(timeout):
            return await self.call(request, arguments)
        raise ToolError(f"{self.name} took longer than {timeout:g} s and was stopped")

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
        if self._returned.schema is None:
            return not isinstance(structured, dict)
        return not self._returned.is_object


def _content(value: Any, is_content: bool) -> list[Content] | None:
    """Text, content, or a list of those, as content; nothing at all as no content; None for any other value.

    An empty list is a list of those where the annotation says so.
    """
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    if (not items and not is_content) or not all(isinstance(item, (str, *CONTENT_TYPES)) for item in items):
        return None
    return [Text(item) if isinstance(item, str) else item for item in items]
