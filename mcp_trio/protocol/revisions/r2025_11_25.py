"""2025-11-25: icons, elicitation by address and of lists, tools while sampling; bad arguments are a tool's result."""

from typing import ClassVar

from ..errors import (
    InternalError,
    InvalidArguments,
    TooManyCalls,
    UrlElicitationRequired,
)
from .r2025_06_18 import R2025_06_18


class R2025_11_25(R2025_06_18):
    name = "2025-11-25"
    primes = True
    # TextContents as its page shows it.
    table = R2025_06_18.table.plus("""
        tells: notifications/elicitation/complete
        Implementation: description icons websiteUrl
        Icon: src mimeType sizes theme
        Tool Resource ResourceTemplate ResourceLink Prompt: icons
        TextContents: -title annotations
        elicitation/create: mode url elicitationId
        notifications/elicitation/complete: elicitationId
        sampling/createMessage: tools toolChoice
    """)
    codes_of: ClassVar = {
        key: kind
        for key, kind in R2025_06_18.codes_of.items()
        if key is not UrlElicitationRequired
    }
    tool_failures = frozenset({InternalError, InvalidArguments, TooManyCalls})
    errors_without_id = True
