"""The pocket profile: 2025-06-18 with nothing left out, for small agents that read by position and habit."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..types import Json, Text, ToolResult
from .r2025_06_18 import R2025_06_18


class Pocket(R2025_06_18):
    def tool_result(self, result: ToolResult) -> Json:
        shaped = super().tool_result(result)
        content = shaped["content"] or [self.shape(Text(""))]
        structured = shaped.get("structuredContent", {})
        return {
            **shaped,
            "content": content,
            "structuredContent": structured,
            "isError": result.is_error,
        }

    def listing(self, items: Mapping[str, Sequence[Any]], cursor: str | None) -> Json:
        return super().listing(items, cursor or "")
