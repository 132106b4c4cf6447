"""2025-03-26: batches, audio, tool annotations, completions as a capability, a message with progress."""

from .base import names
from .r2024_11_05 import R2024_11_05


class R2025_03_26(R2024_11_05):
    name = "2025-03-26"
    batches = True
    resumes = True
    capabilities = R2024_11_05.capabilities | names("completions")
    fields = R2024_11_05.fields.plus("""
        Audio: data mimeType annotations
        Tool: annotations
        ToolAnnotations: title readOnlyHint destructiveHint idempotentHint openWorldHint
        notifications/progress: message
    """)
