"""Analyzes annotations: the types in them, and the metadata of `Annotated`.

Unknown metadata is an error. For types that msgspec handles, metadata is a plain
string, which is a description, or a `msgspec.Meta`. Metadata of pydantic is for types
that pydantic handles.
"""

import sys
from collections.abc import Callable
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

# The metadata of the package annotated_types that pydantic supports.
_CONSTRAINTS = frozenset(
    "Gt Ge Lt Le MultipleOf MinLen MaxLen Predicate Not GroupedMetadata".split()
)
# The attributes of classes and metadata that pydantic handles.
_HOOKS = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")


class Contents(NamedTuple):
    """The types and the metadata in an annotation, and in the fields of its classes.

    The fields of pydantic models are not included.
    """

    types: list[Any]
    metadata: list[Any]


def contents_of(annotation: Any) -> Contents:
    """Return the contents of an annotation. Raises TypeError or NameError."""
    found = Contents([], [])
    _collect(annotation, found)
    return found


def is_pydantic(annotation: Any) -> bool:
    """Return whether pydantic handles an annotation. Raises TypeError.

    It does if a part of it, a type or metadata, belongs to pydantic. All other parts
    must then be supported by pydantic, and otherwise by msgspec.
    """
    if isinstance(annotation, type) and annotation.__module__ == "builtins":
        return False  # as most are
    try:
        contents = contents_of(annotation)
    except NameError as error:
        raise TypeError(f"has type {annotation!r}: {error}") from None
    if "pydantic" not in sys.modules:
        _refuse_unknown(contents, ())
        return False
    types = [one for one in contents.types if _is_pydantic_type(one)]
    metadata = [one for one in contents.metadata if is_pydantic_metadata(one)]
    if not types and not metadata:
        _refuse_unknown(contents, ())
        return False
    _refuse_unknown(contents, metadata)
    _refuse_mixture((types or metadata)[0], contents)
    return True


def is_pydantic_field(value: object) -> bool:
    """Return whether a value is a `pydantic.Field`."""
    fields = sys.modules.get("pydantic.fields")
    return fields is not None and isinstance(value, fields.FieldInfo)


def is_pydantic_metadata(value: object) -> bool:
    """Return whether a piece of metadata belongs to pydantic, or is supported by it."""
    if any(hasattr(value, hook) for hook in _HOOKS):
        return True
    for cls in type(value).__mro__:
        package = cls.__module__.partition(".")[0]
        if package == "pydantic":
            return True
        if package == "annotated_types" and cls.__name__ in _CONSTRAINTS:
            return True
    return False


def with_descriptions(annotation: Any, describe: Callable[[str], Any]) -> Any:
    """Replace plain strings in the metadata of an annotation, by calling `describe`.

    Returns the same object if there are none.
    """
    origin = get_origin(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is Annotated:
        parts = (annotation.__origin__, *annotation.__metadata__)
        metadata = [
            describe(one) if isinstance(one, str) else one
            for one in annotation.__metadata__
        ]
        changed = [with_descriptions(annotation.__origin__, describe), *metadata]
    else:
        parts = get_args(annotation)
        changed = [with_descriptions(part, describe) for part in parts]
    if all(new is old for new, old in zip(changed, parts, strict=True)):
        return annotation
    if origin is UnionType:
        origin = Union
    return origin[tuple(changed) if len(changed) > 1 else changed[0]]


def _is_pydantic_type(annotation: Any) -> bool:
    if hasattr(annotation, "__pydantic_validator__"):
        return True
    return any(hasattr(annotation, hook) for hook in _HOOKS)


def _refuse_unknown(contents: Contents, understood: Any) -> None:
    """Raise TypeError if there is unknown metadata."""
    for metadata in contents.metadata:
        if isinstance(metadata, str | msgspec.Meta):
            continue
        if not any(metadata is known for known in understood):
            raise TypeError(
                f"has {metadata!r} in Annotated, which is not supported; use "
                "msgspec.Meta(...), pydantic.Field(...), or a string that describes "
                "the value"
            )


def _refuse_mixture(of_pydantic: Any, contents: Contents) -> None:
    """Raise TypeError if an annotation has parts of both msgspec and pydantic."""
    for one in contents.types:
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            raise TypeError(
                f"mixes the msgspec Struct {one.__name__} with {_named(of_pydantic)} "
                "of pydantic; make the Struct a dataclass or a pydantic model"
            )
    for one in contents.metadata:
        if isinstance(one, msgspec.Meta):
            raise TypeError(
                f"mixes {one!r} with {_named(of_pydantic)} of pydantic; use "
                "pydantic.Field(...) for both"
            )


def _named(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def _collect(annotation: Any, found: Contents) -> None:
    origin = get_origin(annotation)
    if origin is Annotated:
        found.metadata.extend(annotation.__metadata__)
        _collect(annotation.__origin__, found)
    elif origin is not Literal:
        for argument in get_args(annotation):
            _collect(argument, found)
        _collect_type(origin or annotation, found)


def _collect_type(one: Any, found: Contents) -> None:
    """Add a type, the contents of its fields, and the type that it is an alias of."""
    if any(one is known for known in found.types):
        return
    found.types.append(one)
    # A NewType, and an alias made by the `type` statement.
    for attribute in ("__supertype__", "__value__"):
        if hasattr(one, attribute):
            _collect(getattr(one, attribute), found)
    if isinstance(one, type) and _has_fields(one) and not _is_pydantic_type(one):
        for hint in get_type_hints(one, include_extras=True).values():
            _collect(hint, found)


def _is_dataclass(cls: type) -> bool:
    # Not imported here, because few servers need the module.
    dataclasses = sys.modules.get("dataclasses")
    return dataclasses is not None and dataclasses.is_dataclass(cls)


def _has_fields(cls: type) -> bool:
    return (
        issubclass(cls, msgspec.Struct)
        or _is_dataclass(cls)
        or hasattr(cls, "__required_keys__")  # a TypedDict, also typing_extensions'
        or hasattr(cls, "__attrs_attrs__")
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )
