"""The official Python SDK's client, which logs in by OAuth before it calls tools.

python oauth_client.py (--url URL | --sse URL) ACCOUNT

It registers with the authorization server that the metadata names, fills in its login
page as ACCOUNT, and prints the results as one JSON object. SSL_CERT_FILE names the
certificate to trust. Run it with an interpreter that has the package
`mcp` 1.x: see install.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

SECONDS = 30
CALLBACK = "http://127.0.0.1:9/callback"


class Storage:
    """Keeps tokens and registrations in memory."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """The user, who logs in at the page that the client opens."""

    def __init__(self, account: str) -> None:
        self.account = account
        self.came_back: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx.AsyncClient() as client:
            response = await client.get(url)
            while "location" in response.headers or response.is_success:
                if response.is_success:
                    response = await self.log_in(client, response)
                    continue
                url = urljoin(str(response.url), response.headers["location"])
                if url.startswith(CALLBACK):
                    self.came_back = parse_qs(urlsplit(url).query)
                    return
                response = await client.get(url)
        raise RuntimeError(f"the login ended at {response.url}: {response.text}")

    async def log_in(
        self, client: httpx.AsyncClient, page: httpx.Response
    ) -> httpx.Response:
        form = re.search(r'<form[^>]*action="([^"]+)"', page.text)
        assert form is not None, page.text
        fields = {"prompt": "login", "login": self.account, "password": "any"}
        return await client.post(urljoin(str(page.url), form[1]), data=fields)

    async def callback(self) -> tuple[str, str | None]:
        return self.came_back["code"][0], self.came_back.get("state", [None])[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--url")
    target.add_argument("--sse")
    parser.add_argument("account")
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(asyncio.wait_for(converse(arguments), SECONDS))))


async def converse(arguments: argparse.Namespace) -> dict[str, Any]:
    storage = Storage()
    browser = Browser(arguments.account)
    auth = OAuthClientProvider(
        server_url=arguments.url or arguments.sse,
        client_metadata=OAuthClientMetadata(
            client_name="test",
            redirect_uris=[CALLBACK],
            grant_types=["authorization_code"],
            response_types=["code"],
        ),
        storage=storage,
        redirect_handler=browser.open,
        callback_handler=browser.callback,
    )
    async with (
        streams(arguments, auth) as (read, write),
        ClientSession(read, write) as session,
    ):
        opened = await session.initialize()
        listed = await session.list_tools()
        calls = {
            name: await call(session, name) for name in ("who_am_i", "clear_stock")
        }
    assert storage.tokens is not None
    return {
        "revision": str(opened.protocolVersion),
        "scope": storage.tokens.scope,
        "tools": sorted(tool.name for tool in listed.tools),
        **calls,
    }


@asynccontextmanager
async def streams(arguments: argparse.Namespace, auth: httpx.Auth):
    if arguments.sse:
        async with sse_client(arguments.sse, auth=auth) as (read, write):
            yield read, write
        return
    async with (
        httpx.AsyncClient(auth=auth, timeout=SECONDS) as client,
        streamable_http_client(arguments.url, http_client=client) as opened,
    ):
        yield opened[0], opened[1]


async def call(session: ClientSession, name: str) -> str:
    """Return a tool's text, or the error."""
    try:
        result = await session.call_tool(name, {})
    except Exception as error:
        return f"error: {error}"
    text = "".join(getattr(block, "text", "") for block in result.content)
    return f"error: {text}" if result.isError else text


main()
