"""Revision 2024-11-05.

New: typed content and `isError`, pages, cancellation, roots, and a separate list of
resource templates.
"""

from .base import Revision
from .r2024_10_07 import R2024_10_07


class R2024_11_05(Revision):
    """Revision 2024-11-05.

    It derives from `Revision`, because no later revision needs the code of 2024-10-07.
    Only the table builds on that of its predecessor.
    """

    name = "2024-11-05"
    table = R2024_10_07.table.plus("""
        requests: resources/templates/list
        notifications: notifications/cancelled notifications/roots/list_changed
        server_requests: roots/list
        server_notifications: notifications/cancelled
        ToolResult: -toolResult content isError
        Text Image ResourceTemplate: annotations
        EmbeddedResource: resource annotations
        Resource: annotations size
        Annotations: audience priority
        initialize: instructions
        notifications/cancelled: requestId reason
        sampling/createMessage: modelPreferences
    """)
