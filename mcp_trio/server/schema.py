"""A function's signature as JSON Schema, and the way from a call's bytes to its typed arguments.

msgspec decodes; what it takes and what the schema says agree, and where msgspec differs from JSON Schema (`1.0` is an
integer there) this module makes up for it.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from types import UnionType
from typing import Any, Literal, Union

import msgspec
import msgspec.inspect as shapes
from msgspec.structs import asdict, astuple

from ..protocol.errors import InvalidArguments
from ..protocol.jsonrpc import encode
from . import docstrings

Function = Callable[..., Any]
JSONSchema = dict[str, Any]

_ABSENT = inspect.Parameter.empty

# What decoding raises for what does not fit: msgspec's errors and Unicode's are ValueErrors; a TypeError comes of a set
# whose items cannot be hashed.
_UNFIT = (ValueError, TypeError, RecursionError)


class Parameters:
    """The arguments of a function: their JSON Schema, and the way from bytes to typed values.

    `injected` is the class of the parameter that is not an argument: it is found by annotation and stays out of the
    schema. With `input_schema` that schema is shown and checked; the signature then only converts.
    """

    def __init__(
        self, function: Function, *, injected: type | None = None, input_schema: Mapping[str, Any] | None = None
    ) -> None:
        self._function = function
        self._what = _name(function)
        self._taken: dict[str, inspect.Parameter] = {}
        self._extra: Any = _ABSENT
        self.injected_name: str | None = None
        parameters = inspect.signature(function).parameters.values()
        self._positional = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        for parameter in parameters:
            annotation = _resolved(parameter.annotation, function, self._where(parameter.name), injected)
            self._add(parameter.replace(annotation=annotation), injected)
        self._required = [name for name, parameter in self._taken.items() if parameter.default is _ABSENT]
        self.call = self._by_keywords if self._positional else function
        """The function, called with keyword arguments even where it has positional-only parameters."""
        self.schema = self._own_schema()
        self._check: Callable[[Any], None] | None = None
        if input_schema is not None:
            self.schema = dict(input_schema)
            self._check = _checker(self.schema, f"input_schema of {self._what}")
            self._must_suit(self.schema)
        self._decode = msgspec.json.Decoder(self._struct()).decode
        mangled = any(name.startswith("__") for name in self._taken)
        self._in_one_step = not (mangled or self._check) and self._extra is _ABSENT

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The keyword arguments in a JSON object; InvalidArguments where it does not fit."""
        try:
            return asdict(self._decode(raw)) if self._in_one_step else self._in_steps(raw)
        except _UNFIT:
            pass
        try:
            return self._in_steps(_with_whole_numbers(raw))
        except _UNFIT as error:
            raise InvalidArguments(self._reason(error)) from None

    def _by_keywords(self, **arguments: Any) -> Any:
        return self._function(*[arguments.pop(name) for name in self._positional], **arguments)

    def _in_steps(self, raw: bytes) -> dict[str, Any]:
        if self._check is not None:
            self._check(msgspec.json.decode(raw))
        arguments = dict(zip(self._taken, astuple(self._decode(raw)), strict=True))
        return arguments if self._extra is _ABSENT else self._further(raw) | arguments

    def _further(self, raw: bytes) -> dict[str, Any]:
        """The arguments for **kwargs."""
        everything = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if self.injected_name in everything:
            raise InvalidArguments(f"Unknown argument: {self.injected_name}")
        further = msgspec.json.encode({name: value for name, value in everything.items() if name not in self._taken})
        values: dict[str, Any] = msgspec.json.decode(further, type=dict.__class_getitem__((str, self._extra)))
        return values

    def _reason(self, error: Exception) -> str:
        if missing := re.fullmatch(_MISSING, str(error)):
            return f"Missing required argument: {missing[1] or missing[2]}"
        if unknown := re.fullmatch(_UNKNOWN, str(error)):
            known = ", ".join(self.schema.get("properties", ()))
            known = f"known arguments: {known}" if known else "there are no arguments"
            return f"Unknown argument: {unknown[1] or unknown[2]}; {known}"
        return _explained(error, self.schema.get("properties", {}))

    def _where(self, name: str) -> str:
        return f"{self._what}: parameter {name!r}"

    def _add(self, parameter: inspect.Parameter, injected: type | None) -> None:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"{self._what}: *{parameter.name} has no JSON form; name each parameter, or take a list")
        if injected and _mentions(parameter.annotation, injected):
            if self.injected_name is not None:
                raise TypeError(f"{self._where(parameter.name)} is a second {injected.__name__}; one is given")
            self.injected_name = parameter.name
        elif parameter.kind is parameter.VAR_KEYWORD:
            self._extra = parameter.annotation
        else:
            self._taken[parameter.name] = parameter

    def _own_schema(self) -> JSONSchema:
        schemas = _Schemas()
        described = docstrings.parse(inspect.getdoc(_innermost(self._function))).parameters
        properties = {name: self._property(schemas, name, described.get(name)) for name in self._taken}
        extra = False if self._extra is _ABSENT else schemas.of_annotation(self._extra, f"{self._what}: **")
        schema = _filled(type="object", properties=properties, required=self._required, additionalProperties=extra)
        return schema | _filled(**{"$defs": schemas.definitions})

    def _property(self, schemas: _Schemas, name: str, description: str | None) -> JSONSchema:
        parameter = self._taken[name]
        schema = schemas.of_annotation(parameter.annotation, self._where(name))
        if description:
            schema.setdefault("description", description)
        if parameter.default is not _ABSENT and parameter.default is not msgspec.UNSET:
            schema["default"] = _json_default(parameter, self._where(name))
        return schema

    def _struct(self) -> type[msgspec.Struct]:
        """The arguments as one struct. Names with two underscores are not for fields, so those are renamed."""
        fields: list[Any] = []
        names = {}
        for position, (name, parameter) in enumerate(self._taken.items()):
            field = f"p{position}_" if name.startswith("__") else name
            names[field] = name
            default = [] if parameter.default is _ABSENT else [_field_default(parameter.default)]
            fields.append((field, parameter.annotation, *default))
        closed = self._extra is _ABSENT
        return msgspec.defstruct(
            "Arguments", fields, rename=names, forbid_unknown_fields=closed, kw_only=True, gc=False
        )

    def _must_suit(self, schema: JSONSchema) -> None:
        """A schema written by hand has to promise what the function needs, and no more than it takes."""
        what = f"input_schema of {self._what}"
        if schema.get("type") != "object":
            raise ValueError(f'{what} has the type {schema.get("type")!r}; arguments are an object: "type": "object"')
        for name in set(self._required).difference(schema.get("required", ())):
            raise ValueError(f"{what} does not require {name!r}; list it under required, or give it a default")
        for name in schema.get("properties", ()):
            if name not in self._taken and self._extra is _ABSENT:
                raise ValueError(f"{what} has {name!r}, which is no parameter of the function; add it, or **kwargs")


class Returned:
    """What a function returns: its output schema, and the check of it.

    `unstructured` are the classes of content: a function that returns those, text, None or anything at all promises no
    structure, and has no schema.
    """

    def __init__(
        self, function: Function, *, output_schema: Mapping[str, Any] | None = None, unstructured: tuple[type, ...] = ()
    ) -> None:
        where = f"{_name(function)}: the return type"
        self._check: Callable[[bytes], Any] = msgspec.json.decode
        self.schema: JSONSchema | None = None
        annotation = _resolved(inspect.signature(function).return_annotation, function, where)
        if output_schema is not None:
            self.schema = dict(output_schema)
            check = _checker(self.schema, f"output_schema of {_name(function)}")
            self._check = lambda encoded: check(msgspec.json.decode(encoded))
        elif not _is_unstructured(annotation, (str, type(None), *unstructured)):
            self.schema = _schema_of_return(annotation, where)
            self._check = functools.partial(_decoded, msgspec.json.Decoder(annotation).decode)
        self.is_content = self.schema is None and annotation is not Any
        self.is_object = self.schema is not None and self.schema.get("type") == "object"

    def check(self, value: Any) -> Any:
        """The value as JSON's own types, as it will be on the wire; a ValueError, which says where, on a mismatch."""
        try:
            encoded = encode(value)
            self._check(encoded)
            return msgspec.json.decode(encoded)
        except _UNFIT as error:
            raise ValueError(_explained(error, {})) from None


def _checker(schema: JSONSchema, what: str) -> Callable[[Any], None]:
    from .jsonschemas import Validator

    return Validator(schema, what=what).check


# Signatures


def _innermost(function: Function) -> Any:
    """The function under partials, decorators and callable objects: it has the name, the docstring and the globals."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_plain else inspect.unwrap(type(function).__call__)


def _name(function: Function) -> str:
    """As it is written where it stands: `add`, `Calculator.add`."""
    return str(_innermost(function).__qualname__).rpartition("<locals>.")[2] + "()"


def _resolved(annotation: Any, function: Function, where: str, injected: type | None = None) -> Any:
    """An annotation as a type. `injected` is known by name even where it was imported for type checkers only."""
    if annotation is _ABSENT:
        return Any

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    names = getattr(_innermost(function), "__globals__", {})
    if injected is not None:
        names = {injected.__name__: injected, **names}
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except Exception as error:
        raise TypeError(f"{where} has the annotation {annotation!r}, which cannot be resolved: {error}") from None


def _mentions(annotation: Any, wanted: type) -> bool:
    """Whether it is the class, a subclass, Optional, Annotated or a parametrised form of it."""
    origin = typing.get_origin(annotation)
    if origin in (Union, UnionType, typing.Annotated):
        return any(_mentions(member, wanted) for member in typing.get_args(annotation))
    candidate = origin or annotation
    return isinstance(candidate, type) and issubclass(candidate, wanted)


def _json_default(parameter: inspect.Parameter, where: str) -> Any:
    try:
        encoded = msgspec.json.encode(parameter.default)
        msgspec.json.decode(encoded, type=parameter.annotation)
    except _UNFIT as error:
        raise TypeError(f"{where} has the default {parameter.default!r}, which is not of its type: {error}") from None
    return msgspec.json.decode(encoded)


def _field_default(default: Any) -> Any:
    """A default which the function may change is copied for each call."""
    if isinstance(default, (str, int, float, type(None), bytes)) or default is msgspec.UNSET:
        return default
    return msgspec.field(default_factory=functools.partial(copy.deepcopy, default))


def _is_unstructured(annotation: Any, classes: tuple[type, ...]) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (Union, UnionType, list):
        return all(_is_unstructured(member, classes) for member in typing.get_args(annotation))
    return (annotation.__origin__ if origin is typing.Annotated else annotation) in (Any, list, *classes)


def _schema_of_return(annotation: Any, where: str) -> JSONSchema:
    """The schema with its top written out, as a client looks there for the type, and the rest under $defs."""
    schemas = _Schemas()
    top = schemas.of_annotation(annotation, where)
    definitions = schemas.definitions
    if reference := top.pop("$ref", None):
        name = reference.removeprefix("#/$defs/")
        top = definitions[name] | top
        if f'"{reference}"'.encode() not in msgspec.json.encode(definitions):
            del definitions[name]
    return top | _filled(**{"$defs": definitions})


# Decoding


def _whole(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if float(text).is_integer() else number


_whole_decode = msgspec.json.Decoder(float_hook=_whole).decode
_whole_encode = msgspec.json.Encoder(decimal_format="number").encode


def _with_whole_numbers(raw: bytes) -> bytes:
    """The same JSON with `1.0` as `1`: to JSON Schema both are integers, to msgspec only the second."""
    return _whole_encode(_whole_decode(raw))


def _decoded(decode: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return decode(raw)
    except msgspec.ValidationError:
        return decode(_with_whole_numbers(raw))


# A missing and an unknown argument, in the words of msgspec and of jsonschema. Compiled when first needed, by `re`.
_MISSING = r"(?s)Object missing required field `(\w+)`|\$: '(.*)' is a required property"
_UNKNOWN = r"(?s)Object contains unknown field `([^`]*)`|\$: Additional properties are not.* \('(.*?)'.*"
_LOCATED = r"(?s)(.*?)(?: - at (`key` in )?`(\$.*)`)?"
_JSON_NAMES = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}


def _explained(error: Exception, properties: JSONSchema) -> str:
    """An error of decoding as `$.path: what is wrong`, in JSON's words."""
    located = re.fullmatch(_LOCATED, str(error))
    if isinstance(error, RecursionError) or located is None:
        return "$: nested too deep"
    text, in_key, path = located.groups()
    if text.startswith("$"):
        return str(error)
    values = properties.get((path or "").removeprefix("$."), {}).get("enum", ())
    if values and text.startswith("Invalid enum value"):
        text = text.replace("Invalid enum value", f"expected one of {', '.join(map(repr, values))}, got")
    text = re.sub(r"(Expected|got) `([^`]*)`", _in_json_words, text).replace("`", "'")
    return f"{path or '$'}: {'a key: ' if in_key else ''}{text[:1].lower()}{text[1:]}"


def _in_json_words(found: re.Match[str]) -> str:
    return f"{found[1]} " + " or ".join(_JSON_NAMES.get(name, name) for name in found[2].split(" | "))


# Types as JSON Schema

_NAMES = {shapes.NoneType: "null", shapes.BoolType: "boolean", shapes.IntType: "integer", shapes.FloatType: "number"}
_NAMES |= {shapes.StrType: "string"}
_FORMATS = {shapes.DateType: "date", shapes.TimeDeltaType: "duration", shapes.UUIDType: "uuid"}
_BYTES = (shapes.BytesType, shapes.ByteArrayType, shapes.MemoryViewType)
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LIMITS |= {"multiple_of": "multipleOf", "pattern": "pattern"}
_CLASSES = (shapes.StructType, shapes.TypedDictType, shapes.DataclassType, shapes.NamedTupleType)
_INTEGER_KEY = r"^-?(?:0|[1-9]\d*)$"


class _NoJSON(Exception):
    """A type that JSON cannot hold."""


class _Schemas:
    """Makes schemas of types; classes go under `definitions`, and are referred to."""

    def __init__(self) -> None:
        self.definitions: dict[str, JSONSchema] = {}
        self._names: dict[Any, str] = {}
        self._literals: dict[frozenset[Any], list[Any]] = {}

    def of_annotation(self, annotation: Any, where: str) -> JSONSchema:
        try:
            self._literals.update(_literals(annotation, set()))
            return self._of(shapes.type_info(annotation))
        except _NoJSON as error:
            advice = "use what JSON can hold: str, int, float, bool, a list, a dict, a dataclass"
            raise TypeError(f"{where} has type {error}, which has no JSON form; {advice}") from None
        except (TypeError, NameError) as error:
            raise TypeError(f"{where} has type {annotation!r}: {error}") from None

    def _of(self, shape: shapes.Type) -> JSONSchema:
        kind = type(shape)
        if kind in _NAMES:
            return {"type": _NAMES[kind]} | _limits(shape, "Length")
        if kind in _FORMATS:
            return {"type": "string", "format": _FORMATS[kind]}
        if isinstance(shape, _BYTES):
            return {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}
        if isinstance(shape, _CLASSES):
            return self._reference(shape)
        match shape:
            case shapes.AnyType() | shapes.RawType():
                return {}
            case shapes.DecimalType():
                return {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}
            case shapes.Metadata():
                return self._of(shape.type) | (shape.extra_json_schema or {})
            case shapes.DateTimeType() | shapes.TimeType():
                return _moment(shape)
            case shapes.LiteralType():
                return _enumeration(self._literals.get(frozenset(shape.values), list(shape.values)))
            case shapes.EnumType():
                return _enumeration([member.value for member in shape.cls])
            case shapes.UnionType():
                return {"anyOf": list(self._members(shape))}
            case shapes.TupleType():
                return _array([self._of(item) for item in shape.item_types], len(shape.item_types))
            case shapes.CollectionType():
                return _filled(type="array", items=self._of(shape.item_type)) | _limits(shape, "Items")
            case shapes.DictType():
                return self._dictionary(shape)
        cls = getattr(shape, "cls", type(shape))
        raise _NoJSON(f"{cls.__module__}.{cls.__qualname__}")

    def _members(self, union: shapes.UnionType) -> Iterator[JSONSchema]:
        """None comes last; structs are told apart by their tags, which are required only here."""
        tagged = sum(isinstance(member, shapes.StructType) for member in union.types) > 1
        for member in sorted(union.types, key=lambda member: isinstance(member, shapes.NoneType)):
            schema = self._of(member)
            if tagged and isinstance(member, shapes.StructType) and not member.array_like:
                schema["required"] = [member.tag_field]
            yield from schema["anyOf"] if set(schema) == {"anyOf"} else [schema]

    def _dictionary(self, shape: shapes.DictType) -> JSONSchema:
        names, values = _key(self._of(shape.key_type)), self._of(shape.value_type)
        return _filled(type="object", propertyNames=names, additionalProperties=values) | _limits(shape, "Properties")

    def _reference(self, shape: Any) -> JSONSchema:
        name = self._names.get(shape.cls)
        if name is None:
            name = re.sub(r"[^\w.-]", "_", getattr(shape.cls, "__name__", str(shape.cls)), flags=re.ASCII)
            while name in self.definitions:
                name += "_"
            self._names[shape.cls] = name
            self.definitions[name] = {}
            self.definitions[name] = self._class(shape)
        return {"$ref": f"#/$defs/{name}"}

    def _class(self, shape: Any) -> JSONSchema:
        docstring = docstrings.parse(_own_docstring(shape.cls))
        description = _filled(description=docstring.summary)
        tag = getattr(shape, "tag_field", None)
        properties = {tag: _enumeration([shape.tag])} if tag else {}
        fields = _as_written(shape)
        properties |= {field.encode_name: self._field(field, docstring) for field in fields}
        required = [field.encode_name for field in fields if field.required]
        is_open = not getattr(shape, "forbid_unknown_fields", isinstance(shape, shapes.NamedTupleType))
        if isinstance(shape, shapes.NamedTupleType) or getattr(shape, "array_like", False):
            least = max((place for place, name in enumerate(properties, 1) if name in (tag, *required)), default=0)
            return description | _array(list(properties.values()), least, is_open)
        closing = {} if is_open else {"additionalProperties": False}
        return description | _filled(type="object", properties=properties, required=required) | closing

    def _field(self, field: shapes.Field, docstring: docstrings.Docstring) -> JSONSchema:
        schema = self._of(field.type)
        if description := docstring.parameters.get(field.name):
            schema.setdefault("description", description)
        default = field.default_factory() if field.default_factory in (list, dict, set) else field.default
        if not isinstance(default, type(msgspec.NODEFAULT)):
            schema["default"] = msgspec.to_builtins(default, str_keys=True)
        return schema


def _filled(**keywords: Any) -> JSONSchema:
    """A schema without the keywords that would say nothing."""
    return {keyword: value for keyword, value in keywords.items() if value or value is False}


def _limits(shape: shapes.Type, counted: str) -> JSONSchema:
    keywords = _LIMITS | {"min_length": f"min{counted}", "max_length": f"max{counted}"}
    return {keyword: limit for name, keyword in keywords.items() if (limit := getattr(shape, name, None)) is not None}


def _key(schema: JSONSchema) -> JSONSchema:
    """What the names of an object may be: always strings, whatever they are read as."""
    if "anyOf" in schema:
        keys = [_key(member) for member in schema["anyOf"]]
        return {"anyOf": keys} if all(keys) else {}
    if "enum" in schema:
        return {"enum": [str(value) for value in schema["enum"]]}
    if schema.get("type") == "integer":
        return {"pattern": _INTEGER_KEY}
    if schema.get("type", "string") != "string":
        raise _NoJSON(f"dict with keys of the type {schema['type']}")
    return {keyword: value for keyword, value in schema.items() if keyword != "type"}


def _moment(shape: shapes.DateTimeType | shapes.TimeType) -> JSONSchema:
    name = ("date-time" if isinstance(shape, shapes.DateTimeType) else "time") + ("-local" if shape.tz is False else "")
    zone = r"(?:[Zz]|[+-]\d\d:?\d\d)$" if shape.tz else None
    return _filled(type="string", format=name, pattern=zone)


def _enumeration(values: list[Any]) -> JSONSchema:
    kinds = {type(value) for value in values}
    if bool in kinds:
        raise TypeError("a Literal of booleans; use bool")
    name = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
    return _filled(type=name, enum=values)


def _array(items: list[JSONSchema], least: int, is_open: bool = False) -> JSONSchema:
    lengths = {"minItems": least} if is_open else {"minItems": least, "maxItems": len(items)}
    return _filled(type="array", prefixItems=items) | lengths


def _as_written(shape: Any) -> list[shapes.Field]:
    """A class's fields in the order in which they were written; msgspec sorts those of a TypedDict."""
    if not isinstance(shape, shapes.TypedDictType):
        return list(shape.fields)
    order = list((typing.get_origin(shape.cls) or shape.cls).__annotations__)
    return sorted(shape.fields, key=lambda field: order.index(field.name))


def _own_docstring(cls: Any) -> str | None:
    """The docstring that was written for the class; not the signature that dataclass and namedtuple put there."""
    cls = typing.get_origin(cls) or cls
    doc = vars(cls).get("__doc__")
    return None if doc is None or doc.startswith(f"{cls.__name__}(") else str(doc)


def _literals(annotation: Any, seen: set[Any]) -> dict[frozenset[Any], list[Any]]:
    """Every Literal within a type, by its values, in the order in which it was written; msgspec sorts them."""
    inner = list(typing.get_args(annotation))
    if typing.get_origin(annotation) is Literal:
        return {frozenset(inner): inner}
    cls = typing.get_origin(annotation) or annotation
    if isinstance(cls, type) and "__annotations__" in vars(cls) and cls not in seen:
        seen.add(cls)
        inner += typing.get_type_hints(cls, include_extras=True).values()
    found = {}
    for part in inner:
        found.update(_literals(part, seen))
    return found
