"""Who may use the server: principals, their scopes, and the check of the tokens that they come with."""

import inspect
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from traceback import format_exception

import trio

from .principal import Principal, as_scopes, can_stand_in_for

log = logging.getLogger("mcp_trio")

# Seconds that a verifier may take.
VERIFY_WITHIN = 10.0
# Seconds after which the token of who stays connected is looked at again.
LOOK_AGAIN = 15.0
# Seconds between two lines about a verifier that fails.
TELL_EVERY = 1.0


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
        plain = inspect.isfunction(verify) and not inspect.iscoroutinefunction(
            inspect.unwrap(verify)
        )
        if plain or not callable(verify):
            raise TypeError(
                f"Access(verify) wants an async function from a token to a principal, not {verify!r}"
            )
        if isinstance(authorization_servers, str):
            raise TypeError(
                f"Access(authorization_servers) wants a list of URLs, not {authorization_servers!r}"
            )
        if resource is not None and not re.fullmatch(
            r"https?://[^\s\"\\#?]+", resource
        ):
            raise ValueError(
                f"Access(resource) wants the endpoint's URL, such as https://host/mcp, not {resource!r}"
            )
        self.verify = verify
        self.scopes = as_scopes(scopes, "Access(scopes)")
        self.authorization_servers = list(authorization_servers)
        self.resource = resource
        self._tell_at = -inf

    async def find(self, token: str) -> Principal:
        """The principal that a token stands for. Raises Denied."""
        principal = await self._verified(token)
        if principal is None or principal.ends_in() <= 0:
            raise Denied(
                401, "invalid_token", "The token is not valid here, or no longer"
            )
        if principal.held(self.scopes) != self.scopes:
            raise Denied(
                403,
                "insufficient_scope",
                f"The token lacks a scope; wanted: {' '.join(sorted(self.scopes))}",
            )
        return principal

    async def still(self, token: str, principal: Principal) -> bool:
        """Whether a token stands for a principal as it did, with its scopes; while nobody can tell, it does."""
        try:
            return principal.ends_in() > 0 and can_stand_in_for(
                await self.find(token), principal
            )
        except Denied as denied:
            return denied.status == 503

    async def outlast(
        self, token: str, principal: Principal, act: Callable[[], None]
    ) -> None:
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
            raise Denied(
                503,
                "",
                f"Tokens cannot be checked now{f' (reference {reference})' * is_told}",
            ) from None
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
        raise TypeError(
            f"a verifier returns a Principal, a name or None, not {type(found).__name__}"
        )
    return Principal(found)
