"""Access control for HTTP and WebSocket."""

import inspect
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from hashlib import sha256
from math import inf
from traceback import format_exception
from typing import Any, NamedTuple

import trio

from .principal import Principal, as_scopes, can_stand_in_for
from .resource_metadata import is_resource_url

log = logging.getLogger("mcp_trio")

# Seconds that a verifier may take.
VERIFY_TIMEOUT = 10.0
# Seconds between two checks of the token of an open connection.
RECHECK_INTERVAL = 15.0
# Minimum seconds between two log records about a failing verifier.
LOG_INTERVAL = 1.0
# Seconds that an accepted token is cached.
REMEMBERED = 5.0
# The maximum number of cached tokens.
MOST_REMEMBERED = 10_000
# How many tokens may be verified at once, in total and for one address.
MOST_VERIFYING = 100
MOST_VERIFYING_OF_ONE = 75

# Takes a token, and returns its principal or the principal's name. None means that the
# token is not valid.
Verify = Callable[[str], Awaitable[Principal | str | None]]


class Denied(Exception):
    """The server does not accept a token.

    `status` is the HTTP status of the response. `error` is the error code of RFC 6750,
    or "" if there is none for this case.
    """

    def __init__(self, status: int, error: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.error = error


class _Answer(NamedTuple):
    """The result of a verifier, and the context variables that it has set.

    A request that uses the cached result gets these context variables too.
    """

    principal: Principal | None
    variables: dict[ContextVar[Any], Any]
    until: float  # when it expires from the cache, in trio's time

    def take(self) -> Principal | None:
        """Set the context variables, and return the principal."""
        for variable, value in self.variables.items():
            variable.set(value)
        return self.principal


class _Verification:
    """One call of the verifier, shared by all requests that wait for its result."""

    def __init__(self) -> None:
        self.done = trio.Event()
        # Both stay None if the call is cancelled.
        self.answer: _Answer | None = None
        self.denied: Denied | None = None


class Access:
    """Access control for a server.

    Args:
        verify: An async function that takes a token and returns its principal, or the
            principal's name. It returns None for a token that is not valid.
        scopes: Scopes that every request requires.
        authorization_servers: The URLs of the servers that issue tokens.
        resource: The URL of the endpoint for clients. By default, it is built from the
            Host header and the path of the endpoint.
        remember: How many seconds an accepted token is cached, unless its principal
            expires before. 0 disables caching.
    """

    def __init__(
        self,
        verify: Verify,
        *,
        scopes: Iterable[str] = (),
        authorization_servers: Iterable[str] = (),
        resource: str | None = None,
        remember: float = REMEMBERED,
    ) -> None:
        if _is_plain_function(verify) or not callable(verify):
            raise TypeError(
                "Access(verify): expected an async function that takes a token and "
                f"returns a principal, got {verify!r}"
            )
        if isinstance(authorization_servers, str):
            raise TypeError(
                "Access(authorization_servers): expected a list of URLs, "
                f"got {authorization_servers!r}"
            )
        self.authorization_servers = list(authorization_servers)
        for url in self.authorization_servers:
            if not is_resource_url(str(url)):
                raise ValueError(
                    "Access(authorization_servers): expected URLs such as "
                    f"https://id.example.org, got {url!r}"
                )
        if resource is not None and not is_resource_url(resource):
            raise ValueError(
                "Access(resource): expected the endpoint's URL, such as "
                f"https://host/mcp, got {resource!r}"
            )
        if not _is_duration(remember):
            raise ValueError(
                "Access(remember): expected a number of seconds, 0 or more, "
                f"got {remember!r}"
            )
        self._verify = verify
        self._remember = remember
        # Digest of an accepted token -> the verifier's result. The oldest is first.
        self._remembered: dict[bytes, _Answer] = {}
        self._verifying = trio.CapacityLimiter(MOST_VERIFYING)
        self._verifying_of: dict[str, trio.CapacityLimiter] = {}
        # Digest of a token -> its verification, while that is running.
        self._pending: dict[bytes, _Verification] = {}
        self.scopes = as_scopes(scopes, "Access(scopes)")
        self.resource = resource
        # The earliest time at which the next failure of the verifier is logged.
        self._log_at = -inf

    @property
    def verify(self) -> Verify:
        """The function that verifies a token."""
        return self._verify

    @verify.setter
    def verify(self, verify: Verify) -> None:
        self._verify = verify
        self._remembered.clear()

    async def find(self, token: str, address: str = "") -> Principal:
        """Return the principal of a token that a client at this address has sent.

        Raises Denied.
        """
        digest = sha256(token.encode()).digest()
        answer = self._recall(digest)
        if answer is None:
            answer = await self._find_once(token, digest, address)
        return self._check(answer.take())

    def _recall(self, digest: bytes) -> _Answer | None:
        """Return the cached result for a token, or None."""
        answer = self._remembered.get(digest)
        if answer is None or answer.principal is None:
            return None
        left = answer.until - trio.current_time()
        # It may be from another event loop, which has another clock.
        if not 0 < left <= self._remember:
            return None
        # If the principal has expired, the verifier may return a later expiry now.
        return answer if answer.principal.ends_in() > 0 else None

    async def _find_once(self, token: str, digest: bytes, address: str) -> _Answer:
        """Verify a token, or wait for a task that is already verifying it."""
        while digest in self._pending:
            other = self._pending[digest]
            await other.done.wait()
            if other.denied is not None:
                raise Denied(other.denied.status, other.denied.error, str(other.denied))
            if other.answer is not None:
                return other.answer
        verification = self._pending[digest] = _Verification()
        try:
            verification.answer = await self._verify_now(token, digest, address)
            return verification.answer
        except Denied as denied:
            verification.denied = denied
            raise
        finally:
            del self._pending[digest]
            verification.done.set()

    async def _verify_now(self, token: str, digest: bytes, address: str) -> _Answer:
        """Verify a token, and cache the result if it is valid."""
        before = copy_context()
        principal = await self._call_verifier(token, address)
        variables = {
            variable: value
            for variable, value in copy_context().items()
            if variable not in before or before[variable] is not value
        }
        answer = _Answer(principal, variables, trio.current_time() + self._remember)
        self._remembered.pop(digest, None)
        if principal is not None and self._remember:
            if len(self._remembered) >= MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[digest] = answer
        return answer

    def _check(self, principal: Principal | None) -> Principal:
        """Return the principal if it may make requests. Raises Denied."""
        if principal is None or principal.ends_in() <= 0:
            raise Denied(
                401, "invalid_token", "The token is invalid, expired or revoked"
            )
        if principal.held(self.scopes) != self.scopes:
            required = " ".join(sorted(self.scopes))
            raise Denied(
                403,
                "insufficient_scope",
                f"Insufficient scope: expected a token with the scopes: {required}",
            )
        return principal

    async def outlast(
        self, token: str, principal: Principal, act: Callable[[], None]
    ) -> None:
        """Wait until a token is no longer valid for a principal, then call `act`."""
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
            digest = sha256(token.encode()).digest()
            # Not from the cache. Other connections may wait for the same result.
            answer = await self._find_once(token, digest, "")
            found = self._check(answer.principal)
        except Denied as denied:
            return denied.status == 503
        return can_stand_in_for(found, principal)

    async def _call_verifier(self, token: str, address: str) -> Principal | None:
        """Call the verifier. Raises Denied if it fails or takes too long.

        The number of concurrent calls is limited, so that a flood of tokens does not
        become a flood of requests to an authorization server.
        """
        try:
            with trio.move_on_after(VERIFY_TIMEOUT):
                async with self._slot_for(address), self._verifying:
                    return _as_principal(await self._verify(token))
        except (trio.Cancelled, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as problem:
            raise self._verifier_failed(token, problem) from None
        self._log(f"took longer than {VERIFY_TIMEOUT:g} s")
        raise Denied(503, "", "Tokens cannot be verified now; try again later")

    @asynccontextmanager
    async def _slot_for(self, address: str) -> AsyncIterator[None]:
        """Wait until one more token from an address may be verified.

        Rechecks of open connections have no address, and share one limit.
        """
        limiter = self._verifying_of.get(address)
        if limiter is None:
            limiter = trio.CapacityLimiter(MOST_VERIFYING_OF_ONE)
            self._verifying_of[address] = limiter
        try:
            async with limiter:
                yield
        finally:
            statistics = limiter.statistics()
            is_used = statistics.borrowed_tokens or statistics.tasks_waiting
            if not is_used and self._verifying_of.get(address) is limiter:
                del self._verifying_of[address]

    def _verifier_failed(self, token: str, problem: BaseException) -> Denied:
        """Log a failure of the verifier, and return the error for the client."""
        reference = secrets.token_hex(4)
        # The log must not contain the token.
        trace = "".join(format_exception(problem)).replace(token, "[token]")
        reason = "Tokens cannot be verified now; try again later"
        if self._log(f"failed (reference {reference})", Exception(trace)):
            reason += f" (reference {reference})"
        return Denied(503, "", reason)

    def _log(self, what: str, trace: Exception | None = None) -> bool:
        """Log a failure of the verifier. Returns whether it was logged.

        The rate of log records is limited, because anybody can send tokens that make
        the verifier fail.
        """
        now = trio.current_time()
        if now < self._log_at:
            return False
        self._log_at = now + LOG_INTERVAL
        log.error("the token verifier %s", what, exc_info=trace)
        return True


def _is_plain_function(verify: object) -> bool:
    """Return whether this is a function that is not async."""
    if not inspect.isfunction(verify):
        return False
    return not inspect.iscoroutinefunction(inspect.unwrap(verify))


def _is_duration(given: object) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    return 0 <= given < inf


def _as_principal(found: object) -> Principal | None:
    """Return the principal that a verifier returned. Raises TypeError."""
    if found is None or isinstance(found, Principal):
        return found
    if not isinstance(found, str):
        raise TypeError(
            "Access(verify): expected it to return a Principal, a name or None, "
            f"got {type(found).__name__}"
        )
    return Principal(found)
