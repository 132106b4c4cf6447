"""How a server is served over HTTP: the settings that every HTTP host shares."""

from collections.abc import Iterable

from msgspec import Struct


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


DEFAULT_SETTINGS = HttpSettings()
