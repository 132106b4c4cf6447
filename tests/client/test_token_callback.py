"""A client asks a function of the program for its bearer token."""

import pytest

from mcp_trio import Context, Principal, Server
from mcp_trio.client import connect
from tests.support.http_wire import site_on

VALID = {"first", "second"}


async def verify(token: str) -> Principal | None:
    return Principal(token) if token in VALID else None


def guarded() -> Server:
    server = Server("guarded", access=verify)

    @server.tool
    async def who(ctx: Context) -> str:
        """Say whose token it is."""
        assert ctx.principal is not None
        return ctx.principal.name

    return server


class Rotating:
    """Returns one token after the other, and the last one for ever."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)

    async def __call__(self) -> str:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]


async def test_each_http_request_has_the_token_of_its_time() -> None:
    token = Rotating("first", "second")
    async with site_on("native", guarded()) as there:
        url = f"http://127.0.0.1:{there.port}/mcp"
        async with connect(url, token=token) as client:
            assert (await client.call_tool("who")).text == "first"
            assert (await client.call_tool("who")).text == "second"


@pytest.mark.parametrize("scheme", ["ws", "sse"])
async def test_other_transports_ask_for_a_token_when_they_connect(scheme: str) -> None:
    async with site_on("native", guarded()) as there:
        urls = {
            "ws": f"ws://127.0.0.1:{there.port}/mcp",
            "sse": f"http://127.0.0.1:{there.port}/sse",
        }
        revision = "2024-11-05"
        async with connect(urls[scheme], revision, token=Rotating("first")) as client:
            assert (await client.call_tool("who")).text == "first"


async def test_none_as_a_token_gets_an_error_that_says_what_to_do() -> None:
    with pytest.raises(TypeError, match="got None; without a token, leave it out"):
        async with connect("http://127.0.0.1:1/mcp", token=None):  # type: ignore[arg-type]
            pass
