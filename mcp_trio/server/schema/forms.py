"""Forms: the flat schemas of elicitation."""

import functools
from typing import TYPE_CHECKING, Any

from msgspec import convert, json

from .annotation_parts import is_pydantic
from .annotations import located
from .decode import with_whole_numbers
from .generate import JSONSchema, schema_of, without_empty

if TYPE_CHECKING:
    from .pydantic_types import PydanticType

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
    """Return the schema of a form: a dataclass, Struct, TypedDict or pydantic model.

    `lists` says whether the protocol revision supports lists of choices in forms, and
    defaults of any type.

    To give titles to choices, use JSON Schema's keyword `oneOf`, or `anyOf` in a list:
    `Annotated[Literal["a", "b"], Meta(extra_json_schema={"oneOf": [{"const": "a",
    "title": "First"}, ...]})]`.

    Raises TypeError if forms do not support a field, and ValueError if this revision
    does not.
    """
    with located(f"a form, {form!r},"):
        schema = _schema(form)
    if "properties" not in schema:
        raise TypeError(
            "a form: expected a dataclass, Struct, TypedDict or pydantic model with "
            f"fields, got {form!r}"
        )
    definitions = schema.get("$defs", {})
    fields = {}
    for name, field in schema["properties"].items():
        field = _with_definitions(field, definitions)
        fields[name] = _field_schema(f"{form.__name__}.{name}", field, lists)
    return without_empty(
        type="object", properties=fields, required=schema.get("required")
    )


def decode_form(form: type[Any], content: Any) -> Any:
    """Return a completed form, given its fields. Raises ValueError."""
    if not is_pydantic(form):
        return convert(content, form)
    decode = _pydantic_type(form).decode
    encoded = json.encode(content)
    try:
        return decode(encoded)
    except ValueError as error:
        return decode(with_whole_numbers(encoded, error))


def _schema(form: type[Any]) -> JSONSchema:
    if is_pydantic(form):
        return _pydantic_type(form).schema("validation")
    return schema_of(form)


def _pydantic_type(form: type[Any]) -> "PydanticType":
    # Deferred, because it imports pydantic, which the user has imported by now.
    from .pydantic_types import PydanticType

    return PydanticType(form)


def _with_definitions(schema: Any, definitions: JSONSchema) -> Any:
    """Replace references in a field's schema with their definitions.

    Forms do not support definitions. pydantic generates one for each Enum.
    """
    if isinstance(schema, list):
        return [_with_definitions(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    written: JSONSchema = {}
    for keyword, value in schema.items():
        if keyword == "$ref":
            written |= definitions[value.removeprefix("#/$defs/")]
        else:
            written[keyword] = _with_definitions(value, definitions)
    return written


def _field_schema(name: str, schema: JSONSchema, lists: bool) -> JSONSchema:
    """Return the schema of one field: a string, number, boolean, choice or choices."""
    schema = _without_null(schema)
    kind = schema.get("type")
    if kind == "array":
        items = _items_schema(name, schema.get("items", {}), lists)
        schema = schema | {"items": items}
    elif not _is_scalar(schema):
        raise TypeError(
            f"{name}: expected a form's field to be a str, int, float, bool, a choice "
            "of strings or a list of choices"
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

    A field that is not required may be empty anyway.
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
            f"{name}: expected a list in a form to be a list of choices, such as "
            "list[Literal['a', 'b']] or a list of a str Enum"
        )
    if not lists:
        raise ValueError(
            f"{name}: this protocol revision does not support lists in forms"
        )
    if "anyOf" in items:
        return {"anyOf": items["anyOf"]}
    return {"type": "string", "enum": items["enum"]}
