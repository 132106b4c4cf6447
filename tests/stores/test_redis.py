"""The store in Redis, with a real one."""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from mcp_trio.server.limits import Rate
from mcp_trio.stores.base import Store, StoreUnavailable
from tests.support.deployment import make_certificate
from tests.support.redis_server import (
    ENCODED_PASSWORD,
    PASSWORD,
    RedisServer,
    installed_programs,
    running_redis,
)
from tests.support.store_contract import *  # noqa: F403 (the tests of every store)
from tests.support.store_contract import Pace, acquire, acquire_when_free

coredis = pytest.importorskip("coredis")

from mcp_trio.stores.redis import RedisStore  # noqa: E402 (needs coredis)
from mcp_trio.stores.redis_connection import parse_redis_url  # noqa: E402

# coredis does not close the memory streams of a connection that it could not make.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Let those streams be collected in the test that they belong to."""
    yield
    gc.collect()


@pytest.fixture(scope="module", params=installed_programs())
def redis(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    with running_redis(tmp_path_factory.mktemp("redis"), request.param) as server:
        yield server


@pytest.fixture
def url(redis: RedisServer) -> str:
    """Return the URL of a store that is empty."""
    return redis.url(prefix=secrets.token_hex(4))


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = RedisStore(url)
    async with store.running():
        yield store


@pytest.fixture
def clock() -> None:
    """Use real time."""


@pytest.fixture
def pace() -> Pace:
    return lambda seconds: seconds * 0.05


# Addresses


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://a", "expected redis://"),
        ("redis://", "expected redis://"),
        ("redis://a:99999", "the host or the port is invalid"),
        ("redis://[::1", "the host or the port is invalid"),
        ("redis:///0", "the host is missing"),
        ("redis://a/x", "not a number"),
        ("redis://a?db=1", "the only parameter"),
        ("redis://a?prefix=", "expected one prefix"),
        ("redis://a?prefix=b&prefix=c", "expected one prefix"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_redis_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:secret@host/x",
        "redis://me:secret/part@host",
        "redis://:secret/part@host",
        "redis://me:1?secret@host",
    ],
)
def test_no_part_of_a_password_is_shown_if_the_url_is_invalid(url: str) -> None:
    with pytest.raises(ValueError, match="percent-encode") as failure:
        parse_redis_url(url)
    assert "secret" not in str(failure.value)
    assert "part" not in str(failure.value)


def test_the_password_is_never_shown() -> None:
    store = RedisStore("rediss://me:secret@host/3?prefix=p")
    assert repr(store) == "<RedisStore rediss://host:6379/3>"


# Several processes


async def test_two_stores_with_one_prefix_are_one(url: str, store: Store) -> None:
    other = RedisStore(url)
    async with other.running(), other.subscribe("c") as subscription:
        await store.write("a", b"1")
        await store.publish("c", b"changed")
        assert await subscription.receive() == [b"changed"]
        assert await other.read("a") == await store.read("a")


async def test_two_prefixes_share_nothing(redis: RedisServer, store: Store) -> None:
    other = RedisStore(redis.url(prefix="another"))
    async with other.running():
        await store.write("a", b"1")
        assert await other.read("a") is None


async def test_a_process_takes_over_only_after_it_was_connected_for_a_whole_lease(
    url: str, store: Store, pace: Pace
) -> None:
    held = await acquire(store, "a", pace(1))
    await trio.sleep(pace(2))
    new = RedisStore(url)
    async with new.running():
        began = trio.current_time()
        assert await new.acquire("a", pace(20)) is None
        await store.renew(held, pace(1))
        await acquire_when_free(new, "a", pace(20), pace)
        assert trio.current_time() - began > pace(15)


async def test_rates_go_on_if_the_clock_of_redis_was_set_back(
    redis: RedisServer, url: str, store: Store
) -> None:
    rate = Rate(60, "m", 2)
    assert await store.take("alice", rate) == 0
    # It was counted an hour in the future.
    key = f"{parse_redis_url(url).prefix}:bucket:60/m:2:alice"
    redis.command("HSET", key, "s", str(time.time() + 3600))
    assert await store.take("alice", rate) == 0
    assert 0 < await store.take("alice", rate) <= 1


async def test_keys_that_redis_has_evicted_do_not_stop_the_others(
    redis: RedisServer, url: str, store: Store
) -> None:
    prefix = parse_redis_url(url).prefix
    await store.append("l", b"a", b"b", entries=9, size=99, ttl=9)
    redis.command("DEL", f"{prefix}:log-counts:l")
    assert await store.append("l", b"c", entries=9, size=99, ttl=9) == 3
    await store.push("q", b"1")
    redis.command("DEL", f"{prefix}:queue:q:data")
    job = await store.pull("q", 9)
    assert job.data == b""
    await store.done(job)
    await store.push("q", b"2")
    assert (await store.pull("q", 9)).data == b"2"


# While Redis is unavailable


@pytest.mark.slow
async def test_a_store_outlives_its_redis(tmp_path: Path, pace: Pace) -> None:
    with running_redis(tmp_path) as redis:
        store = RedisStore(redis.url())
        async with store.running(), store.subscribe("c") as subscription:
            version = await store.write("a", b"1")
            lease = await acquire(store, "lease", 0.3)
            redis.kill()
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await store.read("a")
            assert not store.is_available
            await trio.sleep(0.5)
            redis.start()
            with trio.fail_after(20):
                while not store.is_available:
                    await trio.sleep(0.02)
            assert await store.read("a") == (b"1", version)
            # The lease has expired, but its owner could not renew it.
            assert await store.acquire("lease", 0.3) is None
            await store.renew(lease, 0.3)
            with trio.fail_after(20):
                assert await subscription.receive() == []
                await store.publish("c", b"again")
                assert await subscription.receive() == [b"again"]
            statistics = store.statistics
            assert statistics.reconnections == 1
            assert statistics.errors >= 1
            assert statistics.operations > 0
            assert statistics.seconds > 0


@pytest.mark.slow
async def test_a_store_starts_without_its_redis(tmp_path: Path) -> None:
    with running_redis(tmp_path) as redis:
        redis.kill()
        store = RedisStore(redis.url())
        async with store.running(), store.subscribe("c") as subscription:
            with pytest.raises(StoreUnavailable):
                await store.write("a", b"1")
            redis.start()
            with trio.fail_after(20):
                assert await subscription.receive() == []  # perhaps missed before
                while not store.is_available:
                    await trio.sleep(0.02)
            await store.write("a", b"1")


async def test_a_wrong_password_is_like_a_redis_that_is_away(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(f"redis://:wrong@127.0.0.1:{redis.port}/0")
    async with store.running():
        with pytest.raises(StoreUnavailable):
            await store.read("a")
    place = f"redis://127.0.0.1:{redis.port}/0"
    assert f"cannot use {place}: invalid username-password pair" in caplog.text
    assert PASSWORD not in caplog.text


async def test_a_redis_that_refuses_writes_stays_unavailable_until_it_accepts_them(
    tmp_path: Path, pace: Pace, caplog: pytest.LogCaptureFixture
) -> None:
    with running_redis(tmp_path) as redis:
        store = RedisStore(redis.url())
        async with store.running():
            lease = await acquire(store, "lease", pace(1))
            redis.command("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreUnavailable) as refused:
                await store.write("a", b"1")
            assert "OOM" in refused.value.reason
            # It responds to pings, but that is not enough.
            await trio.sleep(0.5)
            assert not store.is_available
            redis.command("CONFIG", "SET", "maxmemory", "0")
            await until_available(store)
            # The lease has expired, but its owner could not renew it.
            assert await store.acquire("lease", 60) is None
            await store.renew(lease, pace(1))
            await store.write("a", b"1")
    assert caplog.text.count("unavailable") == 1
    assert caplog.text.count("the store is available again") == 1


async def test_a_redis_that_drops_data_when_it_is_full_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_redis(tmp_path) as redis:
        redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        async with RedisStore(redis.url()).running():
            assert caplog.text == ""  # as it has no limit, it is never full
        redis.command("CONFIG", "SET", "maxmemory", "100mb")
        async with RedisStore(redis.url()).running():
            assert "its maxmemory-policy is allkeys-lru" in caplog.text


async def until_available(store: RedisStore) -> None:
    with trio.fail_after(20):
        while not store.is_available:
            await trio.sleep(0.02)


async def test_a_failover_to_another_redis_at_the_same_address_is_noticed(
    tmp_path: Path,
) -> None:
    old_folder, new_folder = tmp_path / "old", tmp_path / "new"
    old_folder.mkdir()
    new_folder.mkdir()
    with running_redis(old_folder) as old, running_redis(new_folder) as new:
        address = Address(old.port)
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(
                partial(trio.serve_tcp, address.serve, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            store = RedisStore(f"redis://:{ENCODED_PASSWORD}@127.0.0.1:{port}/0")
            async with store.running(), store.subscribe("c") as subscription:
                await store.write("a", b"1")
                # Its connections stay open.
                old.command("REPLICAOF", "127.0.0.1", str(new.port))
                address.port = new.port
                with pytest.raises(StoreUnavailable, match="cannot be reached"):
                    await store.write("a", b"2")
                await until_available(store)
                await store.write("a", b"3")
                with trio.fail_after(20):
                    assert await subscription.receive() == []
                    await store.publish("c", b"again")
                    assert await subscription.receive() == [b"again"]
            nursery.cancel_scope.cancel()


class Address:
    """An address that forwards new connections to a port, which can be changed."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def serve(self, client: trio.SocketStream) -> None:
        with suppress(OSError, trio.BrokenResourceError):
            server = await trio.open_tcp_stream("127.0.0.1", self.port)
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._copy, client, server, nursery.cancel_scope)
                nursery.start_soon(self._copy, server, client, nursery.cancel_scope)

    async def _copy(
        self,
        source: trio.SocketStream,
        target: trio.SocketStream,
        connection: trio.CancelScope,
    ) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await target.send_all(data)
        connection.cancel()


# TLS and users


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    make_certificate(*files)
    return files


async def test_tls_is_used_with_a_certificate_that_the_system_trusts(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with running_redis(tmp_path, tls=certificate) as redis:
        store = RedisStore(redis.url())
        async with store.running(), store.subscribe("c") as subscription:
            await store.write("a", b"1")
            await store.publish("c", b"changed")
            assert await subscription.receive() == [b"changed"]
            found = await store.read("a")
        assert found is not None
        assert found.value == b"1"


async def test_a_certificate_that_nobody_trusts_is_not_used(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    with running_redis(tmp_path, tls=certificate) as redis:
        store = RedisStore(redis.url())
        async with store.running():
            assert not store.is_available
            with pytest.raises(StoreUnavailable):
                await store.read("a")


async def test_a_user_has_a_name_and_a_password(redis: RedisServer) -> None:
    rules = ("on", ">p@ss", "~own:*", "&own:*", "+@all")
    assert redis.command("ACL", "SETUSER", "alice", *rules) == b"+OK\r\n"
    place = f"127.0.0.1:{redis.port}/0?prefix=own"
    store = RedisStore(f"redis://alice:p%40ss@{place}")
    async with store.running():
        await store.write("a", b"1")
        assert await store.read("a") is not None
    store = RedisStore(f"redis://alice:wrong@{place}")
    async with store.running():
        assert not store.is_available


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        (("~other:*", "&own:*", "+@all"), "no permissions to access one of the keys"),
        (("~own:*", "resetchannels", "+@all"), "channel"),
        (("~own:*", "&own:*", "+@all", "-@scripting"), "no permissions to run"),
    ],
)
async def test_a_user_who_may_not_do_everything_is_logged(
    redis: RedisServer,
    rules: tuple[str, ...],
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    redis.command("ACL", "SETUSER", "bob", "reset", "on", ">p", *rules)
    store = RedisStore(f"redis://bob:p@127.0.0.1:{redis.port}/0?prefix=own")
    async with store.running():
        assert not store.is_available
        with pytest.raises(StoreUnavailable):
            await store.write("a", b"1")
    assert problem in caplog.text
