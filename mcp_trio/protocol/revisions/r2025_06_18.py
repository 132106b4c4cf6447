"""2025-06-18: structured results (objects), resource links, elicitation, titles, `_meta` in lists; no batches."""

from ..types import Json, Tool
from .r2025_03_26 import R2025_03_26

_OF_THE_WHOLE = (
    "$schema",
    "$defs",
    "definitions",
)  # what a schema has at its root, where references look for it


class R2025_06_18(R2025_03_26):
    name = "2025-06-18"
    batches = False
    wraps = True
    # The title of TextContents is on the specification's page; the schema does not name it.
    table = R2025_03_26.table.plus("""
        asks: elicitation/create
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
        shaped = super().permitted(kind, fields)
        if self.wraps and kind is Tool and "outputSchema" in shaped:
            shaped["outputSchema"] = _of_an_object(shaped["outputSchema"])
        return shaped


def _of_an_object(schema: Json) -> Json:
    """An output schema as this revision has it: an object's; any other is that of the object which wraps it."""
    if schema.get("type") == "object":
        return schema
    inner = {key: value for key, value in schema.items() if key not in _OF_THE_WHOLE}
    outer: Json = {key: schema[key] for key in _OF_THE_WHOLE if key in schema}
    return {
        **outer,
        "type": "object",
        "properties": {"result": inner},
        "required": ["result"],
    }
