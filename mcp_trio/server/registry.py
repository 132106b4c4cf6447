"""A named collection in a fixed order, served in pages, whose changes are told."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, Generic, Protocol, TypeVar

from ..protocol.errors import InvalidParams
from ..protocol.jsonrpc import encode
from ..protocol.revisions import Revision

T = TypeVar("T")


class Pages(Protocol):
    """A way to cut a list: what belongs on the page at a cursor, and the cursor of the next."""

    def __call__(self, items: Sequence[tuple[int, Any]], cursor: str | None, /) -> tuple[Sequence[Any], str | None]:
        """`items` come with their numbers, which stay theirs while others come and go."""


class Registry(Generic[T]):
    """What a server offers of one kind, in the order in which it was added."""

    def __init__(self, kind: str, pages: Pages, changed: Callable[[], None]) -> None:
        self._kind = kind
        self._pages = pages
        self._changed = changed
        self._numbers = count(1)
        self._items: dict[str, tuple[int, T]] = {}
        self._encoded: dict[Any, bytes] = {}

    def add(self, name: str, item: T) -> None:
        """Add one; a name can be taken once."""
        if name in self._items:
            raise ValueError(
                f"there is a {self._kind} {name!r} already; remove it first, or give this one another name"
            )
        self._items[name] = (next(self._numbers), item)
        self._encoded.clear()
        self._changed()

    def remove(self, name: str) -> None:
        """Remove one."""
        if name not in self._items:
            raise KeyError(f"there is no {self._kind} {name!r}")
        del self._items[name]
        self._encoded.clear()
        self._changed()

    def get(self, name: str) -> T | None:
        """The one of that name."""
        found = self._items.get(name)
        return None if found is None else found[1]

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in list(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def page(self, cursor: str | None) -> tuple[Sequence[T], str | None]:
        """The page at a cursor, and the next one's cursor. Raises InvalidParams for a cursor that is not ours."""
        return self._pages(list(self._items.values()), cursor or None)

    def encoded_page(self, revision: Revision, cursor: str | None, listing: Callable[[], Any]) -> bytes:
        """A page as it goes out, encoded once for each revision until the list changes.

        Only first pages are kept: a client can make up as many other cursors as it likes.
        """
        if cursor:
            return encode(listing())
        if revision not in self._encoded:
            self._encoded[revision] = encode(listing())
        return self._encoded[revision]


def in_pages_of(size: int | None) -> Pages:
    """Pages of so many items; None: all on one."""
    if size is not None and size < 1:
        raise ValueError(f"a page has at least one item, not {size}")

    def page(items: Sequence[tuple[int, Any]], cursor: str | None) -> tuple[Sequence[Any], str | None]:
        after = _number(cursor) if cursor else 0
        left = [(number, item) for number, item in items if number > after]
        shown = left[:size]
        more = len(shown) < len(left)
        return [item for _, item in shown], _cursor(shown[-1][0]) if more else None

    return page


def _cursor(number: int) -> str:
    return urlsafe_b64encode(b"after:%d" % number).decode()


def _number(cursor: str) -> int:
    try:
        word, _, number = urlsafe_b64decode(cursor.encode()).decode().partition(":")
        if word == "after" and number.isdecimal():
            return int(number)
    except ValueError:
        pass
    raise InvalidParams("Invalid cursor")
