"""JSON Web Tokens: which are accepted, their principals, and how keys are found."""

import base64
import hashlib
import hmac
import io
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import jwt as library
import pytest
import trio
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from trio.testing import MockClock

from mcp_trio import jwt
from mcp_trio.auth import jwt as jwts
from tests.support.access_sites import guarded, make_server

ISSUER, AUDIENCE = "https://login.example", "https://mcp.example/mcp"
RSA, OTHER_RSA = (
    rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)
)
EC, ED = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
SECRET = "s" * 32
SIGNED_BY: dict[str, Any] = {"RS256": RSA, "ES256": EC, "EdDSA": ED, "HS256": SECRET}


def pem(key: Any) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return str(key.public_key().public_bytes(serialization.Encoding.PEM, form).decode())


def jwk(key: Any, **more: str) -> dict[str, Any]:
    kind: Any = {
        RSA: RSAAlgorithm,
        OTHER_RSA: RSAAlgorithm,
        EC: ECAlgorithm,
        ED: OKPAlgorithm,
    }[key]
    return {**kind.to_jwk(key.public_key(), as_dict=True), **more}


def token(
    key: Any = RSA, algorithm: str = "RS256", kid: str | None = None, **claims: Any
) -> str:
    """Return a valid token with these claims changed. None leaves a claim out."""
    full = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": time.time() + 60,
        "sub": "alice",
        **claims,
    }
    kept = {name: value for name, value in full.items() if value is not None}
    return library.encode(kept, key, algorithm, headers={"kid": kid} if kid else None)


checks: Callable[..., Any] = partial(jwt, issuer=ISSUER, audience=AUDIENCE)


@pytest.mark.parametrize("algorithm", SIGNED_BY)
async def test_a_signed_token_gives_a_principal_named_after_its_subject(
    algorithm: str,
) -> None:
    key = SIGNED_BY[algorithm]
    verify = (
        checks(key=SECRET, algorithms="HS256")
        if key is SECRET
        else checks(key=pem(key))
    )
    expires = time.time() + 100
    found = await verify(
        token(key, algorithm, exp=expires, scope="read admin", extra=[1])
    )
    assert (found.name, found.scopes, found.expires) == (
        "alice",
        {"read", "admin"},
        expires,
    )
    assert found.claims["extra"] == [1]


SCOPES = [
    ({"scope": "a b"}, {"a", "b"}),
    ({"scp": ["a", "b"]}, {"a", "b"}),
    ({"scp": "a b"}, {"a", "b"}),
    ({"scopes": ["a"]}, {"a"}),
    ({"scope": ""}, set()),
    ({}, set()),
]


@pytest.mark.parametrize(("claims", "scopes"), SCOPES)
async def test_scopes_are_read_where_issuers_write_them(
    claims: dict[str, Any], scopes: set[str]
) -> None:
    assert (await checks(key=pem(RSA))(token(**claims))).scopes == scopes


def unsigned() -> str:
    head, body, _ = token().split(".")
    head = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=")
    return f"{head}.{body}."


def signed_with_the_public_key() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    said = f"{head}.{token().split('.')[1]}"
    mark = hmac.digest(pem(RSA).encode(), said.encode(), hashlib.sha256)
    return f"{said}.{base64.urlsafe_b64encode(mark).decode().rstrip('=')}"


REFUSED: dict[str, Callable[[], str]] = {
    "expired": lambda: token(exp=time.time() - 1),
    "not yet": lambda: token(nbf=time.time() + 60),
    "without an end": lambda: token(exp=None),
    "beyond all time": lambda: token(exp=10**400),
    "of another issuer": lambda: token(iss="https://evil.example"),
    "of no issuer": lambda: token(iss=None),
    "for another audience": lambda: token(aud="https://other.example"),
    "for no audience": lambda: token(aud=None),
    "of nobody": lambda: token(sub=None),
    "of an empty name": lambda: token(sub=""),
    "with invalid scopes": lambda: token(scope=7),
    "with scopes of numbers": lambda: token(scp=[1, 2]),
    "with scopes as the keys of an object": lambda: token(scope={"admin": True}),
    "by another key": lambda: token(OTHER_RSA),
    "by another algorithm": lambda: token(RSA, "RS512"),
    "by another kind of key": lambda: token(EC, "ES256"),
    "unsigned": unsigned,
    "signed with the public key": signed_with_the_public_key,
    "cut off": lambda: token()[:-4],
    "changed": lambda: token().replace(".", ".e", 1),
    "nonsense": lambda: "nonsense",
    "empty": lambda: "",
    "dots": lambda: "..",
    "nested": lambda: base64.urlsafe_b64encode(b"[" * 20_000).decode() + ".e30.",
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
async def test_what_is_refused(make: Callable[[], str]) -> None:
    assert await checks(key=pem(RSA))(make()) is None
    assert await checks(jwks={"keys": [jwk(RSA), jwk(EC, kid="ec")]})(make()) is None


async def test_a_clock_may_be_off_by_the_leeway() -> None:
    late = token(exp=time.time() - 5)
    assert await checks(key=pem(RSA))(late) is None
    found = await checks(key=pem(RSA), leeway=30)(late)
    assert found.ends_in() > 0


async def test_another_claim_can_name_the_principal() -> None:
    assert (
        await checks(key=pem(RSA), name="client_id")(token(client_id="bot"))
    ).name == "bot"
    assert await checks(key=pem(RSA), name="client_id")(token()) is None


async def test_a_valid_token_is_accepted_over_http() -> None:
    async with guarded(
        make_server(access=checks(key=pem(RSA))), token=token(scope="admin")
    ) as there:
        reply = await there.modern("tools/call", {"name": "purge"})
        assert reply.json["result"]["content"][0]["text"] == "purged by alice"
        refused = await there.by(unsigned()).modern("tools/list")
        assert refused.status == 401
        assert 'error="invalid_token"' in refused.headers["www-authenticate"]


# What it is asked to check by

MISUSE = [
    ({}, "expected either key or jwks, .*, got neither"),
    ({"key": SECRET, "jwks": {}}, "expected either key or jwks, .*, got both"),
    ({"key": pem(RSA), "issuer": ""}, "expected issuer and audience"),
    ({"key": pem(RSA), "audience": ""}, "expected issuer and audience"),
    (
        {"key": pem(RSA), "algorithms": "none"},
        "expected an algorithm that works with this key",
    ),
    ({"key": pem(RSA), "algorithms": ["RS255"]}, "unknown algorithm 'RS255'"),
    (
        {"key": pem(RSA), "algorithms": "HS256"},
        "expected an algorithm that works with this key",
    ),
    (
        {"key": pem(RSA), "algorithms": ["RS256", "HS256"]},
        "HS256 cannot be combined with a public key",
    ),
    (
        {"key": pem(RSA), "algorithms": "ES256"},
        "expected an algorithm that works with this key",
    ),
    (
        {"key": pem(RSA), "algorithms": []},
        "expected an algorithm that works with this key",
    ),
    ({"key": SECRET}, "expected an algorithm that works with this key"),
    ({"key": "short", "algorithms": "HS256"}, "at least 32 bytes"),
    ({"jwks": {"keys": []}, "algorithms": "HS256"}, "HS256 cannot be combined with"),
    ({"jwks": {"keys": []}}, "expected a key set with a public key"),
    ({"jwks": {}}, "expected a key set with a public key"),
    (
        {
            "jwks": {
                "keys": [
                    {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
                    {"kty": "new"},
                    7,
                ]
            }
        },
        "expected a key set with a public key",
    ),
    (
        {"jwks": {"keys": [jwk(RSA)]}, "algorithms": "none"},
        "expected an algorithm that works with this key",
    ),
    ({"jwks": "http://keys.example/jwks"}, "expected an https URL"),
    ({"jwks": "ftp://keys.example/jwks"}, "expected an https URL"),
    ({"jwks": "https:///jwks"}, "expected an https URL"),
]


@pytest.mark.parametrize(("given", "words"), MISUSE)
def test_what_would_be_unsafe_or_no_use_is_refused_at_once(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        jwt(**{"issuer": ISSUER, "audience": AUDIENCE, **given})


def test_a_missing_library_is_reported_with_the_command_to_install_it() -> None:
    program = (
        "import sys; sys.modules['jwt'] = None\n"
        "import mcp_trio\n"
        "try:\n mcp_trio.jwt(key='', issuer='i', audience='a')\n"
        "except ImportError as error:\n print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "JSON Web Tokens need: pip install 'mcp_trio[jwt]'\n"


# Key sets


async def test_the_key_is_found_by_its_name() -> None:
    keys = [
        jwk(RSA, kid="one"),
        jwk(OTHER_RSA, kid="two"),
        jwk(ED, kid="ed", use="sig"),
        jwk(EC, kid="enc", use="enc"),
    ]
    verify = checks(jwks={"keys": keys})
    assert await verify(token(RSA, kid="one"))
    assert await verify(token(OTHER_RSA, kid="two"))
    assert await verify(token(ED, "EdDSA", kid="ed"))
    for refused in (
        token(RSA),
        token(RSA, kid="two"),
        token(EC, "ES256", kid="enc"),
        token(RSA, kid="three"),
    ):
        assert await verify(refused) is None


async def test_the_only_key_needs_no_name() -> None:
    assert await checks(jwks={"keys": [jwk(RSA)]})(token(kid="any"))
    assert await checks(jwks={"keys": [jwk(RSA, kid="one")]})(token())
    assert (
        await checks(jwks={"keys": [jwk(RSA, kid="one")]})(token(kid="other")) is None
    )


async def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [jwk(RSA)]}))
    for path in (tmp_path / "jwks.json", str(tmp_path / "jwks.json")):
        assert (await checks(jwks=path)(token())).name == "alice"
    (tmp_path / "jwks.json").write_text("[")
    with pytest.raises(ValueError, match=r"jwks\.json: Expected `object`"):
        checks(jwks=tmp_path / "jwks.json")


class Issuer:
    """Serves a key set on loopback, or any other response."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.asked = 0
        self.answer = b""
        self.url = ""
        self.offer(*keys)

    def offer(self, *keys: dict[str, Any]) -> None:
        self.say(200, json.dumps({"keys": keys}).encode())

    def say(self, status: int, body: bytes = b"", head: str = "") -> None:
        self.answer = (
            f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode()
            + body
        )

    async def serve(self, stream: trio.SocketStream) -> None:
        async with stream:
            got = b""
            while b"\r\n\r\n" not in got:
                got += await stream.receive_some()
            self.asked += 1
            try:
                await stream.send_all(self.answer)
            except trio.BrokenResourceError:
                pass


@asynccontextmanager
async def issuing(*keys: dict[str, Any]) -> AsyncIterator[Issuer]:
    issuer = Issuer(*keys)
    async with trio.open_nursery() as nursery:
        start = partial(trio.serve_tcp, issuer.serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(start)
        issuer.url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/jwks"
        yield issuer
        nursery.cancel_scope.cancel()


async def test_keys_are_fetched_once_and_again_for_an_unknown_one_at_most_once_a_minute(
    mock_clock: MockClock,
) -> None:
    async with issuing(jwk(RSA, kid="one")) as issuer:
        verify = checks(jwks=issuer.url)
        assert issuer.asked == 0
        for _ in range(3):
            assert await verify(token(kid="one"))
        assert issuer.asked == 1
        issuer.offer(jwk(OTHER_RSA, kid="two"))
        for _ in range(3):
            assert await verify(token(OTHER_RSA, kid="two")) is None
        assert issuer.asked == 1
        mock_clock.jump(jwts.FETCH_INTERVAL)
        assert await verify(token(OTHER_RSA, kid="two"))
        assert await verify(token(kid="one")) is None
        assert issuer.asked == 2


async def test_old_keys_are_downloaded_again_while_tokens_are_verified(
    mock_clock: MockClock,
) -> None:
    async with issuing(jwk(RSA, kid="one")) as issuer:
        verify = checks(jwks=issuer.url)
        assert await verify(token(kid="one"))
        issuer.offer(jwk(OTHER_RSA, kid="two"))
        mock_clock.jump(jwts.KEY_LIFETIME)
        assert await verify(token(kid="one"))
        with trio.fail_after(30):
            while await verify(token(kid="one")) is not None:
                await trio.lowlevel.checkpoint()
        assert issuer.asked == 2


async def test_many_at_once_are_one_asking() -> None:
    async with issuing(jwk(RSA, kid="one")) as issuer:
        verify = checks(jwks=issuer.url)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(verify, token(kid="one"))
        assert issuer.asked == 1


SPOILT: dict[str, Callable[[Issuer], None]] = {
    "an error": lambda issuer: issuer.say(500),
    "no JSON": lambda issuer: issuer.say(200, b"nonsense"),
    "no keys": lambda issuer: issuer.say(200, b"{}"),
    "nested": lambda issuer: issuer.say(200, b'{"keys":' + b"[" * 100_000),
    "too much": lambda issuer: issuer.say(200, b" " * (jwts.MAX_KEYS + 1)),
    "no HTTP": lambda issuer: setattr(issuer, "answer", b"nonsense\r\n"),
    "less than promised": lambda issuer: setattr(
        issuer, "answer", b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"
    ),
    "elsewhere": lambda issuer: issuer.say(
        302, head="Location: http://keys.example/jwks\r\n"
    ),
    "a file": lambda issuer: issuer.say(302, head="Location: file:///etc/hostname\r\n"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
async def test_known_keys_stay_while_the_key_set_cannot_be_downloaded(
    spoil: Callable[[Issuer], None],
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with issuing(jwk(RSA, kid="one")) as issuer:
        known, fresh = checks(jwks=issuer.url), checks(jwks=issuer.url)
        assert await known(token(kid="one"))
        good = issuer.answer
        spoil(issuer)
        mock_clock.jump(jwts.KEY_LIFETIME)
        assert await known(token(kid="one"))
        while not caplog.records:
            await trio.lowlevel.checkpoint()
        assert await known(token(kid="one"))
        (record,) = caplog.records
        assert issuer.url in record.getMessage()
        for _ in range(3):
            with pytest.raises(jwts.Unreachable):
                await fresh(token(kid="one"))
        assert issuer.asked == 3
        issuer.answer = good
        mock_clock.jump(jwts.RETRY_INTERVAL)
        assert await fresh(token(kid="one"))


async def test_the_size_of_a_key_set_is_bounded() -> None:
    async with issuing() as issuer:
        key_set = json.dumps({"keys": [jwk(RSA, kid="one")]}).encode()
        issuer.say(200, key_set.ljust(jwts.MAX_KEYS + 1))
        with pytest.raises(jwts.Unreachable):
            await checks(jwks=issuer.url)(token(kid="one"))
        issuer.say(200, key_set.ljust(jwts.MAX_KEYS))
        assert await checks(jwks=issuer.url)(token(kid="one"))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9"])
def test_keys_may_be_fetched_without_tls_from_this_machine(host: str) -> None:
    checks(jwks=f"http://{host}/jwks")


@pytest.mark.parametrize(
    "host", ["localhost.example", "192.0.2.1", "127.0.0.1.example"]
)
def test_keys_may_not_be_fetched_without_tls_from_another(host: str) -> None:
    with pytest.raises(ValueError, match="expected an https URL"):
        checks(jwks=f"http://{host}/jwks")


LEADS = [
    ("https://login.example", "http://127.0.0.1/jwks"),
    ("http://127.0.0.1/jwks", "https://login.example"),
]
LEADS += [("https://login.example", "ftp://login.example/jwks")]


@pytest.mark.parametrize(("here", "there"), LEADS)
def test_no_redirect_changes_the_scheme(here: str, there: str) -> None:
    asked = urllib.request.Request(here)
    with pytest.raises(HTTPError) as refused:
        jwts._SafeRedirects().redirect_request(
            asked, io.BytesIO(), 302, "", Message(), there
        )
    refused.value.close()


async def test_an_issuer_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jwts, "FETCH_TIMEOUT", 0.1)
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    async with listener:
        verify = checks(jwks=f"http://127.0.0.1:{listener.socket.getsockname()[1]}/")
        with trio.fail_after(30), pytest.raises(jwts.Unreachable):
            await verify(token(kid="one"))


async def test_an_issuer_that_never_answers_holds_few_threads(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    # The threads wait in real time, longer than this test takes.
    monkeypatch.setattr(jwts, "FETCH_TIMEOUT", 60.0)
    with ExitStack() as connections, socket.create_server(("127.0.0.1", 0)) as listener:
        verify = checks(jwks=f"http://127.0.0.1:{listener.getsockname()[1]}/keys")
        for _ in range(20):
            with pytest.raises(jwts.Unreachable):
                await verify(token(kid="one"))
            await trio.sleep(jwts.RETRY_INTERVAL)
        listener.settimeout(30)
        for _ in range(4):
            connection, _ = listener.accept()
            connections.enter_context(connection)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_without_keys_every_token_is_refused_with_503() -> None:
    async with issuing() as issuer:
        issuer.say(500)
        async with guarded(
            make_server(access=checks(jwks=issuer.url)), token=token()
        ) as there:
            assert (await there.modern("tools/list")).status == 503
