"""A verifier is called rarely, and an issuer that hangs delays nobody else."""

import json
import time
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from mcp_trio import Access, Principal
from mcp_trio.auth import jwt as jwts
from mcp_trio.auth.access import (
    MOST_REMEMBERED,
    MOST_VERIFYING,
    MOST_VERIFYING_OF_ONE,
    REMEMBERED,
    Denied,
)
from tests.support.reachable import reachable


class Verifier:
    """Accepts every token except "bad", once `go` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = 0
        self.most = 0
        self.go = trio.Event()

    async def __call__(self, token: str) -> Principal | None:
        self.asked.append(token)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return None if token == "bad" else Principal(token)


class _ClockFrom(trio.abc.Clock):
    """A clock that stands still at some time."""

    def __init__(self, now: float) -> None:
        self._now = now

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0 if deadline <= self._now else 999999


async def test_a_valid_token_is_remembered_for_a_short_time(
    mock_clock: trio.testing.MockClock,
) -> None:
    verifier = Verifier()
    verifier.go.set()
    access = Access(verifier)
    for _ in range(3):
        assert await access.find("good") == Principal("good")
    assert verifier.asked == ["good"]
    mock_clock.jump(REMEMBERED)
    await access.find("good")
    assert verifier.asked == ["good", "good"]


def test_nothing_is_remembered_in_another_loop() -> None:
    verifier = Verifier()
    access = Access(verifier)

    async def find() -> None:
        verifier.go.set()
        await access.find("good")

    for start in (1e6, 1.0):
        verifier.go = trio.Event()
        trio.run(find, clock=_ClockFrom(start))
    assert verifier.asked == ["good", "good"]


async def test_a_token_that_is_not_valid_is_asked_about_each_time() -> None:
    verifier = Verifier()
    verifier.go.set()
    access = Access(verifier)
    for _ in range(3):
        with pytest.raises(Denied):
            await access.find("bad")
    assert verifier.asked == ["bad"] * 3


async def test_a_remembered_principal_that_has_expired_is_asked_about_again() -> None:
    asked: list[float] = []

    async def verify(token: str) -> Principal:
        asked.append(time.time())
        return Principal("a", expires=asked[0])

    access = Access(verify)
    for _ in range(2):
        with pytest.raises(Denied):
            await access.find("token")
    assert len(asked) == 2


async def test_requests_with_the_same_token_share_the_failure_of_the_verifier(
    autojump_clock: trio.testing.MockClock,
) -> None:
    asked: list[str] = []
    statuses: list[int] = []

    async def verify(token: str) -> str:
        asked.append(token)
        await trio.sleep(1)
        raise ConnectionError

    async def find() -> None:
        with pytest.raises(Denied) as denied:
            await access.find("token")
        statuses.append(denied.value.status)

    access = Access(verify)
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(find)
    assert statuses == [503] * 3
    assert asked == ["token"]


async def test_a_remembered_answer_sets_only_variables_that_its_verifier_has_set() -> (
    None
):
    role = ContextVar[str]("role")
    language = ContextVar[str]("language")

    async def verify(token: str) -> str:
        role.set("admin")
        return "ada"

    access = Access(verify)
    role.set("nobody")
    language.set("en")
    await access.find("token")
    role.set("nobody")
    language.set("de")
    await access.find("token")
    assert role.get() == "admin"
    assert language.get() == "de"


async def test_an_address_has_its_share_while_some_of_its_tokens_are_done() -> None:
    done = trio.Event()
    go = trio.Event()
    running = 0

    async def verify(token: str) -> str:
        nonlocal running
        running += 1
        await (done if token == "0" else go).wait()
        running -= 1
        return token

    access = Access(verify)
    async with trio.open_nursery() as nursery:
        for number in range(MOST_VERIFYING_OF_ONE):
            nursery.start_soon(access.find, str(number), "198.51.100.1")
        await trio.testing.wait_all_tasks_blocked()
        done.set()
        await trio.testing.wait_all_tasks_blocked()
        for number in range(10):
            nursery.start_soon(access.find, f"later {number}", "198.51.100.1")
        await trio.testing.wait_all_tasks_blocked()
        assert running == MOST_VERIFYING_OF_ONE
        go.set()


async def test_a_verifier_that_returns_something_else_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def verify(token: str) -> Any:
        return 5

    with pytest.raises(Denied) as denied:
        await Access(verify).find("token")
    assert denied.value.status == 503
    expected = "expected it to return a Principal, a name or None, got int"
    assert expected in caplog.text


async def test_with_remember_0_every_request_asks() -> None:
    verifier = Verifier()
    verifier.go.set()
    access = Access(verifier, remember=0)
    for _ in range(3):
        await access.find("good")
    assert len(verifier.asked) == 3


@pytest.mark.parametrize("given", [-1, True, float("inf"), "5"])
def test_an_invalid_time_to_remember_is_refused(given: Any) -> None:
    expected = "expected a number of seconds, 0 or more"
    with pytest.raises(ValueError, match=expected):
        Access(Verifier(), remember=given)


async def test_a_remembered_answer_sets_the_context_variables_of_its_verifier() -> None:
    role = ContextVar("role", default="unset")
    go = trio.Event()

    async def verify(token: str) -> str:
        await go.wait()
        role.set(token)
        return token

    access = Access(verify)
    seen: list[str] = []

    async def find() -> None:
        await access.find("admin")
        seen.append(role.get())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(find)
        nursery.start_soon(find)
        await trio.testing.wait_all_tasks_blocked()
        go.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(find)
    assert seen == ["admin"] * 3
    assert role.get() == "unset"


@pytest.mark.parametrize("name", ["good", "bad"])
async def test_requests_with_the_same_token_wait_for_one_answer(name: str) -> None:
    verifier = Verifier()
    access = Access(verifier)
    found: list[str] = []

    async def find() -> None:
        try:
            found.append((await access.find(name)).name)
        except Denied as denied:
            found.append(str(denied.status))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(find)
        await trio.testing.wait_all_tasks_blocked()
        verifier.go.set()
    assert verifier.asked == [name]
    assert found == ["good" if name == "good" else "401"] * 20


async def test_when_the_first_of_them_is_cancelled_another_one_asks() -> None:
    verifier = Verifier()
    access = Access(verifier)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as first:
                first.start_soon(access.find, "good")
                await trio.testing.wait_all_tasks_blocked()
                nursery.start_soon(access.find, "good")
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert verifier.asked == ["good", "good"]
        verifier.go.set()


async def test_only_so_many_tokens_are_verified_at_once_and_no_address_takes_all() -> (
    None
):
    verifier = Verifier()
    access = Access(verifier)
    async with trio.open_nursery() as nursery:
        for number in range(2 * MOST_VERIFYING):
            nursery.start_soon(access.find, f"one {number}", "192.0.2.1")
        await trio.testing.wait_all_tasks_blocked()
        assert verifier.running == MOST_VERIFYING_OF_ONE
        for number in range(MOST_VERIFYING):
            nursery.start_soon(access.find, f"two {number}", "192.0.2.2")
        await trio.testing.wait_all_tasks_blocked()
        assert verifier.running == MOST_VERIFYING
        assert sum(token.startswith("two") for token in verifier.asked) == 25
        verifier.go.set()
    assert verifier.most == MOST_VERIFYING
    assert len(verifier.asked) == 3 * MOST_VERIFYING
    assert len(reachable(access, trio.CapacityLimiter)) == 1
    assert reachable(access, trio.Event) == [verifier.go]


async def test_a_request_that_waits_too_long_for_its_turn_gets_503(
    autojump_clock: trio.testing.MockClock,
) -> None:
    verifier = Verifier()
    access = Access(verifier)
    statuses: list[int] = []

    async def find(number: int) -> None:
        with pytest.raises(Denied) as denied:
            await access.find(f"token {number}", "192.0.2.1")
        statuses.append(denied.value.status)

    async with trio.open_nursery() as nursery:
        for number in range(MOST_VERIFYING_OF_ONE + 1):
            nursery.start_soon(find, number)
    assert statuses == [503] * (MOST_VERIFYING_OF_ONE + 1)


async def test_only_a_limited_number_of_tokens_is_remembered() -> None:
    verifier = Verifier()
    verifier.go.set()
    access = Access(verifier)
    for number in range(MOST_REMEMBERED + 5):
        await access.find(str(number))
    assert len(reachable(access, Principal)) == MOST_REMEMBERED


async def test_another_verifier_is_asked_about_every_token() -> None:
    access = Access(Verifier())
    access.verify = first = Verifier()
    first.go.set()
    await access.find("good")
    access.verify = second = Verifier()
    second.go.set()
    await access.find("good")
    assert second.asked == ["good"]


class Issuer:
    """Serves one key on loopback once, and then hangs."""

    def __init__(self) -> None:
        self.hangs = trio.Event()
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        self._key = {**ECAlgorithm.to_jwk(key, as_dict=True), "kid": "one"}
        self._asked = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self._asked += 1
        await stream.receive_some()
        if self._asked > 1:
            self.hangs.set()
            await trio.sleep_forever()
        body = json.dumps({"keys": [self._key]}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
        await stream.send_all(head + body)


async def test_a_known_key_serves_while_the_issuer_hangs(
    mock_clock: trio.testing.MockClock,
) -> None:
    issuer = Issuer()
    async with trio.open_nursery() as nursery:
        start = partial(trio.serve_tcp, issuer.serve, 0, host="127.0.0.1")
        (listener,) = await nursery.start(start)
        port = listener.socket.getsockname()[1]
        keys = jwts.KeySet(f"http://127.0.0.1:{port}/jwks")
        key = await keys.find("one")
        assert key is not None
        mock_clock.jump(jwts.KEY_LIFETIME)
        # A request that had to wait here would be cancelled.
        with trio.move_on_after(0) as scope:
            assert await keys.find("one") is key
        await issuer.hangs.wait()
        with trio.move_on_after(0) as other_scope:
            assert await keys.find("one") is key
        assert not scope.cancelled_caught
        assert not other_scope.cancelled_caught
        # The download ends with its own timeout, and affects nobody.
        mock_clock.jump(jwts.FETCH_TIMEOUT)
        await trio.testing.wait_all_tasks_blocked()
        assert await keys.find("one") is key
        nursery.cancel_scope.cancel()
