"""Compare two JSON values and list every location where they differ.

Values are compared as JSON defines them: 1 and 1.0 are the same number, and the order
of an object's keys does not matter.

Differences can be ignored by JSON Pointers (RFC 6901). A pointer such as
`/result/tools/0/name` names a location: each part between slashes is the key of an
object or the index of an array. Within a part, a slash is written `~1` and a tilde
`~0`. As an extension, the part `*` matches any one key or index:
`/result/tools/*/name` names the name of every tool.

A rule is a pointer that `parse_pointer` has split into its parts. The value at a rule's
location is ignored, with everything inside it.

A check is a rule with a function. The value at its location is passed to the function
instead of being compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from .format import JsonValue

# The keys and indices that lead from a value to one inside it.
Location = tuple[str | int, ...]
Rules = Sequence[Sequence[str | int]]


class Check(NamedTuple):
    """A check for the value at a location, in place of the recorded value.

    `fault` returns an empty string if the value is accepted, and otherwise a
    description of the expected value, such as "a date".
    """

    rule: Sequence[str | int]
    fault: Callable[[JsonValue], str]


Checks = Sequence[Check]

# The value at a location that does not exist. None is JSON's null.
ABSENT: JsonValue = msgspec.UNSET
# The number of characters of a long text that are shown.
EXCERPT = 60

_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}


class Difference(NamedTuple):
    """A location where the new value differs from the old one.

    If only one of them exists, the other is ABSENT. `expected` describes the
    expectation that the value did not meet.
    """

    location: Location
    old: JsonValue
    new: JsonValue
    expected: str = ""

    @property
    def path(self) -> str:
        """The location in the usual notation: `$.result.content[0].text`."""
        path = "$"
        for part in self.location:
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
        return path

    @property
    def pointer(self) -> str:
        """The location as a JSON Pointer that covers all items of each array."""
        return write_pointer(
            ["*" if isinstance(part, int) else part for part in self.location]
        )

    @property
    def kind(self) -> str:
        """How the values differ, in words; empty if the values themselves show it."""
        if self.new is ABSENT:
            return "is missing"
        if self.old is ABSENT:
            return "was not expected"
        if self.expected:
            return f"is not {self.expected}"
        old_kind = _kind(self.old)
        new_kind = _kind(self.new)
        if old_kind == new_kind:
            return ""
        return f"is {new_kind}, not {old_kind}"

    def values(self) -> tuple[str, str]:
        """Return both values as JSON. Long texts are truncated to where they differ."""
        old = json_text(self.old)
        new = json_text(self.new)
        start = _first_difference(old, new)
        return _excerpt(old, start), _excerpt(new, start)


def json_text(value: JsonValue) -> str:
    """Return a value as one line of JSON; ABSENT becomes "nothing"."""
    if value is ABSENT:
        return "nothing"
    return msgspec.json.encode(value).decode()


def parse_pointer(pointer: str) -> list[str]:
    """Split a JSON Pointer into its unescaped parts."""
    # `~01` is an escaped `~1`, so `~0` has to be replaced last.
    return [
        part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]
    ]


def write_pointer(parts: Sequence[str | int]) -> str:
    """Return the JSON Pointer of a location."""
    pointer = ""
    for part in parts:
        pointer += "/" + str(part).replace("~", "~0").replace("/", "~1")
    return pointer


def value_at(value: JsonValue, location: Sequence[str | int]) -> JsonValue:
    """Return the value at a location, or ABSENT."""
    for part in location:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return ABSENT
    return value


def differences(
    old: JsonValue,
    new: JsonValue,
    ignored: Rules = (),
    checks: Checks = (),
    location: Location = (),
) -> Iterator[Difference]:
    """Yield the differences that no rule ignores, and the values that a check rejects.

    `location` is the location of the two values, with which all results begin.
    """
    if _is_ignored(ignored):
        return
    check = _check_here(checks)
    if check is not None:
        expected = check.fault(new)
        if expected:
            yield Difference(location, old, new, expected)
        return
    parts = _parts_of_both(old, new)
    if parts is None:
        if _is_different(old, new):
            yield Difference(location, old, new)
        return
    for part in parts:
        yield from differences(
            value_at(old, [part]),
            value_at(new, [part]),
            _rules_below(ignored, part),
            _checks_below(checks, part),
            (*location, part),
        )


def merged(
    old: JsonValue, new: JsonValue, ignored: Rules, checks: Checks = ()
) -> JsonValue:
    """Return the new value, with the old one where differences do not matter.

    They do not matter if a rule ignores them, or if a check accepts the new value.
    """
    if _is_ignored(ignored):
        return old
    check = _check_here(checks)
    if check is not None:
        return new if check.fault(new) else old
    parts = _parts_of_both(old, new)
    if parts is None:
        return new
    values = {}
    for part in parts:
        value = merged(
            value_at(old, [part]),
            value_at(new, [part]),
            _rules_below(ignored, part),
            _checks_below(checks, part),
        )
        if value is not ABSENT:
            values[part] = value
    if isinstance(new, list):
        return list(values.values())
    return values


def leads_to(rule: Sequence[str | int], location: Sequence[str | int]) -> bool:
    """Return whether a rule matches exactly this location."""
    if len(rule) != len(location):
        return False
    return all(
        first in ("*", str(part)) for first, part in zip(rule, location, strict=True)
    )


def _is_ignored(rules: Rules) -> bool:
    """Return whether one of the rules matches exactly this location."""
    return any(len(rule) == 0 for rule in rules)


def _rules_below(rules: Rules, part: str | int) -> Rules:
    """Return the rules that begin with this key or index, without that part."""
    return [rule[1:] for rule in rules if _begins_with(rule, part)]


def _check_here(checks: Checks) -> Check | None:
    """Return the check that matches exactly this location, if any."""
    for check in checks:
        if len(check.rule) == 0:
            return check
    return None


def _checks_below(checks: Checks, part: str | int) -> Checks:
    """Return the checks that begin with this key or index, without that part."""
    return [
        check._replace(rule=check.rule[1:])
        for check in checks
        if _begins_with(check.rule, part)
    ]


def _begins_with(rule: Sequence[str | int], part: str | int) -> bool:
    first = str(rule[0])
    return first == "*" or first == str(part)


def _parts_of_both(old: JsonValue, new: JsonValue) -> Sequence[str | int] | None:
    """Return the keys of two objects or the indices of two arrays, or else None."""
    if isinstance(old, dict) and isinstance(new, dict):
        return list({**old, **new})
    if isinstance(old, list) and isinstance(new, list):
        return range(max(len(old), len(new)))
    return None


def _is_different(old: JsonValue, new: JsonValue) -> bool:
    if old is ABSENT or new is ABSENT:
        return True
    # In Python, True == 1. In JSON, they are different.
    return _kind(old) != _kind(new) or bool(old != new)


def _kind(value: JsonValue) -> str:
    return _KINDS.get(type(value), "null")


def _first_difference(old: str, new: str) -> int:
    """Return the index of the first character that differs, or 0."""
    for index, (old_char, new_char) in enumerate(zip(old, new, strict=False)):
        if old_char != new_char:
            return index
    return 0


def _excerpt(text: str, index: int) -> str:
    """Return the part of a text around an index, with "…" where it was truncated."""
    if len(text) <= EXCERPT:
        return text
    start = max(0, index - EXCERPT // 3)
    end = start + EXCERPT
    excerpt = text[start:end]
    if start > 0:
        excerpt = "…" + excerpt
    if end < len(text):
        excerpt += "…"
    return excerpt
