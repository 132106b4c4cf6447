"""The endpoint's URL for clients, where a proxy is between them and the server."""

import json

import pytest
import trio

from mcp_trio import Access, Server
from mcp_trio.client.event_parser import EventParser
from mcp_trio.transports.http.settings import HttpSettings
from tests.support.http_wire import (
    HOSTS,
    Site,
    make_server,
    message,
    request,
    site,
    site_on,
)

PUBLIC_URL = "https://mcp.example.org/mcp"
WELL_KNOWN = "/.well-known/oauth-protected-resource"


async def nobody(token: str) -> None:
    """Accept no token."""


def guarded(resource: str | None = None) -> Server:
    servers = ["https://id.example.org"]
    access = Access(nobody, authorization_servers=servers, resource=resource)
    return Server("guarded", access=access)


async def status_with(there: Site, **headers: str) -> int:
    return (await there.post(message("ping"), headers)).status


@pytest.mark.parametrize("host", HOSTS)
async def test_its_host_is_accepted_with_and_without_the_port(host: str) -> None:
    url = "https://mcp.example.org:8443/mcp"
    async with site_on(host, make_server(), public_url=url) as there:
        headers = await there.open_session()
        for name, status in (
            ("mcp.example.org", 200),
            ("mcp.example.org:8443", 200),
            ("MCP.example.org", 200),
            ("localhost", 200),
            ("example.org", 421),
        ):
            assert await status_with(there, **headers, Host=name) == status, name


async def test_pages_of_its_origin_may_call_it() -> None:
    url = "https://mcp.example.org:8443/mcp"
    async with site(make_server(), public_url=url) as there:
        headers = await there.open_session()
        headers["Host"] = "mcp.example.org"
        own = "https://mcp.example.org:8443"
        assert await status_with(there, **headers, Origin=own) == 200
        assert await status_with(there, **headers, Origin="https://evil.org") == 403


@pytest.mark.parametrize("host", HOSTS)
async def test_a_refusal_names_metadata_that_is_served(host: str) -> None:
    async with site_on(host, guarded(), public_url=PUBLIC_URL) as there:
        refused = await there.post(message("ping"))
        assert refused.status == 401
        where = f"https://mcp.example.org{WELL_KNOWN}/mcp"
        assert f'resource_metadata="{where}"' in refused.headers["www-authenticate"]
        served = await there.send("GET", f"{WELL_KNOWN}/mcp")
        assert served.json["resource"] == PUBLIC_URL
        for_sse = await there.send("GET", f"{WELL_KNOWN}/sse")
        assert for_sse.json["resource"] == "https://mcp.example.org/sse"


async def test_it_takes_precedence_over_the_resource_of_the_access() -> None:
    server = guarded(resource="https://old.example.org/mcp")
    async with site(server, public_url=PUBLIC_URL) as there:
        served = await there.send("GET", f"{WELL_KNOWN}/mcp")
    assert served.json["resource"] == PUBLIC_URL


async def test_a_prefix_of_the_proxy_is_in_every_address_that_clients_get() -> None:
    url = "https://example.org/tools/mcp"
    async with site(guarded(), public_url=url) as there:
        for name in ("mcp", "sse"):
            served = await there.send("GET", f"{WELL_KNOWN}/tools/{name}")
            assert served.json["resource"] == f"https://example.org/tools/{name}"
    async with site(make_server(), public_url=url) as there, there.wire() as wire:
        await wire.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
        await wire.head()
        endpoint = (await wire.event(EventParser())).data
    assert endpoint.startswith("/tools/messages?session=")


async def test_the_asgi_application_has_it_too() -> None:
    """The metadata names it."""
    application = guarded().asgi(public_url=PUBLIC_URL)
    sent: list[dict[str, object]] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": f"{WELL_KNOWN}/mcp",
        "query_string": b"",
        "headers": [(b"host", b"mcp.example.org")],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, object]:
        if sent:
            await trio.sleep_forever()
        return {"type": "http.request", "body": b""}

    async def send(event: dict[str, object]) -> None:
        sent.append(event)

    async with application.service.server.running():
        await application(scope, receive, send)
    body = sent[1]["body"]
    assert isinstance(body, bytes)
    assert json.loads(body)["resource"] == PUBLIC_URL


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "mcp.example.org",
        "mcp.example.org/mcp",
        "ftp://mcp.example.org/mcp",
        "https:///mcp",
        "https://user@mcp.example.org/mcp",
        "https://mcp.example.org/mcp?x=1",
        "https://mcp.example.org/mcp#x",
        "https://mcp.example.org:port/mcp",
        "https://mcp.example.org:99999/mcp",
        "https://[::1/mcp",
        "https://mcp.example.org/m cp",
    ],
)
def test_anything_but_a_url_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"public_url: expected the endpoint's URL"):
        HttpSettings(public_url=wrong)
