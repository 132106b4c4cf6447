"""Bearer tokens as HTTP has them: where they come, what refuses them (RFC 6750), and the metadata (RFC 9728)."""

import logging
import re
from urllib.parse import urlsplit

from ...auth.access import Denied
from ...protocol.jsonrpc import encode
from ...server.app import Server
from .messages import JSON, Head, Reply, refusal
from .rules import HEALTH, METADATA, METADATA_PATH

log = logging.getLogger("mcp_trio")

_BEARER = re.compile(rb"(?i)bearer +([A-Za-z0-9._~+/-]+=*) *")
# Where nobody is asked who comes.
OPEN = (HEALTH, METADATA)


class Bearers:
    """A server's access control on HTTP; `path` is where its endpoint is."""

    def __init__(self, server: Server, path: str) -> None:
        self._server = server
        self._path = "/" + path.strip("/")
        if server.access is None and server.tools.scopes:
            log.warning(
                "tools with scopes are hidden from all who come by HTTP: without access nobody has a scope"
            )

    def check(self, head: Head) -> Reply | None:
        """Take the token out of a head: the refusal, where there is none."""
        if head.route in OPEN:
            return None
        given = head.headers.get(b"authorization", b"")
        if found := _BEARER.fullmatch(given):
            head.token = found[1].decode()
            return None
        if given[:6].lower() == b"bearer":
            return self._refused(
                head,
                Denied(401, "invalid_token", "Authorization: the token is malformed"),
            )
        return self._refused(
            head, Denied(401, "", "Authorization: Bearer TOKEN is wanted")
        )

    async def identify(self, head: Head) -> Reply | None:
        """Find out on whose behalf a request comes: the refusal, where it is nobody's."""
        access = self._server.access
        if access is None or head.route in OPEN:
            return None
        try:
            head.principal = await access.find(head.token)
        except Denied as denied:
            return self._refused(head, denied)
        return None

    def metadata(self, head: Head) -> Reply:
        """What is to be known before one has a token."""
        if (access := self._server.access) is None:
            return refusal(404, "Nothing is served under this path")
        document = {
            "resource": self._resource(head),
            "authorization_servers": access.authorization_servers,
            "scopes_supported": sorted(access.scopes | self._server.tools.scopes),
            "bearer_methods_supported": ["header"],
        }
        # RFC 9728, section 3.2: what has no values is left out.
        return Reply(
            200, encode({key: value for key, value in document.items() if value}), JSON
        )

    def _refused(self, head: Head, denied: Denied) -> Reply:
        """Tells a client why it may not come in, and where to learn how it may."""
        if denied.status not in (401, 403):
            return refusal(denied.status, str(denied))
        resource, access = urlsplit(self._resource(head)), self._server.access
        said = {
            "error": denied.error,
            "scope": " ".join(sorted(access.scopes)) if access else "",
            "resource_metadata": f"{resource.scheme}://{resource.netloc}{METADATA_PATH}{resource.path.rstrip('/')}",
        }
        challenge = ", ".join(
            f'{name}="{value}"' for name, value in said.items() if value
        )
        return refusal(
            denied.status,
            str(denied),
            ((b"WWW-Authenticate", f"Bearer {challenge}".encode()),),
        )

    def _resource(self, head: Head) -> str:
        """The endpoint's URL as clients know it."""
        if (access := self._server.access) and access.resource:
            return access.resource
        host = re.sub(
            rb"[^A-Za-z0-9.:\[\]_-]", b"", head.headers.get(b"host", b"")
        ).decode()
        return f"{head.scheme}://{host}{self._path}"
