"""2025-06-18: structured results (objects), resource links, elicitation, titles, `_meta` in lists; no batches."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from ..model import (
    Annotations,
    Audio,
    BlobContents,
    EmbeddedResource,
    Image,
    Implementation,
    Json,
    Prompt,
    PromptArgument,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Text,
    TextContents,
    Tool,
    ToolResult,
)
from .base import names
from .r2025_03_26 import R2025_03_26

_OF_THE_WHOLE = ("$schema", "$defs", "definitions")  # what a schema has at its root, where references look for it


class R2025_06_18(R2025_03_26):
    name = "2025-06-18"
    batches = False
    asks = R2025_03_26.asks | names("elicitation/create")
    elicits_lists = False
    fields = R2025_03_26.fields.plus(
        {
            Implementation: "title",
            Tool: "title outputSchema _meta",
            ToolResult: "structuredContent",
            Text: "_meta",
            Image: "_meta",
            Audio: "_meta",
            ResourceLink: "uri name title description mimeType size annotations _meta",
            EmbeddedResource: "_meta",
            TextContents: "title _meta",  # title: the specification's page shows it, the schema does not name it
            BlobContents: "_meta",
            Annotations: "lastModified",
            Resource: "title _meta",
            ResourceTemplate: "title _meta",
            Prompt: "title _meta",
            PromptArgument: "title",
            "elicitation/create": "message requestedSchema",
        }
    )

    def shape(self, value: Any) -> Any:
        shaped = super().shape(value)
        if type(value) is Tool and value.output_schema is not None:
            shaped["outputSchema"] = self.output_schema(value.output_schema)
        return shaped

    def output_schema(self, schema: Json) -> Json:
        """An output schema as this revision has it: an object's; any other is that of the object which wraps it."""
        if schema.get("type") == "object":
            return schema
        inner = {key: value for key, value in schema.items() if key not in _OF_THE_WHOLE}
        outer: Json = {key: schema[key] for key in _OF_THE_WHOLE if key in schema}
        return {**outer, "type": "object", "properties": {"result": inner}, "required": ["result"]}

    def tool_result(self, result: ToolResult) -> Json:
        shaped = super().tool_result(result)
        if result.structured is not UNSET:
            shaped["structuredContent"] = self.structured(result)
        return shaped

    def structured(self, result: ToolResult) -> Any:
        """Structured content as this revision has it: an object, a value of another type wrapped in one."""
        bare = isinstance(result.structured, dict) and not result.wrapped
        return result.structured if bare else {"result": result.structured}
