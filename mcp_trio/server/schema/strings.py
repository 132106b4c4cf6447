"""The arguments of prompts and resource templates, which the protocol sends as strings.

If a parameter is not a string, the string is parsed as a number, a boolean or null
before the arguments are decoded.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ...protocol import jsonrpc
from ...protocol.errors import InvalidArguments
from .annotations import located
from .decode import DECODE_ERRORS
from .generate import JSONSchema
from .signature import AnyFunction, Parameters

_DEFINITIONS = "#/$defs/"
# A JSON type -> the expected content of the string, for errors.
_EXPECTED = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
# A format of strings -> its description, for errors.
_FORMATS = {
    "date-time": "a date and time such as 1999-12-31T23:59:59Z",
    "date-time-local": "a date and time such as 1999-12-31T23:59:59",
    "date": "a date such as 1999-12-31",
    "time": "a time such as 23:59:59Z",
    "time-local": "a time such as 23:59:59",
    "duration": "a duration such as PT90S",
    "uuid": "a UUID",
    "decimal": "a number",
}


class StringParameters(Parameters):
    """The parameters of a function whose arguments are sent as strings.

    Raises TypeError if a parameter cannot be parsed from a string.
    """

    def __init__(
        self, function: AnyFunction, *, of: str = "", injected: type | None = None
    ) -> None:
        super().__init__(function, of=of, injected=injected)
        definitions = self.schema.get("$defs", {})
        self._strings: dict[str, StringArgument] = {}
        for name, schema in self.schema.get("properties", {}).items():
            with located(f"{of}: argument {name!r}"):
                self._strings[name] = StringArgument(schema, definitions)

    def decode(self, raw: bytes) -> dict[str, Any]:
        """Decode a JSON object into keyword arguments. Raises InvalidArguments."""
        try:
            given = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        except DECODE_ERRORS:
            return super().decode(raw)  # raises an error with the reason
        parsed = dict(given)
        for name in given.keys() & self._strings.keys():
            if not self._strings[name].is_string:
                parsed[name] = self._parse(name, given[name])
        try:
            return super().decode(msgspec.json.encode(parsed))
        except InvalidArguments as error:
            self._explain_format(error, given)
            raise

    def _parse(self, name: str, raw: msgspec.Raw) -> msgspec.Raw:
        try:
            return self._strings[name].parse(raw)
        except DECODE_ERRORS as error:
            reason = jsonrpc.explain(error, f"$.{name}")
            raise InvalidArguments(reason, of=self._of) from None

    def _explain_format(
        self, error: InvalidArguments, given: Mapping[str, msgspec.Raw]
    ) -> None:
        """Raise a better error for an invalid date, time or other format."""
        place = re.match(r"\$\.(\w+): invalid ", error.reason)
        if place is None or place[1] not in given:
            return
        name = place[1]
        explanation = self._strings[name].explain(given[name])
        if explanation is not None:
            raise InvalidArguments(f"$.{name}: {explanation}", of=self._of) from None


class StringArgument:
    """An argument with a schema, which is sent as a string.

    Raises TypeError if it cannot be parsed from a string.
    """

    def __init__(self, schema: JSONSchema, definitions: Mapping[str, Any]) -> None:
        # The JSON types that the argument may have.
        self._types: set[str] = set()
        # The strings that are allowed, if not all are.
        self._choices: set[str] = set()
        self._formats: list[str] = []
        self._read(schema, definitions)
        if not self._choices and not self._types & {"string", *_EXPECTED}:
            raise TypeError(
                "is sent as a string, which cannot be parsed as its type; use str, "
                "int, float, bool, a date or a time, an Enum or a Literal"
            )

    @property
    def is_string(self) -> bool:
        """Whether the argument stays a string."""
        return "string" in self._types or not self._types

    def _read(self, schema: JSONSchema, definitions: Mapping[str, Any]) -> None:
        if "$ref" in schema:
            self._read(
                definitions[schema["$ref"].removeprefix(_DEFINITIONS)], definitions
            )
        for keyword in ("anyOf", "oneOf"):
            for option in schema.get(keyword, ()):
                self._read(option, definitions)
        if "enum" in schema or "const" in schema:
            self._read_values(schema.get("enum") or [schema["const"]])
        elif "type" in schema:
            self._types.add(schema["type"])
            self._formats.append(schema.get("format", ""))
        elif not schema.keys() & {"$ref", "anyOf", "oneOf"}:
            self._types.add("string")  # anything may be a string

    def _read_values(self, values: list[Any]) -> None:
        for value in values:
            if isinstance(value, str):
                self._choices.add(value)
            else:
                self._types.add(_type_of(value))

    def parse(self, raw: msgspec.Raw) -> msgspec.Raw:
        """Parse an encoded string. Raises ValueError.

        A value that is not a string is returned unchanged.
        """
        text = msgspec.json.decode(raw)
        if not isinstance(text, str) or text in self._choices:
            return raw
        literal = text.lower() if "boolean" in self._types else text
        try:
            value = msgspec.json.decode(literal)
        except ValueError:
            value = text
        if not self._holds(value):
            raise ValueError(f"expected {self._expected()}, got {_quoted(text)}")
        return msgspec.Raw(literal.encode())

    def _holds(self, value: Any) -> bool:
        kind = _type_of(value)
        if kind == "integer":
            return bool(self._types & {"integer", "number"})
        if kind == "number" and "number" not in self._types:
            return "integer" in self._types and value.is_integer()
        return kind in self._types

    def explain(self, raw: msgspec.Raw) -> str | None:
        """Return a description of the expected format, or None if there is none."""
        expected = [_FORMATS[name] for name in self._formats if name in _FORMATS]
        if not expected:
            return None
        return f"expected {' or '.join(expected)}, got {bytes(raw).decode():.100}"

    def _expected(self) -> str:
        choices = [_quoted(choice) for choice in sorted(self._choices)]
        held = [text for kind, text in _EXPECTED.items() if kind in self._types]
        if held:
            choices.append(f"a string that holds {' or '.join(held)}")
        return " or ".join(choices)


def _type_of(value: Any) -> str:
    """Return the JSON type of a value."""
    names = {bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return names.get(type(value), "")


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()[:100]
