"""Forms for users: the flat schemas that elicitation has, out of a dataclass, Struct or TypedDict.

A choice gets titles by JSON Schema's own words for them, beside its type:
`Annotated[Literal["a", "b"], Meta(extra_json_schema={"oneOf": [{"const": "a", "title": "First"}, …]})]`; in a list of
choices it is `anyOf`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from ..protocol.model import Json

_KEYS = {
    "string": "type title description minLength maxLength format enum enumNames oneOf default",
    "number": "type title description minimum maximum default",
    "integer": "type title description minimum maximum default",
    "boolean": "type title description default",
    "array": "type title description minItems maxItems items default",
}
_FORMATS = ("email", "uri", "date", "date-time")


@cache
def form_schema(form: type[Any], *, lists: bool) -> Json:
    """The schema of a form. `lists`: whether the revision has choices of several, and defaults of any kind.

    Raises TypeError for a field that no form can have, ValueError for one that this revision's forms cannot.
    """
    schema = msgspec.json.schema(form)
    definitions = schema.get("$defs", {})
    top = _resolved(schema, definitions)
    if top.get("type") != "object" or "properties" not in top:
        raise TypeError(f"a form is a dataclass, Struct or TypedDict with fields, not {form!r}")
    fields = {
        name: _field(f"{form.__name__}.{name}", _resolved(field, definitions), definitions, lists)
        for name, field in top["properties"].items()
    }
    required = [name for name in fields if name in top.get("required", [])]
    return {"type": "object", "properties": fields, **({"required": required} if required else {})}


def _field(name: str, schema: Json, definitions: Json, lists: bool) -> Json:
    """One field: a text, a number, a yes or no, a choice, or a choice of several."""
    schema = _titled(_without_null(schema, definitions), lists)
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        schema = {"type": "string", **schema}
    kind = schema.get("type")
    if kind == "array":
        schema = _choice_of_several(name, schema, definitions, lists)
    elif kind not in _KEYS or ("enum" in schema and kind != "string"):
        raise TypeError(f"{name}: a form's field is a str, int, float, bool, a choice of strings or a list of those")
    kept = {key: schema[key] for key in _KEYS[str(kind)].split() if key in schema and schema[key] is not None}
    if kept.get("format") not in _FORMATS:
        kept.pop("format", None)
    if not lists and kind != "boolean":
        kept.pop("default", None)
    return kept


def _choice_of_several(name: str, schema: Json, definitions: Json, lists: bool) -> Json:
    items = _resolved(schema.get("items", {}), definitions)
    if not all(isinstance(value, str) for value in items.get("enum", [0])):
        raise TypeError(f"{name}: a list in a form is a list of choices: list[Literal['a', 'b']], or of a str Enum")
    if not lists:
        raise ValueError(f"{name}: this protocol revision has no lists in its forms")
    titled = "anyOf" in items
    return {**schema, "items": {"anyOf": items["anyOf"]} if titled else {"type": "string", "enum": items["enum"]}}


def _titled(schema: Json, lists: bool) -> Json:
    """A choice with titles: as `oneOf`; for a revision before that, as the two lists that it had."""
    if "oneOf" not in schema:
        return schema
    choices = schema["oneOf"]
    kept = {key: value for key, value in schema.items() if key not in ("enum", "oneOf")}
    if lists:
        return {"type": "string", **kept, "oneOf": choices}
    values, titles = zip(*((choice["const"], choice["title"]) for choice in choices), strict=True)
    return {"type": "string", **kept, "enum": list(values), "enumNames": list(titles)}


def _resolved(schema: Json, definitions: Json) -> Json:
    """The schema that a reference leads to, with what stands beside the reference."""
    if "$ref" not in schema:
        return schema
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    return {**definitions[schema["$ref"].removeprefix("#/$defs/")], **beside}


def _without_null(schema: Json, definitions: Json) -> Json:
    """`X | None` as X: a form's field that is not required may be left empty."""
    options = [_resolved(option, definitions) for option in schema.get("anyOf", [])]
    real = [option for option in options if option.get("type") != "null"]
    if len(real) != 1:
        return schema
    return {**real[0], **{key: value for key, value in schema.items() if key != "anyOf"}}
