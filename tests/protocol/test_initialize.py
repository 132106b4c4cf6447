"""How a conversation opens: the choice of a revision, and requests before it."""

from typing import Any

import pytest

from mcp_trio import Icon, Server
from mcp_trio.client.errors import RemoteError
from tests.support.checked import (
    ALL,
    MODERN,
    NEWEST,
    OPENING,
    connect,
    initialize,
    modern,
    notification,
    opened,
    raw,
    request,
)

NEWEST_OPENING = OPENING[-1]


def make_described_server(**options: Any) -> Server:
    icons = [Icon("https://example.com/icon.png", mime_type="image/png")]
    options = {
        "title": "The Server",
        "description": "Serves.",
        "icons": icons,
        **options,
    }
    server = Server(
        "server",
        "1.2",
        website_url="https://example.com",
        instructions="Be kind.",
        **options,
    )

    @server.tool
    async def hello() -> str:
        return "hello"

    return server


@pytest.mark.parametrize("revision", OPENING)
async def test_a_known_version_is_agreed_on(revision: str) -> None:
    async with connect(make_described_server(), revision) as client:
        assert client.server["protocolVersion"] == revision


@pytest.mark.parametrize("version", ["1999-01-01", "", "latest", *MODERN])
async def test_another_version_gets_the_newest_that_opens(version: str) -> None:
    async with raw(make_described_server(), NEWEST_OPENING) as client:
        (reply,) = await client.exchange(initialize(version))
    assert reply["result"]["protocolVersion"] == NEWEST_OPENING


@pytest.mark.parametrize("revision", OPENING)
async def test_the_server_says_who_it_is_in_the_fields_of_the_revision(
    revision: str,
) -> None:
    async with connect(make_described_server(), revision) as client:
        info = client.server["serverInfo"]
        instructions = client.server.get("instructions")
    wanted = {"name", "version"}
    wanted |= {"title"} if revision >= "2025-06-18" else set()
    wanted |= (
        {"description", "icons", "websiteUrl"} if revision >= "2025-11-25" else set()
    )
    assert info.keys() == wanted
    assert instructions == (None if revision == "2024-10-07" else "Be kind.")


@pytest.mark.parametrize("revision", OPENING)
async def test_capabilities_are_what_the_server_has_and_the_revision_names(
    revision: str,
) -> None:
    server = make_described_server()
    async with connect(server, revision) as client:
        assert client.server["capabilities"] == {
            "tools": {"listChanged": True},
            "logging": {},
        }

    @server.prompt
    async def ask(about: str) -> str:
        return about

    @server.complete("ask", "about")
    async def complete(typed: str) -> list[str]:
        return []

    @server.resource("a://b")
    async def b() -> str:
        return "b"

    completions = {"completions"} if revision >= "2025-03-26" else set()
    async with connect(server, revision) as client:
        capabilities = client.server["capabilities"]
    assert (
        capabilities.keys()
        == {"tools", "logging", "prompts", "resources"} | completions
    )
    assert capabilities["resources"] == {"subscribe": True, "listChanged": True}


async def test_nothing_but_ping_is_answered_before_initialize() -> None:
    async with raw(make_described_server(), NEWEST_OPENING) as client:
        pong, early = await client.exchange(
            request(0, "ping"), request(1, "tools/list")
        )
        assert pong == {"jsonrpc": "2.0", "id": 0, "result": {}}
        assert early["error"] == {
            "code": -32600,
            "message": "Invalid request: tools/list before initialize",
        }
        assert await client.exchange(notification("notifications/initialized")) == []
        (late,) = await client.exchange(initialize(NEWEST_OPENING))
        assert "result" in late


@pytest.mark.parametrize("revision", OPENING)
async def test_a_second_initialize_is_refused(revision: str) -> None:
    async with opened(make_described_server(), revision) as client:
        (reply,) = await client.exchange(initialize(OPENING[0], id=2))
        assert reply["error"] == {
            "code": -32600,
            "message": "Invalid request: this session was initialized before",
        }
        (pong,) = await client.exchange(request(3, "ping"))
        assert pong["result"] == {}


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("protocolVersion", "$.params.protocolVersion: missing"),
        ("capabilities", "$.params.capabilities: missing"),
        ("clientInfo", "$.params.clientInfo: missing"),
    ],
)
async def test_initialize_lacks_something(without: str, message: str) -> None:
    opening = initialize(NEWEST_OPENING)
    del opening["params"][without]
    async with raw(make_described_server(), NEWEST_OPENING) as client:
        (refused,) = await client.exchange(opening)
        assert refused["error"] == {
            "code": -32602,
            "message": f"Invalid params: {message}",
        }
        (reply,) = await client.exchange(initialize(NEWEST_OPENING))
        assert "result" in reply


async def test_requests_are_served_when_the_client_forgets_to_say_that_it_is_ready() -> (
    None
):
    async with raw(make_described_server(), "2025-06-18") as client:
        await client.exchange(initialize("2025-06-18"))
        (reply,) = await client.exchange(request(1, "tools/list"))
    assert len(reply["result"]["tools"]) == 1


# Requests that say their own revision


async def test_discover_says_what_is_spoken() -> None:
    async with connect(make_described_server()) as client:
        result = await client.request("server/discover")
    assert result["supportedVersions"] == ALL[::-1]
    assert result["instructions"] == "Be kind."
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "server"


@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
async def test_an_unknown_version_is_answered_with_those_that_are_spoken(
    method: str,
) -> None:
    async with raw(make_described_server(), NEWEST) as client:
        (reply,) = await client.exchange(
            modern(1, method, protocolVersion="2030-01-01")
        )
    assert reply["error"]["code"] == -32022
    assert reply["error"]["data"] == {"supported": ALL[::-1], "requested": "2030-01-01"}


@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
async def test_a_key_that_a_request_must_carry_is_missing(missing: str) -> None:
    async with raw(make_described_server(), NEWEST) as client:
        (reply,) = await client.exchange(modern(1, "tools/list", **{missing: None}))
    wanted = (
        f"Invalid params: $.params._meta['io.modelcontextprotocol/{missing}']: missing"
    )
    assert reply["error"] == {"code": -32602, "message": wanted}


async def test_discover_without_any_meta_says_what_it_lacks() -> None:
    async with raw(make_described_server(), NEWEST) as client:
        (reply,) = await client.exchange(request(1, "server/discover"))
    assert reply["error"]["code"] == -32602
    assert "io.modelcontextprotocol/protocolVersion" in reply["error"]["message"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("protocolVersion", 5),
        ("clientCapabilities", []),
        ("logLevel", "loud"),
        ("clientInfo", {}),
    ],
)
async def test_a_key_of_the_wrong_kind_is_refused(key: str, value: Any) -> None:
    async with raw(make_described_server(), NEWEST) as client:
        (reply,) = await client.exchange(modern(1, "tools/list", **{key: value}))
    assert reply["error"]["code"] == -32602
    assert "$.params._meta" in reply["error"]["message"]


@pytest.mark.parametrize("revision", OPENING)
async def test_both_eras_on_one_connection(revision: str) -> None:
    async with raw(make_described_server()) as client:
        (before,) = await client.exchange(modern(1, "tools/list"))
        await client.open(revision)
        after, legacy = await client.exchange(
            modern(2, "tools/list"), request(3, "tools/list")
        )
    assert before["result"]["resultType"] == after["result"]["resultType"] == "complete"
    assert "resultType" not in legacy["result"]


async def test_initialize_with_a_stateless_revision_in_its_meta_is_not_a_method() -> (
    None
):
    async with raw(Server("there"), NEWEST) as client:
        opening = initialize("2025-11-25", 1)
        (reply,) = await client.exchange(modern(1, "initialize", opening["params"]))
        assert reply["error"]["code"] == -32601


async def test_a_modern_request_has_no_ping() -> None:
    async with raw(make_described_server(), NEWEST) as client:
        (reply,) = await client.exchange(modern(1, "ping"))
    assert reply["error"]["code"] == -32601


# The pocket profile


async def test_the_pocket_profile_leaves_nothing_out() -> None:
    server = Server("pocket", profile="pocket", pages=1)

    @server.tool
    async def nothing() -> None: ...

    @server.tool
    async def three() -> int:
        return 3

    async with connect(server, "2025-06-18") as client:
        first = await client.request("tools/list")
        last = await client.request("tools/list", {"cursor": first["nextCursor"]})
        assert await client.call_tool("nothing") == {
            "content": [{"type": "text", "text": ""}],
            "structuredContent": {},
            "isError": False,
        }
        assert (await client.call_tool("three")).structured == {"result": 3}
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("nothing", {"a": 1})
    assert first["nextCursor"] != ""
    assert last["nextCursor"] == ""
    assert caught.value.code == -32602


@pytest.mark.parametrize("revision", ALL)
async def test_the_pocket_profile_opens_whatever_is_asked_for(revision: str) -> None:
    async with raw(Server("pocket", profile="pocket"), "2025-06-18") as client:
        (reply,) = await client.exchange(initialize(revision))
    assert reply["result"]["protocolVersion"] == "2025-06-18"


async def test_the_pocket_profile_knows_no_other_revision() -> None:
    async with raw(Server("pocket", profile="pocket"), "2025-06-18") as client:
        (reply,) = await client.exchange(modern(1, "server/discover"))
    assert "error" in reply
