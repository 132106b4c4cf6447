"""Revision 2025-06-18.

New: structured content, which is always an object, resource links, elicitation, titles,
and `_meta` in lists. Removed: batches.
"""

from ..types import Json, Tool, ToolUseResult
from .r2025_03_26 import R2025_03_26

# Keywords that stay at the root of a schema, because references point there.
_ROOT_KEYWORDS = ("$schema", "$defs", "definitions")


class R2025_06_18(R2025_03_26):
    """Revision 2025-06-18."""

    name = "2025-06-18"
    batches = False
    wraps = True
    # The specification's page has the title of TextContents; the schema lacks it.
    table = R2025_03_26.table.plus("""
        server_requests: elicitation/create
        Implementation PromptArgument: title
        Tool: title outputSchema _meta
        ToolResult: structuredContent
        Text Image Audio EmbeddedResource BlobContents: _meta
        Prompt Resource ResourceTemplate TextContents: title _meta
        ResourceLink: uri name title description mimeType size annotations _meta
        Annotations: lastModified
        elicitation/create: message requestedSchema
    """)

    def permitted(self, kind: type | str, fields: Json) -> Json:
        """Return the fields that this revision defines.

        An output schema has to describe an object, and the structured content of a tool
        result in sampling has to be an object. Other values are wrapped in one.
        """
        shaped = super().permitted(kind, fields)
        if self.wraps and kind is Tool and "outputSchema" in shaped:
            shaped["outputSchema"] = _wrapped_schema(shaped["outputSchema"])
        if self.wraps and kind is ToolUseResult and "structuredContent" in shaped:
            structured = shaped["structuredContent"]
            if not isinstance(structured, dict):
                shaped["structuredContent"] = {"result": structured}
        return shaped


def _wrapped_schema(schema: Json) -> Json:
    """Return the schema of the object that structured content is wrapped in.

    The schema of an object is returned as it is.
    """
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key not in _ROOT_KEYWORDS}
    outer: Json = {key: schema[key] for key in _ROOT_KEYWORDS if key in schema}
    outer["type"] = "object"
    outer["properties"] = {"result": inner}
    outer["required"] = ["result"]
    return outer
