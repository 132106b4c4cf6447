"""HTTP+SSE accepts a limited amount from a client that does not read its replies."""

import json

from tests.support.http_wire import HEADERS, make_server, message, request, site

MIB = 2**20
# More than the inbox, the stream and the system's buffers can hold.
MOST_POSTS = 60


async def test_messages_are_refused_when_too_many_were_not_handled() -> None:
    call = message("tools/call", {"name": "echo", "arguments": {"text": "x" * MIB}})
    opening = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "deaf", "version": "1"},
    }
    initialize = json.dumps(message("initialize", opening)).encode()
    body = json.dumps(call).encode()
    async with (
        site(make_server()) as there,
        there.wire() as stream,
        there.wire() as posts,
    ):
        await stream.send(request("GET", "/sse", {"Accept": "text/event-stream"}))
        await stream.head()
        endpoint = (await stream.chunk()).partition(b"data: ")[2].strip().decode()
        first = await posts.request("POST", endpoint, HEADERS, initialize)
        assert first.status == 202
        for _ in range(MOST_POSTS):
            response = await posts.request("POST", endpoint, HEADERS, body)
            if response.status != 202:
                break
        assert response.status == 503
        assert "unanswered messages" in response.json["error"]["message"]
