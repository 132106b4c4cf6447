"""A server that includes another has its features, with its lifespan and middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from mcp_trio import (
    Context,
    Limits,
    MiddlewareCall,
    Principal,
    Proceed,
    Server,
    ToolError,
    testing,
)
from mcp_trio.cli.reload import UpdatedServer
from mcp_trio.client.errors import RemoteError
from mcp_trio.extensions import Extension
from tests.support.checked import ALL, MODERN, OPENING, connect


def make_database() -> Server[str]:
    """Return a server with one feature of each kind, and a lifespan."""
    server: Server[str] = Server("database")

    @server.lifespan
    async def open_database() -> AsyncIterator[str]:
        yield "the database"

    @server.tool
    async def query(ctx: Context[str]) -> str:
        """Return the value of the lifespan."""
        return ctx.lifespan

    @server.resource("rows://{table}")
    async def rows(table: str, ctx: Context[str]) -> str:
        """Read a table."""
        return f"{table} of {ctx.lifespan}"

    @server.resource("rows://all")
    async def everything() -> str:
        """Read all tables."""
        return "everything"

    @server.prompt
    async def explain(table: str, ctx: Context[str]) -> str:
        """Explain a table."""
        return f"Explain {table} of {ctx.lifespan}"

    @server.complete("explain", "table")
    async def tables(typed: str, ctx: Context[str]) -> list[str]:
        return [f"{typed} of {ctx.lifespan}"]

    return server


def make_outer() -> Server[str]:
    server: Server[str] = Server("outer")

    @server.lifespan
    async def open_outer() -> AsyncIterator[str]:
        yield "the outer value"

    @server.tool
    async def own(ctx: Context[str]) -> str:
        """Return the value of the lifespan."""
        return ctx.lifespan

    return server


@pytest.mark.parametrize("revision", ALL)
async def test_it_has_the_tools_of_both(revision: str) -> None:
    outer = make_outer()
    outer.include(make_database(), prefix="db_")
    async with connect(outer, revision) as client:
        assert [tool["name"] for tool in await client.list_tools()] == [
            "own",
            "db_query",
        ]
        for name, expected in (
            ("own", "the outer value"),
            ("db_query", "the database"),
        ):
            result = await client.call_tool(name)
            assert result.get("toolResult", result.text) == expected


async def test_resources_keep_their_uris() -> None:
    outer = make_outer()
    outer.include(make_database(), prefix="db_")
    async with connect(outer) as client:
        listed = await client.request("resources/list")
        assert [item["uri"] for item in listed["resources"]] == ["rows://all"]
        listed = await client.request("resources/templates/list")
        assert [item["uriTemplate"] for item in listed["resourceTemplates"]] == [
            "rows://{table}"
        ]
        read = await client.request("resources/read", {"uri": "rows://books"})
        assert read["contents"][0]["text"] == "books of the database"


async def test_prompts_get_the_prefix_and_keep_their_completion() -> None:
    outer = make_outer()
    outer.include(make_database(), prefix="db_")
    async with connect(outer) as client:
        listed = await client.request("prompts/list")
        assert [item["name"] for item in listed["prompts"]] == ["db_explain"]
        arguments = {"name": "db_explain", "arguments": {"table": "books"}}
        got = await client.request("prompts/get", arguments)
        text = got["messages"][0]["content"]["text"]
        assert text == "Explain books of the database"
        params = {
            "ref": {"type": "ref/prompt", "name": "db_explain"},
            "argument": {"name": "table", "value": "bo"},
        }
        completed = await client.request("completion/complete", params)
        assert completed["completion"]["values"] == ["bo of the database"]


async def test_completion_is_advertised_for_an_included_completer() -> None:
    outer = make_outer()
    assert "completions" not in outer.features()
    outer.include(make_database())
    assert "completions" in outer.features()


async def test_the_outer_server_may_complete_what_the_included_one_does_not() -> None:
    outer = make_outer()
    outer.include(make_database(), prefix="db_")

    @outer.complete("rows://{table}", "table")
    async def tables(typed: str, ctx: Context[str]) -> list[str]:
        return [ctx.lifespan]

    params = {
        "ref": {"type": "ref/resource", "uri": "rows://{table}"},
        "argument": {"name": "table", "value": ""},
    }
    async with connect(outer) as client:
        completed = await client.request("completion/complete", params)
    assert completed["completion"]["values"] == ["the outer value"]


# Lifespans


async def test_the_included_lifespan_is_inside_the_outer_one() -> None:
    noted: list[str] = []

    def make(name: str) -> Server[None]:
        server: Server[None] = Server(name)

        @server.lifespan
        async def lifespan() -> AsyncIterator[None]:
            noted.append(f"enter {name}")
            yield
            noted.append(f"leave {name}")

        return server

    outer, first, second, inner = (make(name) for name in "abcd")
    second.include(inner)
    outer.include(first)
    outer.include(second)
    async with outer.running():
        noted.append("serve")
    assert noted == [
        *("enter a", "enter b", "enter c", "enter d", "serve"),
        *("leave d", "leave c", "leave b", "leave a"),
    ]
    assert not inner.is_running


async def test_an_included_lifespan_that_fails_says_so() -> None:
    inner: Server[None] = Server("inner")

    @inner.lifespan
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    outer = make_outer()
    outer.include(inner)
    with pytest.raises(OSError, match="no database") as failure:
        async with outer.running():
            pass
    assert failure.value.__notes__ == ["raised by the server's lifespan"]
    assert not outer.is_running
    assert not inner.is_running


async def test_an_included_server_can_also_be_served_by_itself() -> None:
    database = make_database()
    outer = make_outer()
    outer.include(database, prefix="db_")
    async with outer.running(), connect(database) as client:
        assert (await client.call_tool("query")).text == "the database"
    async with connect(database) as client:
        assert (await client.call_tool("query")).text == "the database"


async def test_servers_can_be_included_at_several_levels() -> None:
    middle = make_outer()
    middle.include(make_database(), prefix="db_")
    outer: Server[None] = Server("outermost")
    outer.include(middle, prefix="shop_")
    async with connect(outer) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["shop_own", "shop_db_query"]
        assert (await client.call_tool("shop_own")).text == "the outer value"
        assert (await client.call_tool("shop_db_query")).text == "the database"
        params = {
            "ref": {"type": "ref/prompt", "name": "shop_db_explain"},
            "argument": {"name": "table", "value": "x"},
        }
        completed = await client.request("completion/complete", params)
        assert completed["completion"]["values"] == ["x of the database"]


# Middleware


async def test_the_outer_middleware_is_around_the_included_one() -> None:
    seen: list[str] = []

    def note(server: Server[str], who: str) -> None:
        @server.middleware
        async def noting(call: MiddlewareCall, proceed: Proceed) -> object:
            seen.append(f"{who}: {call.method} {call.name} {call.context.lifespan}")
            result = await proceed(call)
            seen.append(f"{who} ends")
            return result

    database = make_database()
    outer = make_outer()
    note(outer, "outer")
    note(database, "inner")
    outer.include(database, prefix="db_")
    async with connect(outer) as client:
        await client.call_tool("db_query")
        await client.request("resources/read", {"uri": "rows://books"})
        params = {"name": "db_explain", "arguments": {"table": "books"}}
        await client.request("prompts/get", params)
        await client.call_tool("own")
    assert seen == [
        "outer: tools/call db_query the outer value",
        "inner: tools/call query the database",
        *("inner ends", "outer ends"),
        "outer: resources/read rows://books the outer value",
        "inner: resources/read rows://books the database",
        *("inner ends", "outer ends"),
        "outer: prompts/get db_explain the outer value",
        "inner: prompts/get explain the database",
        *("inner ends", "outer ends"),
        "outer: tools/call own the outer value",
        "outer ends",
    ]


async def test_included_middleware_runs_without_any_outside() -> None:
    database = make_database()

    @database.middleware
    async def refuse(call: MiddlewareCall, proceed: Proceed) -> object:
        raise ToolError(f"{call.name} is closed")

    outer = make_outer()
    outer.include(database, prefix="db_")
    async with connect(outer) as client:
        assert (await client.call_tool("db_query")).text == "query is closed"
        assert (await client.call_tool("own")).text == "the outer value"


async def test_middleware_may_change_the_arguments_and_the_result() -> None:
    inner: Server[None] = Server("inner")

    @inner.tool
    async def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    @inner.middleware
    async def add_one(call: MiddlewareCall, proceed: Proceed) -> object:
        call.arguments["number"] += 1
        call.context.state["seen"] = call.context.state["passed"]
        return await proceed(call)

    outer: Server[None] = Server("outer")

    @outer.middleware
    async def ten_times(call: MiddlewareCall, proceed: Proceed) -> object:
        call.arguments["number"] *= 10
        call.context.state["passed"] = True
        result = await proceed(call)
        assert call.context.state["seen"]
        return result

    outer.include(inner)
    async with connect(outer) as client:
        assert (await client.call_tool("double", {"number": 2})).data == 42


# What changes later


async def test_what_is_added_later_is_included_and_announced() -> None:
    database = make_database()
    outer = make_outer()
    outer.include(database, prefix="db_")

    async def insert() -> str:
        """Insert a row."""
        return "inserted"

    async with connect(outer, OPENING[-1]) as client:
        await client.ping()  # by then the server knows that the session is open
        database.add_tool(insert)
        await client.hear("notifications/tools/list_changed")
        assert (await client.call_tool("db_insert")).text == "inserted"
        database.remove_tool("insert")
        database.remove_prompt("explain")
        database.remove_resource("rows://{table}")
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["own", "db_query"]
        assert not outer.prompts
        assert not outer.templates


async def test_a_completer_that_is_added_later_is_used() -> None:
    database = make_database()
    outer = make_outer()
    outer.include(database)

    @database.complete("rows://{table}", "table")
    async def tables(typed: str) -> list[str]:
        return ["books"]

    params = {
        "ref": {"type": "ref/resource", "uri": "rows://{table}"},
        "argument": {"name": "table", "value": ""},
    }
    async with connect(outer) as client:
        completed = await client.request("completion/complete", params)
    assert completed["completion"]["values"] == ["books"]


async def test_subscribers_hear_of_updates_by_the_included_server() -> None:
    database = make_database()
    outer = make_outer()
    outer.include(database)
    async with connect(outer, OPENING[-1]) as client:
        await client.request("resources/subscribe", {"uri": "rows://books"})
        database.resource_updated("rows://books")
        (told,) = await client.hear("notifications/resources/updated")
        assert told["params"]["uri"] == "rows://books"


async def test_the_outer_server_may_remove_an_included_tool_and_have_its_own() -> None:
    database = make_database()
    outer = make_outer()
    outer.include(database, prefix="db_")
    outer.remove_tool("db_query")

    async def db_query() -> str:
        """Say whose it is."""
        return "the outer server's"

    outer.add_tool(db_query)
    database.remove_tool("query")
    async with connect(outer) as client:
        assert (await client.call_tool("db_query")).text == "the outer server's"


async def test_a_later_clash_changes_neither_server() -> None:
    database = make_database()
    outer = make_outer()
    outer.include(database)

    async def own() -> str:
        """Clash."""
        return ""

    with pytest.raises(ValueError, match="the tool 'own' already exists"):
        database.add_tool(own)
    assert list(database.tools) == ["query"]
    assert list(outer.tools) == ["own", "query"]


# Scopes, limits and extensions


async def test_scopes_hold_for_included_features() -> None:
    database = make_database()

    async def drop() -> str:
        """Drop a table."""
        return "dropped"

    database.add_tool(drop, scopes=["admin"])
    outer = make_outer()
    outer.include(database, prefix="db_")
    assert outer.scopes == {"admin"}
    async with testing.connect(outer, principal=Principal("ann")) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["own", "db_query"]
    admin = Principal("ann", frozenset(["admin"]))
    async with testing.connect(outer, principal=admin) as client:
        assert (await client.call_tool("db_drop")).text == "dropped"


async def test_a_tools_own_limits_are_kept_and_the_outer_servers_apply(
    autojump_clock: trio.testing.MockClock,
) -> None:
    inner: Server[None] = Server("inner", timeout=1)

    async def slow(seconds: float) -> str:
        """Take some time."""
        await trio.sleep(seconds)
        return "done"

    inner.add_tool(slow)
    inner.add_tool(slow, name="limited", timeout=2)
    outer: Server[None] = Server("outer", limits=Limits(timeout=10))
    outer.include(inner, prefix="in_")
    async with connect(outer) as client:
        assert (await client.call_tool("in_slow", {"seconds": 5})).text == "done"
        late = await client.call_tool("in_slow", {"seconds": 11})
        assert late.text == "slow took longer than 10 s and was stopped"
        late = await client.call_tool("in_limited", {"seconds": 3})
        assert late.text == "limited took longer than 2 s and was stopped"


@pytest.mark.parametrize("revision", MODERN)
async def test_a_tool_with_tasks_has_them_where_it_is_included(revision: str) -> None:
    inner: Server[str] = make_database()

    @inner.tool(task="required")
    async def export(ctx: Context[str]) -> str:
        """Export everything."""
        await ctx.progress(1, message="exporting")
        return f"exported {ctx.lifespan}"

    outer = make_outer()
    outer.include(inner, prefix="db_")
    assert outer.has_tasks
    capabilities = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    async with connect(outer, revision, capabilities=capabilities) as client:
        result = await client.call_tool("db_export")
        assert result.text == "exported the database"


async def test_a_page_is_found_where_its_tool_is_included() -> None:
    inner = make_database()
    outer = make_outer()
    outer.include(inner, prefix="db_")

    # Later, so that the extension is declared later too.
    @inner.tool(ui="ui://db/main")
    async def show() -> str:
        """Show the database."""
        return "shown"

    inner.ui("ui://db/main", "<p>rows</p>")
    async with connect(outer) as client:
        read = await client.request("resources/read", {"uri": "ui://db/main"})
        assert read["contents"][0]["text"] == "<p>rows</p>"
        shown = next(t for t in await client.list_tools() if t["name"] == "db_show")
        assert shown["_meta"]["ui"]["resourceUri"] == "ui://db/main"


async def test_skills_of_both_servers_are_listed_and_read(tmp_path: Path) -> None:
    def add_skill(folder: Path, name: str) -> Path:
        (folder / name).mkdir(parents=True)
        manifest = f"---\nname: {name}\ndescription: It is {name}.\n---\nDo it.\n"
        (folder / name / "SKILL.md").write_text(manifest)
        (folder / name / "more.txt").write_text(f"more about {name}")
        return folder

    inner, outer = make_database(), make_outer()
    inner.skills(add_skill(tmp_path / "inner", "sort-books"))
    outer.skills(add_skill(tmp_path / "outer", "sell-books"))
    outer.include(inner, prefix="db_")
    async with connect(outer) as client:
        listed = await client.request("skills/list")
        assert [skill["uri"] for skill in listed["skills"]] == [
            "skill://sell-books/SKILL.md",
            "skill://sort-books/SKILL.md",
        ]
        read = await client.request(
            "resources/read", {"uri": "skill://sort-books/more.txt"}
        )
        assert read["contents"][0]["text"] == "more about sort-books"


# What is refused


def test_a_clash_of_names_is_an_error_and_nothing_is_included() -> None:
    outer = make_outer()
    database = make_database()
    outer.include(database, prefix="db_")
    before = list(outer.tools)
    other: Server[None] = Server("other")

    @other.tool(task="optional")
    async def fine() -> None:
        """Do nothing."""

    @other.tool
    async def db_query() -> None:
        """Do nothing."""

    with pytest.raises(
        ValueError, match=r"include.*the tool 'db_query' already exists"
    ):
        outer.include(other)
    assert list(outer.tools) == before
    other.add_tool(fine, name="later")
    assert list(outer.tools) == before
    assert outer.extensions is None


def test_a_clash_of_uris_is_an_error() -> None:
    outer = make_outer()
    outer.include(make_database(), prefix="one_")
    with pytest.raises(ValueError, match="the resource 'rows://all' already exists"):
        outer.include(make_database(), prefix="two_")


@pytest.mark.parametrize("prefix", ["db/", "db ", "x" * 128])
def test_a_prefix_that_no_tool_may_have_is_an_error(prefix: str) -> None:
    outer = make_outer()
    with pytest.raises(ValueError, match="expected 1 to 128 characters"):
        outer.include(make_database(), prefix=prefix)
    assert list(outer.tools) == ["own"]


def test_a_server_cannot_include_itself() -> None:
    outer, inner = make_outer(), make_database()
    outer.include(inner)
    with pytest.raises(ValueError, match="cannot include itself"):
        inner.include(outer)
    with pytest.raises(ValueError, match="cannot include itself"):
        outer.include(outer)


async def test_a_running_server_cannot_include_another() -> None:
    outer = make_outer()
    async with outer.running():
        with pytest.raises(RuntimeError, match="include other servers before"):
            outer.include(make_database())


def test_only_a_server_can_be_included() -> None:
    with pytest.raises(TypeError, match=r"expected a Server, got 'db\.py'"):
        make_outer().include("db.py")  # type: ignore[arg-type]


def test_access_that_would_not_apply_is_an_error() -> None:
    async def verify(token: str) -> str | None:
        return None

    inner: Server[None] = Server("inner", access=verify)
    with pytest.raises(ValueError, match=r"access=.* would not apply"):
        make_outer().include(inner)


async def test_a_users_extension_must_be_given_to_the_outer_server_too() -> None:
    class Shout(Extension):
        identifier = "org.example/shout"

    inner: Server[None] = Server("inner", extensions=[Shout()])
    with pytest.raises(ValueError, match="add it to this server too"):
        make_outer().include(inner)
    outer: Server[None] = Server("outer", extensions=[Shout()])
    outer.include(inner)


async def test_unknown_names_are_reported_with_the_prefix() -> None:
    outer = make_outer()
    outer.include(make_database(), prefix="db_")
    async with connect(outer) as client:
        with pytest.raises(RemoteError, match="Unknown tool: query"):
            await client.call_tool("query")


# Reloading


async def test_reloading_changes_an_included_server() -> None:
    outer, database = make_outer(), make_database()
    outer.include(database, prefix="db_")
    followed = UpdatedServer(outer)
    fresh, fresh_database = make_outer(), make_database()

    @fresh_database.tool
    async def insert(ctx: Context[str]) -> str:
        """Insert a row."""
        return f"into {ctx.lifespan}"

    fresh.include(fresh_database, prefix="db_")
    async with connect(outer) as client:
        assert followed.update(fresh) == {"tools"}
        assert (await client.call_tool("db_insert")).text == "into the database"
        assert (await client.call_tool("db_query")).text == "the database"
        params = {
            "ref": {"type": "ref/prompt", "name": "db_explain"},
            "argument": {"name": "table", "value": "x"},
        }
        completed = await client.request("completion/complete", params)
        assert completed["completion"]["values"] == ["x of the database"]
