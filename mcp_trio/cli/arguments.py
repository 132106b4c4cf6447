"""Parse the arguments of a tool from KEY=VALUE pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..load_spec import UsageError, did_you_mean
from ..protocol.types import Json
from .input_schema import InputSchema, as_text, kinds_of

# The most tools that are listed if the one to call does not exist.
MAX_NAMES = 20
# The most characters of a value that are quoted in an error message.
MAX_QUOTED = 40


def find_tool(tools: list[Json], name: str) -> Json:
    """Return the tool with a name. Raises UsageError."""
    by_name = {tool["name"]: tool for tool in tools}
    if name in by_name:
        return by_name[name]
    names = list(by_name)
    if len(names) > MAX_NAMES:
        names = [*names[:MAX_NAMES], "..."]
    known = ", ".join(names) or "none"
    near = did_you_mean(name, by_name)
    raise UsageError(f"there is no tool {name!r}{near}; the tools are: {known}")


def read_arguments(tool: Json, pairs: list[str], given: Json | None = None) -> Json:
    """Return a tool's arguments from pairs, added to those given. Raises UsageError.

    The value of `key=value` is converted as the tool's schema requires, and that of
    `key:=value` is JSON. @FILE stands for the content of a file. `tag=a tag=b` are the
    items of a list, and `point.x=1` is a property of an object.
    """
    schema = InputSchema(tool["inputSchema"])
    arguments = dict(given or {})
    for (key, is_json), texts in _group_pairs(tool["name"], schema, pairs).items():
        path, expected = _locate(tool["name"], schema, key)
        if len(texts) > 1:
            value: Any = _read_list(key, texts, expected)
        else:
            value = _read(key, texts[0], expected, is_json=is_json)
        _insert(arguments, key, path, value)
    missing = [name for name in schema.required if name not in arguments]
    if missing:
        examples = " ".join(_example(schema, name) for name in missing)
        raise UsageError(f"{tool['name']}: missing required arguments: {examples}")
    return arguments


def _example(schema: InputSchema, name: str) -> str:
    return f"{name}={schema.property(name).describe().upper()}"


def _group_pairs(
    tool: str, schema: InputSchema, pairs: list[str]
) -> dict[tuple[str, bool], list[str]]:
    """Return the values of each key, and whether they are JSON."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(
                f"expected KEY=VALUE, got {pair!r}; the arguments of {tool} are: "
                f"{schema.names()}"
            )
        is_json = key.endswith(":")
        groups.setdefault((key.removesuffix(":"), is_json), []).append(text)
    return groups


def _locate(tool: str, schema: InputSchema, key: str) -> tuple[list[str], InputSchema]:
    """Return the path for a key, and the schema of the value there."""
    path = [key]
    outermost, _, _ = key.partition(".")
    if key not in schema.properties and outermost in schema.properties:
        path = key.split(".")
    for name in path:
        if schema.forbids(name):
            near = did_you_mean(name, schema.properties)
            raise UsageError(
                f"{tool} has no argument {key!r}{near}; its arguments are: "
                f"{schema.names()}"
            )
        schema = schema.property(name)
    return path, schema


def _insert(arguments: Json, key: str, path: list[str], value: Any) -> None:
    """Set the value at a path. Objects are merged."""
    *outer, last = path
    target: Any = arguments
    for name in outer:
        target = target.setdefault(name, {})
        if not isinstance(target, dict):
            raise UsageError(f"{key}: expected {name} to be an object, got a value too")
    present = target.get(last)
    if isinstance(present, dict) and isinstance(value, dict):
        value = present | value
    target[last] = value


# Values


def _read_list(key: str, texts: list[str], expected: InputSchema) -> list[Any]:
    kinds = expected.kinds()
    if kinds and "array" not in kinds:
        raise UsageError(
            f"{key}: expected one {expected.describe()}, got {len(texts)} values"
        )
    items = expected.items()
    return [_read(key, text, items, is_json=False) for text in texts]


def _read(key: str, text: str, expected: InputSchema, *, is_json: bool) -> Any:
    if text.startswith("@"):
        text = _read_file(key, text[1:])
    if is_json:
        return from_json(text, f"{key}:={_quote(text)}", "JSON")
    return read_value(key, text, expected)


def _read_file(key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{key}=@{name}: cannot read the file {name}: {error.strerror}; "
            f"for the text itself: {key}:='\"@{name}\"'"
        ) from None
    except UnicodeError:
        raise UsageError(f"{key}=@{name}: expected a text file in UTF-8") from None


def read_value(key: str, text: str, expected: InputSchema) -> Any:
    """Convert text to the value that a schema expects. Raises UsageError.

    The value is the text itself if the schema allows a string, and is decoded as JSON
    otherwise. If the schema allows only a list, any other value is its only item.
    """
    kinds = expected.kinds()
    value: Any = text if "string" in kinds else _decode(text, kinds)
    fits = not kinds or not kinds.isdisjoint(kinds_of(value))
    if not fits:
        items = expected.items()
        if "array" in kinds and "array" not in items.kinds():
            return [read_value(key, text, items)]
        known = " or ".join(sorted(kinds))
        raise UsageError(f"{key}: expected {known}, got {_quote(text)!r}")
    choices = expected.choices()
    if choices is not None and value not in choices:
        words = [as_text(choice) for choice in choices]
        near = did_you_mean(text, words)
        raise UsageError(
            f"{key}: expected {' or '.join(words)}, got {_quote(text)!r}{near}"
        )
    return value


def _decode(text: str, kinds: set[str]) -> Any:
    """Return the JSON in a text, or the text itself if it is not JSON."""
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def from_json(text: str, where: str, expected: str, type: Any = Any) -> Any:
    """Decode JSON that must be of a type. Raises UsageError."""
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UsageError(f"{where}: expected {expected}: {error}") from None


def _quote(text: str) -> str:
    if len(text) <= MAX_QUOTED:
        return text
    return f"{text[:MAX_QUOTED]}..."
