"""JSON Schemas written by hand: each is checked once, when registered, and nothing is ever fetched for it."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import referencing.exceptions
import referencing.jsonschema

# The first is the default.
_SUPPORTED: list[Any] = [
    jsonschema.Draft202012Validator,
    jsonschema.Draft201909Validator,
]
_SUPPORTED += [
    jsonschema.Draft7Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft4Validator,
]
_DIALECTS: dict[str, Any] = {
    kind.ID_OF(kind.META_SCHEMA).rstrip("#"): kind for kind in _SUPPORTED
}
_OUTSIDE = "which is not within the schema; nothing is fetched: put what it refers to under $defs"
_DEEPEST = 100


class Validator:
    """A compiled schema; `what` names it in errors at registration, such as "input_schema of get_weather"."""

    def __init__(self, schema: Mapping[str, Any], *, what: str) -> None:
        contents = dict(schema)
        declared = contents.get("$schema", next(iter(_DIALECTS)))
        dialect = str(declared).rstrip("#")
        if dialect not in _DIALECTS:
            raise ValueError(
                f"{what} declares $schema {declared!r}; supported are {', '.join(_DIALECTS)}"
            )
        if _is_deeper(contents, _DEEPEST):
            raise ValueError(f"{what} is nested more than {_DEEPEST} levels deep")
        try:
            _DIALECTS[dialect].check_schema(contents)
            _resolve_references(contents, dialect, what)
        except jsonschema.SchemaError as error:
            raise ValueError(
                f"{what} is no JSON Schema ({dialect}): {_located(error)}"
            ) from None
        except RecursionError:
            raise ValueError(f"{what} is nested too deep") from None
        self._validator = _DIALECTS[dialect](contents, registry=referencing.Registry())

    def check(self, value: Any) -> None:
        """Raise a ValueError, which says where, unless the value fits."""
        try:
            self._validator.validate(value)
        except jsonschema.ValidationError as error:
            raise ValueError(_located(error)) from None
        except RecursionError:
            raise ValueError(
                "$: nested too deep, or the schema's $ref leads back to itself"
            ) from None


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in inner)


def _resolve_references(schema: dict[str, Any], dialect: str, what: str) -> None:
    specification = referencing.jsonschema.specification_with(dialect)
    root = specification.create_resource(schema)
    pending = [(root, referencing.Registry[Any]().resolver_with_root(root))]
    seen: set[int] = set()
    while pending:
        resource, resolver = pending.pop()
        contents = resource.contents
        if id(contents) in seen or not isinstance(contents, dict):
            continue
        seen.add(id(contents))
        for keyword in {"$ref", "$dynamicRef", "$recursiveRef"} & contents.keys():
            try:
                target = resolver.lookup(contents[keyword])
            except referencing.exceptions.Unresolvable:
                raise ValueError(
                    f"{what} has a $ref to {contents[keyword]!r}, {_OUTSIDE}"
                ) from None
            pending.append(
                (specification.create_resource(target.contents), target.resolver)
            )
        pending.extend(
            (inner, resolver.in_subresource(inner)) for inner in resource.subresources()
        )


def _located(error: jsonschema.ValidationError | jsonschema.SchemaError) -> str:
    return f"{error.json_path}: {error.message:.300}"
