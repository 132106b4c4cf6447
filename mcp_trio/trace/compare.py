"""Where two values differ, place by place, as JSON has it: 1 is 1.0, and the order of keys says nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

Place = tuple[str | int, ...]
# JSON Pointers, cut into their parts; `*` is any one key or index.
Pointers = Sequence[Sequence[str | int]]

ABSENT: Any = msgspec.UNSET
# Characters that are shown of a long text, from shortly before the place where it differs.
AROUND = 60

_KINDS: dict[type, str] = {
    bool: "true or false",
    str: "a string",
    list: "an array",
    dict: "an object",
}
_KINDS |= dict.fromkeys([int, float], "a number")


class Difference(NamedTuple):
    """One place where what came is not what was recorded; ABSENT is what is not there."""

    place: Place
    old: Any
    new: Any

    @property
    def path(self) -> str:
        """The place as people write it: `$.result.content[0].text`."""
        return "$" + "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place
        )

    @property
    def pointer(self) -> str:
        """The place as a JSON Pointer that holds for each item of an array."""
        parts = [
            "*" if isinstance(part, int) else part.replace("~", "~0").replace("/", "~1")
            for part in self.place
        ]
        return "".join(f"/{part}" for part in parts)

    @property
    def kind(self) -> str:
        """What sort of difference it is, in words; nothing where the two values say it."""
        if self.new is ABSENT:
            return "is missing"
        if self.old is ABSENT:
            return "was not expected"
        kinds = _kind(self.old), _kind(self.new)
        return "" if kinds[0] == kinds[1] else f"is {kinds[1]}, not {kinds[0]}"

    def values(self) -> tuple[str, str]:
        """Both values for people; of long texts the part in which they differ."""
        old, new = map(shown, (self.old, self.new))
        same = next(
            (
                at
                for at, pair in enumerate(zip(old, new, strict=False))
                if pair[0] != pair[1]
            ),
            0,
        )
        return _part(old, same), _part(new, same)


def shown(value: Any) -> str:
    """A value in one line."""
    return "nothing" if value is ABSENT else msgspec.json.encode(value).decode()


def _part(text: str, at: int) -> str:
    start = max(0, at - AROUND // 3) if len(text) > AROUND else 0
    end = start + AROUND
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "null")


def parts(pointer: str) -> list[str]:
    """A JSON Pointer, cut into its parts."""
    return [
        part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]
    ]


def at(value: Any, place: Sequence[str | int]) -> Any:
    """What is at a place, or ABSENT."""
    for part in place:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return ABSENT
    return value


def differences(
    old: Any, new: Any, ignored: Pointers = (), place: Place = ()
) -> Iterator[Difference]:
    """Each place where the two differ, but for what the pointers lead to and what is below it."""
    if not all(ignored):
        return
    if (places := _places(old, new)) is not None:
        for part in places:
            yield from differences(
                at(old, [part]), at(new, [part]), _below(ignored, part), (*place, part)
            )
    elif _kind(old) != _kind(new) or old is ABSENT or new is ABSENT or old != new:
        yield Difference(place, old, new)


def merged(old: Any, new: Any, ignored: Pointers) -> Any:
    """The new value, with the old one in each place that is ignored."""
    if not all(ignored):
        return old
    if (places := _places(old, new)) is None:
        return new
    pairs = [
        (part, merged(at(old, [part]), at(new, [part]), _below(ignored, part)))
        for part in places
    ]
    there = {part: value for part, value in pairs if value is not ABSENT}
    return there if isinstance(new, dict) else list(there.values())


def _places(old: Any, new: Any) -> Sequence[str | int] | None:
    """What to go on with, where both are objects or both arrays."""
    if isinstance(old, dict) and isinstance(new, dict):
        return list(dict.fromkeys([*old, *new]))
    return (
        range(max(len(old), len(new)))
        if isinstance(old, list) and isinstance(new, list)
        else None
    )


def _below(ignored: Pointers, part: str | int) -> Pointers:
    return [pointer[1:] for pointer in ignored if pointer[0] in ("*", str(part))]
