"""Registry: the tools, resources or prompts of a server, and their lists in pages."""

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

# The maximum number of encoded lists in a registry's cache. Each combination of scopes
# that a token has needs a list of its own.
MOST_KEPT = 100

# Divides a list into pages: takes all items and the cursor of a page, and returns the
# items on that page and the cursor of the next page, or None on the last page.
#
# Each item has a number, which does not change when other items are added or removed.
Pages = Callable[
    [Sequence[tuple[int, Any]], str | None], tuple[Sequence[Any], str | None]
]


class View(NamedTuple):
    """How a list is shown to clients that have declared certain extensions.

    `show` returns the entry for an item, or None to hide it. Clients with the same
    `key` see the same list.
    """

    key: Hashable
    show: Callable[[Any], Any]


class Follower(Protocol[T_contra]):
    """Mirrors the features of a registry, under other names."""

    def check_is_free(self, name: str, item: T_contra) -> None:
        """Raise ValueError if the name for a new feature is taken."""

    def added(self, item: T_contra) -> None:
        """Called when a feature was added to the registry."""

    def removed(self, item: T_contra) -> None:
        """Called when a feature was removed from the registry."""

    def replaced(self, before: T_contra, item: T_contra) -> None:
        """Called when a feature was replaced by one with the same entry."""


class Registry(dict[str, T]):
    """A server's features of one kind, by name, in the order of registration.

    Any thread may add and remove features, so loops iterate over a copy.
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
        # The mirrors in servers that include this registry's server.
        self._followers: tuple[Follower[T], ...] = ()
        self._numbers = count(1)
        # The cache of encoded first pages, by revision, by the principal's scopes if
        # any feature requires scopes, and by the key of the view if there is one.
        self._encoded: dict[Hashable, bytes] = {}
        # All scopes that the features require.
        self.scopes = NO_SCOPES

    def add(self, item: T) -> None:
        """Add a feature and notify clients. Raises ValueError if its name is taken."""
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
        """Raise ValueError if this registry or a follower already has this name."""
        if name in self:
            raise ValueError(
                f"the {self.kind} {name!r} already exists; "
                "remove it first, or use another name"
            )
        for follower in self._followers:
            follower.check_is_free(name, item)

    def replace(self, item: T) -> None:
        """Replace the feature of the same name, whose entry must be the same."""
        before = self[item.name]
        item.number = before.number
        item.environment = self._environment
        self[item.name] = item
        for follower in self._followers:
            follower.replaced(before, item)

    def follow(self, follower: Follower[T]) -> None:
        """Notify a follower of every feature that is added or removed from now on."""
        self._followers = (*self._followers, follower)

    def remove(self, name: str) -> None:
        """Remove a feature and notify clients. Raises KeyError."""
        if name not in self:
            raise KeyError(f"the {self.kind} {name!r} does not exist")
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
        """Return the encoded page at a cursor, with its items under `key`.

        First pages are cached for each revision and set of scopes until the list
        changes. Other pages are not cached, because a client can invent any number of
        cursors. Raises InvalidParams for an unknown cursor.
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
    """Return a function that divides lists into pages of this size; None for one page.

    Raises ValueError.
    """
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(
            f"Server(pages): expected a number of items of at least 1, got {size!r}"
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
    """Return the number in a cursor. Raises InvalidParams."""
    try:
        word, number = urlsafe_b64decode(cursor.encode()).decode().split(":")
        if word == "after" and number.isdecimal():
            return int(number)
    except ValueError:
        pass
    raise InvalidParams("Invalid cursor")
