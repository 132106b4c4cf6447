"""Access control for HTTP and WebSocket."""

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
VERIFY_TIMEOUT = 10.0
# Seconds between two checks of the token of an open connection.
RECHECK_INTERVAL = 15.0
# Seconds between two log lines about a verifier that fails.
LOG_INTERVAL = 1.0

# From a token to its principal, or to the name of one; None if the token is not valid.
Verify = Callable[[str], Awaitable[Principal | str | None]]


class Denied(Exception):
    """The server does not accept a token.

    `status` is the HTTP status of the response, and `error` the error code of RFC 6750,
    or "" if it has none for this case.
    """

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error


class Access:
    """Access control for a server.

    `verify` is an async function from a token to its principal, or to the principal's
    name. It returns None for a token that is not valid. `scopes` are required of every
    request. `authorization_servers` are the URLs of the servers that issue tokens.
    `resource` is the URL of the endpoint as clients know it; by default it is made from
    the Host header and the path of the endpoint.
    """

    def __init__(
        self,
        verify: Verify,
        *,
        scopes: Iterable[str] = (),
        authorization_servers: Iterable[str] = (),
        resource: str | None = None,
    ) -> None:
        if _is_plain_function(verify) or not callable(verify):
            raise TypeError(
                "Access(verify) wants an async function from a token to a principal, "
                f"not {verify!r}"
            )
        if isinstance(authorization_servers, str):
            raise TypeError(
                "Access(authorization_servers) wants a list of URLs, "
                f"not {authorization_servers!r}"
            )
        if resource is not None and not _is_resource_url(resource):
            raise ValueError(
                "Access(resource) wants the endpoint's URL, such as "
                f"https://host/mcp, not {resource!r}"
            )
        self.verify = verify
        self.scopes = as_scopes(scopes, "Access(scopes)")
        self.authorization_servers = list(authorization_servers)
        self.resource = resource
        # When the next failure of the verifier may be logged.
        self._log_at = -inf

    async def find(self, token: str) -> Principal:
        """Return the principal of a token. Raises Denied."""
        principal = await self._verify(token)
        if principal is None or principal.ends_in() <= 0:
            raise Denied(
                401, "invalid_token", "The token is not valid here, or no longer"
            )
        if principal.held(self.scopes) != self.scopes:
            required = " ".join(sorted(self.scopes))
            raise Denied(
                403,
                "insufficient_scope",
                f"The token lacks a scope; wanted: {required}",
            )
        return principal

    async def outlast(
        self, token: str, principal: Principal, act: Callable[[], None]
    ) -> None:
        """Wait until a token stops being valid for a principal, then call `act`."""
        is_valid = True
        while is_valid:
            await trio.sleep(max(0, min(principal.ends_in(), RECHECK_INTERVAL)))
            is_valid = await self._is_still_valid(token, principal)
        act()

    async def _is_still_valid(self, token: str, principal: Principal) -> bool:
        """Return whether a token still belongs to a principal with all its scopes.

        While the verifier fails, the token stays valid.
        """
        if principal.ends_in() <= 0:
            return False
        try:
            found = await self.find(token)
        except Denied as denied:
            return denied.status == 503
        return can_stand_in_for(found, principal)

    async def _verify(self, token: str) -> Principal | None:
        """Call the verifier. Raises Denied if it fails or takes too long."""
        try:
            with trio.move_on_after(VERIFY_TIMEOUT):
                return _as_principal(await self.verify(token))
        except (trio.Cancelled, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:
            raise self._verifier_failed(token, problem) from None
        self._log(f"took longer than {VERIFY_TIMEOUT:g} s")
        raise Denied(503, "", "Tokens cannot be checked now")

    def _verifier_failed(self, token: str, problem: BaseException) -> Denied:
        """Log a failure of the verifier, and return the error for the client."""
        reference = secrets.token_hex(4)
        # The log must not contain the token.
        trace = "".join(format_exception(problem)).replace(token, "[token]")
        reason = "Tokens cannot be checked now"
        if self._log(f"failed (reference {reference})", Exception(trace)):
            reason += f" (reference {reference})"
        return Denied(503, "", reason)

    def _log(self, what: str, trace: Exception | None = None) -> bool:
        """Log what the verifier did, and return whether it was logged.

        Failures are logged at most once in an interval, because anybody can send tokens
        that make the verifier fail.
        """
        now = trio.current_time()
        if now < self._log_at:
            return False
        self._log_at = now + LOG_INTERVAL
        log.error("the verifier of tokens %s", what, exc_info=trace)
        return True


def _is_plain_function(verify: object) -> bool:
    """Return whether this is a function that is not async."""
    if not inspect.isfunction(verify):
        return False
    return not inspect.iscoroutinefunction(inspect.unwrap(verify))


def _is_resource_url(resource: str) -> bool:
    return re.fullmatch(r"https?://[^\s\"\\#?]+", resource) is not None


def _as_principal(found: object) -> Principal | None:
    """Return the principal that a verifier returned. Raises TypeError."""
    if found is None or isinstance(found, Principal):
        return found
    if not isinstance(found, str):
        raise TypeError(
            "a verifier returns a Principal, a name or None, "
            f"not {type(found).__name__}"
        )
    return Principal(found)
