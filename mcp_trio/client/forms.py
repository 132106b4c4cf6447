"""Forms that a server asks the user to fill in."""

from __future__ import annotations

from ..protocol.types import Json


def with_defaults(answer: Json, params: Json) -> Json:
    """Return the answer to a form, with the form's defaults for what it leaves out.

    `params` are those of `elicitation/create`.
    """
    if answer.get("action") != "accept":
        return answer
    properties = params.get("requestedSchema", {}).get("properties", {})
    defaults = {
        name: field["default"]
        for name, field in properties.items()
        if "default" in field
    }
    if not defaults:
        return answer
    return {**answer, "content": defaults | (answer.get("content") or {})}
