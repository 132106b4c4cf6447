"""From what people type, KEY=VALUE, to the arguments of a tool, as its JSON Schema has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..load_spec import UsageError, did_you_mean
from ..protocol.types import Json

TYPES = {
    str: "string",
    bool: "boolean",
    dict: "object",
    list: "array",
    type(None): "null",
}
# So many names are listed where one is wrong.
MOST_NAMES = 20


def named(tools: list[Json], name: str) -> Json:
    """The tool of a name. Raises UsageError."""
    by_name = {tool["name"]: tool for tool in tools}
    if name not in by_name:
        few = [*by_name][:MOST_NAMES] + (["..."] if len(by_name) > MOST_NAMES else [])
        only = ", ".join(few) or "none at all"
        raise UsageError(
            f"there is no tool {name!r}{did_you_mean(name, by_name)}, only {only}"
        )
    return by_name[name]


def arguments(tool: Json, pairs: list[str], given: Json | None = None) -> Json:
    """A tool's arguments out of pairs, beside what is given as it is. Raises UsageError.

    `key=value` is read as the schema has it, `key:=value` as JSON; where the value is @FILE it is what the file holds.
    `list=a list=b` are the items of one list, `point.x=1` is a property of an object.
    """
    schema, made = Schema(tool["inputSchema"]), dict(given or {})
    by_key: dict[tuple[str, bool], list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(
                f"{pair!r} is not KEY=VALUE; the arguments of {tool['name']} are {schema.names()}"
            )
        by_key.setdefault((key.removesuffix(":"), key.endswith(":")), []).append(text)
    for (key, as_json), texts in by_key.items():
        path, wanted = _place(tool, schema, key)
        value = (
            _list(key, texts, wanted)
            if len(texts) > 1
            else _value(key, texts[0], wanted, as_json)
        )
        _put(made, key, path, value)
    if missing := [name for name in schema.required if name not in made]:
        wants = " ".join(
            f"{name}={schema.property(name).wanted().upper()}" for name in missing
        )
        raise UsageError(f"{tool['name']} wants {wants}")
    return made


def from_json(text: str, what: str, type: Any = Any) -> Any:
    """What a text is as JSON. Raises UsageError, which begins with what is wanted."""
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UsageError(f"{what} is wanted: {error}") from None


class Schema:
    """What people have to know of a JSON Schema; `root` is where its references lead to, by default itself."""

    def __init__(
        self, schema: Any, root: Json | None = None, met: frozenset[str] = frozenset()
    ) -> None:
        self._all: Json = schema if isinstance(schema, dict) else {}
        self._root = root = self._all if root is None else root
        options = self._all.get("anyOf", []) + self._all.get("oneOf", [])
        reference = str(self._all.get("$ref", ""))
        if reference and reference not in met:  # so that no circle is endless
            _, _, kind, name = f"//{reference}".rsplit("/", 3)
            options, met = [root.get(kind, {}).get(name)], met | {reference}
        self._options = [Schema(option, root, met) for option in options]
        self.properties: Json = {}  # what an object may have
        for option in self._options:
            self.properties |= option.properties
        self.properties |= self._all.get("properties", {})
        self.required = self._all.get("required", [])  # of them

    def names(self) -> str:
        """What an object may have, in words."""
        return ", ".join(self.properties) or "none"

    def refuses(self, name: str) -> bool:
        """Whether an object may not have this."""
        is_closed = any(
            one._all.get("additionalProperties") is False
            for one in [self, *self._options]
        )
        return is_closed and name not in self.properties

    def property(self, name: str) -> Schema:
        """What is wanted of one of them."""
        return Schema(self.properties.get(name), self._root)

    def items(self) -> Schema:
        """What is wanted of a list's items."""
        found = [
            option._all["items"]
            for option in [self, *self._options]
            if "items" in option._all
        ]
        return Schema(next(iter(found), None), self._root)

    def kinds(self) -> set[str]:
        """The JSON types that it names; none where it leaves them open."""
        if self._options:
            found = [option.kinds() for option in self._options]
            return set().union(*found) if all(found) else set()
        if "type" not in self._all:
            return {
                kind for choice in self.choices() or [] for kind in _kinds_of(choice)
            }
        kinds = self._all["type"]
        return {kinds} if isinstance(kinds, str) else set(kinds)

    def choices(self) -> list[Any] | None:
        """The values that may stand there; None where they are not counted."""
        if self._options:
            found = [option.choices() for option in self._options]
            return (
                None
                if None in found
                else [choice for choices in found for choice in choices or []]
            )
        if "const" in self._all:
            return [self._all["const"]]
        return (
            list(self._all["enum"])
            if "enum" in self._all
            else [None]
            if self._all.get("type") == "null"
            else None
        )

    def wanted(self) -> str:
        """It, in a word or two."""
        if choices := self.choices():
            return "|".join(map(_text, choices))
        of = "|".join(sorted(self.items().kinds()))
        kinds = [
            f"array of {of}" if of and kind == "array" else kind
            for kind in sorted(self.kinds())
        ]
        return "|".join(kinds) or "anything"


def _place(tool: Json, schema: Schema, key: str) -> tuple[list[str], Schema]:
    """Where a key stands, and what is wanted there."""
    first = key.partition(".")[0]
    path = (
        key.split(".")
        if first in schema.properties and key not in schema.properties
        else [key]
    )
    for name in path:
        if schema.refuses(name):
            hint = did_you_mean(name, schema.properties)
            raise UsageError(
                f"{tool['name']} has no argument {key!r}{hint}; its arguments are {schema.names()}"
            )
        schema = schema.property(name)
    return path, schema


def _put(made: Json, key: str, path: list[str], value: Any) -> None:
    *outer, last = path
    for name in outer:
        made = made.setdefault(name, {})
        if not isinstance(made, dict):
            raise UsageError(f"{key}: {name} is given besides, and as no object")
    made[last] = (
        made[last] | value
        if isinstance(made.get(last), dict) and isinstance(value, dict)
        else value
    )


def _list(key: str, texts: list[str], wanted: Schema) -> list[Any]:
    if wanted.kinds() and "array" not in wanted.kinds():
        raise UsageError(
            f"{key} is given {len(texts)} times, and is one {wanted.wanted()}"
        )
    return [_value(key, text, wanted.items(), as_json=False) for text in texts]


def _value(key: str, text: str, wanted: Schema, as_json: bool) -> Any:
    text = _read(key, text[1:]) if text.startswith("@") else text
    return (
        from_json(text, f"{key}:={_short(text)}: JSON")
        if as_json
        else typed(key, text, wanted)
    )


def _read(key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        hint = f"the text itself would be {key}:='\"@{name}\"'"
        raise UsageError(
            f"{key}=@{name}: the file {name} cannot be read: {error.strerror}; {hint}"
        ) from None
    except UnicodeError:
        raise UsageError(f"{key}=@{name}: this file holds no text in UTF-8") from None


def typed(key: str, text: str, wanted: Schema) -> Any:
    """A value: as it stands where a string may stand, else JSON; a list of one where nothing but a list is wanted.

    Raises UsageError.
    """
    kinds = wanted.kinds()
    value = text if "string" in kinds else _decoded(text, kinds)
    if (
        "array" in kinds
        and kinds.isdisjoint(_kinds_of(value))
        and "array" not in wanted.items().kinds()
    ):
        return [typed(key, text, wanted.items())]
    if kinds and kinds.isdisjoint(_kinds_of(value)):
        raise UsageError(
            f"{key}={_short(text)}: {' or '.join(sorted(kinds))} is wanted, as JSON"
        )
    choices = wanted.choices()
    if choices is not None and value not in choices:
        words = [_text(choice) for choice in choices]
        raise UsageError(
            f"{key}={_short(text)}: {' or '.join(words)} is wanted{did_you_mean(text, words)}"
        )
    return value


def _decoded(text: str, kinds: set[str]) -> Any:
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return from_json(text, "JSON")
    except UsageError:
        return text


def _kinds_of(value: Any) -> Iterator[str]:
    """What JSON Schema calls a value: a whole number is both an integer and a number, also as 1.0."""
    if type(value) in TYPES:
        yield TYPES[type(value)]
    else:
        yield from ("integer", "number") if value % 1 == 0 else ("number",)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."
