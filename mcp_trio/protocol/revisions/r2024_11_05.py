"""2024-11-05: typed content and isError, pages, cancellation, roots, resource templates as a list of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..errors import ProtocolError
from ..model import Annotations, EmbeddedResource, Image, Json, Resource, ResourceTemplate, Text, ToolResult
from .base import Revision, names
from .r2024_10_07 import R2024_10_07


class R2024_11_05(R2024_10_07):
    name = "2024-11-05"
    pages = True
    requests = R2024_10_07.requests | names("resources/templates/list")
    notifications = R2024_10_07.notifications | names("notifications/cancelled notifications/roots/list_changed")
    asks = R2024_10_07.asks | names("roots/list")
    tells = R2024_10_07.tells | names("notifications/cancelled")
    fields = R2024_10_07.fields.plus(
        {
            ToolResult: "content isError",
            Text: "annotations",
            Image: "annotations",
            EmbeddedResource: "resource annotations",
            Resource: "annotations size",
            ResourceTemplate: "annotations",
            Annotations: "audience priority",
            "notifications/cancelled": "requestId reason",
            "sampling/createMessage": "modelPreferences",
            "roots/list": "",
        }
    )
    levels: ClassVar = Revision.levels

    def initialize_result(self, features: Mapping[str, Json]) -> Json:
        result = super().initialize_result(features)
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return result

    tool_result = Revision.tool_result

    def error(self, error: ProtocolError) -> Json:
        return Revision.error(self, error)
