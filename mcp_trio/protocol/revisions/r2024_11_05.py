"""Revision 2024-11-05.

New: typed content and `isError`, pages, cancellation, roots, and a list of resource
templates of its own.
"""

from .base import Revision
from .r2024_10_07 import R2024_10_07


class R2024_11_05(Revision):
    """Revision 2024-11-05.

    Only the table builds on the predecessor. What the first revision does differently
    in code was never done again.
    """

    name = "2024-11-05"
    table = R2024_10_07.table.plus("""
        requests: resources/templates/list
        notifications: notifications/cancelled notifications/roots/list_changed
        asks: roots/list
        tells: notifications/cancelled
        ToolResult: -toolResult content isError
        Text Image ResourceTemplate: annotations
        EmbeddedResource: resource annotations
        Resource: annotations size
        Annotations: audience priority
        initialize: instructions
        notifications/cancelled: requestId reason
        sampling/createMessage: modelPreferences
    """)
