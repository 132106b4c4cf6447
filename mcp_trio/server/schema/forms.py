"""Forms: the flat schemas that elicitation shows to users."""

import functools
from typing import Any

from .annotations import located
from .generate import JSONSchema, filled, schema_of

# The keywords that a field of a form may have, in the order of the output.
_KEYWORDS = (
    *("type", "title", "description"),
    *("minLength", "maxLength", "minimum", "maximum", "format"),
    *("minItems", "maxItems", "items"),
    *("enum", "enumNames", "oneOf", "default"),
)
_FORMATS = ("email", "uri", "date", "date-time")


@functools.cache
def form_schema(form: type[Any], *, lists: bool) -> JSONSchema:
    """Return the schema of a form, given as a dataclass, Struct or TypedDict.

    `lists` says whether the protocol revision has lists of choices in forms, and
    defaults of any type.

    To give titles to choices, use JSON Schema's keyword `oneOf`, or `anyOf` in a list:
    `Annotated[Literal["a", "b"], Meta(extra_json_schema={"oneOf": [{"const": "a",
    "title": "First"}, ...]})]`.

    Raises TypeError if a form cannot have such a field, and ValueError if the revision
    does not support it.
    """
    with located(f"a form, {form!r},"):
        schema = schema_of(form)
    if "properties" not in schema:
        raise TypeError(
            f"a form is a dataclass, Struct or TypedDict with fields, not {form!r}"
        )
    fields = {}
    for name, field in schema["properties"].items():
        fields[name] = _field_schema(f"{form.__name__}.{name}", field, lists)
    return filled(type="object", properties=fields, required=schema.get("required"))


def _field_schema(name: str, schema: JSONSchema, lists: bool) -> JSONSchema:
    """Return the schema of one field: a text, number, boolean, choice or choices."""
    schema = _without_null(schema)
    kind = schema.get("type")
    if kind == "array":
        items = _items_schema(name, schema.get("items", {}), lists)
        schema = schema | {"items": items}
    elif not _is_scalar(schema):
        raise TypeError(
            f"{name}: a form's field is a str, int, float, bool, "
            "a choice of strings or a list of those"
        )
    if "oneOf" in schema:
        schema = _with_titles(schema, lists)
    kept = {}
    for keyword in _KEYWORDS:
        if schema.get(keyword) is not None:
            kept[keyword] = schema[keyword]
    if kept.get("format") not in _FORMATS:
        kept.pop("format", None)
    if not lists and kind != "boolean":
        kept.pop("default", None)
    return kept


def _without_null(schema: JSONSchema) -> JSONSchema:
    """Return the schema of X for a field of type `X | None`.

    A field that is not required may be left empty anyway.
    """
    null = {"type": "null"}
    options = [option for option in schema.get("anyOf", ()) if option != null]
    if len(options) != 1:
        return schema
    inner: JSONSchema = options[0]
    return inner | schema


def _is_scalar(schema: JSONSchema) -> bool:
    kind = schema.get("type")
    if "enum" in schema:
        return kind == "string"
    return kind in ("string", "number", "integer", "boolean")


def _with_titles(schema: JSONSchema, lists: bool) -> JSONSchema:
    """Return the schema of a choice whose options have titles.

    Older revisions have a list of values and a list of titles in place of `oneOf`.
    """
    if lists:
        return schema | {"enum": None}
    options = schema["oneOf"]
    if not options:
        return schema
    values = [option["const"] for option in options]
    titles = [option["title"] for option in options]
    return schema | {"enum": values, "enumNames": titles, "oneOf": None}


def _items_schema(name: str, items: JSONSchema, lists: bool) -> JSONSchema:
    """Return the schema of the choices in a list."""
    if "enum" not in items or items.get("type") != "string":
        raise TypeError(
            f"{name}: a list in a form is a list of choices: "
            "list[Literal['a', 'b']], or of a str Enum"
        )
    if not lists:
        raise ValueError(f"{name}: this protocol revision has no lists in its forms")
    if "anyOf" in items:
        return {"anyOf": items["anyOf"]}
    return {"type": "string", "enum": items["enum"]}
