"""A ready-made verifier: JSON Web Tokens, by PyJWT."""

import logging
import os
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from ipaddress import ip_address
from math import inf
from pathlib import Path
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

# Seconds that an asking for keys may take; between two; for which none is needed; until one that failed is repeated.
FETCH_WITHIN, FETCH_EVERY, KEEP, AGAIN = 5.0, 60.0, 3600.0, 5.0
MAX_KEYS = 2**20  # bytes
# A secret that both sides have: whoever can check such a token can make one too.
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
    """JSON Web Tokens that `issuer` has signed for `audience`, which is this server. `name` is the claim of who comes.

    The signature is checked by `key`, in PEM, or by a key set: its URL, its file, or its content. Scopes are what the
    claim `scope`, `scp` or `scopes` says. With `algorithms="HS256"` the key is a secret that both sides have.
    """
    try:
        import jwt as library

        library.get_algorithm_by_name("RS256")
    except (ImportError, NotImplementedError):
        raise ImportError(
            "JSON Web Tokens take more libraries: pip install 'mcp_trio[jwt]'"
        ) from None
    if (key is None) == (jwks is None):
        raise ValueError(
            "jwt(key) or jwt(jwks) says what signatures are checked by: one of the two is wanted"
        )
    if not (issuer and audience):
        raise ValueError(
            "jwt(issuer) and jwt(audience) are wanted: who signs the tokens, and for whom"
        )
    chosen = _algorithms(algorithms, key)
    keys = KeySet(jwks) if jwks is not None else None
    required: Any = {"require": ["exp", "iss", "aud", name]}

    async def verify(token: str) -> Principal | None:
        try:
            signed_by = (
                await keys.find(library.get_unverified_header(token).get("kid"))
                if keys
                else key
            )
            if signed_by is None:
                return None
            claims = library.decode(
                token,
                signed_by,
                chosen,
                options=required,
                audience=audience,
                issuer=issuer,
                leeway=leeway,
            )
            return _principal(claims, name, leeway)
        except (
            library.PyJWTError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as problem:
            log.debug("a token is not taken: %s", type(problem).__name__)
            return None

    return verify


def _algorithms(given: Iterable[str], key: str | bytes | None) -> list[str]:
    """Those of the algorithms that the key is for. Raises ValueError where there is none, or danger in it."""
    import jwt as library

    names = [given] if isinstance(given, str) else list(given)
    secret = SYMMETRIC.intersection(names)
    # Who could choose would sign with the public key, which everybody has, as if it were the secret.
    if secret and (key is None or secret < set(names)):
        raise ValueError(
            f"jwt(algorithms): {', '.join(names)}: a secret goes with no public key and no key set"
        )
    if secret and key is not None and len(key) < SHORTEST_SECRET:
        raise ValueError(f"jwt(key): a secret has at least {SHORTEST_SECRET} bytes")
    fitting = []
    for one in names:
        try:
            algorithm = library.get_algorithm_by_name(one)
            if one != "none" and (
                key is None or algorithm.prepare_key(key) is not None
            ):
                fitting.append(one)
        except NotImplementedError:
            raise ValueError(f"jwt(algorithms): there is no {one!r}") from None
        except (library.PyJWTError, TypeError, ValueError):
            continue
    if not fitting:
        raise ValueError(
            f"jwt(algorithms): {', '.join(names) or 'none'}: no such signature can be checked by this key"
        )
    return fitting


def _principal(claims: dict[str, Any], name: str, leeway: float) -> Principal:
    """Whom a token stands for that was found good. Raises TypeError or ValueError."""
    said = next(
        (claims[key] for key in ("scope", "scp", "scopes") if key in claims), ()
    )
    scopes = said.split() if isinstance(said, str) else msgspec.convert(said, list[str])
    return Principal(
        claims[name], frozenset(scopes), float(claims["exp"]) + leeway, claims
    )


class Unreachable(Exception):
    """The keys could not be had."""


class KeySet:
    """The public keys of a set by their names. One from a URL is asked for again, when a key is not known or is old."""

    def __init__(self, source: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        self._url = ""
        self._keys: dict[Any, PyJWK] = {}
        self._old_at, self._fetch_at = inf, inf
        self._fetching = trio.Lock()
        self._threads = trio.CapacityLimiter(
            4
        )  # one that was given up may go on as long as its issuer likes
        if isinstance(source, Mapping):
            self._keys = _keys(source)
        elif isinstance(source, str) and "://" in source:
            self._url, self._old_at, self._fetch_at = _checked(source), -inf, -inf
        else:
            self._keys = _decoded(Path(source).read_bytes(), source)

    async def find(self, kid: Any) -> "PyJWK | None":
        """The key of that name; where the token or the set names none, the only one there is."""
        if (found := self._known(kid)) is None or trio.current_time() >= self._old_at:
            async with self._fetching:
                if trio.current_time() >= self._fetch_at:
                    await self._fetch()
            if not self._keys:
                raise Unreachable(f"{self._url}: its keys are not known yet")
            found = self._known(kid)
        return found

    def _known(self, kid: Any) -> "PyJWK | None":
        if len(self._keys) == 1 and (kid is None or None in self._keys):
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if isinstance(kid, str) else None

    async def _fetch(self) -> None:
        """Ask for the keys. Where that fails, those known before stay."""
        self._fetch_at = trio.current_time() + (FETCH_EVERY if self._keys else AGAIN)
        try:
            with trio.fail_after(FETCH_WITHIN):
                data = await trio.to_thread.run_sync(
                    _fetched, self._url, abandon_on_cancel=True, limiter=self._threads
                )
            self._keys = _decoded(data, self._url)
        except (OSError, HTTPException, ValueError, trio.TooSlowError) as problem:
            log.warning(
                "the keys at %s could not be had: %s",
                self._url,
                str(problem) or "it took too long",
            )
        else:
            now = trio.current_time()
            self._fetch_at, self._old_at = now + FETCH_EVERY, now + KEEP


def _checked(url: str) -> str:
    """A URL from which keys can be taken: nobody in between could change them. Raises ValueError."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_here = host == "localhost" or (
        host.replace(".", "").isdigit() and ip_address(host).is_loopback
    )
    if not host or not (
        parts.scheme == "https" or (parts.scheme == "http" and is_here)
    ):
        raise ValueError(f"jwt(jwks): {url}: https is wanted")
    return url


class _NoDetours(urllib.request.HTTPRedirectHandler):
    """Is led to no place that keys could not be taken from in the first place."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        try:
            if urlsplit(_checked(newurl)).scheme != req.type:
                raise ValueError(f"{newurl}: {req.type} is wanted here too")
        except ValueError as problem:
            raise HTTPError(req.full_url, code, str(problem), headers, fp) from None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetched(url: str) -> bytes:
    try:
        with urllib.request.build_opener(_NoDetours).open(
            url, timeout=FETCH_WITHIN
        ) as answer:
            data: bytes = answer.read(MAX_KEYS + 1)
    except HTTPError as error:
        error.close()
        raise
    if len(data) > MAX_KEYS:
        raise ValueError(f"more than {MAX_KEYS} bytes")
    return data


def _decoded(data: bytes, where: object) -> "dict[Any, PyJWK]":
    try:
        return _keys(msgspec.json.decode(data, type=dict[str, Any]))
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"jwt(jwks): {where}: {problem}") from None


def _keys(given: Mapping[str, Any]) -> "dict[Any, PyJWK]":
    """The public keys in a set that are for signatures, of kinds known here. Raises ValueError where there is none."""
    import jwt as library

    found, listed = {}, given.get("keys")
    for one in listed if isinstance(listed, list) else ():
        if (
            isinstance(one, dict)
            and one.get("kty") != "oct"
            and one.get("use", "sig") == "sig"
        ):
            try:
                found[one.get("kid")] = library.PyJWK(one)
            except (library.PyJWTError, TypeError, ValueError):
                continue
    if not found:
        raise ValueError("there is no public key for signatures in the key set")
    return found
