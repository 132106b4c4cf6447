"""The parameters and results of functions: their JSON Schemas, decoding and encoding.

msgspec decodes and validates in one pass. The schemas describe exactly what it accepts.
Where msgspec differs from JSON Schema, this module corrects it: `1.0` is an integer in
JSON Schema.
"""

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Union, get_origin, get_type_hints

import msgspec
from msgspec.structs import asdict

from ...protocol import jsonrpc
from ...protocol.errors import InvalidArguments, InvalidParams
from ...protocol.memory import DECODED, LARGE, require_memory
from .annotation_parts import is_pydantic, is_pydantic_field
from .annotations import located, member_types
from .decode import DECODE_ERRORS, with_whole_numbers
from .encode import encode_value
from .generate import JSONSchema, described, schema_of

if TYPE_CHECKING:
    from .pydantic_types import PydanticParameter

AnyFunction = Callable[..., Any]

_ABSENT = inspect.Parameter.empty
# Types that need no check at registration.
_SIMPLE_TYPES = (str, int, float, bool)

# Messages of `jsonrpc.explain` and jsonschema that are rephrased. `re` compiles and
# caches the patterns when they are first needed.
_MISSING = r"(?s)\$\.(\w+): missing|\$: '(.*)' is a required property"
_UNKNOWN = (
    r"(?s)\$: object contains unknown field (.*)"
    r"|\$: Additional properties are not.* \('(.*?)'.*"
)
_NO_CHOICE = r"(?s)\$\.(\w+): invalid enum value (.*)"


# Parameters


class Parameters:
    """The parameters of a function: their JSON Schema, and the decoding of arguments.

    `of` names the function in error messages for clients. A parameter whose annotation
    is `injected` is not an argument, and not in the schema. If there is an
    `input_schema`, arguments are validated against it, and the signature is only used
    to convert them.
    """

    # The type of **kwargs.
    _extra: Any = None
    # Validates arguments against `input_schema`.
    _check: Callable[[bytes], None] | None = None

    def __init__(
        self,
        function: AnyFunction,
        *,
        of: str = "",
        injected: type | None = None,
        input_schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._function = function
        self._of = of
        self._injected = injected
        # The name of the parameter that is injected.
        self.injected_name: str | None = None
        # Field of the decoded struct -> name of the parameter.
        self._names: dict[str, str] = {}
        self._fields: list[Any] = []
        # Name -> parameter, for parameters with pydantic types.
        self._pydantic: dict[str, PydanticParameter] = {}

        self._positional: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            self._add(parameter)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(parameter.name)
        # The function, callable with keyword arguments only.
        self.call = self._call_by_keywords if self._positional else function

        struct = self._struct()
        self._decode = msgspec.json.Decoder(struct).decode
        extra_values = GenericAlias(dict, (str, self._extra or Any))
        self._decode_extra_values = msgspec.json.Decoder(extra_values).decode
        self._renamed = {
            field: name for field, name in self._names.items() if field != name
        }
        schema = schema_of(struct, further=self._extra or Any)
        schema.pop("description", None)
        # JSON Schema does not require `properties`, but many frameworks expect it.
        no_properties: JSONSchema = {"type": "object", "properties": {}}
        self.schema = no_properties | schema
        self._add_pydantic_schemas()
        if input_schema is not None:
            self._adopt(input_schema)
        # Whether decoding is a single call of msgspec.
        self._is_plain = not (
            self._renamed or self._extra or self._check or self._pydantic
        )

    def decode(self, raw: bytes) -> dict[str, Any]:
        """Decode a JSON object into keyword arguments.

        Raises InvalidArguments if the object does not match the schema, and
        InvalidParams if it is not an object.
        """
        if len(raw) >= LARGE:
            require_memory(DECODED * len(raw))
        try:
            if self._is_plain:
                return asdict(self._decode(raw))
            return self._decode_and_check(raw)
        except DECODE_ERRORS as error:
            return self._decode_leniently(raw, error)

    def _decode_leniently(self, raw: bytes, error: Exception) -> dict[str, Any]:
        """Decode again, with `1.0` as an integer, or raise an error with the reason."""
        try:
            self._require_object(raw)
            return self._decode_and_check(with_whole_numbers(bytes(raw), error))
        except DECODE_ERRORS as error:
            reason = self._reason(jsonrpc.explain(error))
            raise InvalidArguments(reason, of=self._of) from None

    def _require_object(self, raw: bytes) -> None:
        """Raise InvalidParams if the arguments are not a JSON object.

        In that case the request itself is invalid, regardless of the tool's schema.
        """
        try:
            msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError as error:
            problem = InvalidArguments(jsonrpc.explain(error), of=self._of)
            raise InvalidParams(problem.message, reason=problem.reason) from None

    def _decode_and_check(self, raw: bytes) -> dict[str, Any]:
        if self._check is not None:
            self._check(raw)
        arguments = asdict(self._decode(raw))
        for field, name in self._renamed.items():
            arguments[name] = arguments.pop(field)
        for name, parameter in self._pydantic.items():
            arguments[name] = parameter.decode(arguments[name], name)
        if self._extra:
            return self._decode_extra(raw) | arguments
        return arguments

    def _decode_extra(self, raw: bytes) -> dict[str, Any]:
        """Return the arguments for **kwargs."""
        if not self._names and self.injected_name is None:
            return dict(self._decode_extra_values(raw))
        everything = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        if self.injected_name in everything:
            reason = f"Unknown argument: {self.injected_name}"
            raise InvalidArguments(reason, of=self._of)
        for name in self._names.values():
            everything.pop(name, None)
        return dict(self._decode_extra_values(msgspec.json.encode(everything)))

    def _reason(self, problem: str) -> str:
        """Rephrase a message for the client."""
        properties = self.schema.get("properties", {})
        missing = re.fullmatch(_MISSING, problem)
        if missing:
            return f"Missing required argument: {missing[1] or missing[2]}"
        unknown = re.fullmatch(_UNKNOWN, problem)
        if unknown:
            name = unknown[1] or unknown[2] or "''"
            known = "there are no arguments"
            if properties:
                known = f"known arguments: {', '.join(properties)}"
            return f"Unknown argument: {name}; {known}"
        choice = re.fullmatch(_NO_CHOICE, problem)
        if choice:
            name, given = choice.groups()
            values = properties.get(name, {}).get("enum")
            if values:
                expected = ", ".join(map(repr, values))
                return f"$.{name}: expected one of {expected}, got {given}"
        return problem

    def _call_by_keywords(self, **arguments: Any) -> Any:
        """Call a function that has positional-only parameters."""
        positional = [arguments.pop(name) for name in self._positional]
        return self._function(*positional, **arguments)

    # Registration

    def _add(self, parameter: inspect.Parameter) -> None:
        """Add a parameter to the fields. Raises TypeError."""
        function = self._function
        where = _name(function)
        is_self = parameter.name in ("self", "cls") and parameter.annotation is _ABSENT
        if is_self and "." in where:
            raise TypeError(
                f"{where}: expected a bound method, got a function with the parameter "
                f"{parameter.name!r}; register it on an instance"
            )
        with located(f"{where}: parameter {parameter.name!r}"):
            annotation = _resolved(parameter.annotation, function, self._injected)
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise TypeError(
                    f"is variadic: *{parameter.name} has no JSON form; use named "
                    "parameters, or one parameter that is a list"
                )
            if self._injected and _mentions(annotation, self._injected):
                self._inject(parameter.name, self._injected)
                return
            if is_pydantic_field(parameter.default) or is_pydantic(annotation):
                self._add_pydantic(parameter, annotation)
                return
            annotation = described(annotation)
            if annotation not in _SIMPLE_TYPES:
                # Checked here, so that an error names the parameter.
                schema_of(annotation)
            if parameter.kind is parameter.VAR_KEYWORD:
                self._extra = annotation
                return
            self._add_field(parameter, annotation)

    def _inject(self, name: str, injected: type) -> None:
        if self.injected_name is not None:
            raise TypeError(
                f"is the second parameter of the type {injected.__name__}; use only one"
            )
        self.injected_name = name

    def _add_field(self, parameter: inspect.Parameter, annotation: Any) -> None:
        field = self._field_name(parameter)
        if parameter.default is _ABSENT:
            self._fields.append((field, annotation))
        else:
            default = _field_default(parameter.default, annotation)
            self._fields.append((field, annotation, default))

    def _add_pydantic(self, parameter: inspect.Parameter, annotation: Any) -> None:
        """Add a field that stays encoded, to be decoded by pydantic."""
        # Deferred, because it imports pydantic, which the user has imported by now.
        from .pydantic_types import PydanticParameter

        if parameter.kind is parameter.VAR_KEYWORD:
            raise TypeError(
                "is variadic, and has a pydantic type; use one parameter of the type "
                "dict[str, ...]"
            )
        has_default = parameter.default is not _ABSENT
        default = parameter.default if has_default else msgspec.NODEFAULT
        added = PydanticParameter(annotation, default)
        field = self._field_name(parameter)
        if added.is_required:
            self._fields.append((field, msgspec.Raw))
        else:
            self._fields.append((field, msgspec.Raw, msgspec.UNSET))
        self._pydantic[parameter.name] = added

    def _field_name(self, parameter: inspect.Parameter) -> str:
        """Return the name of the field for a parameter."""
        field = parameter.name
        # A name in a class that begins with two underscores would be mangled.
        if field.startswith("__"):
            field = f"field{len(self._fields)}_"
        self._names[field] = parameter.name
        return field

    def _add_pydantic_schemas(self) -> None:
        if self._pydantic:
            from .pydantic_types import add_schemas

            add_schemas(self.schema, self._pydantic)

    def _struct(self) -> type[msgspec.Struct]:
        """Return a struct whose fields are the arguments."""
        struct = msgspec.defstruct(
            "_",
            self._fields,
            rename=self._names,
            forbid_unknown_fields=not self._extra,
            kw_only=True,
        )
        # It contains the descriptions of the fields.
        struct.__doc__ = inspect.getdoc(innermost(self._function))
        return struct

    def _adopt(self, schema: Mapping[str, Any]) -> None:
        """Use the given input schema. Raises ValueError.

        It must require the arguments that the function requires, and must not have
        properties that the function does not take.
        """
        what = f"input_schema of {_name(self._function)}"
        self._check = _checker(schema, what)
        if schema.get("type") != "object":
            raise ValueError(
                f'{what}: expected "type": "object", got {schema.get("type")!r}'
            )
        required = set(self.schema.get("required", ()))
        for name in required.difference(schema.get("required", ())):
            raise ValueError(
                f"{what}: expected {name!r} under required; add it, or give the "
                "parameter a default"
            )
        unknown = set(schema.get("properties", ())).difference(self._names.values())
        if unknown and not self._extra:
            raise ValueError(
                f"{what}: expected the function's parameters, got {unknown.pop()!r}; "
                "add this parameter, or **kwargs"
            )
        self.schema = dict(schema)


# Results

# The origins of annotations for a list of content.
_LISTS = (list, tuple, Sequence)


class Returned:
    """The result of a function: its output schema, and the encoding of values.

    `content` are the classes of content blocks. A function whose return type only
    consists of those, of text, None or `Any`, has no output schema.
    """

    def __init__(
        self,
        function: AnyFunction,
        *,
        output_schema: Mapping[str, Any] | None = None,
        content: tuple[type, ...] = (),
    ) -> None:
        self.schema: JSONSchema | None = None
        self._encode: Callable[[Any], bytes] = encode_value
        self._check: Callable[[bytes], Any] | None = None
        name = _name(function)
        with located(f"{name}: the return type"):
            annotation = inspect.signature(function).return_annotation
            annotation = _resolved(annotation, function)
            of_pydantic = is_pydantic(annotation)
            if output_schema is not None:
                self._check = _checker(output_schema, f"output_schema of {name}")
                self.schema = dict(output_schema)
            elif _is_unstructured(annotation, content):
                pass
            elif of_pydantic:
                self._use_pydantic(annotation)
            else:
                self.schema = schema_of(described(annotation))
                self._check = msgspec.json.Decoder(annotation).decode
        # Whether an empty list is a list of content blocks rather than a value.
        self.is_content = self.schema is None and annotation not in (Any, object)
        # Whether the output schema describes an object.
        self.is_object = self.schema is not None and self.schema.get("type") == "object"

    def _use_pydantic(self, annotation: Any) -> None:
        # Deferred, because it imports pydantic, which the user has imported by now.
        from .pydantic_types import PydanticType

        of_pydantic = PydanticType(annotation)
        self.schema = of_pydantic.schema("serialization")
        self._encode = of_pydantic.encode

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises ValueError if it does not match the output schema."""
        try:
            encoded = self._encode(value)
            if self._check is not None:
                self._check_encoded(encoded)
            return encoded
        except DECODE_ERRORS as error:
            raise ValueError(jsonrpc.explain(error)) from None

    def _check_encoded(self, encoded: bytes) -> None:
        assert self._check is not None
        try:
            self._check(encoded)
        except DECODE_ERRORS as error:
            self._check(with_whole_numbers(encoded, error))


def _is_unstructured(annotation: Any, content: tuple[type, ...]) -> bool:
    """Return whether a return type only consists of content, text, None or `Any`.

    A list of strings is structured, unless its items may also be content. Raises
    TypeError if one part of the annotation is content and another part is not.
    """
    members = member_types(annotation, Union, UnionType)
    if all(_is_content(member, content) for member in members):
        return True
    parts = member_types(annotation, Union, UnionType, *_LISTS)
    mixed = [part.__name__ for part in parts if part in content]
    if mixed:
        raise TypeError(
            f"mixes content ({', '.join(mixed)}) with structured types; to return "
            "both, use ToolResult"
        )
    return False


def _is_content(annotation: Any, content: tuple[type, ...]) -> bool:
    """Return whether one member of a union is content, text, None or `Any`."""
    if get_origin(annotation) not in _LISTS:
        return annotation in (Any, object, str, type(None), list, *content)
    items = member_types(annotation, Union, UnionType, *_LISTS)
    if not any(item in (Any, object, *content) for item in items):
        return False
    return all(item in (Any, object, str, type(None), *content) for item in items)


# Functions and their annotations


def without_partials(function: AnyFunction) -> Any:
    """Return the function inside partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def innermost(function: AnyFunction) -> Any:
    """Return the function inside partials, decorators and callable objects.

    It has the name, the docstring and the globals of the source code.
    """
    function = inspect.unwrap(without_partials(function))
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return inspect.unwrap(type(function).__call__)


def _name(function: AnyFunction) -> str:
    """Return the qualified name of a function: `add()`, `Calculator.add()`."""
    name: str = innermost(function).__qualname__
    return name.rpartition("<locals>.")[2] + "()"


def _resolved(
    annotation: Any, function: AnyFunction, injected: type | None = None
) -> Any:
    """Resolve an annotation. Raises TypeError.

    The name of `injected` can be resolved even if the function's module only imports it
    for type checkers.
    """
    if annotation is _ABSENT:
        annotation = Any
    names: dict[str, Any] = {}
    if injected:
        names[injected.__name__] = injected
    names |= getattr(innermost(function), "__globals__", {})
    holder = SimpleNamespace(__annotations__={"it": annotation})
    try:
        return get_type_hints(holder, names, include_extras=True)["it"]
    except Exception as error:
        raise TypeError(
            f"has the annotation {annotation!r}, which cannot be resolved: {error}"
        ) from None


def _mentions(annotation: Any, wanted: type) -> bool:
    """Return whether an annotation is a class or a subclass of it.

    It may be optional, in `Annotated`, or parametrized.
    """
    for member in member_types(annotation, Union, UnionType):
        cls = get_origin(member) or member
        if isinstance(cls, type) and issubclass(cls, wanted):
            return True
    return False


def _field_default(default: Any, annotation: Any) -> Any:
    """Convert a parameter's default to that of a struct field. Raises TypeError.

    Mutable defaults are copied for each call.
    """
    if default is msgspec.UNSET:
        return default
    try:
        msgspec.json.decode(msgspec.json.encode(default), type=annotation)
    except DECODE_ERRORS as error:
        raise TypeError(
            f"has the default {default!r}, which is not of its type: {error}"
        ) from None
    if isinstance(default, (str, int, float, type(None), bytes)):
        return default
    return msgspec.field(default_factory=functools.partial(copy.deepcopy, default))


def _checker(schema: Mapping[str, Any], what: str) -> Callable[[bytes], None]:
    """Return a function that validates encoded values against a given schema."""
    # Deferred, because few servers need it.
    from .check import SchemaCheck

    if not isinstance(schema, Mapping):
        raise ValueError(f"{what}: expected a JSON Schema as a dict, got {schema!r}")
    return SchemaCheck(schema, what=what)
