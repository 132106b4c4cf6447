"""TODO"""

import copy
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as shapes

from . import docstrings

JSONSchema = dict[str, Any]


# Types as JSON Schema

_SIMPLE = {
    shapes.NoneType: "null",
    shapes.BoolType: "boolean",
    shapes.IntType: "integer",
    shapes.FloatType: "number",
}
_SIMPLE |= {shapes.StrType: "string", shapes.AnyType: "", shapes.RawType: ""}
_FORMATS = {
    shapes.DateType: "date",
    shapes.TimeDeltaType: "duration",
    shapes.UUIDType: "uuid",
}
_FORMATS |= {shapes.DateTimeType: "date-time", shapes.TimeType: "time"}
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_ADVICE = "use what JSON can hold: str, int, float, bool, a list, a dict, a dataclass"


def schema_of(annotation: Any, *, further: Any = Any) -> JSONSchema:
    """The schema of a type: its top written out, as a client looks there for the type, and the rest under $defs.

    `further` is the type of the properties that it does not name.
    """
    try:
        shape, others = shapes.multi_type_info([annotation, further])
    except (TypeError, NameError) as error:
        raise TypeError(f"has type {annotation!r}: {error}") from None
    schemas = _Schemas()
    schemas.note_literals([annotation, further])
    top, rest, definitions = schemas.of(shape), schemas.of(others), schemas.definitions
    if reference := top.pop("$ref", None):
        name = reference.removeprefix("#/$defs/")
        top = definitions[name] | top
        if repr(reference) not in repr(definitions):
            del definitions[name]
    return top | filled(additionalProperties=rest, **{"$defs": definitions})


class _Schemas(msgspec.Struct):
    """Makes schemas of types; classes go under `definitions`, and are referred to."""

    definitions: dict[str, JSONSchema] = {}
    _names: dict[Any, str] = {}
    _literals: dict[frozenset[Any], tuple[Any, ...]] = {}

    def note_literals(self, annotations: Iterable[Any]) -> None:
        """The values of each Literal, as they were written; msgspec sorts them."""
        for annotation in annotations:
            parts = get_args(annotation)
            if get_origin(annotation) is Literal:
                self._literals[frozenset(parts)] = parts
            self.note_literals(parts)

    def of(self, shape: shapes.Type) -> JSONSchema:
        kind = type(shape)
        if kind in _SIMPLE:
            return filled(type=_SIMPLE[kind]) | _limits(shape, "Length")
        if kind in _FORMATS:
            zone = getattr(shape, "tz", None)
            name = _FORMATS[kind] + ("-local" if zone is False else "")
            return filled(
                type="string",
                format=name,
                pattern=r"(?:[Zz]|[+-]\d\d:?\d\d)$" if zone else None,
            )
        match shape:
            case shapes.CustomType(cls=cls) if cls is object:
                return {}
            case shapes.BytesType() | shapes.ByteArrayType() | shapes.MemoryViewType():
                return {
                    "type": "string",
                    "contentEncoding": "base64",
                    "pattern": _BASE64,
                }
            case shapes.DecimalType():
                return {
                    "anyOf": [
                        {"type": "number"},
                        {"type": "string", "format": "decimal"},
                    ]
                }
            case shapes.Metadata():
                return self.of(shape.type) | (shape.extra_json_schema or {})
            case shapes.LiteralType():
                return _enumeration(
                    self._literals.get(frozenset(shape.values), shape.values)
                )
            case shapes.EnumType():
                return _enumeration(tuple(member.value for member in shape.cls))
            case shapes.UnionType():
                return {"anyOf": list(self._members(shape))}
            case shapes.TupleType():
                return _array(
                    [self.of(item) for item in shape.item_types],
                    len(shape.item_types),
                    True,
                )
            case shapes.CollectionType():
                return filled(type="array", items=self.of(shape.item_type)) | _limits(
                    shape, "Items"
                )
            case shapes.DictType():
                names, values = _key(self.of(shape.key_type)), self.of(shape.value_type)
                schema = filled(
                    type="object", propertyNames=names, additionalProperties=values
                )
                return schema | _limits(shape, "Properties")
            case (
                shapes.StructType()
                | shapes.TypedDictType()
                | shapes.DataclassType()
                | shapes.NamedTupleType()
            ):
                return self._reference(shape)
        cls = getattr(shape, "cls", kind)
        raise TypeError(
            f"has type {cls.__module__}.{cls.__qualname__}, which has no JSON form; {_ADVICE}"
        )

    def _members(self, union: shapes.UnionType) -> Iterator[JSONSchema]:
        """None comes last; structs are told apart by their tags, which are required only here."""
        are_tagged = (
            sum(isinstance(member, shapes.StructType) for member in union.types) > 1
        )
        for member in sorted(
            union.types, key=lambda member: isinstance(member, shapes.NoneType)
        ):
            tag = getattr(member, "tag_field", None) if are_tagged else None
            yield self.of(member) | filled(required=[tag] if tag else None)

    def _reference(self, shape: Any) -> JSONSchema:
        if shape.cls not in self._names:
            name = re.sub(
                r"[^\w.-]",
                "_",
                getattr(shape.cls, "__name__", str(shape.cls)),
                flags=re.ASCII,
            )
            while name in self._names.values():
                name += "_"
            self._names[shape.cls] = name
            self.definitions[name] = self._class(shape)
        return {"$ref": f"#/$defs/{self._names[shape.cls]}"}

    def _class(self, shape: Any) -> JSONSchema:
        cls = get_origin(shape.cls) or shape.cls
        doc = vars(cls).get("__doc__") or ""
        is_generated = doc.startswith(f"{cls.__name__}(")  # as dataclasses have it
        docstring = docstrings.parse("" if is_generated else doc)
        hints = get_type_hints(cls, include_extras=True)
        self.note_literals(hints.values())
        fields = list(shape.fields)
        if isinstance(shape, shapes.TypedDictType):  # msgspec has sorted them
            fields.sort(key=lambda field: list(hints).index(field.name))
        tag = getattr(shape, "tag_field", None)
        properties = {tag: _enumeration((shape.tag,))} if tag else {}
        properties |= {
            field.encode_name: self._field(field, docstring) for field in fields
        }
        required = [field.encode_name for field in fields if field.required]
        is_tuple = isinstance(shape, shapes.NamedTupleType)
        is_closed = getattr(shape, "forbid_unknown_fields", is_tuple)
        if is_tuple or getattr(shape, "array_like", False):
            least = max(
                (
                    place
                    for place, name in enumerate(properties, 1)
                    if name in (tag, *required)
                ),
                default=0,
            )
            schema = _array(list(properties.values()), least, is_closed)
        else:
            further = False if is_closed else None
            schema = filled(
                type="object",
                properties=properties,
                required=required,
                additionalProperties=further,
            )
        return filled(description=docstring.summary) | schema

    def _field(
        self, field: shapes.Field, docstring: docstrings.Docstring
    ) -> JSONSchema:
        description = docstring.parameters.get(field.name) or docstring.parameters.get(
            field.encode_name
        )
        schema = filled(description=description) | self.of(field.type)
        make = field.default_factory
        is_plain = (
            make in (list, dict, set) or getattr(make, "func", None) is copy.deepcopy
        )
        default = make() if is_plain else field.default
        if default not in (msgspec.NODEFAULT, msgspec.UNSET):
            schema["default"] = msgspec.to_builtins(default, str_keys=True)
        return schema


def filled(**keywords: Any) -> JSONSchema:
    """A schema without the keywords that would say nothing."""
    return {
        keyword: value
        for keyword, value in keywords.items()
        if value not in (None, "", [], {})
    }


def _limits(shape: shapes.Type, counted: str) -> JSONSchema:
    words = {
        "ge": "minimum",
        "gt": "exclusiveMinimum",
        "le": "maximum",
        "lt": "exclusiveMaximum",
        "pattern": "pattern",
    }
    words |= {
        "multiple_of": "multipleOf",
        "min_length": f"min{counted}",
        "max_length": f"max{counted}",
    }
    return {
        keyword: limit
        for name, keyword in words.items()
        if (limit := getattr(shape, name, None)) is not None
    }


def _key(schema: JSONSchema) -> JSONSchema:
    """What the names of an object may be: always strings, whatever they are read as."""
    if "anyOf" in schema:
        keys = [_key(member) for member in schema["anyOf"]]
        return {"anyOf": keys} if all(keys) else {}
    if "enum" in schema:
        return {"enum": [str(value) for value in schema["enum"]]}
    if schema.get("type") == "integer":
        return {"pattern": r"^-?(?:0|[1-9]\d*)$"}
    if schema.get("type", "string") != "string":
        raise TypeError(
            f"has a dict with keys of the type {schema['type']}, which has no JSON form; {_ADVICE}"
        )
    return {keyword: value for keyword, value in schema.items() if keyword != "type"}


def _enumeration(values: tuple[Any, ...]) -> JSONSchema:
    kinds = {type(value) for value in values}
    if bool in kinds:
        raise TypeError("has a Literal of booleans; use bool")
    name = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
    return filled(type=name, enum=list(values))


def _array(items: list[JSONSchema], least: int, is_closed: bool) -> JSONSchema:
    return filled(
        type="array",
        prefixItems=items,
        minItems=least,
        maxItems=len(items) if is_closed else None,
    )
