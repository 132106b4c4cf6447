"""Validation against JSON Schemas that users have written, with jsonschema.

A schema is checked once, at registration. References are never downloaded.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import jsonschema
import referencing.exceptions
import referencing.jsonschema

from .quick_check import MAX_DEPTH, is_deeper


def _check_unique(
    validator: Any, is_required: Any, value: Any, schema: Any
) -> Iterator[jsonschema.ValidationError]:
    """Check `uniqueItems` in linear time.

    jsonschema compares every two items if they are objects. A few thousand of them
    would take seconds.
    """
    if not is_required or not isinstance(value, list):
        return
    if len(set(map(_identity, value))) < len(value):
        yield jsonschema.ValidationError(f"{value!r} has non-unique elements")


def _identity(value: Any) -> Hashable:
    """Return an object that is equal for equal JSON values.

    1 and 1.0 are equal. Numbers are represented as text, because clients could choose
    many with the same hash.
    """
    if isinstance(value, dict):
        members = [(key, _identity(member)) for key, member in value.items()]
        return "object", frozenset(members)
    if isinstance(value, list):
        return "array", tuple(map(_identity, value))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        return value
    return "other", str(value)


# The first one is the default.
_SUPPORTED: list[Any] = [
    jsonschema.Draft202012Validator,
    jsonschema.Draft201909Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft4Validator,
]
# The URI of a dialect, as in $schema -> its validator.
_DIALECTS: dict[str, Any] = {
    kind.ID_OF(kind.META_SCHEMA).rstrip("#"): jsonschema.validators.extend(
        kind, {"uniqueItems": _check_unique}
    )
    for kind in _SUPPORTED
}
_DEFAULT_DIALECT = next(iter(_DIALECTS))
_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}


class Validator:
    """A compiled schema.

    `what` names the schema in errors at registration, as in "input_schema of add()".
    """

    def __init__(self, schema: Mapping[str, Any], *, what: str) -> None:
        contents = dict(schema)
        declared = contents.get("$schema", _DEFAULT_DIALECT)
        dialect = str(declared).rstrip("#")
        if dialect not in _DIALECTS:
            raise ValueError(
                f"{what} declares $schema {declared!r}; "
                f"supported are {', '.join(_DIALECTS)}"
            )
        if is_deeper(contents, MAX_DEPTH):
            raise ValueError(f"{what} is nested more than {MAX_DEPTH} levels deep")
        try:
            _DIALECTS[dialect].check_schema(contents)
            _check_references(contents, dialect, what)
        except jsonschema.SchemaError as error:
            raise ValueError(
                f"{what} is not a valid JSON Schema ({dialect}): {_explain(error)}"
            ) from None
        except RecursionError:
            raise ValueError(f"{what} is nested too deeply") from None
        self._validator = _DIALECTS[dialect](contents, registry=referencing.Registry())

    def check(self, value: Any) -> None:
        """Raise ValueError, with the location of the problem, if a value is invalid."""
        try:
            self._validator.validate(value)
        except jsonschema.ValidationError as error:
            raise ValueError(_explain(error)) from None
        except RecursionError:
            raise ValueError(
                "$: nested too deep, or a $ref in the schema is a loop"
            ) from None


def _check_references(schema: dict[str, Any], dialect: str, what: str) -> None:
    """Raise ValueError if a reference is not within the schema."""
    specification = referencing.jsonschema.specification_with(dialect)
    root = specification.create_resource(schema)
    resolver = referencing.Registry[Any]().resolver_with_root(root)
    pending = [(root, resolver)]
    seen: set[int] = set()
    while pending:
        resource, resolver = pending.pop()
        contents = resource.contents
        if id(contents) in seen or not isinstance(contents, dict):
            continue
        seen.add(id(contents))
        for keyword in _REFERENCES & contents.keys():
            found = _look_up(resolver, contents[keyword], what)
            target = specification.create_resource(found.contents)
            pending.append((target, found.resolver))
        for inner in resource.subresources():
            inner_resolver = resolver.in_subresource(inner)
            pending.append((inner, inner_resolver))


def _look_up(resolver: Any, reference: Any, what: str) -> Any:
    """Resolve a reference. Raises ValueError."""
    try:
        return resolver.lookup(reference)
    except referencing.exceptions.Unresolvable:
        raise ValueError(
            f"{what} has a $ref to {reference!r}, which is not within the schema; "
            "nothing is downloaded: add the definition under $defs"
        ) from None


def _explain(error: jsonschema.ValidationError | jsonschema.SchemaError) -> str:
    return f"{error.json_path}: {error.message:.300}"
