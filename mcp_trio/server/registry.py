"""Registry: the tools, resources or prompts of a server, and their listed pages."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ..auth.principal import NO_SCOPES, Principal, has_scopes
from ..protocol.errors import InvalidParams
from ..protocol.jsonrpc import encode
from ..protocol.revisions import Revision
from .request import Environment

if TYPE_CHECKING:
    from .features.feature import Feature

T = TypeVar("T", bound="Feature")
T_contra = TypeVar("T_contra", bound="Feature", contravariant=True)

# The most encoded lists that a registry keeps. Tokens may have any mix of scopes, and
# each mix has a list of its own.
MOST_KEPT = 100

# Divides a list into pages: takes all items and the cursor of a page, and returns the
# items on that page and the cursor of the next page, None on the last page.
#
# Each item has a number, which does not change when others are added and removed.
Pages = Callable[
    [Sequence[tuple[int, Any]], str | None], tuple[Sequence[Any], str | None]
]


class View(NamedTuple):
    """How a client sees a list if that depends on what it has declared.

    `show` returns an item as it is listed, or None if it is not. Clients whose `key` is
    the same see the same.
    """

    key: Hashable
    show: Callable[[Any], Any]


class Follower(Protocol[T_contra]):
    """Has the features of a registry too, under names of its own."""

    def check_is_free(self, name: str, item: T_contra) -> None:
        """Raise ValueError if the name of a new feature is taken here."""

    def added(self, item: T_contra) -> None:
        """Add a feature that was added to the registry."""

    def removed(self, item: T_contra) -> None:
        """Remove a feature that was removed from the registry."""

    def replaced(self, before: T_contra, item: T_contra) -> None:
        """Serve a feature in the place of one that is listed the same."""


class Registry(dict[str, T]):
    """A server's features of one kind, by name, in the order of registration.

    Any thread may add and remove features. This is why loops run over a copy.
    """

    def __init__(
        self,
        kind: str,
        pages: Pages,
        changed: Callable[[str], None],
        environment: Environment,
    ) -> None:
        self.kind = kind
        self.feature = f"{kind}s"
        self._pages = pages
        self._changed = changed
        self._environment = environment
        # Registries of servers that include this one's server.
        self._followers: tuple[Follower[T], ...] = ()
        self._numbers = count(1)
        # Encoded first pages, by revision, by the principal's scopes if any feature
        # requires scopes, and by the key of the client's view if it has one.
        self._encoded: dict[Hashable, bytes] = {}
        # Every scope that one of the features requires.
        self.scopes = NO_SCOPES

    def add(self, item: T) -> None:
        """Add a feature, under a name that is free, and announce it."""
        self.check_is_free(item.name, item)
        item.number = next(self._numbers)
        item.environment = self._environment
        self[item.name] = item
        self.scopes |= item.scopes
        self._encoded.clear()
        self._changed(self.feature)
        for follower in self._followers:
            follower.added(item)

    def check_is_free(self, name: str, item: T) -> None:
        """Raise ValueError if this or a follower has a feature of this name."""
        if name in self:
            raise ValueError(
                f"there is a {self.kind} {name!r} already; "
                "remove it, or give this one another name"
            )
        for follower in self._followers:
            follower.check_is_free(name, item)

    def replace(self, item: T) -> None:
        """Serve a feature in the place of one that is listed the same."""
        before = self[item.name]
        item.number = before.number
        item.environment = self._environment
        self[item.name] = item
        for follower in self._followers:
            follower.replaced(before, item)

    def follow(self, follower: Follower[T]) -> None:
        """Tell a follower about every feature that is added or removed from now on."""
        self._followers = (*self._followers, follower)

    def remove(self, name: str) -> None:
        """Remove a feature, and announce it."""
        if name not in self:
            raise KeyError(f"there is no {self.kind} {name!r}")
        removed = self.pop(name)
        if removed.scopes:
            others = [item.scopes for item in list(self.values())]
            self.scopes = NO_SCOPES.union(*others)
        self._encoded.clear()
        self._changed(self.feature)
        for follower in self._followers:
            follower.removed(removed)

    def get_for(self, principal: Principal | None, name: str) -> T | None:
        """Return the feature, or None if the principal may not use it."""
        item = self.get(name)
        if item is None or not has_scopes(principal, item.scopes):
            return None
        return item

    def visible_to(self, principal: Principal | None) -> list[T]:
        """Return the features that the principal may use."""
        items = list(self.values())
        return [item for item in items if has_scopes(principal, item.scopes)]

    def find(self, name: str, principal: Principal | None = None) -> T:
        """Return the feature. Raises InvalidParams if the principal may not use it."""
        item = self.get(name)
        if item is None or (item.scopes and self.get_for(principal, name) is None):
            raise InvalidParams(f"Unknown {self.kind}: {name}")
        return item

    def listing(
        self,
        revision: Revision,
        key: str,
        cursor: str | None,
        principal: Principal | None = None,
        view: View | None = None,
    ) -> bytes:
        """Return the encoded page at a cursor. Its items are under `key`.

        A first page is encoded once for each revision and each set of scopes, and kept
        until the list changes. Other pages are not kept, because a client can make up
        any number of cursors. Raises InvalidParams for an unknown cursor.
        """
        held = NO_SCOPES
        kept_under: Hashable = revision
        if self.scopes:
            held = _held(principal, self.scopes)
            kept_under = (revision, held)
        if view is not None:
            kept_under = (kept_under, view.key)
        if not cursor and kept_under in self._encoded:
            return self._encoded[kept_under]
        encoded = self._encode_page(revision, key, cursor, held, view)
        if not cursor:
            if len(self._encoded) >= MOST_KEPT:
                oldest = next(iter(self._encoded))
                del self._encoded[oldest]
            self._encoded[kept_under] = encoded
        return encoded

    def _encode_page(
        self,
        revision: Revision,
        key: str,
        cursor: str | None,
        held: frozenset[str],
        view: View | None,
    ) -> bytes:
        """Encode the page at a cursor, for a principal with these scopes."""
        items: Sequence[T] = [
            item for item in list(self.values()) if item.scopes <= held
        ]
        next_cursor = None
        if revision.pages:
            numbered = [(item.number, item) for item in items]
            items, next_cursor = self._pages(numbered, cursor)
        listed = [item.listed for item in items]
        if view is not None:
            shown = [view.show(item) for item in items]
            listed = [item for item in shown if item is not None]
        return encode(revision.listing({key: listed}, next_cursor))


def _held(principal: Principal | None, scopes: frozenset[str]) -> frozenset[str]:
    """Return which of the scopes a principal has."""
    return NO_SCOPES if principal is None else principal.held(scopes)


def pages_of(size: int | None) -> Pages:
    """Return a function that divides a list into pages of this size; None: one page."""
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(
            f"a page is a number of items, at least one item, not {size!r}"
        )

    def page(
        items: Sequence[tuple[int, Any]], cursor: str | None
    ) -> tuple[Sequence[Any], str | None]:
        after = _decode_cursor(cursor) if cursor else 0
        left = [(number, item) for number, item in items if number > after]
        shown = left[:size]
        next_cursor = None
        if len(shown) < len(left):
            last_number, _ = shown[-1]
            next_cursor = _encode_cursor(last_number)
        return [item for _, item in shown], next_cursor

    return page


def _encode_cursor(number: int) -> str:
    """Return the cursor of the page after the item with this number."""
    return urlsafe_b64encode(b"after:%d" % number).decode()


def _decode_cursor(cursor: str) -> int:
    """Return the number in a cursor. Raises InvalidParams for an unknown cursor."""
    try:
        word, number = urlsafe_b64decode(cursor.encode()).decode().split(":")
        if word == "after" and number.isdecimal():
            return int(number)
    except ValueError:
        pass
    raise InvalidParams("Invalid cursor")
