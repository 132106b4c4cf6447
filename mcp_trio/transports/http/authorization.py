"""Bearer tokens as HTTP has them: where they come, what refuses them (RFC 6750), and the metadata (RFC 9728)."""

import logging
import re

from ...auth.access import Denied
from ...auth.principal import NO_SCOPES
from ...auth.resource_metadata import challenge, metadata_document
from ...protocol.jsonrpc import encode
from ...server.app import Server
from .messages import JSON, Head, Reply, refusal
from .rules import HEALTH, METADATA

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
            return self.refuse(
                head,
                Denied(401, "invalid_token", "Authorization: the token is malformed"),
            )
        return self.refuse(
            head, Denied(401, "", "Authorization: Bearer TOKEN is wanted")
        )

    async def identify(self, head: Head) -> Reply | None:
        """Find out on whose behalf a request comes: the refusal, where it is nobody's."""
        access = self._server.access
        if access is None or head.route in OPEN:
            return None
        try:
            head.principal = await access.find(head.token, head.peer)
        except Denied as denied:
            return self.refuse(head, denied)
        return None

    def metadata(self, head: Head) -> Reply:
        """What is to be known before one has a token."""
        if (access := self._server.access) is None:
            return refusal(404, "Nothing is served under this path")
        scopes = access.scopes | self._server.tools.scopes
        servers = access.authorization_servers
        document = metadata_document(self._resource(head), servers, scopes)
        return Reply(200, encode(document), JSON)

    def refuse(self, head: Head, denied: Denied) -> Reply:
        """Return the response that says why a token is not accepted (RFC 6750)."""
        if denied.status not in (401, 403):
            return refusal(denied.status, str(denied))
        access = self._server.access
        scopes = access.scopes if access else NO_SCOPES
        value = challenge(self._resource(head), scopes, denied.error)
        header = (b"WWW-Authenticate", value.encode())
        return refusal(denied.status, str(denied), (header,))

    def _resource(self, head: Head) -> str:
        """The endpoint's URL as clients know it."""
        if (access := self._server.access) and access.resource:
            return access.resource
        host = re.sub(
            rb"[^A-Za-z0-9.:\[\]_-]", b"", head.headers.get(b"host", b"")
        ).decode()
        return f"{head.scheme}://{host}{self._path}"
