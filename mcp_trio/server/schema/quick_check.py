"""Fast validation of values against a JSON Schema that a user has written.

Most schemas are simple, and correspond to a type that msgspec can decode. If decoding a
value as this type succeeds, the value is valid.

The type may be stricter than the schema, but never more lenient. There is no such type
if the schema has unsupported keywords, or invalid values of keywords.
"""

import re
from collections.abc import Callable, Mapping, Set
from typing import Annotated, Any, Literal, Union

import msgspec

MAX_DEPTH = 100
# Dialects where all supported keywords have the same meaning.
_DIALECTS = frozenset(
    {
        "https://json-schema.org/draft/2020-12/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "http://json-schema.org/draft-07/schema",
    }
)
# Keywords that do not restrict values, and the types of their values. jsonschema does
# not check formats either.
_ANNOTATIONS: dict[str, type] = {
    "$schema": str,
    "$comment": str,
    "title": str,
    "description": str,
    "default": object,
    "examples": list,
    "deprecated": bool,
    "readOnly": bool,
    "writeOnly": bool,
    "format": str,
}
_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
}
# Larger numbers are not exact as floats.
_GREATEST_BOUND = 2**53
# JSON type -> its keywords -> the constraints of msgspec.
_CONSTRAINTS: dict[str, dict[str, str]] = {
    "string": {
        "minLength": "min_length",
        "maxLength": "max_length",
        "pattern": "pattern",
    },
    "integer": _BOUNDS,
    "number": _BOUNDS,
    "boolean": {},
    "null": {},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
    "object": {},
}
# JSON type -> its keywords for nested values.
_CONTENTS = {
    "array": frozenset({"items"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_SIZES = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_SCALARS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
}


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether a value has more than this many levels of nesting."""
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, list):
        items = value
    else:
        return False
    return levels == 0 or any(is_deeper(item, levels - 1) for item in items)


class _Unknown(Exception):
    """A schema has no corresponding type."""


def quick_check(schema: Mapping[str, Any]) -> Callable[[bytes], Any] | None:
    """Return a function that decodes valid values only.

    It raises one of `DECODE_ERRORS` if a value may be invalid. Returns None if the
    schema is invalid or not simple.
    """
    if is_deeper(dict(schema), MAX_DEPTH):
        return None
    try:
        return msgspec.json.Decoder(_type_of(schema)).decode
    except (_Unknown, TypeError, ValueError, RecursionError, re.error):
        return None


def _type_of(schema: Any) -> Any:
    """Return the type for a schema. Raises _Unknown."""
    if schema is True:
        return Any
    if not isinstance(schema, Mapping):
        raise _Unknown
    _check_annotations(schema)
    keywords = schema.keys() - _ANNOTATIONS.keys()
    if not keywords:
        return Any
    if "enum" in schema or "const" in schema:
        return _choice(schema, keywords)
    kinds = schema.get("type")
    if isinstance(kinds, str):
        kinds = [kinds]
    if not isinstance(kinds, list) or not kinds or len(set(kinds)) < len(kinds):
        raise _Unknown
    known = {"type"}
    for kind in kinds:
        known.update(_CONSTRAINTS.get(kind, ()), _CONTENTS.get(kind, ()))
    if keywords - known:
        raise _Unknown
    return Union[tuple(_member(kind, schema) for kind in kinds)]  # noqa: UP007


def _check_annotations(schema: Mapping[str, Any]) -> None:
    """Raise _Unknown if the value of an annotation keyword is invalid."""
    for keyword, kind in _ANNOTATIONS.items():
        if keyword in schema and not isinstance(schema[keyword], kind):
            raise _Unknown
    if schema.get("$schema", next(iter(_DIALECTS))).rstrip("#") not in _DIALECTS:
        raise _Unknown


def _choice(schema: Mapping[str, Any], keywords: Set[str]) -> Any:
    """Return the type for a choice of strings. Raises _Unknown."""
    choices = schema.get("enum")
    if "const" in schema:
        choices = [schema["const"]]
    is_simple = keywords <= {"enum", "type"} or keywords <= {"const", "type"}
    if not is_simple or schema.get("type", "string") != "string":
        raise _Unknown
    if not isinstance(choices, list) or not choices:
        raise _Unknown
    if not all(isinstance(choice, str) for choice in choices):
        raise _Unknown
    return Literal[tuple(choices)]


def _member(kind: Any, schema: Mapping[str, Any]) -> Any:
    """Return the type for a schema, restricted to one JSON type. Raises _Unknown."""
    if kind not in _CONSTRAINTS:
        raise _Unknown
    constraints = {}
    for keyword, name in _CONSTRAINTS[kind].items():
        if keyword in schema:
            constraints[name] = _constraint(keyword, schema[keyword])
    if kind == "object":
        return _object(schema)
    if kind == "array":
        member: Any = list[_type_of(schema.get("items", True))]  # type: ignore[misc]
    else:
        member = _SCALARS[kind]
    if not constraints:
        return member
    meta = msgspec.Meta(**constraints)
    if kind == "number":
        return Annotated[int, meta] | Annotated[float, meta]
    return Annotated[member, meta]


def _constraint(keyword: str, value: Any) -> Any:
    """Return the value of a keyword. Raises _Unknown if it is invalid or unusual."""
    if keyword == "pattern":
        if not isinstance(value, str):
            raise _Unknown
        return value
    if type(value) is not int or abs(value) > _GREATEST_BOUND:
        raise _Unknown
    if keyword in _SIZES and value < 0:
        raise _Unknown
    return value


def _object(schema: Mapping[str, Any]) -> Any:
    """Return the type for an object schema. Raises _Unknown."""
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    further = schema.get("additionalProperties", True)
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        raise _Unknown
    if not properties and not required and further is not False:
        return dict[str, _type_of(further)]  # type: ignore[misc]
    if not isinstance(further, bool) or len(set(required)) < len(required):
        raise _Unknown
    fields: list[Any] = []
    names: dict[str, str] = {}
    for name in dict.fromkeys([*properties, *required]):
        if not isinstance(name, str):
            raise _Unknown
        # Properties can have any name, but fields must be identifiers.
        field = f"field_{len(names)}"
        names[field] = name
        kind = _type_of(properties.get(name, True))
        if name in required:
            fields.append((field, kind))
        else:
            fields.append((field, kind, msgspec.UNSET))
    return msgspec.defstruct(
        "_",
        fields,
        rename=names,
        kw_only=True,
        forbid_unknown_fields=not further,
    )
