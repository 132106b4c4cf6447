"""TODO"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from ...auth.principal import NO_SCOPES, as_scopes
from ...protocol import types as model
from ...protocol.types import (
    CONTENT_TYPES,
    Text,
    ToolResult,
)
from ..limits import must_be_limits, read_rate
from ..request import Request
from ..schema.signature import AnyFunction, Returned
from .feature import Feature, described

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class ServerTool(Feature):
    """A tool that can be listed and called."""

    def __init__(
        self,
        function: AnyFunction,
        *,
        timeout: float | None = None,
        rate: str | None = None,
        max_in_flight: int | None = None,
        max_result: int | None = None,
        scopes: Iterable[str] = NO_SCOPES,
        **listed: Any,
    ) -> None:
        must_be_limits(
            "server.tool",
            timeout=timeout,
            rate=rate,
            max_in_flight=max_in_flight,
            max_result=max_result,
        )
        listed = described(model.Tool, function, **listed)
        if not _NAME.fullmatch(listed["name"]):
            raise ValueError(
                f"tool name {listed['name']!r}: 1 to 128 of the characters A-Z a-z 0-9 _ - . are wanted"
            )
        super().__init__(
            function, "tool", listed["name"], input_schema=listed.get("input_schema")
        )
        output_schema, content = (
            listed.get("output_schema"),
            (*CONTENT_TYPES, ToolResult),
        )
        self._returned = Returned(
            function, output_schema=output_schema, content=content
        )
        self.timeout, self.max_in_flight, self.max_result = (
            timeout,
            max_in_flight,
            max_result,
        )
        self.rate = read_rate(rate) if rate else None
        self.is_limited = rate is not None or max_in_flight is not None
        self.scopes = as_scopes(scopes, "server.tool(scopes)")
        listed |= {
            "input_schema": self.parameters.schema,
            "output_schema": self._returned.schema,
        }
        self.listed = model.Tool(**listed)

    async def run(self, request: Request, raw: bytes) -> str | ToolResult:
        """Call it with arguments as they came: one plain text, or a result. Raises InvalidArguments."""
        value = await self.call(request, self.parameters.decode(raw))
        return (
            value
            if type(value) is str and self._returned.schema is None
            else self._result(value)
        )

    def _result(self, value: Any) -> ToolResult:
        """Any value that a function returns, as a result."""
        if isinstance(value, ToolResult):
            return self._checked(value)
        content = _content(value, self._returned.is_content)
        if content is not None and self._returned.schema is None:
            return ToolResult(content)
        structured = self._returned.check(value)
        text = Text(
            msgspec.json.format(msgspec.json.encode(structured), indent=0).decode()
        )
        return ToolResult([text], structured, wrapped=self._wrapped(structured))

    def _checked(self, result: ToolResult) -> ToolResult:
        """A result made by hand, its structured content held to the schema; an error need not have any."""
        if result.structured is msgspec.UNSET:
            if self._returned.schema is not None and not result.is_error:
                raise ValueError(
                    f"{self.name} promises structured content and returned none"
                )
            return result
        structured = (
            result.structured
            if result.is_error
            else self._returned.check(result.structured)
        )
        return msgspec.structs.replace(
            result, structured=structured, wrapped=self._wrapped(structured)
        )

    def _wrapped(self, structured: Any) -> bool:
        return not (
            isinstance(structured, dict)
            if self._returned.schema is None
            else self._returned.is_object
        )


def _content(value: Any, is_content: bool) -> list[model.Content] | None:
    """Text, content, or a list of those, as content; nothing at all as no content; None for any other value.

    An empty list is a list of those where the annotation says so.
    """
    if value is None:
        return []
    items = value if isinstance(value, list | tuple) else [value]
    if (not items and not is_content) or not all(
        isinstance(item, (str, *CONTENT_TYPES)) for item in items
    ):
        return None
    return [Text(item) if isinstance(item, str) else item for item in items]
