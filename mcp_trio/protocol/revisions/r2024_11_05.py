"""2024-11-05: typed content and isError, pages, cancellation, roots, resource templates as a list of their own."""

from .base import Revision, names
from .r2024_10_07 import R2024_10_07


class R2024_11_05(R2024_10_07):
    name = "2024-11-05"
    pages = True
    requests = R2024_10_07.requests | names("resources/templates/list")
    notifications = R2024_10_07.notifications | names("notifications/cancelled notifications/roots/list_changed")
    asks = R2024_10_07.asks | names("roots/list")
    tells = R2024_10_07.tells | names("notifications/cancelled")
    fields = R2024_10_07.fields.plus("""
        ToolResult: -toolResult content isError
        Text Image ResourceTemplate: annotations
        EmbeddedResource: resource annotations
        Resource: annotations size
        Annotations: audience priority
        initialize: instructions
        notifications/cancelled: requestId reason
        sampling/createMessage: modelPreferences
    """)
    levels = Revision.levels
    tool_result = Revision.tool_result
    error = Revision.error
