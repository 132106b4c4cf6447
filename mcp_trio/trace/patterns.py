"""Patterns: what values have to look like if the recorded ones are only examples.

The key `match` of a line maps JSON Pointers into its message to patterns.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Raw, UnsetType, json, structs

from .compare import ABSENT, Check, json_text, parse_pointer, value_at
from .format import JsonValue, Line, Pattern, PatternType

# A function that returns the message received for a line of the trace, or ABSENT.
MessageOn = Callable[[int], JsonValue]

_WORDS: dict[PatternType, str] = {
    "any": "present",
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "date": "a date as in ISO 8601",
    "date-time": "a date and time as in ISO 8601",
}
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_HEX = r"[0-9a-f]{16,}"
_DIGITS = r"\d+"
_WEEKDAY = r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b"
_MONTH = r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b"
# The parts of a text that often differ from run to run, and their regular expressions.
_KINDS_OF_PARTS = (_UUID, _HEX, _DIGITS, _WEEKDAY, _MONTH)
_VOLATILE = re.compile(f"({'|'.join(_KINDS_OF_PARTS)})")
# The characters with a special meaning in a regular expression.
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")


# Checking


def checks_of(line: Line, message: JsonValue, message_on: MessageOn) -> list[Check]:
    """Return the checks for the message that was received for a line of the trace."""
    checks = []
    for pointer, pattern in line.match.items():
        fault = _fault_function(pattern, message, message_on)
        checks.append(Check(parse_pointer(pointer), fault))
    return checks


def _fault_function(
    pattern: Pattern, message: JsonValue, message_on: MessageOn
) -> Callable[[JsonValue], str]:
    def fault(value: JsonValue) -> str:
        if isinstance(pattern.same, str):
            return _fault_of_same(pattern, value, message, message_on)
        if isinstance(pattern.regex, str):
            if isinstance(value, str) and re.fullmatch(pattern.regex, value, re.DOTALL):
                return ""
        elif _is_of_type(value, pattern.type):
            return ""
        return describe_pattern(pattern)

    return fault


def _fault_of_same(
    pattern: Pattern, value: JsonValue, message: JsonValue, message_on: MessageOn
) -> str:
    """Return the expectation, unless the value equals the referenced one."""
    expected = referenced_value(pattern, message, message_on)
    if expected is not ABSENT and json_text(expected) == json_text(value):
        return ""
    return f"{describe_pattern(pattern)}, which is {json_text(expected)}"


def referenced_value(
    pattern: Pattern, message: JsonValue, message_on: MessageOn
) -> JsonValue:
    """Return the value that a pattern refers to in this run, or ABSENT."""
    assert isinstance(pattern.same, str)
    if isinstance(pattern.line, int):
        message = message_on(pattern.line)
    return value_at_pointer(message, pattern.same)


def value_at_pointer(value: JsonValue, pointer: str) -> JsonValue:
    """Return the value at a JSON Pointer, or ABSENT."""
    for part in parse_pointer(pointer):
        if isinstance(value, list) and part.isdecimal():
            value = value_at(value, [int(part)])
        else:
            value = value_at(value, [part])
    return value


def describe_pattern(pattern: Pattern) -> str:
    """Describe the values that a pattern accepts."""
    if isinstance(pattern.regex, str):
        return f"a string that matches {pattern.regex}"
    if isinstance(pattern.same, str):
        place = f" on line {pattern.line}" if isinstance(pattern.line, int) else ""
        return f"the same as at {pattern.same}{place}"
    assert not isinstance(pattern.type, UnsetType)
    return _WORDS[pattern.type]


def _is_of_type(value: JsonValue, type: PatternType | UnsetType) -> bool:
    match type:
        case "any":
            return value is not ABSENT
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "date":
            return isinstance(value, str) and _is_date(value)
        case _:
            return isinstance(value, str) and _is_date_time(value)


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return False
    return _can_parse(text)


def _is_date_time(text: str) -> bool:
    if not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", text):
        return False
    return _can_parse(text)


def _can_parse(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


# Sending


def with_references(line: Line, message_on: MessageOn) -> Line:
    """Return a client's line with the values of this run that its patterns refer to."""
    if not line.match:
        return line
    message = line.content
    for pointer, pattern in line.match.items():
        value = referenced_value(pattern, message, message_on)
        if value is not ABSENT:
            _replace(message, pointer, value)
    return structs.replace(line, message=Raw(json.encode(message)))


def _replace(message: JsonValue, pointer: str, value: JsonValue) -> None:
    """Replace the value at a pointer, if it exists."""
    parents, _, key = pointer.rpartition("/")
    parent = value_at_pointer(message, parents)
    if value_at_pointer(message, pointer) is ABSENT:
        return
    [name] = parse_pointer(f"/{key}")
    if isinstance(parent, list):
        parent[int(name)] = value
    else:
        parent[name] = value


# Finding patterns


def infer(values: Sequence[JsonValue]) -> Pattern | None:
    """Return a pattern that accepts values that differ from run to run.

    Returns None if there is no such pattern.
    """
    if all(_is_of_type(value, "string") for value in values):
        return _infer_for_texts(list(values))
    types: tuple[PatternType, ...]
    types = ("boolean", "integer", "number", "array", "object")
    for type in types:
        if all(_is_of_type(value, type) for value in values):
            return Pattern(type=type)
    return None


def _infer_for_texts(texts: list[str]) -> Pattern:
    types: tuple[PatternType, ...] = ("date", "date-time")
    for type in types:
        if all(_is_of_type(text, type) for text in texts):
            return Pattern(type=type)
    regex = _common_regex(texts)
    if regex:
        return Pattern(regex=regex)
    return Pattern(type="string")


def _common_regex(texts: list[str]) -> str:
    """Return a regular expression for texts that differ in numbers, dates or ids only.

    Returns an empty string if there are other differences. The expression accepts any
    number in place of each number, even if it was the same in these texts.
    """
    rows = [_VOLATILE.split(text) for text in texts]
    if len({len(row) for row in rows}) > 1:
        return ""
    regex = ""
    for position, parts in enumerate(zip(*rows, strict=True)):
        # The parts that `split` found are at the odd positions.
        if position % 2 == 1:
            regex += _regex_of_parts(parts)
        elif len(set(parts)) == 1:
            regex += escaped(parts[0])
        else:
            return ""
    return regex


def escaped(text: str) -> str:
    """Return a readable regular expression that matches only this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _regex_of_parts(parts: Sequence[str]) -> str:
    for regex in reversed(_KINDS_OF_PARTS):
        if all(re.fullmatch(regex, part) for part in parts):
            return regex
    return r"\w+"


def repeated_later(
    lines: Mapping[int, Line], number: int, pointer: str, text: str
) -> dict[int, dict[str, Pattern]]:
    """Find the lines in which the client repeats a text of the server's line.

    Returns the patterns for the client's lines, by their numbers.
    """
    found: dict[int, dict[str, Pattern]] = {}
    for later, line in lines.items():
        if later <= number or line.sender == "server" or not line.message:
            continue
        for place in _pointers_to(text, line.content, ""):
            pattern = Pattern(same=pointer, line=number)
            found.setdefault(later, {})[place] = pattern
    return found


def _pointers_to(text: str, value: JsonValue, pointer: str) -> list[str]:
    """Return the pointers to all strings in a value that are this text."""
    if value == text and pointer:
        return [pointer]
    parts: list[tuple[str, JsonValue]] = []
    if isinstance(value, dict):
        for key, part in value.items():
            parts.append((key.replace("~", "~0").replace("/", "~1"), part))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            parts.append((str(index), part))
    places = []
    for name, part in parts:
        places.extend(_pointers_to(text, part, f"{pointer}/{name}"))
    return places
