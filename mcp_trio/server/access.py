"""Who may use the server: principals, their scopes, and the check of the tokens that they come with."""

import inspect
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from traceback import format_exception
from typing import Any

import trio
from msgspec import Struct, structs

log = logging.getLogger("mcp_trio")

# Seconds that a verifier may take.
VERIFY_WITHIN = 10.0
# Seconds after which the token of who stays connected is looked at again.
LOOK_AGAIN = 15.0
# Seconds between two lines about a verifier that fails.
TELL_EVERY = 1.0
# What RFC 6749, section 3.3, lets a scope consist of; so none can end the quotes that a header puts around it.
_SCOPE = re.compile(r"[!#-\[\]-~]+")


class Principal(Struct, frozen=True):
    """On whose behalf a request comes. `expires` is in seconds since 1970; `claims` are what else is known."""

    name: str
    scopes: frozenset[str] = frozenset()
    expires: float | None = None
    claims: dict[str, Any] = {}

    def __post_init__(self) -> None:
        name: object = self.name
        if not name or not isinstance(name, str):
            raise TypeError(f"Principal(name) wants a string that says who it is, not {name!r}")
        structs.force_setattr(self, "scopes", as_scopes(self.scopes, "Principal(scopes)"))

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


def same(one: Principal | None, other: Principal | None) -> bool:
    """Whether two are one principal. What belongs to another one is not found."""
    return one is other or (one is not None and other is not None and one.name == other.name)


def stands_in(one: Principal | None, other: Principal | None) -> bool:
    """Whether one is the same as another, and has all of its scopes."""
    return same(one, other) and (one is None or other is None or one.held(other.scopes) == other.scopes)


Verify = Callable[[str], Awaitable[Principal | str | None]]


class Denied(Exception):
    """The bearer of a token is not let in: the HTTP status that says so, the code of RFC 6750, and the reason."""

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.error = status, error


class Access:
    """Control of who may use a server over HTTP and WebSocket.

    `verify` is an async function from a token to the principal, or the name of one, that it stands for; None: to
    nobody. `scopes` are what every request needs. `authorization_servers` are where clients get tokens. `resource` is
    the endpoint's URL as clients know it; by default it is made from the Host and the path that they come by.
    """

    def __init__(
        self,
        verify: Verify,
        *,
        scopes: Iterable[str] = (),
        authorization_servers: Iterable[str] = (),
        resource: str | None = None,
    ) -> None:
        plain = inspect.isfunction(verify) and not inspect.iscoroutinefunction(inspect.unwrap(verify))
        if plain or not callable(verify):
            raise TypeError(f"Access(verify) wants an async function from a token to a principal, not {verify!r}")
        if isinstance(authorization_servers, str):
            raise TypeError(f"Access(authorization_servers) wants a list of URLs, not {authorization_servers!r}")
        if resource is not None and not re.fullmatch(r"https?://[^\s\"\\#?]+", resource):
            raise ValueError(f"Access(resource) wants the endpoint's URL, such as https://host/mcp, not {resource!r}")
        self.verify = verify
        self.scopes = as_scopes(scopes, "Access(scopes)")
        self.authorization_servers = list(authorization_servers)
        self.resource = resource
        self._tell_at = -inf

    async def find(self, token: str) -> Principal:
        """The principal that a token stands for. Raises Denied."""
        principal = await self._verified(token)
        if principal is None or principal.ends_in() <= 0:
            raise Denied(401, "invalid_token", "The token is not valid here, or no longer")
        if principal.held(self.scopes) != self.scopes:
            raise Denied(403, "insufficient_scope", f"The token lacks a scope; wanted: {' '.join(sorted(self.scopes))}")
        return principal

    async def still(self, token: str, principal: Principal) -> bool:
        """Whether a token stands for a principal as it did, with its scopes; while nobody can tell, it does."""
        try:
            return principal.ends_in() > 0 and stands_in(await self.find(token), principal)
        except Denied as denied:
            return denied.status == 503

    async def outlast(self, token: str, principal: Principal, act: Callable[[], None]) -> None:
        """Wait until a token stands for a principal no more, then do this."""
        is_valid = True
        while is_valid:
            await trio.sleep(max(0, min(principal.ends_in(), LOOK_AGAIN)))
            is_valid = await self.still(token, principal)
        act()

    async def _verified(self, token: str) -> Principal | None:
        """What the verifier says; where it says nothing in time, or fails, nobody comes in."""
        try:
            with trio.move_on_after(VERIFY_WITHIN):
                return _principal(await self.verify(token))
            self._tell(f"took longer than {VERIFY_WITHIN:g} s")
        except (trio.Cancelled, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:
            reference = secrets.token_hex(4)
            trace = "".join(format_exception(problem)).replace(token, "[token]")
            is_told = self._tell(f"failed (reference {reference})", Exception(trace))
            raise Denied(503, "", f"Tokens cannot be checked now{f' (reference {reference})' * is_told}") from None
        raise Denied(503, "", "Tokens cannot be checked now")

    def _tell(self, what: str, trace: Exception | None = None) -> bool:
        """Log what is wrong with the verifier: not each time, as anybody can send tokens that it fails at."""
        if is_due := (now := trio.current_time()) >= self._tell_at:
            self._tell_at = now + TELL_EVERY
            log.error("the verifier of tokens %s", what, exc_info=trace)
        return is_due


def _principal(found: object) -> Principal | None:
    if found is None or isinstance(found, Principal):
        return found
    if not isinstance(found, str):
        raise TypeError(f"a verifier returns a Principal, a name or None, not {type(found).__name__}")
    return Principal(found)


def as_scopes(given: Iterable[Any], what: str) -> frozenset[str]:
    """Scopes as a set. Raises TypeError or ValueError, which say what was given, and to what."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what} wants a set of scopes, such as {{'admin'}}, not {given!r}")
    scopes = frozenset(given)
    for scope in scopes:
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ValueError(f'{what}: {scope!r} is no scope: visible ASCII is wanted, without " and \\')
    return scopes
