"""Tell clients how to get a token: metadata (RFC 9728) and challenges (RFC 6750)."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

# RFC 9728, section 3.1: the path of the resource is appended to this one.
METADATA_PATH = "/.well-known/oauth-protected-resource"


def is_resource_url(text: str) -> bool:
    """Return whether a text can be the URL of a resource: without query or fragment."""
    return re.fullmatch(r"https?://[^\s\"\\#?/@]+(/[^\s\"\\#?]*)?", text) is not None


def metadata_document(
    resource: str, authorization_servers: list[str], scopes: Iterable[str]
) -> dict[str, Any]:
    """Return the metadata of a resource, given its URL."""
    document: dict[str, Any] = {"resource": resource}
    # RFC 9728, section 3.2: parameters without values are left out.
    if authorization_servers:
        document["authorization_servers"] = authorization_servers
    supported = sorted(scopes)
    if supported:
        document["scopes_supported"] = supported
    document["bearer_methods_supported"] = ["header"]
    return document


def metadata_url(resource: str) -> str:
    """Return the URL of the metadata of a resource, given the URL of the resource."""
    parts = urlsplit(resource)
    path = METADATA_PATH + parts.path.rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def sse_url(endpoint: str, path: str) -> str:
    """Return the URL of HTTP+SSE, given the URL of the MCP endpoint and its own path.

    Behind a proxy, clients may see both under a prefix.
    """
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc}{prefix_of(endpoint, path)}/sse"


def prefix_of(endpoint: str, path: str) -> str:
    """Return what a proxy puts before the paths of a server, for its clients.

    `endpoint` is the URL of the MCP endpoint, and `path` its path without the prefix.
    """
    seen = urlsplit(endpoint).path.rstrip("/")
    return seen.removesuffix(path) if seen.endswith(path) else ""


def challenge(resource: str, scopes: Iterable[str], error: str = "") -> str:
    """Return the value of WWW-Authenticate in a response that refuses a token.

    `scopes` are those that the resource requires, and `error` is a code of RFC 6750.
    """
    parameters = {
        "error": error,
        "scope": " ".join(sorted(scopes)),
        "resource_metadata": metadata_url(resource),
    }
    given = [f'{name}="{value}"' for name, value in parameters.items() if value]
    return "Bearer " + ", ".join(given)
