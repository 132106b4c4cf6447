"""The parts of a tool's JSON Schema that the command line uses."""

from __future__ import annotations

from typing import Any

import msgspec

from ..protocol.types import Json


class InputSchema:
    """The JSON Schema of a value that a user types.

    References are looked up in `root`, which is this schema by default. `seen` are the
    references that were followed to get here, so that cycles end.
    """

    def __init__(
        self, schema: Any, root: Json | None = None, seen: frozenset[str] = frozenset()
    ) -> None:
        # True and False are schemas too.
        self._schema: Json = schema if isinstance(schema, dict) else {}
        self._root = self._schema if root is None else root
        self._options = self._find_options(seen)
        # The properties of an object, and which of them are required.
        self.properties: Json = {}
        for option in self._options:
            self.properties.update(option.properties)
        self.properties.update(self._schema.get("properties", {}))
        self.required: list[str] = self._schema.get("required", [])

    def _find_options(self, seen: frozenset[str]) -> list[InputSchema]:
        """Return the schemas that this one refers to, or offers a choice of."""
        reference = str(self._schema.get("$ref", ""))
        if reference and reference not in seen:
            # Tools only use the forms "#/$defs/Point" and "#/definitions/Point".
            parts = ["", "", *reference.split("/")]
            target = self._root.get(parts[-2], {}).get(parts[-1])
            return [InputSchema(target, self._root, seen | {reference})]
        options = [*self._schema.get("anyOf", []), *self._schema.get("oneOf", [])]
        return [InputSchema(option, self._root, seen) for option in options]

    def names(self) -> str:
        """Return the names of the properties, for a message."""
        return ", ".join(self.properties) or "none"

    def forbids(self, name: str) -> bool:
        """Return whether an object must not have this property."""
        if name in self.properties:
            return False
        schemas = [self._schema, *(option._schema for option in self._options)]
        return any(one.get("additionalProperties") is False for one in schemas)

    def property(self, name: str) -> InputSchema:
        """Return the schema of a property."""
        return InputSchema(self.properties.get(name), self._root)

    def items(self) -> InputSchema:
        """Return the schema of a list's items."""
        for schema in [self._schema, *(option._schema for option in self._options)]:
            if "items" in schema:
                return InputSchema(schema["items"], self._root)
        return InputSchema(None, self._root)

    def kinds(self) -> set[str]:
        """Return the JSON types that are allowed, or none if all are."""
        found: set[str] = set()
        if self._options:
            for option in self._options:
                kinds = option.kinds()
                if not kinds:
                    return set()
                found |= kinds
        elif "type" in self._schema:
            kind = self._schema["type"]
            found.update([kind] if isinstance(kind, str) else kind)
        else:
            for choice in self.choices() or []:
                found |= kinds_of(choice)
        return found

    def choices(self) -> list[Any] | None:
        """Return the values that are allowed, or None if they are not listed."""
        if self._options:
            found: list[Any] = []
            for option in self._options:
                choices = option.choices()
                if choices is None:
                    return None
                found += choices
            return found
        if "const" in self._schema:
            return [self._schema["const"]]
        if "enum" in self._schema:
            return list(self._schema["enum"])
        if self._schema.get("type") == "null":
            return [None]
        return None

    def describe(self) -> str:
        """Describe the expected value, in a word or two."""
        choices = self.choices()
        if choices:
            return "|".join(as_text(choice) for choice in choices)
        kinds = sorted(self.kinds())
        items = "|".join(sorted(self.items().kinds()))
        if items and "array" in kinds:
            kinds[kinds.index("array")] = f"array of {items}"
        return "|".join(kinds) or "anything"


def kinds_of(value: Any) -> set[str]:
    """Return the JSON Schema types of a value.

    A whole number is an integer and a number, even if it is written as 1.0.
    """
    if isinstance(value, str):
        return {"string"}
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, dict):
        return {"object"}
    if isinstance(value, list):
        return {"array"}
    if value is None:
        return {"null"}
    if value % 1 == 0:
        return {"integer", "number"}
    return {"number"}


def as_text(value: Any) -> str:
    """Return a value as a user types it: strings unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
