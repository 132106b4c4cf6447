"""Types that pydantic handles: its models, and annotations with `pydantic.Field`.

Its `TypeAdapter` generates their schemas and validates JSON. pydantic is only imported
for such a type, so only if the user has imported it.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from .annotation_parts import is_pydantic_field, with_descriptions
from .generate import JSONSchema

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

# A problem, as pydantic's ValidationError.errors() describes it.
Problem = Mapping[str, Any]

# The maximum number of problems in a message.
_MOST_PROBLEMS = 5
# If there are more problems, they are only counted: pydantic can list only all of them,
# which takes many times as long as finding them.
_MOST_LISTED = 1000
# Problems that are described without the given value.
_WITHOUT_VALUE = ("missing", "value_error", "assertion_error", "extra_forbidden")
# Problems that a user's validator reports -> the prefix that pydantic adds.
_OWN_TEXT = {"value_error": "Value error, ", "assertion_error": "Assertion failed, "}
# Problems whose message includes the given string, because a choice is not secret.
_OF_CHOICES = ("literal_error", "enum", "union_tag_invalid")


class PydanticType:
    """A type that pydantic handles. Raises TypeError if it does not support it."""

    def __init__(self, annotation: Any) -> None:
        import pydantic

        def describe(text: str) -> Any:
            return pydantic.Field(description=text)

        described = with_descriptions(annotation, describe)
        try:
            self.adapter = pydantic.TypeAdapter[Any](described)
            self.adapter.json_schema()
        except (pydantic.PydanticUserError, NameError) as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"has type {annotation!r}: {reason}") from None

    def schema(self, mode: Literal["validation", "serialization"]) -> JSONSchema:
        """Return the schema for decoding (validation) or encoding (serialization)."""
        schema: JSONSchema = self.adapter.json_schema(mode=mode)
        reference = schema.pop("$ref", None)
        if reference is None:
            return schema
        # Clients expect the type's own schema at the top.
        top: JSONSchema = schema["$defs"][reference.removeprefix("#/$defs/")]
        return top | schema

    def decode(self, raw: bytes, place: str = "$") -> Any:
        """Decode a value. Raises ValueError, with the location of each problem."""
        from pydantic import ValidationError

        try:
            return self.adapter.validate_json(raw, strict=True)
        except ValidationError as error:
            count = error.error_count()
            if count > _MOST_LISTED:
                raise ValueError(
                    f"{place}: {count:,} problems, which are too many to list"
                ) from None
            problems = error.errors(include_url=False)
            raise ValueError(_explain(problems, raw, place)) from None
        except TypeError as error:
            # Caused by a bug in a validator, not by the client's input.
            raise RuntimeError(f"a validator of {place} failed") from error

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises ValueError if it is not of this type.

        A model may also be given as a dict of its fields.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            checked = self.adapter.validate_python(value, strict=True)
        except ValidationError:
            anything = TypeAdapter[Any](Any)
            checked = self.decode(anything.dump_json(value, by_alias=True))
        return self.adapter.dump_json(checked, by_alias=True)


class PydanticParameter:
    """A parameter of a function, with a type that pydantic handles.

    Its default is that of the parameter, or of a `pydantic.Field` in the annotation or
    as the default. Raises TypeError.
    """

    def __init__(self, annotation: Any, default: Any) -> None:
        if is_pydantic_field(default):  # count: int = Field(1, ge=1)
            annotation = Annotated[annotation, default]
            default = msgspec.NODEFAULT
        self._make_default: Callable[[], Any] | None = None
        if default is not msgspec.NODEFAULT:
            self._make_default = _copier(default)
        for field in _fields_in(annotation):
            _refuse_alias(field)
            if self._make_default is None and not field.is_required():
                self._make_default = _default_of(field)
        self.type = PydanticType(annotation)
        self.is_required = self._make_default is None
        self.schema: JSONSchema = {}
        if self._make_default is not None:
            self.schema["default"] = self._encoded_default(self._make_default())

    def _encoded_default(self, default: Any) -> Any:
        try:
            return msgspec.json.decode(self.type.encode(default))
        except ValueError as error:
            raise TypeError(
                f"has the default {default!r}, which is not of its type: {error}"
            ) from None

    def decode(self, raw: msgspec.Raw | msgspec.UnsetType, name: str) -> Any:
        """Return the argument, or its default. Raises ValueError."""
        if raw is msgspec.UNSET:
            assert self._make_default is not None  # else the argument is required
            return self._make_default()
        return self.type.decode(bytes(raw), f"$.{name}")


def add_schemas(
    schema: JSONSchema, parameters: Mapping[str, PydanticParameter]
) -> None:
    """Add the schemas of these parameters to the schema of all parameters."""
    from pydantic import TypeAdapter

    if not parameters:
        return
    adapters: list[Any] = []
    for name, parameter in parameters.items():
        adapters.append((name, "validation", parameter.type.adapter))
    schemas, common = TypeAdapter.json_schemas(adapters)
    definitions = schema.get("$defs", {})
    names = _free_names(common.get("$defs", {}), definitions)
    for name, definition in common.get("$defs", {}).items():
        new_reference = names[f"#/$defs/{name}"]
        new_name = new_reference.removeprefix("#/$defs/")
        definitions[new_name] = _with_references(definition, names)
    for (name, _), own in schemas.items():
        properties = schema["properties"]
        own = _with_references(own, names) | parameters[name].schema
        properties[name] = properties[name] | own
    if definitions:
        schema["$defs"] = definitions


def _free_names(names: Mapping[str, Any], taken: Mapping[str, Any]) -> dict[str, str]:
    """Map references to references whose names are not taken."""
    references = {}
    for name in names:
        free = name
        while free in taken:
            free += "_"
        references[f"#/$defs/{name}"] = f"#/$defs/{free}"
    return references


def _with_references(schema: Any, references: Mapping[str, str]) -> Any:
    """Replace references in a schema, including the mappings of discriminators."""
    if isinstance(schema, dict):
        return {
            key: _with_references(value, references) for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_with_references(item, references) for item in schema]
    return references.get(schema, schema) if isinstance(schema, str) else schema


# Fields


def _fields_in(annotation: Any) -> "list[FieldInfo]":
    """Return each `pydantic.Field` at the top level of an annotation."""
    metadata = getattr(annotation, "__metadata__", ())
    return [one for one in metadata if is_pydantic_field(one)]


def _refuse_alias(field: "FieldInfo") -> None:
    for name in (field.alias, field.validation_alias):
        if name is not None:
            raise TypeError(
                f"has the alias {name!r}, which parameters do not support; rename the "
                "parameter, or use the alias in a field of a model"
            )


def _default_of(field: "FieldInfo") -> Callable[[], Any]:
    return lambda: field.get_default(call_default_factory=True)


def _copier(default: Any) -> Callable[[], Any]:
    """Return a function that copies a default, which may be mutable."""
    return lambda: copy.deepcopy(default)


# Error messages


def _explain(problems: Sequence[Problem], raw: bytes, root: str) -> str:
    """Return one message with each problem and its location."""
    given = msgspec.json.decode(raw)
    texts: dict[str, list[str]] = {}
    values: dict[str, str] = {}
    for problem in problems[:_MOST_PROBLEMS]:
        place = root + _place(problem, given)
        texts.setdefault(place, []).append(_text(problem))
        values.setdefault(place, _value(problem))
    messages = []
    for place, alternatives in texts.items():
        # A union has a problem for each member.
        messages.append(f"{place}: {' or '.join(alternatives)}{values[place]}")
    more = len(problems) - _MOST_PROBLEMS
    if more > 0:
        messages.append(f"and {more} more")
    return "; ".join(messages)


def _place(problem: Problem, given: Any) -> str:
    """Return the location of a problem, as the end of a path.

    The location of pydantic also contains the names of union members and the like,
    which are not part of the path.
    """
    place = ""
    for step in problem["loc"]:
        if isinstance(given, dict) and step in given:
            place += f".{step}"
            given = given[step]
        elif isinstance(given, list) and isinstance(step, int):
            place += f"[{step}]"
            given = given[step] if step < len(given) else None
    if problem["type"] == "missing":
        place += f".{problem['loc'][-1]}"
    return place


def _text(problem: Problem) -> str:
    """Return the description of a problem, to append to its location."""
    kind = problem["type"]
    if kind == "missing":
        return "missing"
    text: str = problem["msg"]
    if kind in _OWN_TEXT:
        return text.removeprefix(_OWN_TEXT[kind])
    return text[:1].lower() + text[1:]


def _value(problem: Problem) -> str:
    """Return the given value, as the end of a message, unless it may be secret."""
    given = problem["input"]
    kind = problem["type"]
    if kind in _WITHOUT_VALUE or isinstance(given, dict | list):
        return ""
    if isinstance(given, str) and kind not in _OF_CHOICES:
        return ", got a string"
    return f", got {msgspec.json.encode(given).decode():.100}"
