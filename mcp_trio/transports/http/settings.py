"""The settings that all HTTP hosts share."""

import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import force_setattr

from ...auth.resource_metadata import METADATA_PATH, is_resource_url
from .trusted_proxies import check_cidr

# Paths that are served in addition to the endpoint.
RESERVED_PATHS = ("/healthz", "/metrics", "/sse", "/messages")

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"
# A name, or an IPv6 address with brackets or without; and a port.
_HOST = (
    r"\*|(\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f]*:[0-9A-Fa-f:]+|[^\s:/?#@\[\]\\]+)(:\d{1,5})?"
)


class HttpSettings(Struct, frozen=True, kw_only=True):
    """The endpoint's path, the requests that it accepts, and its TLS certificate."""

    # The path of the MCP endpoint, as clients see it.
    path: str = "/mcp"
    # Host headers that are accepted in addition to those of this machine; "*" is any.
    allowed_hosts: Iterable[str] = ()
    # Origins whose pages may call the server; "*" is any.
    allowed_origins: Iterable[str] = ()
    # Whether pages of every origin may call the server, which is meant for development.
    cors: bool = False
    # Whether to serve without sessions, so that any process can serve any request.
    stateless: bool = False
    # The files of a certificate and of its key.
    tls: tuple[str, str] | None = None
    # The endpoint's URL for clients, if a proxy makes it differ from the one seen here.
    public_url: str | None = None
    # The networks of proxies whose X-Forwarded-For header gives the client's address.
    trusted_proxies: Iterable[str] = ()

    def __post_init__(self) -> None:
        """Check the settings. Raises ValueError or TypeError."""
        _check("path", check_path, self.path)
        force_setattr(self, "allowed_hosts", _as_list(self, "allowed_hosts"))
        force_setattr(self, "allowed_origins", _as_list(self, "allowed_origins"))
        for host in self.allowed_hosts:
            _check("allowed_hosts", check_host, host)
        for origin in self.allowed_origins:
            _check("allowed_origins", check_origin, origin)
        force_setattr(self, "trusted_proxies", _as_list(self, "trusted_proxies"))
        for cidr in self.trusted_proxies:
            _check("trusted_proxies", check_cidr, cidr)
        if self.public_url is not None:
            _check("public_url", check_public_url, self.public_url)
        if self.tls is not None and not _is_pair(self.tls):
            raise TypeError(
                "tls: expected the file of a certificate and the file of its key, got "
                f"{self.tls!r}"
            )

    @property
    def hosts(self) -> list[str]:
        """The Host headers that are accepted in addition to those of this machine."""
        hosts = [*self.allowed_hosts]
        if self.public_url is not None:
            parts = urlsplit(self.public_url)
            # Proxies pass on the host with or without its port.
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


def check_path(text: str) -> None:
    """Check the path of the endpoint. Raises ValueError."""
    if not re.fullmatch(r"[!-~]*", text) or re.search(r"[?#\\]|://", text):
        raise ValueError(f"expected a path such as /mcp, got {text!r}")
    path = "/" + text.strip("/")
    if path in RESERVED_PATHS or path.startswith(METADATA_PATH):
        raise ValueError(
            f"expected a path that the server does not use itself, got {text!r}; "
            "choose another one, such as /mcp"
        )


def check_host(text: str) -> None:
    """Check a Host header to accept. Raises ValueError."""
    if not re.fullmatch(_HOST, text):
        raise ValueError(
            "expected a host such as mcp.example.org, with or without a port, or * for "
            f"any, got {text!r}"
        )


def check_origin(text: str) -> None:
    """Check an origin to allow. Raises ValueError."""
    scheme, mark, host = text.rstrip("/").partition("://")
    is_origin = re.fullmatch(_SCHEME, scheme) and mark and re.fullmatch(_HOST, host)
    if text not in ("*", "null") and not is_origin:
        raise ValueError(
            "expected an origin such as https://app.example.org, or * for any, got "
            f"{text!r}"
        )


def check_public_url(text: str) -> None:
    """Check the endpoint's URL for clients. Raises ValueError."""
    if not is_resource_url(text) or not _has_usable_port(text):
        raise ValueError(
            "expected the endpoint's URL as clients know it, such as "
            f"https://mcp.example.org/mcp, got {text!r}"
        )


def _check(option: str, check: Callable[[str], None], value: object) -> None:
    """Check a setting, and name it if it is wrong. Raises ValueError or TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{option}: expected a string, got {value!r}")
    try:
        check(value)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


def _as_list(settings: HttpSettings, option: str) -> list[str]:
    """Return a setting with several values. Raises TypeError."""
    values = getattr(settings, option)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{option}: expected a list of strings, got {values!r}")
    return list(values)


def _is_pair(files: object) -> bool:
    return isinstance(files, tuple | list) and len(files) == 2


def _has_usable_port(url: str) -> bool:
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


DEFAULT_SETTINGS = HttpSettings()
