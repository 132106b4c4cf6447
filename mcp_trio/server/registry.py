"""A named collection in a fixed order, served in pages, whose changes are told."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from ..auth.principal import NO_SCOPES, Principal
from ..protocol.errors import InvalidParams
from ..protocol.jsonrpc import encode
from ..protocol.revisions import Revision

if TYPE_CHECKING:
    from .features.feature import Feature

T = TypeVar("T", bound="Feature")
# Encoded lists that are kept: tokens may have any mix of scopes.
MOST_KEPT = 100
# A way to cut a list: what belongs on the page at a cursor, and the cursor of the next.
#
# The items come with their numbers, which stay theirs while others come and go.
Pages = Callable[
    [Sequence[tuple[int, Any]], str | None], tuple[Sequence[Any], str | None]
]


class Registry(dict[str, T]):
    """What a server offers of one kind by name, in the order in which it was added."""

    def __init__(self, kind: str, pages: Pages, changed: Callable[[str], None]) -> None:
        self._kind = kind
        self.feature = f"{kind}s"
        self._pages = pages
        self._changed = changed
        self._numbers = count(1)
        self._encoded: dict[Revision | tuple[Revision, frozenset[str]], bytes] = {}
        self.scopes = NO_SCOPES  # all that one of them wants

    def add(self, item: T) -> None:
        """Add one; a name can be taken once."""
        if item.name in self:
            raise ValueError(
                f"there is a {self._kind} {item.name!r} already; remove it, or name this one otherwise"
            )
        item.number = next(self._numbers)
        self[item.name] = item
        self.scopes |= item.scopes
        self._encoded.clear()
        self._changed(self.feature)

    def remove(self, name: str) -> None:
        """Remove one."""
        if name not in self:
            raise KeyError(f"there is no {self._kind} {name!r}")
        if self.pop(name).scopes:
            self.scopes = NO_SCOPES.union(
                *(item.scopes for item in list(self.values()))
            )
        self._encoded.clear()
        self._changed(self.feature)

    def get_for(self, principal: Principal | None, name: str) -> T | None:
        """The one of that name, where there is one that the principal may know of."""
        item = self.get(name)
        return (
            None
            if item is None
            or (item.scopes and item.scopes != _held(principal, item.scopes))
            else item
        )

    def find(self, name: str, principal: Principal | None = None) -> T:
        """The same. Raises InvalidParams where there is none."""
        item = self.get(name)
        if item is None or (item.scopes and self.get_for(principal, name) is None):
            raise InvalidParams(f"Unknown {self._kind}: {name}")
        return item

    def listing(
        self,
        revision: Revision,
        key: str,
        cursor: str | None,
        principal: Principal | None = None,
    ) -> bytes:
        """The page at a cursor as it goes out, under its key. Raises InvalidParams for a cursor that is not ours.

        It is encoded once for each revision, and what different principals may know of, until the list changes. Only
        first pages are kept: a client can make up as many other cursors as it likes.
        """
        held = _held(principal, self.scopes) if self.scopes else NO_SCOPES
        kept_as = (revision, held) if self.scopes else revision
        if not cursor and kept_as in self._encoded:
            return self._encoded[kept_as]
        shown = [item for item in list(self.values()) if item.scopes <= held]
        numbered = [(item.number, item) for item in shown]
        items, following = (
            self._pages(numbered, cursor) if revision.pages else (shown, None)
        )
        encoded = encode(
            revision.listing({key: [item.listed for item in items]}, following)
        )
        if not cursor:
            if len(self._encoded) >= MOST_KEPT:
                del self._encoded[next(iter(self._encoded))]
            self._encoded[kept_as] = encoded
        return encoded


def _held(principal: Principal | None, scopes: frozenset[str]) -> frozenset[str]:
    """Those of the scopes that a principal has; nobody has none."""
    return NO_SCOPES if principal is None else principal.held(scopes)


def in_pages_of(size: int | None) -> Pages:
    """Pages of so many items; None: all on one."""
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(
            f"a page is a number of items, at least one item, not {size!r}"
        )

    def page(
        items: Sequence[tuple[int, Any]], cursor: str | None
    ) -> tuple[Sequence[Any], str | None]:
        after = _number(cursor) if cursor else 0
        left = [(number, item) for number, item in items if number > after]
        shown = left[:size]
        following = (
            urlsafe_b64encode(b"after:%d" % shown[-1][0]).decode()
            if len(shown) < len(left)
            else None
        )
        return [item for _, item in shown], following

    return page


def _number(cursor: str) -> int:
    with suppress(ValueError):
        word, number = urlsafe_b64decode(cursor.encode()).decode().split(":")
        if word == "after" and number.isdecimal():
            return int(number)
    raise InvalidParams("Invalid cursor")
