"""Principals and scopes."""

import re
import time
from collections.abc import Iterable
from math import inf
from typing import Any

from msgspec import Struct, structs

# The characters that RFC 6749, section 3.3, allows in a scope. It excludes quotation
# marks, so a scope is safe in a quoted string of a header.
_SCOPE = r"[!#-\[\]-~]+"

NO_SCOPES: frozenset[str] = frozenset()


class Principal(Struct, frozen=True):
    """The user or program on whose behalf a request is made.

    Attributes:
        name: The principal's name. Sessions, tasks and limits belong to it.
        scopes: What the principal may do.
        expires: When its token expires, in seconds since 1970.
        claims: Any other claims of the token.
    """

    name: str
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    claims: dict[str, Any] = {}

    def __post_init__(self) -> None:
        name: object = self.name
        if not name or not isinstance(name, str):
            raise TypeError(
                f"Principal(name): expected a non-empty string, got {name!r}"
            )
        scopes = as_scopes(self.scopes, "Principal(scopes)")
        structs.force_setattr(self, "scopes", scopes)

    def held(self, scopes: frozenset[str]) -> frozenset[str]:
        """Return the given scopes that the principal has."""
        return scopes & self.scopes

    def ends_in(self) -> float:
        """Return the seconds until the principal expires."""
        return inf if self.expires is None else self.expires - time.time()


class Owner(Principal, frozen=True):
    """The user who started this process. Has every scope."""

    def held(self, scopes: frozenset[str]) -> frozenset[str]:
        """Return all of the given scopes."""
        return scopes


def owner() -> Owner:
    """Return the owner of this process."""
    import getpass  # only here, to keep the start of other processes fast

    try:
        return Owner(getpass.getuser())
    except (ImportError, KeyError, OSError):  # the user id has no name
        return Owner("owner")


def has_scopes(principal: Principal | None, scopes: frozenset[str]) -> bool:
    """Return whether a principal has all of the scopes. None has none."""
    if not scopes:
        return True
    return principal is not None and principal.held(scopes) == scopes


def is_same_principal(one: Principal | None, other: Principal | None) -> bool:
    """Return whether two principals have the same name, or both are None.

    Sessions and tasks are only visible to the principal that they belong to.
    """
    if one is other:
        return True
    if one is None or other is None:
        return False
    return one.name == other.name


def can_stand_in_for(one: Principal | None, other: Principal | None) -> bool:
    """Return whether one principal is the same as another, and has all its scopes."""
    if not is_same_principal(one, other):
        return False
    if one is None or other is None:
        return True
    return one.held(other.scopes) == other.scopes


def as_scopes(given: Iterable[Any], what: str) -> frozenset[str]:
    """Return scopes as a set. Raises TypeError or ValueError.

    `what` names the scopes in errors.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(
            f"{what}: expected a set of scopes, such as {{'admin'}}, got {given!r}"
        )
    scopes = frozenset(given)
    for scope in scopes:
        if not isinstance(scope, str) or not re.fullmatch(_SCOPE, scope):
            raise ValueError(
                f'{what}: expected a scope of visible ASCII characters, without " '
                f"and \\, got {scope!r}"
            )
    return scopes
