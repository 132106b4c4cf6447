"""Revision 2025-11-25.

New: icons, URL elicitation, lists of choices in forms, and tools in sampling. Invalid
tool arguments are reported in the tool's result.
"""

from typing import ClassVar

from ..errors import (
    InternalError,
    InvalidArguments,
    TooManyCalls,
    UrlElicitationRequired,
)
from .r2025_06_18 import R2025_06_18


class R2025_11_25(R2025_06_18):
    """Revision 2025-11-25."""

    name = "2025-11-25"
    primes = True
    # The fields of TextContents follow the specification's text, not its schema.
    table = R2025_06_18.table.plus("""
        server_notifications: notifications/elicitation/complete
        Implementation: description icons websiteUrl
        Icon: src mimeType sizes theme
        Tool Resource ResourceTemplate ResourceLink Prompt: icons
        TextContents: -title annotations
        elicitation/create: mode url elicitationId
        notifications/elicitation/complete: elicitationId
        sampling/createMessage: tools toolChoice
        SamplingMessage: _meta
        ToolUse: id name input _meta
        ToolUseResult: toolUseId content structuredContent isError _meta
    """)
    # This revision has a code for UrlElicitationRequired.
    codes_of: ClassVar = {
        kind: code
        for kind, code in R2025_06_18.codes_of.items()
        if kind is not UrlElicitationRequired
    }
    tool_failures = frozenset({InternalError, InvalidArguments, TooManyCalls})
    errors_without_id = True
