"""Lists keep the order of registration, and have pages if the server asks for them."""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

import pytest

from mcp_trio import InvalidParams, Server
from mcp_trio.client.errors import RemoteError
from tests.support.checked import ALL, connect

PAGED = [revision for revision in ALL if revision > "2024-10-07"]
R = "2025-11-25"


def with_tools(count: int, **options: Any) -> Server:
    server = Server("x", **options)
    for number in range(count):
        add(server, f"tool{number:04}")
    return server


def add(server: Server, name: str) -> None:
    async def tool() -> str:
        return name

    server.add_tool(tool, name=name)


@pytest.mark.parametrize("revision", PAGED)
@pytest.mark.parametrize(
    ("count", "size", "pages"),
    [(0, 3, 1), (1, 3, 1), (3, 3, 1), (4, 3, 2), (10, 1, 10), (7, None, 1)],
)
async def test_pages_hold_everything_once_and_in_order(
    revision: str, count: int, size: int | None, pages: int
) -> None:
    async with connect(with_tools(count, pages=size), revision) as client:
        names: list[str] = []
        seen, cursor = 0, None
        while seen == 0 or cursor:
            page = await client.request(
                "tools/list", {"cursor": cursor} if cursor else {}
            )
            names += [tool["name"] for tool in page["tools"]]
            seen, cursor = seen + 1, page.get("nextCursor")
    assert names == [f"tool{number:04}" for number in range(count)]
    assert seen == pages


async def test_the_first_revision_has_the_whole_list_at_once() -> None:
    async with connect(with_tools(10, pages=3), "2024-10-07") as client:
        page = await client.request("tools/list", {"cursor": "whatever"})
    assert len(page["tools"]) == 10


MADE_UP = [
    urlsafe_b64encode(cursor).decode()
    for cursor in (b"xafter:1", b"after:-5", b"after: 1", b"after:1:2")
]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "after:1",
        "YWZ0ZXI6eA==",
        "YmVmb3JlOjE=",
        "é",
        "\0",
        "A" * 100_000,
        "====",
        *MADE_UP,
    ],
)
@pytest.mark.parametrize(
    "method",
    ["tools/list", "resources/list", "resources/templates/list", "prompts/list"],
)
async def test_a_cursor_that_was_not_given(method: str, cursor: str) -> None:
    server = with_tools(5, pages=2)
    server.add_resource("a://b", lambda: "b")
    server.add_prompt(lambda: "p", name="p")
    async with connect(server, R) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request(method, {"cursor": cursor})
    assert (caught.value.code, caught.value.message) == (-32602, "Invalid cursor")


@pytest.mark.parametrize("kind", ["resources", "resourceTemplates", "prompts"])
async def test_the_other_lists_have_pages_too(kind: str) -> None:
    server = Server("x", pages=2)
    for number in range(5):
        server.add_resource(f"a://{number}", lambda: "b")
        server.add_resource(f"a://{number}/{{x}}", lambda x: x)
        server.add_prompt(lambda: "p", name=f"p{number}")
    async with connect(server, R) as client:
        lists = {
            "resources": client.list_resources,
            "resourceTemplates": client.list_templates,
            "prompts": client.list_prompts,
        }
        assert len(await lists[kind]()) == 5


async def test_what_changes_between_two_pages_moves_nothing_else() -> None:
    server = with_tools(6, pages=2)
    async with connect(server, R) as client:
        first = await client.request("tools/list")
        server.remove_tool("tool0000")
        server.remove_tool("tool0002")
        add(server, "new")
        second = await client.request("tools/list", {"cursor": first["nextCursor"]})
        third = await client.request("tools/list", {"cursor": second["nextCursor"]})
    assert [tool["name"] for tool in second["tools"]] == ["tool0003", "tool0004"]
    assert [tool["name"] for tool in third["tools"]] == ["tool0005", "new"]
    assert "nextCursor" not in third


async def test_a_page_behind_which_nothing_is_left_is_empty() -> None:
    server = with_tools(3, pages=2)
    async with connect(server, R) as client:
        first = await client.request("tools/list")
        server.remove_tool("tool0002")
        last = await client.request("tools/list", {"cursor": first["nextCursor"]})
    assert last["tools"] == []
    assert "nextCursor" not in last


@pytest.mark.parametrize("revision", ALL)
async def test_a_list_that_has_changed_is_shown_as_it_is(revision: str) -> None:
    server = with_tools(1)
    async with connect(server, revision) as client:
        assert len(await client.list_tools()) == 1
        add(server, "second")
        assert [tool["name"] for tool in await client.list_tools()] == [
            "tool0000",
            "second",
        ]
        server.remove_tool("tool0000")
        assert [tool["name"] for tool in await client.list_tools()] == ["second"]
        with pytest.raises(RemoteError):
            await client.call_tool("tool0000")


async def test_a_server_may_cut_its_lists_as_it_likes() -> None:
    def by_letter(
        items: Sequence[tuple[int, Any]], cursor: str | None
    ) -> tuple[list[Any], str | None]:
        letter = cursor or "a"
        if letter not in "ab":
            raise InvalidParams(f"no page {letter}")
        return [
            item for _, item in items if item.listed.name.startswith(letter)
        ], "b" if letter == "a" else None

    server = Server("x", pages=by_letter)
    for name in ("b1", "a1", "a2"):
        add(server, name)
    async with connect(server, R) as client:
        assert [tool["name"] for tool in await client.list_tools()] == [
            "a1",
            "a2",
            "b1",
        ]
        with pytest.raises(RemoteError) as caught:
            await client.request("tools/list", {"cursor": "c"})
    assert caught.value.message == "no page c"
