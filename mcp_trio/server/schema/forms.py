"""TODO"""

import functools
from typing import Any

from .annotations import located
from .generate import JSONSchema, filled, schema_of

# Forms for users

_FORM_KEYS = "type title description minLength maxLength minimum maximum format minItems maxItems items".split()
_FORM_KEYS += "enum enumNames oneOf default".split()


@functools.cache
def form_schema(form: type[Any], *, lists: bool) -> JSONSchema:
    """The flat schema that elicitation has of a dataclass, Struct or TypedDict.

    `lists`: whether the revision has choices of several, and defaults of any kind.

    A choice gets titles by JSON Schema's own words for them, beside its type: `Annotated[Literal["a", "b"],
    Meta(extra_json_schema={"oneOf": [{"const": "a", "title": "First"}, …]})]`; in a list of choices it is `anyOf`.

    Raises TypeError for a field that no form can have, ValueError for one that this revision's forms cannot.
    """
    with located(f"a form, {form!r},"):
        schema = schema_of(form)
    if "properties" not in schema:
        raise TypeError(
            f"a form is a dataclass, Struct or TypedDict with fields, not {form!r}"
        )
    fields = {
        name: _entry(f"{form.__name__}.{name}", field, lists)
        for name, field in schema["properties"].items()
    }
    return filled(type="object", properties=fields, required=schema.get("required"))


def _entry(name: str, schema: JSONSchema, lists: bool) -> JSONSchema:
    """One field: a text, a number, a yes or no, a choice, or a choice of several."""
    real = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if (
        len(real) == 1
    ):  # `X | None` is X: a field that is not required may be left empty
        schema = real[0] | schema
    kind = schema.get("type")
    if kind == "array":
        schema = schema | {"items": _choices(name, schema.get("items", {}), lists)}
    elif kind not in ("string", "number", "integer", "boolean") or (
        "enum" in schema and kind != "string"
    ):
        raise TypeError(
            f"{name}: a form's field is a str, int, float, bool, a choice of strings or a list of those"
        )
    if "oneOf" in schema and lists:
        schema = schema | {"enum": None}
    elif titled := schema.get(
        "oneOf"
    ):  # a revision before that has two lists in its place
        values, titles = (
            [choice["const"] for choice in titled],
            [choice["title"] for choice in titled],
        )
        schema = schema | {"enum": values, "enumNames": titles, "oneOf": None}
    kept = {key: schema[key] for key in _FORM_KEYS if schema.get(key) is not None}
    if kept.get("format") not in ("email", "uri", "date", "date-time"):
        kept.pop("format", None)
    if not lists and kind != "boolean":
        kept.pop("default", None)
    return kept


def _choices(name: str, items: JSONSchema, lists: bool) -> JSONSchema:
    """What a choice of several has to choose from."""
    if "enum" not in items or items.get("type") != "string":
        raise TypeError(
            f"{name}: a list in a form is a list of choices: list[Literal['a', 'b']], or of a str Enum"
        )
    if not lists:
        raise ValueError(f"{name}: this protocol revision has no lists in its forms")
    return (
        {"anyOf": items["anyOf"]}
        if "anyOf" in items
        else {"type": "string", "enum": items["enum"]}
    )
