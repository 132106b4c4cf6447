"""Bearer tokens in HTTP requests (RFC 6750), and the metadata about them (RFC 9728)."""

import logging
import re

from ...auth.access import Denied
from ...auth.principal import NO_SCOPES
from ...auth.resource_metadata import challenge, metadata_document, sse_url
from ...protocol.jsonrpc import encode
from ...server.app import Server
from .messages import JSON, Head, Reply, refusal
from .rules import HEALTH, MESSAGES, METADATA, READY, SSE, SSE_METADATA

log = logging.getLogger("mcp_trio")

_BEARER = re.compile(rb"(?i)bearer +([A-Za-z0-9._~+/-]+=*) *")
# Routes that need no token.
PUBLIC_ROUTES = (HEALTH, READY, METADATA, SSE_METADATA)
# The routes of HTTP+SSE, which has its own URL.
SSE_ROUTES = (SSE, MESSAGES, SSE_METADATA)


class BearerAuth:
    """A server's access control over HTTP.

    `path` is the path of its endpoint, and `resource` the endpoint's URL for clients.
    If that is empty, the URL is derived from each request.
    """

    def __init__(self, server: Server, path: str, resource: str = "") -> None:
        self._server = server
        self._known_resource = resource
        self._path = "/" + path.strip("/")
        if server.access is None and server.scopes:
            log.warning(
                "tools, resources and prompts with scopes are hidden from all HTTP "
                "clients, because without access control clients have no scopes"
            )

    def check(self, head: Head) -> Reply | None:
        """Extract the token from a head. Returns a refusal if there is none."""
        if head.route in PUBLIC_ROUTES:
            return None
        given = head.headers.get(b"authorization", b"")
        found = _BEARER.fullmatch(given)
        if found is not None:
            head.token = found[1].decode()
            return None
        if given[:6].lower() == b"bearer":
            problem = "Authorization: the token is malformed"
            return self.refuse(head, Denied(401, "invalid_token", problem))
        problem = "Authorization: expected Bearer TOKEN"
        return self.refuse(head, Denied(401, "", problem))

    async def identify(self, head: Head) -> Reply | None:
        """Find the principal of a request. Returns a refusal of an invalid token."""
        access = self._server.access
        if access is None or head.route in PUBLIC_ROUTES:
            return None
        try:
            head.principal = await access.find(head.token, head.peer)
        except Denied as denied:
            return self.refuse(head, denied)
        return None

    def metadata(self, head: Head) -> Reply:
        """Return the metadata that clients need to get a token."""
        access = self._server.access
        if access is None:
            return refusal(404, "Nothing is served under this path")
        scopes = access.scopes | self._server.scopes
        servers = access.authorization_servers
        document = metadata_document(self._resource(head), servers, scopes)
        return Reply(200, encode(document), JSON)

    def refuse(self, head: Head, denied: Denied) -> Reply:
        """Return the refusal, which also says where to find out how to get a token."""
        if denied.status not in (401, 403):
            return refusal(denied.status, str(denied))
        access = self._server.access
        scopes = access.scopes if access else NO_SCOPES
        value = challenge(self._resource(head), scopes, denied.error)
        header = (b"WWW-Authenticate", value.encode())
        return refusal(denied.status, str(denied), (header,))

    def _resource(self, head: Head) -> str:
        """Return the URL that the client used to reach this server."""
        endpoint = self._endpoint(head)
        if head.route in SSE_ROUTES:
            return sse_url(endpoint, self._path.rstrip("/"))
        return endpoint

    def _endpoint(self, head: Head) -> str:
        """Return the URL of the endpoint, as clients know it."""
        if self._known_resource:
            return self._known_resource
        given = head.headers.get(b"host", b"")
        host = re.sub(rb"[^A-Za-z0-9.:\[\]_-]", b"", given).decode()
        return f"{head.scheme}://{host}{self._path}"
