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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union

import msgspec
import msgspec.inspect as shapes
from msgspec.structs import asdict

from ..protocol.errors import InvalidArguments
from ..protocol.jsonrpc import encode, explain
from . import docstrings

Function = Callable[..., Any]
JSONSchema = dict[str, Any]
_ByHand = Mapping[str, Any] | None

_ABSENT = inspect.Parameter.empty

# What decoding raises for what does not fit: msgspec's errors and Unicode's are ValueErrors; a TypeError comes of a set
# whose items cannot be hashed.
_UNFIT = (ValueError, TypeError, RecursionError)

# A missing and an unknown argument, in the words of `explain` and of jsonschema. Compiled when first needed, by `re`.
_MISSING = r"(?s)\$\.(\w+): missing|\$: '(.*)' is a required property"
_UNKNOWN = r"(?s)\$: object contains unknown field (.*)|\$: Additional properties are not.* \('(.*?)'.*"
_NO_CHOICE = r"(?s)\$\.(\w+): invalid enum value (.*)"


class Parameters:
    """The arguments of a function: their JSON Schema, and the way from bytes to typed values.

    `injected` is the class of the parameter that is not an argument: it is found by annotation and stays out of the
    schema. With `input_schema` that schema is shown and checked; the signature then only converts.
    """

    def __init__(self, function: Function, *, injected: type | None = None, input_schema: _ByHand = None) -> None:
        self._function = function
        self._names: dict[str, str] = {}  # by the struct's fields
        self._fields: list[Any] = []
        self._extra: Any = _ABSENT
        self.injected_name: str | None = None
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            with located(f"{_name(function)}: parameter {parameter.name!r}"):
                self._add(parameter.replace(annotation=_resolved(parameter.annotation, function, injected)), injected)
        self._positional = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        self.call = self._by_keywords if self._positional else function
        """The function, called with keyword arguments even where it has positional-only parameters."""
        struct = self._struct()
        self._decode = msgspec.json.Decoder(struct).decode
        self._check: Callable[[Any], None] | None = None
        self.schema = schema_of(struct, further=Any if self._extra is _ABSENT else self._extra)
        self.schema.pop("description", None)
        if input_schema is not None:
            self.schema = self._suiting(dict(input_schema), self.schema.get("required", ()))
        is_renamed = any(field != name for field, name in self._names.items())
        self._in_one_step = not (is_renamed or self._check) and self._extra is _ABSENT

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The keyword arguments in a JSON object; InvalidArguments where it does not fit."""
        try:
            return asdict(self._decode(raw)) if self._in_one_step else self._in_steps(raw)
        except _UNFIT:
            pass
        try:
            return self._in_steps(_with_whole_numbers(raw))
        except _UNFIT as error:
            raise InvalidArguments(self._reason(explain(error))) from None

    def _by_keywords(self, **arguments: Any) -> Any:
        return self._function(*[arguments.pop(name) for name in self._positional], **arguments)

    def _in_steps(self, raw: bytes) -> dict[str, Any]:
        if self._check is not None:
            self._check(msgspec.json.decode(raw))
        arguments = {self._names[field]: value for field, value in asdict(self._decode(raw)).items()}
        return arguments if self._extra is _ABSENT else self._further(raw) | arguments

    def _further(self, raw: bytes) -> dict[str, Any]:
        """The arguments for **kwargs."""
        everything = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if self.injected_name in everything:
            raise InvalidArguments(f"Unknown argument: {self.injected_name}")
        further = msgspec.json.encode(
            {name: everything[name] for name in everything if name not in self._names.values()}
        )
        values: dict[str, Any] = msgspec.json.decode(further, type=dict.__class_getitem__((str, self._extra)))
        return values

    def _reason(self, unfit: str) -> str:
        properties = self.schema.get("properties", {})
        if missing := re.fullmatch(_MISSING, unfit):
            return f"Missing required argument: {missing[1] or missing[2]}"
        if unknown := re.fullmatch(_UNKNOWN, unfit):
            known = f"known arguments: {', '.join(properties)}" if properties else "there are no arguments"
            return f"Unknown argument: {unknown[1] or unknown[2]}; {known}"
        choice = re.fullmatch(_NO_CHOICE, unfit)
        if choice and (values := properties.get(choice[1], {}).get("enum")):
            return f"$.{choice[1]}: expected one of {', '.join(map(repr, values))}, got {choice[2]}"
        return unfit

    def _add(self, parameter: inspect.Parameter, injected: type | None) -> None:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(f"is of any number: *{parameter.name} has no JSON form; name each, or take a list")
        if injected and _mentions(parameter.annotation, injected):
            if self.injected_name is not None:
                raise TypeError(f"is a second {injected.__name__}; one is given")
            self.injected_name = parameter.name
            return
        schema_of(parameter.annotation)  # tells here, where the parameter is known, what is wrong with its type
        if parameter.kind is parameter.VAR_KEYWORD:
            self._extra = parameter.annotation
            return
        default = [] if parameter.default is _ABSENT else [_field_default(parameter.default, parameter.annotation)]
        field = f"field{len(self._fields)}_" if parameter.name.startswith("__") else parameter.name
        self._fields.append((field, parameter.annotation, *default))
        self._names[field] = parameter.name

    def _struct(self) -> type[msgspec.Struct]:
        """The arguments as one struct. Names with two underscores are not for fields, so those are renamed."""
        closed = self._extra is _ABSENT
        struct = msgspec.defstruct(
            "arguments", self._fields, rename=self._names, forbid_unknown_fields=closed, kw_only=True, gc=False
        )
        struct.__doc__ = inspect.getdoc(_innermost(self._function))
        return struct

    def _suiting(self, schema: JSONSchema, required: Iterable[str]) -> JSONSchema:
        """A schema written by hand has to promise what the function needs, and no more than it takes."""
        what = f"input_schema of {_name(self._function)}"
        self._check = _checker(schema, what)
        if schema.get("type") != "object":
            raise ValueError(f'{what} has the type {schema.get("type")!r}; arguments are an object: "type": "object"')
        for name in set(required).difference(schema.get("required", ())):
            raise ValueError(f"{what} does not require {name!r}; list it under required, or give it a default")
        for name in (
            set(schema.get("properties", ())).difference(self._names.values()) if self._extra is _ABSENT else ()
        ):
            raise ValueError(f"{what} has {name!r}, which is no parameter of the function; add it, or **kwargs")
        return schema


class Returned:
    """What a function returns: its output schema, and the check of it.

    `unstructured` are the classes of content: a function that returns those, text, None or anything at all promises no
    structure, and has no schema.
    """

    def __init__(
        self, function: Function, *, output_schema: _ByHand = None, unstructured: tuple[type, ...] = ()
    ) -> None:
        self._check: Callable[[bytes], Any] = msgspec.json.decode
        self.schema: JSONSchema | None = None
        with located(f"{_name(function)}: the return type"):
            annotation = _resolved(inspect.signature(function).return_annotation, function)
            if output_schema is not None:
                self.schema = dict(output_schema)
                check = _checker(self.schema, f"output_schema of {_name(function)}")
                self._check = lambda encoded: check(msgspec.json.decode(encoded))
            elif not _is_unstructured(annotation, (str, type(None), *unstructured)):
                self.schema = schema_of(annotation)
                self._check = msgspec.json.Decoder(annotation).decode
        self.is_content = self.schema is None and annotation is not Any
        self.is_object = self.schema is not None and self.schema.get("type") == "object"

    def check(self, value: Any) -> Any:
        """The value as JSON's own types, as it will be on the wire; a ValueError, which says where, on a mismatch."""
        try:
            encoded = encode(value)
            try:
                self._check(encoded)
            except ValueError:
                self._check(_with_whole_numbers(encoded))
            return msgspec.json.decode(encoded)
        except _UNFIT as error:
            raise ValueError(explain(error)) from None


def _checker(schema: JSONSchema, what: str) -> Callable[[Any], None]:
    from .jsonschemas import Validator

    return Validator(schema, what=what).check


@contextmanager
def located(where: str) -> Iterator[None]:
    """TypeErrors that begin with a verb get their subject."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{where} {error}") from None


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


def _resolved(annotation: Any, function: Function, injected: type | None = None) -> Any:
    """An annotation as a type. `injected` is known by name even where it was imported for type checkers only."""
    if annotation is _ABSENT:
        return Any

    holder: Any = SimpleNamespace(__annotations__={"it": annotation})
    known = {injected.__name__: injected} if injected else {}
    names = known | getattr(_innermost(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except Exception as error:
        raise TypeError(f"has the annotation {annotation!r}, which cannot be resolved: {error}") from None


def _mentions(annotation: Any, wanted: type) -> bool:
    """Whether it is the class, a subclass, Optional, Annotated or a parametrised form of it."""
    origin = typing.get_origin(annotation)
    if origin in (Union, UnionType, typing.Annotated):
        return any(_mentions(member, wanted) for member in typing.get_args(annotation))
    candidate = origin or annotation
    return isinstance(candidate, type) and issubclass(candidate, wanted)


def _field_default(default: Any, annotation: Any) -> Any:
    """A default which the function may change is copied for each call."""
    if default is msgspec.UNSET:
        return default
    try:
        msgspec.json.decode(msgspec.json.encode(default), type=annotation)
    except _UNFIT as error:
        raise TypeError(f"has the default {default!r}, which is not of its type: {error}") from None
    is_constant = isinstance(default, (str, int, float, type(None), bytes))
    return default if is_constant else msgspec.field(default_factory=functools.partial(copy.deepcopy, default))


def _is_unstructured(annotation: Any, classes: tuple[type, ...]) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (Union, UnionType, list):
        return all(_is_unstructured(member, classes) for member in typing.get_args(annotation))
    return (annotation.__origin__ if origin is typing.Annotated else annotation) in (Any, list, *classes)


# Decoding


def _whole(text: str) -> int | Decimal:
    number = Decimal(text)
    return int(number) if float(text).is_integer() else number


_whole_decode = msgspec.json.Decoder(float_hook=_whole).decode
_whole_encode = msgspec.json.Encoder(decimal_format="number").encode


def _with_whole_numbers(raw: bytes) -> bytes:
    """The same JSON with `1.0` as `1`: to JSON Schema both are integers, to msgspec only the second."""
    return _whole_encode(_whole_decode(raw))


# Types as JSON Schema

_NAMES = {shapes.NoneType: "null", shapes.BoolType: "boolean", shapes.IntType: "integer", shapes.FloatType: "number"}
_NAMES |= {shapes.StrType: "string", shapes.AnyType: "", shapes.RawType: ""}
_FORMATS = {shapes.DateType: "date", shapes.TimeDeltaType: "duration", shapes.UUIDType: "uuid"}
_FORMATS |= {shapes.DateTimeType: "date-time", shapes.TimeType: "time"}
_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_LIMITS |= {"multiple_of": "multipleOf", "pattern": "pattern"}
_ZONED = r"(?:[Zz]|[+-]\d\d:?\d\d)$"
_INTEGER_KEY = r"^-?(?:0|[1-9]\d*)$"
_ADVICE = "use what JSON can hold: str, int, float, bool, a list, a dict, a dataclass"


def schema_of(annotation: Any, *, further: Any = Any) -> JSONSchema:
    """The schema of a type: its top written out, as a client looks there for the type, and the rest under $defs.

    `further` is the type of the properties that it does not name.
    """
    schemas = _Schemas()
    top, others, definitions = schemas.of(annotation), schemas.of(further), schemas.definitions
    if reference := top.pop("$ref", None):
        name = reference.removeprefix("#/$defs/")
        top = definitions[name] | top
        if repr(reference) not in repr(definitions):
            del definitions[name]
    return top | filled(additionalProperties=others, **{"$defs": definitions})


class _Schemas:
    """Makes schemas of types; classes go under `definitions`, and are referred to."""

    def __init__(self) -> None:
        self.definitions: dict[str, JSONSchema] = {}
        self._names: dict[Any, str] = {}
        self._literals: dict[frozenset[Any], tuple[Any, ...]] = {}

    def of(self, annotation: Any) -> JSONSchema:
        try:
            shape = shapes.type_info(annotation)
        except (TypeError, NameError) as error:
            raise TypeError(f"has type {annotation!r}: {error}") from None
        self._note_literals([annotation])
        return self._of(shape)

    def _note_literals(self, annotations: Iterable[Any]) -> None:
        """The values of each Literal, as they were written; msgspec sorts them."""
        for annotation in annotations:
            parts = typing.get_args(annotation)
            if typing.get_origin(annotation) is Literal:
                self._literals[frozenset(parts)] = parts
            else:
                self._note_literals(parts)

    def _of(self, shape: shapes.Type) -> JSONSchema:
        kind = type(shape)
        if kind in _NAMES:
            return filled(type=_NAMES[kind]) | _limits(shape, "Length")
        if kind in _FORMATS:
            zone = getattr(shape, "tz", None)
            name = _FORMATS[kind] + ("-local" if zone is False else "")
            return filled(type="string", format=name, pattern=_ZONED if zone else None)
        match shape:
            case shapes.BytesType() | shapes.ByteArrayType() | shapes.MemoryViewType():
                return {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}
            case shapes.DecimalType():
                return {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}
            case shapes.Metadata():
                return self._of(shape.type) | (shape.extra_json_schema or {})
            case shapes.LiteralType():
                return _enumeration(self._literals.get(frozenset(shape.values), shape.values))
            case shapes.EnumType():
                return _enumeration(tuple(member.value for member in shape.cls))
            case shapes.UnionType():
                return {"anyOf": list(self._members(shape))}
            case shapes.TupleType():
                return _array([self._of(item) for item in shape.item_types], len(shape.item_types), True)
            case shapes.CollectionType():
                return filled(type="array", items=self._of(shape.item_type)) | _limits(shape, "Items")
            case shapes.DictType():
                names, values = _key(self._of(shape.key_type)), self._of(shape.value_type)
                schema = filled(type="object", propertyNames=names, additionalProperties=values)
                return schema | _limits(shape, "Properties")
            case shapes.StructType() | shapes.TypedDictType() | shapes.DataclassType() | shapes.NamedTupleType():
                return self._reference(shape)
        cls = getattr(shape, "cls", kind)
        raise TypeError(f"has type {cls.__module__}.{cls.__qualname__}, which has no JSON form; {_ADVICE}")

    def _members(self, union: shapes.UnionType) -> Iterator[JSONSchema]:
        """None comes last; structs are told apart by their tags, which are required only here."""
        are_tagged = sum(isinstance(member, shapes.StructType) for member in union.types) > 1
        for member in sorted(union.types, key=lambda member: isinstance(member, shapes.NoneType)):
            tag = getattr(member, "tag_field", None) if are_tagged else None
            yield self._of(member) | filled(required=[tag] if tag else None)

    def _reference(self, shape: Any) -> JSONSchema:
        if shape.cls not in self._names:
            name = re.sub(r"[^\w.-]", "_", getattr(shape.cls, "__name__", str(shape.cls)), flags=re.ASCII)
            while name in self.definitions:
                name += "_"
            self._names[shape.cls] = name
            self.definitions[name] = {}
            self.definitions[name] = self._class(shape)
        return {"$ref": f"#/$defs/{self._names[shape.cls]}"}

    def _class(self, shape: Any) -> JSONSchema:
        cls = typing.get_origin(shape.cls) or shape.cls
        doc = vars(cls).get("__doc__") or ""
        is_own = not doc.startswith(f"{cls.__name__}(")  # as dataclass and namedtuple write it
        docstring = docstrings.parse(doc if is_own else "")
        description = filled(description=docstring.summary)
        hints = typing.get_type_hints(cls, include_extras=True)
        self._note_literals(hints.values())
        fields = list(shape.fields)
        if isinstance(shape, shapes.TypedDictType):  # msgspec has sorted them
            fields.sort(key=lambda field: list(hints).index(field.name))
        tag = getattr(shape, "tag_field", None)
        properties = {tag: _enumeration((shape.tag,))} if tag else {}
        properties |= {field.encode_name: self._field(field, docstring) for field in fields}
        required = [field.encode_name for field in fields if field.required]
        is_tuple = isinstance(shape, shapes.NamedTupleType)
        is_closed = getattr(shape, "forbid_unknown_fields", is_tuple)
        if is_tuple or getattr(shape, "array_like", False):
            least = max((place for place, name in enumerate(properties, 1) if name in (tag, *required)), default=0)
            return description | _array(list(properties.values()), least, is_closed)
        further = False if is_closed else None
        schema = filled(type="object", properties=properties, required=required, additionalProperties=further)
        return description | schema

    def _field(self, field: shapes.Field, docstring: docstrings.Docstring) -> JSONSchema:
        schema = self._of(field.type)
        if description := docstring.parameters.get(field.name) or docstring.parameters.get(field.encode_name):
            schema.setdefault("description", description)
        make = field.default_factory
        is_plain = make in (list, dict, set) or getattr(make, "func", None) is copy.deepcopy
        default = make() if is_plain else field.default
        if default not in (msgspec.NODEFAULT, msgspec.UNSET):
            schema["default"] = msgspec.to_builtins(default, str_keys=True)
        return schema


def filled(**keywords: Any) -> JSONSchema:
    """A schema without the keywords that would say nothing."""
    return {keyword: value for keyword, value in keywords.items() if value not in (None, "", [], {})}


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
        raise TypeError(f"has a dict with keys of the type {schema['type']}, which has no JSON form; {_ADVICE}")
    return {keyword: value for keyword, value in schema.items() if keyword != "type"}


def _enumeration(values: tuple[Any, ...]) -> JSONSchema:
    kinds = {type(value) for value in values}
    if bool in kinds:
        raise TypeError("has a Literal of booleans; use bool")
    name = {str: "string", int: "integer"}.get(kinds.pop()) if len(kinds) == 1 else None
    return filled(type=name, enum=list(values))


def _array(items: list[JSONSchema], least: int, is_closed: bool) -> JSONSchema:
    return filled(type="array", prefixItems=items, minItems=least, maxItems=len(items) if is_closed else None)
