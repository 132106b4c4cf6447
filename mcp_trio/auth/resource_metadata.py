"""Protected resource metadata (RFC 9728) and WWW-Authenticate challenges (RFC 6750)."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

# RFC 9728, section 3.1: the path of the resource is appended to this one.
METADATA_PATH = "/.well-known/oauth-protected-resource"


def is_resource_url(text: str) -> bool:
    """Return whether this is an http(s) URL without a query or a fragment."""
    return re.fullmatch(r"https?://[^\s\"\\#?/@]+(/[^\s\"\\#?]*)?", text) is not None


def metadata_document(
    resource: str, authorization_servers: list[str], scopes: Iterable[str]
) -> dict[str, Any]:
    """Return the metadata of a resource, given its URL."""
    document: dict[str, Any] = {"resource": resource}
    # RFC 9728, section 3.2: parameters without values are omitted.
    if authorization_servers:
        document["authorization_servers"] = authorization_servers
    supported = sorted(scopes)
    if supported:
        document["scopes_supported"] = supported
    document["bearer_methods_supported"] = ["header"]
    return document


def metadata_url(resource: str) -> str:
    """Return the URL of a resource's metadata, given the URL of the resource."""
    parts = urlsplit(resource)
    path = METADATA_PATH + parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def sse_url(endpoint: str, path: str) -> str:
    """Return the URL of the HTTP+SSE endpoint.

    `endpoint` is the public URL of the MCP endpoint, and `path` its path at the server.
    Behind a proxy, clients may see both endpoints under a prefix.
    """
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc}{prefix_of(endpoint, path)}/sse"


def prefix_of(endpoint: str, path: str) -> str:
    """Return the prefix that a proxy adds to a server's paths, or "".

    `endpoint` is the public URL of the MCP endpoint, and `path` its path at the server.
    """
    seen = urlsplit(endpoint).path.rstrip("/")
    return seen.removesuffix(path) if seen.endswith(path) else ""


def challenge(resource: str, scopes: Iterable[str], error: str = "") -> str:
    """Return the value of WWW-Authenticate in a response that rejects a token.

    `scopes` are those that the resource requires. `error` is an error code of RFC 6750.
    """
    parameters = {
        "error": error,
        "scope": " ".join(sorted(scopes)),
        "resource_metadata": metadata_url(resource),
    }
    given = [f'{name}="{value}"' for name, value in parameters.items() if value]
    return "Bearer " + ", ".join(given)
