"""TODO"""

import re
import time
from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import Struct, structs

# What RFC 6749, section 3.3, lets a scope consist of; so none can end the quotes that a header puts around it.
_SCOPE = re.compile(r"[!#-\[\]-~]+")


NO_SCOPES: frozenset[str] = frozenset()


class Principal(Struct, frozen=True):
    """On whose behalf a request comes. `expires` is in seconds since 1970; `claims` are what else is known."""

    name: str
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    claims: dict[str, Any] = {}

    def __post_init__(self) -> None:
        name: object = self.name
        if not name or not isinstance(name, str):
            raise TypeError(
                f"Principal(name) wants a string that says who it is, not {name!r}"
            )
        structs.force_setattr(
            self, "scopes", as_scopes(self.scopes, "Principal(scopes)")
        )

    def held(self, scopes: frozenset[str]) -> frozenset[str]:
        """Those of the scopes that the principal has."""
        return scopes & self.scopes

    def ends_in(self) -> float:
        """Seconds for which the principal is still one."""
        return inf if self.expires is None else self.expires - time.time()


class Owner(Principal, frozen=True):
    """Whoever has started this process, and may use everything."""

    def held(self, scopes: frozenset[str]) -> frozenset[str]:
        """All of them."""
        return scopes


def owner() -> Owner:
    """The owner of this process."""
    import getpass

    try:
        return Owner(getpass.getuser())
    except (ImportError, KeyError, OSError):  # there is no name for this user id
        return Owner("owner")


def is_same_principal(one: Principal | None, other: Principal | None) -> bool:
    """Whether two are one principal. What belongs to another one is not found."""
    return one is other or (
        one is not None and other is not None and one.name == other.name
    )


def can_stand_in_for(one: Principal | None, other: Principal | None) -> bool:
    """Whether one is the same as another, and has all of its scopes."""
    return is_same_principal(one, other) and (
        one is None or other is None or one.held(other.scopes) == other.scopes
    )


def as_scopes(given: Iterable[Any], what: str) -> frozenset[str]:
    """Scopes as a set. Raises TypeError or ValueError, which say what was given, and to what."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(
            f"{what} wants a set of scopes, such as {{'admin'}}, not {given!r}"
        )
    scopes = frozenset(given)
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ValueError(
                f'{what}: {scope!r} is no scope: visible ASCII is wanted, without " and \\'
            )
    return scopes
