"""Forms that a server asks the user to fill in."""

from __future__ import annotations

from typing import Any

from ..protocol.types import Json


def with_defaults(answer: Json, params: Json) -> Json:
    """Fill in the form's defaults for fields that the answer does not contain.

    `params` are those of `elicitation/create`.
    """
    # A handler may return anything. What is not an answer is sent unchanged.
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
    # Content that is not a form is sent unchanged.
    if not defaults or not isinstance(content, dict):
        return answer
    return {**answer, "content": defaults | content}
