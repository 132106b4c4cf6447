"""The addresses of clients behind trusted proxies, from X-Forwarded-For.

Behind a proxy, every connection has the proxy's address. The proxy appends the address
that it sees to the header `X-Forwarded-For`, which the client may have set itself. So
only the addresses that trusted proxies have added can be trusted: the client's address
is the rightmost one that is not a trusted proxy.
"""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from ...server.limiter import network
from .messages import Headers

FORWARDED = b"x-forwarded-for"

Address = IPv4Address | IPv6Address


class TrustedProxies:
    """The networks whose proxies are trusted, given as CIDR. Raises ValueError."""

    def __init__(self, cidrs: Iterable[str]) -> None:
        self._networks = [_read_network(cidr) for cidr in cidrs]

    def trusts(self, address: str) -> bool:
        """Return whether a trusted proxy has this address."""
        known = _read_address(address)
        return known is not None and self._includes(known)

    def client_of(self, headers: Headers) -> str | None:
        """Return the network of the client whose request a trusted proxy forwards.

        Returns None if the header is missing or not valid.
        """
        given = headers.get(FORWARDED, b"").decode("latin-1")
        found = None
        for text in reversed(given.split(",")):
            address = _read_address(text.strip())
            if address is None:
                break
            found = network(str(address))
            if not self._includes(address):
                break
        return found

    def _includes(self, address: Address) -> bool:
        return any(address in trusted for trusted in self._networks)


def check_cidr(text: str) -> None:
    """Check the network of trusted proxies. Raises ValueError."""
    _read_network(text)


def _read_network(cidr: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(cidr)
    except ValueError:
        raise ValueError(
            "expected an address or a network such as 127.0.0.1 or 10.0.0.0/8, "
            f"got {cidr!r}"
        ) from None


def _read_address(text: str) -> Address | None:
    """Return an address, which may have a port; None if it is not one."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
