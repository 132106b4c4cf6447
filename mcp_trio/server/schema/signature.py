"""A function's signature as JSON Schema, and the way from a call's bytes to its typed arguments.

msgspec decodes; what it takes and what the schema says agree, and where msgspec differs from JSON Schema (`1.0` is an
integer there) this module makes up for it.
"""

import copy
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias, SimpleNamespace, UnionType
from typing import Any, Union, get_origin, get_type_hints

import msgspec
from msgspec.structs import asdict

from ...protocol import errors, jsonrpc
from .annotations import _members, located
from .decode import _UNFIT, _with_whole_numbers
from .generate import JSONSchema, schema_of

AnyFunction = Callable[..., Any]
_ByHand = Mapping[str, Any] | None

_ABSENT = inspect.Parameter.empty

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
        self,
        function: AnyFunction,
        *,
        of: str = "",
        injected: type | None = None,
        input_schema: _ByHand = None,
    ) -> None:
        self._function, self._of = function, of
        self._names: dict[str, str] = {}  # by the struct's fields
        self._fields: list[Any] = []
        self.injected_name: str | None = None
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if (
                parameter.name in ("self", "cls")
                and parameter.annotation is _ABSENT
                and "." in _name(function)
            ):
                raise TypeError(
                    f"{_name(function)}: nothing gives it {parameter.name!r}; register the bound method"
                )
            with located(f"{_name(function)}: parameter {parameter.name!r}"):
                self._add(
                    parameter.replace(
                        annotation=_resolved(parameter.annotation, function, injected)
                    ),
                    injected,
                )
        self._positional = [
            parameter.name
            for parameter in parameters
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]
        # The function, called with keyword arguments even where it has positional-only parameters.
        self.call = self._by_keywords if self._positional else function
        # Names that begin with two underscores are not for fields: those are renamed.
        closed = not self._extra
        struct = msgspec.defstruct(
            "_",
            self._fields,
            rename=self._names,
            forbid_unknown_fields=closed,
            kw_only=True,
        )
        struct.__doc__ = inspect.getdoc(innermost(function))
        self._decode = msgspec.json.Decoder(struct).decode
        self._renamed = {
            field: name for field, name in self._names.items() if field != name
        }
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
            raise errors.InvalidArguments(
                self._reason(jsonrpc.explain(error)), of=self._of
            ) from None

    def _by_keywords(self, **arguments: Any) -> Any:
        return self._function(
            *[arguments.pop(name) for name in self._positional], **arguments
        )

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
            raise errors.InvalidArguments(
                f"Unknown argument: {self.injected_name}", of=self._of
            )
        others = {
            name: everything[name]
            for name in everything
            if name not in self._names.values()
        }
        return dict(
            msgspec.json.decode(
                msgspec.json.encode(others), type=GenericAlias(dict, (str, self._extra))
            )
        )

    def _reason(self, unfit: str) -> str:
        properties = self.schema.get("properties", {})
        if missing := re.fullmatch(_MISSING, unfit):
            return f"Missing required argument: {missing[1] or missing[2]}"
        if unknown := re.fullmatch(_UNKNOWN, unfit):
            name = unknown[1] or unknown[2] or "''"
            known = (
                f"known arguments: {', '.join(properties)}"
                if properties
                else "there are no arguments"
            )
            return f"Unknown argument: {name}; {known}"
        choice = re.fullmatch(_NO_CHOICE, unfit)
        if choice and (values := properties.get(choice[1], {}).get("enum")):
            return f"$.{choice[1]}: expected one of {', '.join(map(repr, values))}, got {choice[2]}"
        return unfit

    def _add(self, parameter: inspect.Parameter, injected: type | None) -> None:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise TypeError(
                f"is of any number: *{parameter.name} has no JSON form; name each, or take a list"
            )
        if injected and _mentions(parameter.annotation, injected):
            if self.injected_name is not None:
                raise TypeError(f"is a second {injected.__name__}; one is given")
            self.injected_name = parameter.name
            return
        schema_of(
            parameter.annotation
        )  # tells here, where the parameter is known, what is wrong with its type
        if parameter.kind is parameter.VAR_KEYWORD:
            self._extra = parameter.annotation
            return
        default = (
            []
            if parameter.default is _ABSENT
            else [_field_default(parameter.default, parameter.annotation)]
        )
        field = (
            f"field{len(self._fields)}_"
            if parameter.name.startswith("__")
            else parameter.name
        )
        self._fields.append((field, parameter.annotation, *default))
        self._names[field] = parameter.name

    def _adopt(self, schema: Mapping[str, Any]) -> None:
        """A schema written by hand has to promise what the function needs, and no more than it takes."""
        what = f"input_schema of {_name(self._function)}"
        self._check = _checker(schema, what)
        if schema.get("type") != "object":
            raise ValueError(
                f'{what} has the type {schema.get("type")!r}; arguments are an object: "type": "object"'
            )
        for name in set(self.schema.get("required", ())).difference(
            schema.get("required", ())
        ):
            raise ValueError(
                f"{what} does not require {name!r}; list it under required, or give it a default"
            )
        unknown = set(schema.get("properties", ())).difference(self._names.values())
        if unknown and not self._extra:
            raise ValueError(
                f"{what} has {unknown.pop()!r}, which is no parameter of it; add it, or **kwargs"
            )
        self.schema = dict(schema)


class Returned:
    """What a function returns: its output schema, and the check of it.

    `content` are its classes: a function that returns those, text, None or anything at all promises no
    structure, and has no schema.
    """

    def __init__(
        self,
        function: AnyFunction,
        *,
        output_schema: _ByHand = None,
        content: tuple[type, ...] = (),
    ) -> None:
        self._check: Callable[[bytes], Any] = msgspec.json.decode
        self.schema: JSONSchema | None = None
        with located(f"{_name(function)}: the return type"):
            annotation = _resolved(
                inspect.signature(function).return_annotation, function
            )
            if output_schema is not None:
                self._check = _checker(
                    output_schema, f"output_schema of {_name(function)}"
                )
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
    from .jsonschema import Validator

    if not isinstance(schema, Mapping):
        raise ValueError(f"{what} wants a JSON Schema as a dict, not {schema!r}")
    validator = Validator(schema, what=what)
    return lambda encoded: validator.check(msgspec.json.decode(encoded))


# Signatures


def peeled(function: AnyFunction) -> Any:
    """The function under partials."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def innermost(function: AnyFunction) -> Any:
    """The function under partials, decorators and callable objects: it has the name, the docstring and the globals."""
    function = inspect.unwrap(peeled(function))
    is_plain = inspect.isroutine(function) or inspect.isclass(function)
    return function if is_plain else inspect.unwrap(type(function).__call__)


def _name(function: AnyFunction) -> str:
    """As it is written where it stands: `add`, `Calculator.add`."""
    return str(innermost(function).__qualname__).rpartition("<locals>.")[2] + "()"


def _resolved(
    annotation: Any, function: AnyFunction, injected: type | None = None
) -> Any:
    """An annotation as a type. `injected` is known by name even where it was imported for type checkers only."""
    annotation = Any if annotation is _ABSENT else annotation
    known = {injected.__name__: injected} if injected else {}
    names = known | getattr(innermost(function), "__globals__", {})
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__={"it": annotation}),
            names,
            include_extras=True,
        )["it"]
    except Exception as error:
        raise TypeError(
            f"has the annotation {annotation!r}, which cannot be resolved: {error}"
        ) from None


def _mentions(annotation: Any, wanted: type) -> bool:
    """Whether it is the class, a subclass, Optional, Annotated or a parametrised form of it."""
    classes = [
        get_origin(member) or member
        for member in _members(annotation, Union, UnionType)
    ]
    return any(isinstance(cls, type) and issubclass(cls, wanted) for cls in classes)


def _field_default(default: Any, annotation: Any) -> Any:
    """A default which the function may change is copied for each call."""
    if default is msgspec.UNSET:
        return default
    try:
        msgspec.json.decode(msgspec.json.encode(default), type=annotation)
    except _UNFIT as error:
        raise TypeError(
            f"has the default {default!r}, which is not of its type: {error}"
        ) from None
    is_constant = isinstance(default, (str, int, float, type(None), bytes))
    return (
        default
        if is_constant
        else msgspec.field(default_factory=functools.partial(copy.deepcopy, default))
    )


def _is_unstructured(annotation: Any, content: tuple[type, ...]) -> bool:
    """Whether all of a return type is content, text, nothing or anything; TypeError where only a part is content."""
    members = _members(annotation, Union, UnionType, list, tuple, Sequence)
    if all(
        member in (Any, object, str, type(None), list, *content) for member in members
    ):
        return True
    if mixed := [member.__name__ for member in members if member in content]:
        raise TypeError(
            f"mixes content ({', '.join(mixed)}) with structured types; a ToolResult can hold both"
        )
    return False
