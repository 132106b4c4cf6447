"""The metadata of protected resources for clients of HTTP+SSE."""

import pytest

from mcp_trio import Access
from tests.support.access_sites import guarded, make_server, verify
from tests.support.http_wire import HEADERS

WELL_KNOWN = "/.well-known/oauth-protected-resource"
each_host = pytest.mark.parametrize("host", ["native", "hypercorn"])


@each_host
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/sse"), ("POST", "/messages?session=x")]
)
async def test_the_metadata_names_the_url_that_the_client_used(
    host: str, method: str, path: str
) -> None:
    async with guarded(host=host, token=None) as there:
        place = {**HEADERS, "Host": f"localhost:{there.port}"}
        refused = await there.send(method, path, place)
        assert refused.status == 401
        origin = f"http://localhost:{there.port}"
        assert refused.headers["www-authenticate"] == (
            f'Bearer resource_metadata="{origin}{WELL_KNOWN}/sse"'
        )
        metadata = await there.send("GET", f"{WELL_KNOWN}/sse", place)
        assert metadata.status == 200
        assert metadata.json["resource"] == f"{origin}/sse"


async def test_the_metadata_of_the_endpoint_still_names_the_endpoint() -> None:
    async with guarded(token=None) as there:
        place = {"Host": "localhost"}
        for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN):
            metadata = await there.send("GET", path, place)
            assert metadata.json["resource"] == "http://localhost/mcp"


@pytest.mark.parametrize(
    ("resource", "sse"),
    [
        ("https://mcp.example.org/mcp", "https://mcp.example.org/sse"),
        ("https://example.org/tools/mcp", "https://example.org/tools/sse"),
        ("https://mcp.example.org/elsewhere", "https://mcp.example.org/sse"),
    ],
)
async def test_behind_a_proxy_the_url_is_beside_that_of_the_endpoint(
    resource: str, sse: str
) -> None:
    origin = "/".join(resource.split("/")[:3])
    document = sse.replace(origin, origin + WELL_KNOWN)
    server = make_server(access=Access(verify, resource=resource))
    async with guarded(server, token=None) as there:
        refused = await there.send("GET", "/sse", HEADERS)
        assert refused.headers["www-authenticate"] == (
            f'Bearer resource_metadata="{document}"'
        )
        metadata = await there.send("GET", document.removeprefix(origin))
        assert metadata.json["resource"] == sse


async def test_without_access_control_the_metadata_of_sse_is_not_found() -> None:
    async with guarded(make_server(access=None), token=None) as there:
        assert (await there.send("GET", f"{WELL_KNOWN}/sse")).status == 404
