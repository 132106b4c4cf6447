"""Tools with pages, as hosts and other clients see them. Every message is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_trio import Context, Server, TextContents
from mcp_trio.cli.reload import Reloader
from mcp_trio.client.client import Client
from mcp_trio.client.errors import RemoteError
from tests.support.checked import ALL, MODERN, NEWEST, OPENING, connect

Json = dict[str, Any]
APPS = "io.modelcontextprotocol/ui"
HTML = "text/html;profile=mcp-app"
DECLARED: Json = {"extensions": {APPS: {"mimeTypes": [HTML]}}}
PAGE = "<!doctype html><title>Page</title>"
# The revisions whose tools and contents have `_meta`.
WITH_META = [name for name in ALL if name >= "2025-06-18"]
MAIN = "ui://page/main"


def server_with_a_page(**options: Any) -> Server[Any]:
    server = Server("apps")
    server.ui(MAIN, html=PAGE, **options)

    @server.tool(ui=MAIN)
    async def show(ctx: Context) -> str:
        return "shown" if ctx.renders_apps else "told"

    @server.tool(ui=MAIN, visibility=["app"])
    async def refresh() -> str:
        return "fresh"

    return server


async def tools_of(client: Client) -> dict[str, Json]:
    return {tool["name"]: tool.get("_meta", {}) for tool in await client.list_tools()}


@pytest.mark.parametrize("revision", WITH_META)
async def test_a_host_learns_which_page_a_tool_has(revision: str) -> None:
    async with connect(server_with_a_page(), revision, capabilities=DECLARED) as client:
        tools = await tools_of(client)
    assert tools == {
        "show": {"ui": {"resourceUri": MAIN}},
        "refresh": {"ui": {"resourceUri": MAIN, "visibility": ["app"]}},
    }


@pytest.mark.parametrize("revision", ALL)
async def test_a_client_without_apps_does_not_see_tools_for_pages_alone(
    revision: str,
) -> None:
    async with connect(server_with_a_page(), revision) as client:
        assert list(await tools_of(client)) == ["show"]


@pytest.mark.parametrize("revision", [name for name in ALL if name not in WITH_META])
async def test_a_revision_that_cannot_say_so_has_no_tools_for_pages_alone(
    revision: str,
) -> None:
    async with connect(server_with_a_page(), revision, capabilities=DECLARED) as client:
        assert list(await tools_of(client)) == ["show"]


@pytest.mark.parametrize("revision", ALL[1:])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mimeTypes": [HTML]}, "shown"),
        ({"mimeTypes": ["text/uri-list", HTML]}, "shown"),
        ({"mimeTypes": ["text/uri-list"]}, "told"),
        ({"mimeTypes": HTML}, "told"),
        ({}, "told"),
        (None, "told"),
    ],
)
async def test_a_tool_knows_whether_its_page_is_shown(
    revision: str, settings: Json | None, expected: str
) -> None:
    capabilities = {} if settings is None else {"extensions": {APPS: settings}}
    async with connect(
        server_with_a_page(), revision, capabilities=capabilities
    ) as client:
        assert (await client.call_tool("show")).text == expected


async def test_without_apps_nobody_renders_them() -> None:
    server = Server("plain")

    @server.tool
    async def show(ctx: Context) -> bool:
        return ctx.renders_apps

    async with connect(server, NEWEST, capabilities=DECLARED) as client:
        assert (await client.call_tool("show")).text == "false"


@pytest.mark.parametrize("revision", WITH_META)
async def test_a_page_is_read_with_all_that_it_needs(revision: str) -> None:
    server = server_with_a_page(
        csp={"connectDomains": ["https://a.example"], "frameDomains": []},
        permissions=["camera", "clipboardWrite"],
        domain="page.example",
        prefers_border=False,
    )
    expected = {
        "csp": {"connectDomains": ["https://a.example"], "frameDomains": []},
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "domain": "page.example",
        "prefersBorder": False,
    }
    async with connect(server, revision, capabilities=DECLARED) as client:
        (listed,) = await client.list_resources()
        (contents,) = await client.read_resource(MAIN)
    assert contents == {
        "uri": MAIN,
        "mimeType": HTML,
        "text": PAGE,
        "_meta": {"ui": expected},
    }
    assert listed["mimeType"] == HTML
    assert listed["_meta"] == {"ui": expected}


@pytest.mark.parametrize("revision", MODERN + OPENING[-1:])
async def test_a_page_is_a_string_a_file_or_a_function(
    revision: str, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE, encoding="utf-8")
    server = Server("apps")
    server.ui("ui://a/text", html=PAGE)
    server.ui("ui://a/file", html=path)

    def made() -> str:
        return PAGE

    async def made_for(ctx: Context) -> str:
        return f"{PAGE}{ctx.revision}"

    server.ui("ui://a/function", html=made)
    server.ui("ui://a/context", html=made_for)
    async with connect(server, revision, capabilities=DECLARED) as client:
        texts = {}
        for name in ("text", "file", "function", "context"):
            (contents,) = await client.read_resource(f"ui://a/{name}")
            assert contents["mimeType"] == HTML
            texts[name] = contents["text"]
    assert texts == {
        "text": PAGE,
        "file": PAGE,
        "function": PAGE,
        "context": PAGE + revision,
    }


async def test_a_page_with_control_characters_arrives_as_it_is() -> None:
    server = Server("apps")
    server.ui(MAIN, html=f"{PAGE}\x1b[1m")
    async with connect(server, NEWEST) as client:
        (contents,) = await client.read_resource(MAIN)
    assert contents["blob"] == "PCFkb2N0eXBlIGh0bWw+PHRpdGxlPlBhZ2U8L3RpdGxlPhtbMW0="


async def test_a_file_is_read_again_when_it_is_reloaded(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<p>old", encoding="utf-8")
    server = Server("apps")
    server.ui(MAIN, html=path)
    reloader = Reloader(server, None)
    async with connect(server, OPENING[-1]) as client:
        await client.request("resources/subscribe", {"uri": MAIN})
        path.write_text("<p>new", encoding="utf-8")
        assert (await client.read_resource(MAIN))[0]["text"] == "<p>old"
        reloader.reread_and_print([path])
        await client.hear("notifications/resources/updated")
        assert (await client.read_resource(MAIN))[0]["text"] == "<p>new"


async def test_a_file_that_has_gone_is_served_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    path.write_text(PAGE, encoding="utf-8")
    server = Server("apps")
    server.ui(MAIN, html=path)
    path.unlink()
    Reloader(server, None).reread_and_print([path])
    assert "Not reloaded" in capsys.readouterr().err
    async with connect(server, NEWEST) as client:
        assert (await client.read_resource(MAIN))[0]["text"] == PAGE


async def test_a_tool_whose_page_is_missing_keeps_the_server_from_starting() -> None:
    server = Server("apps")

    @server.tool(ui="ui://page/other")
    async def show() -> str:
        return ""

    with pytest.raises(ValueError, match="does not exist") as raised:
        async with server.running():
            pass
    assert str(raised.value) == (
        "tool show: the page 'ui://page/other' does not exist; add it with "
        "server.ui('ui://page/other', html=...)"
    )


async def test_a_page_may_be_made_by_a_template() -> None:
    server = Server("apps")

    @server.resource("ui://made/{name}", mime_type=HTML)
    async def made(name: str) -> str:
        return f"<p>{name}"

    @server.tool(ui="ui://made/main")
    async def show() -> str:
        return ""

    async with connect(server, NEWEST, capabilities=DECLARED) as client:
        (contents,) = await client.read_resource("ui://made/main")
    assert (contents["text"], contents["mimeType"]) == ("<p>main", HTML)


async def test_a_tool_for_pages_alone_can_be_called_by_its_name() -> None:
    async with connect(server_with_a_page(), NEWEST) as client:
        assert (await client.call_tool("refresh")).text == "fresh"


async def test_a_tool_keeps_its_own_meta() -> None:
    server = server_with_a_page()

    @server.tool(ui=MAIN, meta={"example.com/a": 1})
    async def more() -> str:
        return ""

    async with connect(server, NEWEST) as client:
        tools = await tools_of(client)
    assert tools["more"] == {"example.com/a": 1, "ui": {"resourceUri": MAIN}}


async def test_any_resource_has_meta_on_what_is_read() -> None:
    server = Server("notes")

    @server.resource("notes://a", contents_meta={"example.com/a": 1})
    async def text() -> str:
        return "a"

    @server.resource("notes://b", contents_meta={"example.com/a": 1})
    async def data() -> bytes:
        return b"b"

    @server.resource("notes://c/{name}", contents_meta={"example.com/a": 1})
    async def structured(name: str) -> dict[str, str]:
        return {"name": name}

    @server.resource("notes://d", contents_meta={"example.com/a": 1})
    async def own() -> TextContents:
        return TextContents("notes://d", "d", meta={"example.com/a": 2})

    async with connect(server, NEWEST) as client:
        found = []
        for uri in ("notes://a", "notes://b", "notes://c/x", "notes://d"):
            (contents,) = await client.read_resource(uri)
            found.append(contents["_meta"]["example.com/a"])
    assert found == [1, 1, 1, 2]


async def test_a_page_that_does_not_exist_is_an_unknown_resource() -> None:
    async with connect(server_with_a_page(), NEWEST) as client:
        with pytest.raises(RemoteError) as refused:
            await client.read_resource("ui://page/other")
    assert refused.value.code == -32602


@pytest.mark.parametrize(
    ("uri", "options", "says"),
    [
        ("https://a.example", {"html": PAGE}, "server.ui: expected a URI such as"),
        ("ui://", {"html": PAGE}, "server.ui: expected a URI such as"),
        ("ui://a/{name}", {"html": PAGE}, "server.ui: expected a URI such as"),
        (MAIN, {"html": "page.html"}, "for a file, use pathlib.Path"),
        (MAIN, {"html": 7}, "expected a string, a Path or a function, got 7"),
        (MAIN, {"html": PAGE, "csp": {"connect": []}}, "got 'connect'"),
        (
            MAIN,
            {"html": PAGE, "csp": {"connectDomains": "https://a.example"}},
            "expected a list of origins for connectDomains",
        ),
        (MAIN, {"html": PAGE, "permissions": ["gps"]}, "got 'gps'"),
        (MAIN, {"html": PAGE, "permissions": "gps"}, "got 'gps'"),
    ],
)
def test_a_mistake_in_a_page_is_told(uri: str, options: Json, says: str) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        Server("apps").ui(uri, **options)
    assert says in str(raised.value)


def test_a_file_that_does_not_exist_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Server("apps").ui(MAIN, html=tmp_path / "none.html")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ui": "https://a.example"}, "server.tool(ui): expected a URI such as"),
        ({"ui": 7}, "got 7"),
        ({"visibility": []}, "expected 'model', 'app' or both, got []"),
        ({"visibility": ["user"]}, "got ['user']"),
        ({"ui": MAIN, "meta": {"ui": {}}}, "the key 'ui' is set by ui="),
    ],
)
def test_a_mistake_in_a_tool_is_told(options: Json, says: str) -> None:
    with pytest.raises(ValueError, match=r"server\.tool") as raised:
        Server("apps").tool(**options)(lambda: "")
    assert says in str(raised.value)


@pytest.mark.parametrize("revision", OPENING)
async def test_a_server_without_pages_says_nothing_of_apps(revision: str) -> None:
    server = Server("plain")
    async with connect(server, revision, capabilities=DECLARED) as client:
        assert "extensions" not in client.server["capabilities"]
