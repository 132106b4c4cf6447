"""The pocket profile, for small clients that expect every field to be present."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..types import Json, Text, ToolResult
from .r2025_06_18 import R2025_06_18


class Pocket(R2025_06_18):
    """Revision 2025-06-18, with every field present in results."""

    def tool_result(self, result: ToolResult) -> Json:
        """Return the result of tools/call, with all of its fields."""
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
        """Return the result of a list request. The last page has an empty cursor."""
        return super().listing(items, cursor or "")
