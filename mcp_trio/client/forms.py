"""Forms that a server asks the user to fill in."""

from __future__ import annotations

from typing import Any

from ..protocol.types import Json


def with_defaults(answer: Json, params: Json) -> Json:
    """Return the answer to a form, with the form's defaults for what it leaves out.

    `params` are those of `elicitation/create`.
    """
    # The program may have returned anything, which is sent as it is.
    given: Any = answer
    if not isinstance(given, dict) or given.get("action") != "accept":
        return answer
    properties = params.get("requestedSchema", {}).get("properties", {})
    defaults = {
        name: field["default"]
        for name, field in properties.items()
        if isinstance(field, dict) and "default" in field
    }
    content = answer.get("content", {})
    # An answer that is not a form is sent as it is.
    if not defaults or not isinstance(content, dict):
        return answer
    return {**answer, "content": defaults | content}
