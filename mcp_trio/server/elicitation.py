"""Forms for users: the flat schemas that elicitation has, out of a dataclass, Struct or TypedDict.

A choice gets titles by JSON Schema's own words for them, beside its type:
`Annotated[Literal["a", "b"], Meta(extra_json_schema={"oneOf": [{"const": "a", "title": "First"}, …]})]`; in a list of
choices it is `anyOf`.
"""

from functools import cache
from typing import Any

from ..protocol.model import Json
from .schema import filled, located, schema_of

_KEYS = "type title description minLength maxLength minimum maximum format minItems maxItems items".split()
_KEYS += "enum enumNames oneOf default".split()


@cache
def form_schema(form: type[Any], *, lists: bool) -> Json:
    """The schema of a form. `lists`: whether the revision has choices of several, and defaults of any kind.

    Raises TypeError for a field that no form can have, ValueError for one that this revision's forms cannot.
    """
    with located(f"a form, {form!r},"):
        schema = schema_of(form)
    if "properties" not in schema:
        raise TypeError(f"a form is a dataclass, Struct or TypedDict with fields, not {form!r}")
    fields = {name: _field(f"{form.__name__}.{name}", field, lists) for name, field in schema["properties"].items()}
    return filled(type="object", properties=fields, required=schema.get("required"))


def _field(name: str, schema: Json, lists: bool) -> Json:
    """One field: a text, a number, a yes or no, a choice, or a choice of several."""
    real = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(real) == 1:  # `X | None` is X: a field that is not required may be left empty
        schema = real[0] | schema
    kind = schema.get("type")
    if kind == "array":
        schema = schema | {"items": _choices(name, schema.get("items", {}), lists)}
    elif kind not in ("string", "number", "integer", "boolean") or ("enum" in schema and kind != "string"):
        raise TypeError(f"{name}: a form's field is a str, int, float, bool, a choice of strings or a list of those")
    if "oneOf" in schema:
        schema = schema | _titled(schema["oneOf"], lists)
    kept = {key: schema[key] for key in _KEYS if schema.get(key) is not None}
    if kept.get("format") not in ("email", "uri", "date", "date-time"):
        kept.pop("format", None)
    if not lists and kind != "boolean":
        kept.pop("default", None)
    return kept


def _choices(name: str, items: Json, lists: bool) -> Json:
    """What a choice of several has to choose from."""
    if "enum" not in items or items.get("type") != "string":
        raise TypeError(f"{name}: a list in a form is a list of choices: list[Literal['a', 'b']], or of a str Enum")
    if not lists:
        raise ValueError(f"{name}: this protocol revision has no lists in its forms")
    return {"anyOf": items["anyOf"]} if "anyOf" in items else {"type": "string", "enum": items["enum"]}


def _titled(choices: list[Json], lists: bool) -> Json:
    """A choice with titles: as `oneOf`; for a revision before that, as the two lists that it had."""
    if lists:
        return {"oneOf": choices, "enum": None}
    values = [choice["const"] for choice in choices]
    return {"enum": values, "enumNames": [choice["title"] for choice in choices], "oneOf": None}
