"""How a server is served over HTTP: the settings that every HTTP host shares."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from ...auth.resource_metadata import is_resource_url
from .trusted_proxies import check_cidr


class HttpSettings(Struct, frozen=True, kw_only=True):
    """The endpoint's path, who may reach it, and its TLS certificate."""

    # The path of the MCP endpoint, as clients see it.
    path: str = "/mcp"
    # Host headers that are accepted besides those of this machine; "*" is any.
    allowed_hosts: Iterable[str] = ()
    # Origins whose pages may call the server; "*" is any.
    allowed_origins: Iterable[str] = ()
    # Whether pages of every origin may call the server: for development.
    cors: bool = False
    # Whether there are no sessions, so that any process can serve any request.
    stateless: bool = False
    # The files of a certificate and of its key.
    tls: tuple[str, str] | None = None
    # The endpoint's URL for clients, if a proxy makes it differ from the one seen here.
    public_url: str | None = None
    # The networks of proxies that say by X-Forwarded-For who their clients are.
    trusted_proxies: Iterable[str] = ()

    def __post_init__(self) -> None:
        """Check the public URL and the networks. Raises ValueError."""
        for cidr in self.trusted_proxies:
            try:
                check_cidr(cidr)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}") from None
        if self.public_url is not None:
            try:
                check_public_url(self.public_url)
            except ValueError as error:
                raise ValueError(f"public_url: {error}") from None

    @property
    def hosts(self) -> list[str]:
        """The Host headers that are accepted in addition to those of this machine."""
        hosts = [*self.allowed_hosts]
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            # Proxies pass the host on with its port or without.
            hosts += [parts.netloc, parts.netloc.removesuffix(f":{parts.port}")]
        return hosts

    @property
    def origins(self) -> list[str]:
        """The origins that are allowed in addition to those of this machine."""
        origins = [*self.allowed_origins]
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            origins.append(f"{parts.scheme}://{parts.netloc}")
        return origins


def check_public_url(text: str) -> None:
    """Check the URL under which clients know the endpoint. Raises ValueError."""
    if not is_resource_url(text) or not _has_usable_port(text):
        raise ValueError(
            "expected the endpoint's URL as clients know it, such as "
            f"https://mcp.example.org/mcp, got {text!r}"
        )


def _has_usable_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


DEFAULT_SETTINGS = HttpSettings()
