"""Verify JSON Web Tokens with PyJWT."""

import logging
import os
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from ipaddress import ip_address
from math import inf
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import msgspec
import trio

from .access import Verify
from .principal import Principal

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("mcp_trio")

# Seconds that downloading keys may take.
FETCH_TIMEOUT = 5.0
# Minimum seconds between two downloads, and after a failed one while no keys are known.
FETCH_INTERVAL = 60.0
RETRY_INTERVAL = 5.0
# Seconds after which keys are downloaded again.
KEY_LIFETIME = 3600.0
# The largest key set that is accepted, in bytes.
MAX_KEYS = 2**20
# Threads for downloads. An abandoned thread runs until the issuer's server responds.
_MAX_DOWNLOADS = 4

# Algorithms with a shared secret: anyone who can check a token can create one.
SYMMETRIC = {"HS256", "HS384", "HS512"}
SHORTEST_SECRET = 32


def jwt(
    *,
    key: str | bytes | None = None,
    jwks: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    issuer: str,
    audience: str | list[str],
    algorithms: Iterable[str] = ("RS256", "ES256", "EdDSA"),
    name: str = "sub",
    leeway: float = 0,
) -> Verify:
    """Return a verifier for tokens that `issuer` has signed for this server.

    The scopes are in the claim `scope`, `scp` or `scopes`.

    Args:
        key: The key that checks signatures, in PEM format. With `algorithms=["HS256"]`,
            a shared secret.
        jwks: The key set that checks signatures, as a URL, a file or its content.
        issuer: The issuer, which must be in the claim `iss`.
        audience: The server's name in the tokens, which must be in the claim `aud`.
        algorithms: The algorithms to accept.
        name: The claim with the principal's name.
        leeway: How many seconds the clocks of the issuer and the server may differ.
    """
    pyjwt = _import_pyjwt()
    if (key is None) == (jwks is None):
        raise ValueError(
            "jwt: expected either key or jwks, to check signatures with, got "
            f"{'neither' if key is None else 'both'}"
        )
    if not (issuer and audience):
        raise ValueError(
            "jwt: expected issuer and audience, as in the claims iss and aud of your "
            f"tokens, got {issuer!r} and {audience!r}"
        )
    usable = _usable_algorithms(algorithms, key)
    keys = None if jwks is None else KeySet(jwks)
    options: Any = {"require": ["exp", "iss", "aud", name]}

    async def verify(token: str) -> Principal | None:
        """Return the principal of a token, or None if the token is not valid."""
        try:
            verifying_key: Any = key
            if keys is not None:
                header = pyjwt.get_unverified_header(token)
                verifying_key = await keys.find(header.get("kid"))
            if verifying_key is None:
                return None
            claims = pyjwt.decode(
                token,
                verifying_key,
                usable,
                options=options,
                audience=audience,
                issuer=issuer,
                leeway=leeway,
            )
            return _principal_from(claims, name, leeway)
        except (
            pyjwt.PyJWTError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as problem:
            log.debug("rejected a token: %s", type(problem).__name__)
            return None

    return verify


def _import_pyjwt() -> ModuleType:
    """Import PyJWT, which is an extra. Raises ImportError."""
    try:
        import jwt as pyjwt

        # Without the library `cryptography`, PyJWT only knows symmetric algorithms.
        pyjwt.get_algorithm_by_name("RS256")
    except (ImportError, NotImplementedError):
        raise ImportError("JSON Web Tokens need: pip install 'mcp_trio[jwt]'") from None
    return pyjwt


def _usable_algorithms(given: Iterable[str], key: str | bytes | None) -> list[str]:
    """Return the algorithms that work with the key.

    Raises ValueError if there are none, or if their combination is not secure.
    """
    names = [given] if isinstance(given, str) else list(given)
    secret = SYMMETRIC.intersection(names)
    # If both kinds were accepted, a client could sign a token with the public key as if
    # it were the secret.
    if secret and (key is None or secret < set(names)):
        raise ValueError(
            f"jwt(algorithms): {', '.join(sorted(secret))} cannot be combined with a "
            "public key or a key set; give a secret as the key, and no other algorithms"
        )
    if secret and key is not None and len(key) < SHORTEST_SECRET:
        raise ValueError(
            f"jwt(key): expected a secret of at least {SHORTEST_SECRET} bytes, "
            f"got {len(key)}"
        )
    usable = [name for name in names if _fits(name, key)]
    if not usable:
        raise ValueError(
            "jwt(algorithms): expected an algorithm that works with this key, "
            f"got {', '.join(names) or 'none'}"
        )
    return usable


def _fits(name: str, key: str | bytes | None) -> bool:
    """Return whether an algorithm can check signatures with a key.

    Without a key, any algorithm can. Raises ValueError if the algorithm is unknown.
    """
    import jwt as pyjwt  # an extra

    try:
        algorithm = pyjwt.get_algorithm_by_name(name)
        if name == "none":
            return False
        return key is None or algorithm.prepare_key(key) is not None
    except NotImplementedError:
        raise ValueError(f"jwt(algorithms): unknown algorithm {name!r}") from None
    except (pyjwt.PyJWTError, TypeError, ValueError):
        return False


def _principal_from(claims: dict[str, Any], name: str, leeway: float) -> Principal:
    """Return the principal of a valid token. Raises TypeError or ValueError."""
    given: Any = ()
    for claim in ("scope", "scp", "scopes"):
        if claim in claims:
            given = claims[claim]
            break
    if isinstance(given, str):
        scopes = given.split()
    else:
        scopes = msgspec.convert(given, list[str])
    expires = float(claims["exp"]) + leeway
    return Principal(claims[name], frozenset(scopes), expires, claims)


# Key sets


class Unreachable(Exception):
    """The keys could not be downloaded."""


# The errors of a download. A RuntimeError means that no thread could be started.
FETCH_ERRORS = (
    OSError,
    HTTPException,
    ValueError,
    RuntimeError,
    trio.TooSlowError,
)


class KeySet:
    """The public keys of an issuer, by key id.

    A set with a URL is downloaded when a key is needed that is not known. Old keys are
    refreshed in the background and used until then, so an issuer that hangs does not
    delay requests whose key is known.
    """

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        self._url = ""
        self._keys: dict[Any, PyJWK] = {}
        # When the keys become old, and the earliest time of the next download. A set
        # without a URL is never downloaded.
        self._old_at = inf
        self._fetch_at = inf
        self._fetching = trio.Lock()
        self._is_renewing = False
        self._threads = trio.CapacityLimiter(_MAX_DOWNLOADS)
        if isinstance(source, Mapping):
            self._keys = _public_keys(source)
        elif isinstance(source, str) and "://" in source:
            self._url = _check_url(source)
            self._old_at = -inf
            self._fetch_at = -inf
        else:
            self._keys = _decode_keys(Path(source).read_bytes(), source)

    async def find(self, kid: Any) -> "PyJWK | None":
        """Return the key with this id, or None. Raises Unreachable.

        If there is only one key, and the token or the set has no key id, returns it.
        """
        found = self._known(kid)
        if found is not None:
            self._renew_if_old()
            return found
        async with self._fetching:
            # Another task may have downloaded the keys in the meantime.
            if trio.current_time() >= self._fetch_at:
                await self._fetch()
        if not self._keys:
            raise Unreachable(f"{self._url}: no keys could be downloaded yet")
        return self._known(kid)

    def _renew_if_old(self) -> None:
        """Start downloading the keys in the background if they are old."""
        now = trio.current_time()
        is_due = now >= self._old_at and now >= self._fetch_at
        if is_due and not self._is_renewing:
            self._is_renewing = True
            trio.lowlevel.spawn_system_task(self._renew)

    async def _renew(self) -> None:
        try:
            async with self._fetching:
                if trio.current_time() >= self._fetch_at:
                    await self._fetch()
        finally:
            self._is_renewing = False

    def _known(self, kid: Any) -> "PyJWK | None":
        if len(self._keys) == 1 and (kid is None or None in self._keys):
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if isinstance(kid, str) else None

    async def _fetch(self) -> None:
        """Download the keys. If that fails, keep the previous keys."""
        pause = FETCH_INTERVAL if self._keys else RETRY_INTERVAL
        self._fetch_at = trio.current_time() + pause
        try:
            with trio.fail_after(FETCH_TIMEOUT):
                data = await trio.to_thread.run_sync(
                    _download, self._url, abandon_on_cancel=True, limiter=self._threads
                )
            self._keys = _decode_keys(data, self._url)
        except FETCH_ERRORS as problem:
            reason = str(problem) or f"no response within {FETCH_TIMEOUT:g} s"
            log.warning("cannot download the keys from %s: %s", self._url, reason)
        else:
            now = trio.current_time()
            self._fetch_at = now + FETCH_INTERVAL
            self._old_at = now + KEY_LIFETIME


def _check_url(url: str) -> str:
    """Return a URL if nobody can alter its keys in transit. Raises ValueError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = _is_local(host)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    if not host or not is_safe:
        raise ValueError(f"jwt(jwks): expected an https URL, got {url!r}")
    return url


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    return host.replace(".", "").isdigit() and ip_address(host).is_loopback


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to secure URLs with the same scheme."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Return the request to the new URL. Raises HTTPError."""
        try:
            if urlsplit(_check_url(newurl)).scheme != req.type:
                raise ValueError(f"expected a redirect to {req.type}, got {newurl!r}")
        except ValueError as problem:
            raise HTTPError(req.full_url, code, str(problem), headers, fp) from None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(url: str) -> bytes:
    """Return the document at a URL. Raises OSError, HTTPException or ValueError."""
    opener = urllib.request.build_opener(_SafeRedirects)
    try:
        with opener.open(url, timeout=FETCH_TIMEOUT) as response:
            data: bytes = response.read(MAX_KEYS + 1)
    except HTTPError as error:
        error.close()
        raise
    if len(data) > MAX_KEYS:
        raise ValueError(f"expected at most {MAX_KEYS:,} bytes, got more")
    return data


def _decode_keys(data: bytes, source: object) -> "dict[Any, PyJWK]":
    """Decode a key set. Raises a ValueError that names the source."""
    try:
        return _public_keys(msgspec.json.decode(data, type=dict[str, Any]))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"jwt(jwks): {source}: {problem}") from None


def _public_keys(key_set: Mapping[str, Any]) -> "dict[Any, PyJWK]":
    """Return the public keys for signatures, by key id. Raises ValueError.

    Keys that PyJWT does not support are left out.
    """
    import jwt as pyjwt  # an extra

    found: dict[Any, PyJWK] = {}
    listed = key_set.get("keys")
    if not isinstance(listed, list):
        listed = []
    for key in listed:
        if not isinstance(key, dict):
            continue
        if key.get("kty") == "oct" or key.get("use", "sig") != "sig":
            continue
        try:
            found[key.get("kid")] = pyjwt.PyJWK(key)
        except (pyjwt.PyJWTError, TypeError, ValueError):
            continue
    if not found:
        raise ValueError("expected a key set with a public key for signatures")
    return found
