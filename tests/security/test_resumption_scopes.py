"""The stream of a request is resumed by tokens with the scopes that the request had."""

import json

import pytest
import trio

from mcp_trio import Context, Server
from tests.support.access_sites import ADMIN, HOSTS, A, calling, guarded, verify
from tests.support.http_wire import message, request

VERSIONS = ["2025-03-26", "2025-06-18", "2025-11-25"]
SECRET = b"what only an admin may read"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_token_without_a_scope_of_the_request_cannot_resume_its_stream(
    host: str, version: str
) -> None:
    server = Server("guarded", access=verify)
    begun = trio.Event()
    go = trio.Event()

    @server.tool(scopes={"admin"})
    async def purge(context: Context) -> str:
        begun.set()
        await go.wait()
        await context.progress(1)
        return SECRET.decode()

    async with guarded(server, host=host) as there:
        admin = there.by(ADMIN)
        lesser = there.by(A)
        session = await admin.open_session(version)
        async with admin.wire() as wire:
            body = calling("purge", 7)
            body["params"]["_meta"] = {"progressToken": "token"}
            headers = {**session, **admin.own}
            await wire.send(request("POST", "/mcp", headers, json.dumps(body).encode()))
            await begun.wait()
            # A later request of the session changes nothing, though its stream is
            # opened only after it.
            assert (await lesser.post(message("ping"), session)).status == 200
            go.set()
            await wire.head()
        resuming = {**session, "Last-Event-ID": "0-0"}
        refused = await lesser.send("GET", "/mcp", resuming)
        assert refused.status == 403
        assert b"the token lacks a scope that the request had" in refused.body
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
        assert SECRET in (await admin.send("GET", "/mcp", resuming)).body
