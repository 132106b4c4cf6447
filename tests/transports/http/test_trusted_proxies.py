"""Behind a trusted proxy, a client's address is the one that the proxy has added."""

from typing import Any

import pytest

from mcp_trio import Limits, Server
from mcp_trio.serve import Server as Serving
from mcp_trio.transports.http.settings import HttpSettings
from mcp_trio.transports.http.trusted_proxies import TrustedProxies
from tests.support.http_wire import MODERN, Site, message, modern_headers, site_on

TRUSTED = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8:1::/48"]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("198.51.100.9, 192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 10.1.2.3", "192.0.2.1"),
        ("6.6.6.6, 192.0.2.1, 10.1.2.3, 10.3.2.1", "192.0.2.1"),
        ("192.0.2.1:5000", "192.0.2.1"),
        ("[2001:db8:2::7]:443", "2001:db8:2::/64"),
        ("2001:db8:2::7", "2001:db8:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("10.0.0.1, 10.0.0.2", "10.0.0.1"),
        ("192.0.2.1, nonsense", None),
        ("nonsense, 10.0.0.2", "10.0.0.2"),
        ("", None),
    ],
)
def test_the_rightmost_address_that_is_not_trusted_is_the_clients(
    forwarded: str, client: str | None
) -> None:
    headers = {b"x-forwarded-for": forwarded.encode()}
    assert TrustedProxies(TRUSTED).client_of(headers) == client


def test_addresses_are_trusted_by_their_network() -> None:
    proxies = TrustedProxies(TRUSTED)
    assert proxies.trusts("127.0.0.1")
    assert proxies.trusts("::ffff:10.0.0.1")
    assert proxies.trusts("2001:db8:1::5")
    assert not proxies.trusts("192.0.2.1")
    assert not proxies.trusts("2001:db8:2::5")
    assert not proxies.trusts("unknown")


def test_a_network_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^trusted_proxies: expected an address or"):
        HttpSettings(trusted_proxies=["10.0.0.1/8"])
    with pytest.raises(ValueError, match="got 'proxy'"):
        Serving("x").asgi(trusted_proxies=["proxy"])


def make_server() -> Server[Any]:
    server = Server("behind", limits=Limits(rate="1/h"))

    @server.tool
    async def add(a: int, b: int) -> str:
        return str(a + b)

    return server


async def call(there: Site, forwarded: str) -> str:
    asked = message(
        "tools/call",
        {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": MODERN},
    )
    headers = {**modern_headers(asked), "X-Forwarded-For": forwarded}
    return (await there.post(asked, headers)).body.decode()


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_clients_behind_a_trusted_proxy_are_told_apart(host: str) -> None:
    proxies = ["127.0.0.1"]
    async with site_on(host, make_server(), trusted_proxies=proxies) as there:
        assert '"text":"3"' in await call(there, "192.0.2.1")
        assert '"text":"3"' in await call(there, "192.0.2.2")
        assert "Too many calls" in await call(there, "192.0.2.2")
        # What the client itself has written does not count.
        assert "Too many calls" in await call(there, "6.6.6.6, 192.0.2.1")


@pytest.mark.parametrize("host", ["native", "hypercorn"])
async def test_without_a_trusted_proxy_the_header_is_ignored(host: str) -> None:
    proxies = ["192.0.2.0/24"]
    async with site_on(host, make_server(), trusted_proxies=proxies) as there:
        assert '"text":"3"' in await call(there, "192.0.2.1")
        assert "Too many calls" in await call(there, "192.0.2.2")
