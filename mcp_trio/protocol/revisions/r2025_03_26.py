"""Revision 2025-03-26.

New: batches, audio, annotations of tools, a capability for completion, and a message
with each notification of progress.
"""

from .r2024_11_05 import R2024_11_05


class R2025_03_26(R2024_11_05):
    """Revision 2025-03-26."""

    name = "2025-03-26"
    batches = True
    resumes = True
    table = R2024_11_05.table.plus("""
        capabilities: completions
        Audio: data mimeType annotations
        Tool: annotations
        ToolAnnotations: title readOnlyHint destructiveHint idempotentHint openWorldHint
        notifications/progress: message
    """)
