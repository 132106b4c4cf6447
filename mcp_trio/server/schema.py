"""A function's signature as JSON Schema, and the way from a call's bytes to its typed arguments.

msgspec decodes; what it takes and what the schema says agree, and where msgspec differs from JSON Schema (`1.0` is an
integer there) this module makes up for it.
"""

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from types import GenericAlias, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect as shapes
from msgspec.structs import asdict

from ..protocol import errors, jsonrpc
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

    `of` says in errors whose they are. `injected` is the class of the parameter that is not an argument: it is found
    by annotation and stays out of the schema. With `input_schema` that schema is shown and checked; the signature then
    only converts.
    """

    _extra: Any = None  # the type of **kwargs

    def __init__(
        self, function: Function, *, of: str = "", injected: type | None = None, input_schema: _ByHand = None
    ) -> None:
        self._function, self._of = function, of
        self._names: dict[str, str] = {}  # by the struct's fields
        self._fields: list[Any] = []
        self.injected_name: str | None = None
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if parameter.name in ("self", "cls") and parameter.annotation is _ABSENT and "." in _name(function):
                raise TypeError(f"{_name(function)}: nothing gives it {parameter.name!r}; register the bound method")
            with located(f"{_name(function)}: parameter {parameter.name!r}"):
                self._add(parameter.replace(annotation=_resolved(parameter.annotation, function, injected)), injected)
        self._positional = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        # The function, called with keyword arguments even where it has positional-only parameters.
        self.call = self._by_keywords if self._positional else function
        # Names that begin with two underscores are not for fields: those are renamed.
        closed = not self._extra
        struct = msgspec.defstruct("_", self._fields, rename=self._names, forbid_unknown_fields=closed, kw_only=True)
        struct.__doc__ = inspect.getdoc(innermost(function))
        self._decode = msgspec.json.Decoder(struct).decode
        self._renamed = {field: name for field, name in self._names.items() if field != name}
        self._check: Callable[[bytes], None] | None = None
        self.schema = schema_of(struct, further=self._extra or Any)
        self.schema.pop("description", None)
        if input_schema is not None:
            self._adopt(input_schema)
        self._is_plain = not any((self._renamed, self._check, self._extra))

    def decode(self, raw: bytes) -> dict[str, Any]:
        """The keyword arguments in a JSON object; InvalidArguments where it does not fit."""
        try:
            try:
                return asdict(self._decode(raw)) if self._is_plain else self._read(raw)
            except _UNFIT:
                return self._read(_with_whole_numbers(raw))
        except _UNFIT as error:
            raise errors.InvalidArguments(self._reason(jsonrpc.explain(error)), of=self._of) from None

    def _by_keywords(self, **arguments: Any) -> Any:
        return self._function(*[arguments.pop(name) for name in self._positional], **arguments)

    def _read(self, raw: bytes) -> dict[str, Any]:
        if self._check is not None:
            self._check(raw)
        arguments = asdict(self._decode(raw))
        for field, name in self._renamed.items():
            arguments[name] = arguments.pop(field)
        return self._further(raw) | arguments if self._extra else arguments

    def _further(self, raw: bytes) -> dict[str, Any]:
        """The arguments for **kwargs."""
        everything = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if self.injected_name in everything:
            raise errors.InvalidArguments(f"Unknown argument: {self.injected_name}", of=self._of)
        others = {name: everything[name] for name in everything if name not in self._names.values()}
        return dict(msgspec.json.decode(msgspec.json.encode(others), type=GenericAlias(dict, (str, self._extra))))

    def _reason(self, unfit: str) -> str:
        properties = self.schema.get("properties", {})
        if missing := re.fullmatch(_MISSING, unfit):
            return f"Missing required argument: {missing[1] or missing[2]}"
        if unknown := re.fullmatch(_UNKNOWN, unfit):
            name = unknown[1] or unknown[2] or "''"
            known = f"known arguments: {', '.join(properties)}" if properties else "there are no arguments"
            return f"Unknown argument: {name}; {known}"
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

    def _adopt(self, schema: Mapping[str, Any]) -> None:
        """A schema written by hand has to promise what the function needs, and no more than it takes."""
        what = f"input_schema of {_name(self._function)}"
        self._check = _checker(schema, what)
        if schema.get("type") != "object":
            raise ValueError(f'{what} has the type {schema.get("type")!r}; arguments are an object: "type": "object"')
        for name in set(self.schema.get("required", ())).difference(schema.get("required", ())):
            raise ValueError(f"{what} does not require {name!r}; list it under required, or give it a default")
        unknown = set(schema.get("properties", ())).difference(self._names.values())
        if unknown and not self._extra:
            raise ValueError(f"{what} has {unknown.pop()!r}, which is no parameter of it; add it, or **kwargs")
        self.schema = dict(schema)


class Returned:
    """What a function returns: its output schema, and the check of it.

    `content` are its classes: a function that returns those, text, None or anything at all promises no
    structure, and has no schema.
    """

    def __init__(self, function: Function, *, output_schema: _ByHand = None, content: tuple[type, ...] = ()) -> None:
        self._check: Callable[[bytes], Any] = msgspec.json.decode
        self.schema: JSONSchema | None = None
        with located(f"{_name(function)}: the return type"):
            annotation = _resolved(inspect.signature(function).return_annotation, function)
            if output_schema is not None:
                self._check = _checker(output_schema, f"output_schema of {_name(function)}")
                self.schema = dict(output_schema)
            elif not _is_unstructured(annotation, content):
                self.schema = schema_of(annotation)
                self._check = msgspec.json.Decoder(annotation).decode
        self.is_content = self.schema is None and annotation not in (Any, object)
        self.is_object = self.schema is not None and self.schema.get("type") == "object"

    def check(self, value: Any) -> Any:
        """The value as JSON's own types, as it will be on the wire; a ValueError, which says where, on a mismatch."""
        try:
            encoded = jsonrpc.encode(value)
            try:
                self._check(encoded)
            except ValueError:
                self._check(_with_whole_numbers(encoded))
            return msgspec.json.decode(encoded)
        except _UNFIT as error:
            raise ValueError(jsonrpc.explain(error)) from None


def _checker(schema: Mapping[str, Any], what: str) -> Callable[[bytes], None]:
    """The check of a value's JSON by a schema written by hand."""
    from .jsonschemas import Validator

    if not isinstance(schema, Mapping):
        raise ValueError(f"{what} wants a JSON Schema as a dict, not {schema!r}")
    validator = Validator(schema, what=what)
    return lambda encoded: validator.check(msgspec.json.decode(encoded))


@contextmanager
def located(where: str) -> Iterator[None]:
    """TypeErrors that begin with a verb get their subject."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{where} {error}") from None


# Signatures


def peeled(function: Function) -> Any:
    """The function under partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def innermost(function: Function) -> Any:
    """The function under partials, decorators and callable objects: it has the name, the docstring and the globals."""
    function = inspect.unwrap(peeled(function))
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_plain else inspect.unwrap(type(function).__call__)


def _name(function: Function) -> str:
    """As it is written where it stands: `add`, `Calculator.add`."""
    return str(innermost(function).__qualname__).rpartition("<locals>.")[2] + "()"


def _resolved(annotation: Any, function: Function, injected: type | None = None) -> Any:
    """An annotation as a type. `injected` is known by name even where it was imported for type checkers only."""
    annotation = Any if annotation is _ABSENT else annotation
    known = {injected.__name__: injected} if injected else {}
    names = known | getattr(innermost(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"it": annotation}), names, include_extras=True)["it"]
    except Exception as error:
        raise TypeError(f"has the annotation {annotation!r}, which cannot be resolved: {error}") from None


def _mentions(annotation: Any, wanted: type) -> bool:
    """Whether it is the class, a subclass, Optional, Annotated or a parametrised form of it."""
    classes = [get_origin(member) or member for member in _members(annotation, Union, UnionType)]
    return any(isinstance(cls, type) and issubclass(cls, wanted) for cls in classes)


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


def _is_unstructured(annotation: Any, content: tuple[type, ...]) -> bool:
    """Whether all of a return type is content, text, nothing or anything; TypeError where only a part is content."""
    members = _members(annotation, Union, UnionType, list, tuple, Sequence)
    if all(member in (Any, object, str, type(None), list, *content) for member in members):
        return True
    if mixed := [member.__name__ for member in members if member in content]:
        raise TypeError(f"mixes content ({', '.join(mixed)}) with structured types; a ToolResult can hold both")
    return False


def _members(annotation: Any, *origins: Any) -> list[Any]:
    """The types that unions, or others of these `origins`, are made of."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(annotation.__origin__, *origins)
    parts = [part for part in get_args(annotation) if part is not Ellipsis]
    return [member for part in parts for member in _members(part, *origins)] if origin in origins else [annotation]


# Decoding


def _whole(text: str) -> int | Decimal:
    try:
        return int(Decimal(text)) if float(text).is_integer() else Decimal(text)
    except InvalidOperation:
        raise ValueError("number out of range") from None


_whole_decode = msgspec.json.Decoder(float_hook=_whole).decode
_whole_encode = msgspec.json.Encoder(decimal_format="number").encode


def _with_whole_numbers(raw: bytes) -> bytes:
    """The same JSON with `1.0` as `1`: to JSON Schema both are integers, to msgspec only the second."""
    return _whole_encode(_whole_decode(raw))


# Types as JSON Schema

_SIMPLE = {shapes.NoneType: "null", shapes.BoolType: "boolean", shapes.IntType: "integer", shapes.FloatType: "number"}
_SIMPLE |= {shapes.StrType: "string", shapes.AnyType: "", shapes.RawType: ""}
_FORMATS = {shapes.DateType: "date", shapes.TimeDeltaType: "duration", shapes.UUIDType: "uuid"}
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
            return filled(type="string", format=name, pattern=r"(?:[Zz]|[+-]\d\d:?\d\d)$" if zone else None)
        match shape:
            case shapes.CustomType(cls=cls) if cls is object:
                return {}
            case shapes.BytesType() | shapes.ByteArrayType() | shapes.MemoryViewType():
                return {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}
            case shapes.DecimalType():
                return {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}
            case shapes.Metadata():
                return self.of(shape.type) | (shape.extra_json_schema or {})
            case shapes.LiteralType():
                return _enumeration(self._literals.get(frozenset(shape.values), shape.values))
            case shapes.EnumType():
                return _enumeration(tuple(member.value for member in shape.cls))
            case shapes.UnionType():
                return {"anyOf": list(self._members(shape))}
            case shapes.TupleType():
                return _array([self.of(item) for item in shape.item_types], len(shape.item_types), True)
            case shapes.CollectionType():
                return filled(type="array", items=self.of(shape.item_type)) | _limits(shape, "Items")
            case shapes.DictType():
                names, values = _key(self.of(shape.key_type)), self.of(shape.value_type)
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
            yield self.of(member) | filled(required=[tag] if tag else None)

    def _reference(self, shape: Any) -> JSONSchema:
        if shape.cls not in self._names:
            name = re.sub(r"[^\w.-]", "_", getattr(shape.cls, "__name__", str(shape.cls)), flags=re.ASCII)
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
        properties |= {field.encode_name: self._field(field, docstring) for field in fields}
        required = [field.encode_name for field in fields if field.required]
        is_tuple = isinstance(shape, shapes.NamedTupleType)
        is_closed = getattr(shape, "forbid_unknown_fields", is_tuple)
        if is_tuple or getattr(shape, "array_like", False):
            least = max((place for place, name in enumerate(properties, 1) if name in (tag, *required)), default=0)
            schema = _array(list(properties.values()), least, is_closed)
        else:
            further = False if is_closed else None
            schema = filled(type="object", properties=properties, required=required, additionalProperties=further)
        return filled(description=docstring.summary) | schema

    def _field(self, field: shapes.Field, docstring: docstrings.Docstring) -> JSONSchema:
        description = docstring.parameters.get(field.name) or docstring.parameters.get(field.encode_name)
        schema = filled(description=description) | self.of(field.type)
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
    words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum", "pattern": "pattern"}
    words |= {"multiple_of": "multipleOf", "min_length": f"min{counted}", "max_length": f"max{counted}"}
    return {keyword: limit for name, keyword in words.items() if (limit := getattr(shape, name, None)) is not None}


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


# Forms for users

_FORM_KEYS = "type title description minLength maxLength minimum maximum format minItems maxItems items".split()
_FORM_KEYS += "enum enumNames oneOf default".split()


@functools.cache
def form_schema(form: type[Any], *, lists: bool) -> JSONSchema:
    """The flat schema that elicitation has of a dataclass, Struct or TypedDict.

    `lists`: whether the revision has choices of several, and defaults of any kind.

    A choice gets titles by JSON Schema's own words for them, beside its type: `Annotated[Literal["a", "b"],
    Meta(extra_json_schema={"oneOf": [{"const": "a", "title": "First"}, …]})]`; in a list of choices it is `anyOf`.

    Raises TypeError for a field that no form can have, ValueError for one that this revision's forms cannot.
    """
    with located(f"a form, {form!r},"):
        schema = schema_of(form)
    if "properties" not in schema:
        raise TypeError(f"a form is a dataclass, Struct or TypedDict with fields, not {form!r}")
    fields = {name: _entry(f"{form.__name__}.{name}", field, lists) for name, field in schema["properties"].items()}
    return filled(type="object", properties=fields, required=schema.get("required"))


def _entry(name: str, schema: JSONSchema, lists: bool) -> JSONSchema:
    """One field: a text, a number, a yes or no, a choice, or a choice of several."""
    real = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(real) == 1:  # `X | None` is X: a field that is not required may be left empty
        schema = real[0] | schema
    kind = schema.get("type")
    if kind == "array":
        schema = schema | {"items": _choices(name, schema.get("items", {}), lists)}
    elif kind not in ("string", "number", "integer", "boolean") or ("enum" in schema and kind != "string"):
        raise TypeError(f"{name}: a form's field is a str, int, float, bool, a choice of strings or a list of those")
    if "oneOf" in schema and lists:
        schema = schema | {"enum": None}
    elif titled := schema.get("oneOf"):  # a revision before that has two lists in its place
        values, titles = [choice["const"] for choice in titled], [choice["title"] for choice in titled]
        schema = schema | {"enum": values, "enumNames": titles, "oneOf": None}
    kept = {key: schema[key] for key in _FORM_KEYS if schema.get(key) is not None}
    if kept.get("format") not in ("email", "uri", "date", "date-time"):
        kept.pop("format", None)
    if not lists and kind != "boolean":
        kept.pop("default", None)
    return kept


def _choices(name: str, items: JSONSchema, lists: bool) -> JSONSchema:
    """What a choice of several has to choose from."""
    if "enum" not in items or items.get("type") != "string":
        raise TypeError(f"{name}: a list in a form is a list of choices: list[Literal['a', 'b']], or of a str Enum")
    if not lists:
        raise ValueError(f"{name}: this protocol revision has no lists in its forms")
    return {"anyOf": items["anyOf"]} if "anyOf" in items else {"type": "string", "enum": items["enum"]}
