"""What a function sees of the request that runs it."""

from mcp_trio import Context, Headers, Server
from mcp_trio.testing import connect


def make_server() -> Server:
    server = Server("context")

    @server.tool
    async def describe(ctx: Context) -> dict[str, object]:
        """Describe the request."""
        client = ctx.client
        return {
            "request_id": ctx.request_id,
            "session_id": ctx.session_id,
            "headers": dict(ctx.headers),
            "client": client and [client.name, client.supports("sampling")],
        }

    @server.tool
    async def speak(ctx: Context) -> str:
        """Log a message of each level that has a shorthand."""
        await ctx.debug("d")
        await ctx.info("i", logger="mine")
        await ctx.warning({"w": 1})
        await ctx.error("e")
        return "done"

    return server


async def test_a_request_has_its_id_and_client_in_both_eras() -> None:
    for revision in ("2024-11-05", "2025-11-25", "2026-07-28"):
        async with connect(
            make_server(), revision, capabilities={"sampling": {}}
        ) as client:
            result = (await client.call_tool("describe")).text
        assert '"mcp_trio client"' in result, revision
        assert "true" in result, revision
        assert '"session_id":null' in result.replace(": ", ":"), revision


async def test_the_log_has_shorthands() -> None:
    async with connect(make_server(), "2025-11-25") as client:
        await client.request("logging/setLevel", {"level": "debug"})
        await client.call_tool("speak")
        heard = await client.hear("notifications/message", 4)
    messages = [notice["params"] for notice in heard]
    assert [(one["level"], one["data"]) for one in messages] == [
        ("debug", "d"),
        ("info", "i"),
        ("warning", {"w": 1}),
        ("error", "e"),
    ]
    assert messages[1]["logger"] == "mine"


def test_headers_are_found_in_any_case() -> None:
    headers = Headers({b"user-agent": b"test/1", b"x-tenant": b"a, b"})
    assert headers["User-Agent"] == "test/1"
    assert headers.get("X-TENANT") == "a, b"
    assert headers.get("missing") is None
    assert sorted(headers) == ["user-agent", "x-tenant"]


def test_headers_leave_credentials_out_unless_they_are_asked_for() -> None:
    headers = Headers(
        {b"authorization": b"Bearer x", b"cookie": b"a=b", b"accept": b"*/*"}
    )
    assert dict(headers) == {"accept": "*/*"}
    assert "Authorization" not in headers
    assert len(headers) == 1
    assert "Bearer" not in repr(headers)
    assert headers.with_credentials()["Authorization"] == "Bearer x"
    assert headers.with_credentials()["Cookie"] == "a=b"
