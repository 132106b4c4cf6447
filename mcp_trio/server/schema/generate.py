"""Generates JSON Schemas for types.

msgspec analyzes a type (`msgspec.inspect`), and this module converts the result to a
schema that describes exactly what msgspec decodes.
"""

import copy
import re
from collections.abc import Callable, Iterable
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import inspect as shapes

from . import docstrings
from .annotation_parts import with_descriptions

JSONSchema = dict[str, Any]

# Types that correspond to one JSON type, or to any ("").
_JSON_TYPES: dict[type[shapes.Type], str] = {
    shapes.NoneType: "null",
    shapes.BoolType: "boolean",
    shapes.IntType: "integer",
    shapes.FloatType: "number",
    shapes.StrType: "string",
    shapes.AnyType: "",
    shapes.RawType: "",
}
# Types that correspond to strings with a format.
_FORMATS: dict[type[shapes.Type], str] = {
    shapes.DateType: "date",
    shapes.TimeDeltaType: "duration",
    shapes.UUIDType: "uuid",
    shapes.DateTimeType: "date-time",
    shapes.TimeType: "time",
}
_TIME_ZONE = r"(?:[Zz]|[+-]\d\d:?\d\d)$"
_BASE64: JSONSchema = {
    "type": "string",
    "contentEncoding": "base64",
    "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
}
_DECIMAL: JSONSchema = {
    "anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}],
}
# Types whose schema is always the same.
_FIXED: dict[type[shapes.Type], JSONSchema] = {
    shapes.BytesType: _BASE64,
    shapes.ByteArrayType: _BASE64,
    shapes.MemoryViewType: _BASE64,
    shapes.DecimalType: _DECIMAL,
}
# Types that are classes with fields.
_CLASSES = (
    shapes.StructType,
    shapes.TypedDictType,
    shapes.DataclassType,
    shapes.NamedTupleType,
)
# Limits of msgspec -> the keywords for them. See also _limits.
_LIMIT_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "pattern": "pattern",
    "multiple_of": "multipleOf",
}
_ADVICE = "use a JSON type: str, int, float, bool, a list, a dict or a dataclass"


def schema_of(annotation: Any, *, further: Any = Any) -> JSONSchema:
    """Return the schema of a type. Raises TypeError if it is not supported.

    The type's own schema is at the top, where clients expect it, and other classes are
    under `$defs`. `further` is the type of additional properties.
    """
    try:
        shape, further_shape = shapes.multi_type_info([annotation, further])
    except (TypeError, NameError) as error:
        raise TypeError(f"has type {annotation!r}: {error}") from None
    generator = _Generator()
    generator.note_literals([annotation, further])
    top = generator.schema(shape)
    further_schema = generator.schema(further_shape)
    definitions = generator.definitions
    reference = top.pop("$ref", None)
    if reference is not None:
        name = reference.removeprefix("#/$defs/")
        top = definitions[name] | top
        if not _contains(definitions, reference):
            del definitions[name]
    return top | without_empty(
        additionalProperties=further_schema, **{"$defs": definitions}
    )


def without_empty(**keywords: Any) -> JSONSchema:
    """Return a schema without the keywords that are None or empty."""
    empty: tuple[Any, ...] = (None, "", [], {})
    return {key: value for key, value in keywords.items() if value not in empty}


def _contains(schema: Any, wanted: str) -> bool:
    """Return whether a string is among the values of a schema, at any level."""
    if isinstance(schema, dict):
        return any(_contains(value, wanted) for value in schema.values())
    if isinstance(schema, list | tuple):
        return any(_contains(item, wanted) for item in schema)
    return bool(schema == wanted)


class _Generator:
    """Generates schemas. Each class is generated once, under `definitions`."""

    def __init__(self) -> None:
        self.definitions: dict[str, JSONSchema] = {}
        # Class -> its name under `definitions`.
        self._names: dict[Any, str] = {}
        # The values of a Literal -> the same values in their original order.
        self._literals: dict[frozenset[Any], tuple[Any, ...]] = {}
        self._writers: dict[type[shapes.Type], Callable[[Any], JSONSchema]] = {
            shapes.Metadata: self._annotated,
            shapes.LiteralType: self._literal,
            shapes.EnumType: self._enum,
            shapes.UnionType: self._union,
            shapes.TupleType: self._tuple,
            shapes.DictType: self._dict,
        }

    def note_literals(self, annotations: Iterable[Any]) -> None:
        """Store the order of the values of each Literal, because msgspec sorts them."""
        for annotation in annotations:
            parts = get_args(annotation)
            if get_origin(annotation) is Literal:
                self._literals[frozenset(parts)] = parts
            self.note_literals(parts)

    def schema(self, shape: shapes.Type) -> JSONSchema:
        """Return the schema of a type that msgspec has analyzed. Raises TypeError."""
        kind = type(shape)
        if kind in _JSON_TYPES:
            return without_empty(type=_JSON_TYPES[kind]) | _limits(shape, "Length")
        if kind in _FORMATS:
            return _formatted(shape)
        if kind in _FIXED:
            return copy.deepcopy(_FIXED[kind])
        if kind in self._writers:
            return self._writers[kind](shape)
        if isinstance(shape, shapes.CollectionType):
            return self._collection(shape)
        if isinstance(shape, _CLASSES):
            return self._reference(shape)
        cls = getattr(shape, "cls", kind)
        if cls is object:
            return {}
        raise TypeError(
            f"has type {cls.__module__}.{cls.__qualname__}, "
            f"which has no JSON form; {_ADVICE}"
        )

    def _annotated(self, shape: shapes.Metadata) -> JSONSchema:
        return self.schema(shape.type) | (shape.extra_json_schema or {})

    def _literal(self, shape: shapes.LiteralType) -> JSONSchema:
        values = self._literals.get(frozenset(shape.values), shape.values)
        return _enumeration(values)

    def _enum(self, shape: shapes.EnumType) -> JSONSchema:
        return _enumeration(tuple(member.value for member in shape.cls))

    def _union(self, shape: shapes.UnionType) -> JSONSchema:
        structs = [one for one in shape.types if isinstance(one, shapes.StructType)]
        # None is last.
        members = sorted(shape.types, key=lambda one: isinstance(one, shapes.NoneType))
        schemas = []
        for member in members:
            schema = self.schema(member)
            # A tag is only required to distinguish several structs in a union.
            tag = getattr(member, "tag_field", None)
            if tag and len(structs) > 1:
                schema["required"] = [tag]
            schemas.append(schema)
        return {"anyOf": schemas}

    def _tuple(self, shape: shapes.TupleType) -> JSONSchema:
        items = [self.schema(item) for item in shape.item_types]
        return _array(items, len(items), is_closed=True)

    def _collection(self, shape: shapes.CollectionType) -> JSONSchema:
        schema = without_empty(type="array", items=self.schema(shape.item_type))
        return schema | _limits(shape, "Items")

    def _dict(self, shape: shapes.DictType) -> JSONSchema:
        schema = without_empty(
            type="object",
            propertyNames=_property_names(self.schema(shape.key_type)),
            additionalProperties=self.schema(shape.value_type),
        )
        return schema | _limits(shape, "Properties")

    def _reference(self, shape: Any) -> JSONSchema:
        """Return a reference to the schema of a class, which is generated if new."""
        cls = shape.cls
        if cls not in self._names:
            name = getattr(cls, "__name__", str(cls))
            name = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
            while name in self._names.values():
                name += "_"
            # Before generating the schema, which may refer to the class itself.
            self._names[cls] = name
            self.definitions[name] = self._class(shape)
        return {"$ref": f"#/$defs/{self._names[cls]}"}

    def _class(self, shape: Any) -> JSONSchema:
        """Return the schema of a class with fields."""
        cls = get_origin(shape.cls) or shape.cls
        docstring = docstrings.parse(_own_docstring(cls))
        hints = get_type_hints(cls, include_extras=True)
        self.note_literals(hints.values())
        fields = _fields_in_order(shape, list(hints))
        required = [field.encode_name for field in fields if field.required]
        properties: dict[str, JSONSchema] = {}
        tag = getattr(shape, "tag_field", None)
        if tag:
            properties[tag] = _enumeration((shape.tag,))
        for field in fields:
            hint = hints.get(field.name)
            properties[field.encode_name] = self._field(field, hint, docstring)
        is_tuple = isinstance(shape, shapes.NamedTupleType)
        is_closed = getattr(shape, "forbid_unknown_fields", is_tuple)
        if is_tuple or getattr(shape, "array_like", False):
            if tag:
                required.append(tag)
            least = _count_up_to_last(required, properties)
            schema = _array(list(properties.values()), least, is_closed)
        else:
            schema = _object(properties, required, is_closed)
        return without_empty(description=docstring.summary) | schema

    def _field(
        self, field: shapes.Field, hint: Any, docstring: docstrings.Docstring
    ) -> JSONSchema:
        """Return the schema of a field, with its description and its default.

        `hint` is the field's annotation, which may contain descriptions.
        """
        descriptions = docstring.parameters
        description = descriptions.get(field.name)
        if not description:
            description = descriptions.get(field.encode_name)
        shape = _described_shape(field.type, hint)
        schema = without_empty(description=description) | self.schema(shape)
        default = _default(field)
        if default is not msgspec.NODEFAULT and default is not msgspec.UNSET:
            schema["default"] = msgspec.to_builtins(default, str_keys=True)
        return schema


def described(annotation: Any) -> Any:
    """Replace descriptions, which are plain strings, with `msgspec.Meta`."""
    return with_descriptions(annotation, lambda text: msgspec.Meta(description=text))


def _described_shape(shape: shapes.Type, hint: Any) -> shapes.Type:
    """Return a field's type with the descriptions from its annotation.

    msgspec ignores plain strings.
    """
    if get_origin(hint) in (Required, NotRequired):
        (hint,) = get_args(hint)
    if not getattr(hint, "__parameters__", ()):
        described_hint = described(hint)
        return shape if described_hint is hint else shapes.type_info(described_hint)
    # Only msgspec can resolve type variables, so its type is kept.
    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, str):
            shape = shapes.Metadata(shape, {"description": one})
    return shape


def _formatted(shape: Any) -> JSONSchema:
    """Return the schema of a date, a time, a duration or a UUID."""
    schema: JSONSchema = {"type": "string", "format": _FORMATS[type(shape)]}
    has_zone = getattr(shape, "tz", None)
    if has_zone is True:
        schema["pattern"] = _TIME_ZONE
    elif has_zone is False:
        schema["format"] += "-local"
    return schema


def _limits(shape: shapes.Type, counted: str) -> JSONSchema:
    """Return the keywords for a type's limits. `counted` is the unit of its length."""
    keywords = _LIMIT_KEYWORDS | {
        "min_length": f"min{counted}",
        "max_length": f"max{counted}",
    }
    limits = {}
    for name, keyword in keywords.items():
        limit = getattr(shape, name, None)
        if limit is not None:
            limits[keyword] = limit
    return limits


def _property_names(schema: JSONSchema) -> JSONSchema:
    """Return the schema of the keys of a dict, which are strings in JSON."""
    if "anyOf" in schema:
        options = [_property_names(option) for option in schema["anyOf"]]
        return {"anyOf": options} if all(options) else {}
    if "enum" in schema:
        return {"enum": [str(value) for value in schema["enum"]]}
    kind = schema.get("type", "string")
    if kind == "integer":
        return {"pattern": r"^-?(?:0|[1-9]\d*)$"}
    if kind != "string":
        raise TypeError(
            f"has a dict with keys of the type {kind}, which JSON does not support; "
            "use str, int or a Literal"
        )
    return {keyword: value for keyword, value in schema.items() if keyword != "type"}


def _enumeration(values: tuple[Any, ...]) -> JSONSchema:
    """Return the schema of a choice, with a type if all values have the same one."""
    kinds = {type(value) for value in values}
    if bool in kinds:
        raise TypeError("has a Literal of booleans; use bool")
    name = None
    if kinds == {str}:
        name = "string"
    elif kinds == {int}:
        name = "integer"
    return without_empty(type=name, enum=list(values))


def _array(items: list[JSONSchema], least: int, is_closed: bool) -> JSONSchema:
    """Return the schema of an array with a type for each position."""
    return without_empty(
        type="array",
        prefixItems=items,
        minItems=least,
        maxItems=len(items) if is_closed else None,
    )


def _fields_in_order(shape: Any, names: list[str]) -> list[shapes.Field]:
    """Return the fields of a class in their original order, that of `names`."""
    fields = list(shape.fields)
    # msgspec sorts the fields of a TypedDict, and only those.
    if isinstance(shape, shapes.TypedDictType):
        fields.sort(key=lambda field: names.index(field.name))
    return fields


def _object(
    properties: dict[str, JSONSchema], required: list[str], is_closed: bool
) -> JSONSchema:
    """Return the schema of an object."""
    schema = without_empty(type="object", properties=properties, required=required)
    if is_closed:
        schema["additionalProperties"] = False
    return schema


def _count_up_to_last(required: list[str], names: Iterable[str]) -> int:
    """Return the number of names up to the last required one."""
    least = 0
    for count, name in enumerate(names, 1):
        if name in required:
            least = count
    return least


def _own_docstring(cls: type) -> str:
    """Return a class's own docstring, unless `@dataclass` has generated it."""
    doc = vars(cls).get("__doc__") or ""
    return "" if doc.startswith(f"{cls.__name__}(") else doc


def _default(field: shapes.Field) -> Any:
    """Return the default of a field, or NODEFAULT.

    A factory is only called if it returns an empty collection or copies a value.
    """
    factory: Any = field.default_factory
    if factory in (list, dict, set) or getattr(factory, "func", None) is copy.deepcopy:
        return factory()
    return field.default
