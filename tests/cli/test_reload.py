"""A server's file changes while it is served, and clients see it."""

import os
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

import mcp_trio
from mcp_trio import Principal
from mcp_trio.cli.reload import Reloader
from mcp_trio.client.client import Client
from mcp_trio.client.target import connect
from mcp_trio.load_spec import UsageError, load
from mcp_trio.protocol.errors import InvalidParams
from tests.support.checked import connect as connect_here

REVISION = "2025-11-25"

FILE = '''
from mcp_trio import Server
server = Server("changing")

@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)

@server.resource("notes://a")
async def notes() -> str:
    return "old"

@server.resource("notes://of/{name}")
async def notes_of(name: str) -> str:
    return name

@server.prompt
async def greet(name: str) -> str:
    return f"Hello, {name}"
'''
ONE_MORE = """
@server.tool
async def subtract(a: int, b: int) -> str:
    return str(a - b)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change to a folder with a server, and forget modules imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    (tmp_path / "changing.py").write_text(FILE, encoding="utf-8")
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(folder, text, name="changing.py"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def loaded(spec="changing.py"):
    server = load(spec)
    return server, Reloader(server, spec)


@asynccontextmanager
async def client_of(server):
    """Return a client that has sent a request, so that it gets notifications."""
    async with connect_here(server, REVISION) as client:
        await client.ping()
        yield client


async def told(client):
    """Return the notifications of a client, when all tasks are blocked."""
    await trio.testing.wait_all_tasks_blocked()
    return [message["method"].split("/")[1] for message in client.heard]


async def names(client):
    return [tool["name"] for tool in await client.list_tools()]


async def test_an_added_tool_is_listed_and_only_that_list_is_announced(
    folder, autojump_clock
):
    server, reloader = loaded()
    async with client_of(server) as client:
        write(folder, FILE + ONE_MORE)
        assert reloader.reload() == ["tools"]
        assert await told(client) == ["tools"]
        assert await names(client) == ["add", "subtract"]
        assert (await client.call_tool("subtract", {"a": 3, "b": 1})).text == "2"


async def test_what_is_taken_out_of_the_file_is_gone(folder, autojump_clock):
    server, reloader = loaded()
    async with client_of(server) as client:
        write(
            folder,
            FILE[: FILE.index("@server.prompt")].replace(
                "async def add", "async def plus"
            ),
        )
        assert reloader.reload() == ["tools", "prompts"]
        assert sorted(await told(client)) == ["prompts", "tools"]
        assert await names(client) == ["plus"]


async def test_a_changed_body_is_used_and_no_list_is_announced(folder, autojump_clock):
    server, reloader = loaded()
    async with client_of(server) as client:
        await client.list_tools()
        write(
            folder,
            FILE.replace("a + b", "a * b")
            .replace('"old"', '"new"')
            .replace("Hello", "Goodbye"),
        )
        assert reloader.reload() == []
        assert await told(client) == []
        assert (await client.call_tool("add", {"a": 3, "b": 4})).text == "12"
        assert (await client.read_resource("notes://a"))[0]["text"] == "new"
        assert (await client.get_prompt("greet", {"name": "x"}))["messages"][0][
            "content"
        ]["text"] == "Goodbye, x"


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("Add two", "Sum up two", ["tools"]),
        ("b: int)", "b: int = 1)", ["tools"]),
        ("@server.tool\n", "@server.tool(scopes={'admin'})\n", ["tools"]),
        ("notes://a", "notes://b", ["resources"]),
        ("notes://of/{name}", "notes://by/{name}", ["templates"]),
        ("greet(name: str)", "greet(name: str, mood: str = '')", ["prompts"]),
    ],
)
def test_the_lists_that_changed_are_named(folder, old, new, changed):
    _, reloader = loaded()
    write(folder, FILE.replace(old, new))
    assert reloader.reload() == changed
    assert reloader.reload() == []


WRONG = {
    "bad syntax": ("def f(:\n", ["SyntaxError", "line 24"]),
    "an exception": ("1 / 0\n", ["ZeroDivisionError", "line 24"]),
    "an exit": ("raise SystemExit\n", ["sys.exit()", "line 24"]),
    "several servers": (
        "del server\na, b = Server('a'), Server('b')\n",
        ["several Server objects"],
    ),
    "no server": ("del server\n", ["no Server object"]),
    "a name twice": (
        "server.add_tool(add)\n",
        ["the tool 'add' already exists", "line 24"],
    ),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=WRONG)
async def test_a_file_with_an_error_leaves_all_as_it_was(
    folder, capsys, autojump_clock, text, says
):
    server, reloader = loaded()
    async with client_of(server) as client:
        before = sys.modules["changing"]
        write(folder, FILE + ONE_MORE.strip() + "\n" + text)
        reloader.reload_and_print()
        err = capsys.readouterr().err
        for part in (
            "Not reloaded",
            "changing.py",
            "The previous version is still served",
            *says,
        ):
            assert part in err
        assert len(err.splitlines()) == 2
        assert await told(client) == []
        assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "2"
        assert sys.modules["changing"] is before
        write(folder, FILE + ONE_MORE)
        assert reloader.reload() == ["tools"]


async def test_a_tool_whose_scopes_change_is_gone_at_once_for_those_without(
    folder, autojump_clock
):
    server, reloader = loaded()
    nobody = Principal("nobody")
    assert b'"add"' in server.tools.listing(
        server.revisions.newest_opening, "tools", None, nobody
    )
    write(folder, FILE.replace("@server.tool\n", "@server.tool(scopes={'admin'})\n"))
    reloader.reload()
    assert b'"add"' not in server.tools.listing(
        server.revisions.newest_opening, "tools", None, nobody
    )
    with pytest.raises(InvalidParams):
        server.tools.find("add", nobody)


def test_neighbours_that_the_file_imports_are_loaded_afresh(folder):
    write(folder, "NAME = 'one'", "names.py")
    text = "from names import NAME\nfrom mcp_trio import Server\nserver = Server('a')\nserver.tool(name=NAME)(lambda: '')"
    write(folder, text)
    server, reloader = loaded()
    write(folder, "NAME = 'two'", "names.py")
    assert (reloader.reload(), list(server.tools)) == (["tools"], ["two"])


def test_a_module_of_a_package_is_loaded_afresh_with_its_neighbours(folder):
    write(folder, "", "package/__init__.py")
    write(folder, "NAME = 'one'", "package/inner/names.py")
    text = "from .inner.names import NAME\nfrom mcp_trio import Server\nserver = Server('a')\nserver.tool(name=NAME)"
    write(folder, text + "(lambda: '')", "package/module.py")
    server, reloader = loaded("package.module:server")
    assert reloader.folders() == {
        str(folder / "package"),
        str(folder / "package" / "inner"),
    }
    write(folder, "NAME = 'two'", "package/inner/names.py")
    assert (reloader.reload(), list(server.tools)) == (["tools"], ["two"])


def test_libraries_and_environments_are_not_loaded_afresh(folder):
    for place in (".venv/lib/site-packages", "env/lib/site-packages"):
        write(folder, "", f"{place}/library_{place[1]}.py")
        sys.path.append(str(folder / place))
    write(folder, "import library_v, library_n\n" + FILE)
    _, reloader = loaded()
    assert list(reloader.modules()) == ["changing"]


async def test_the_server_that_the_file_names_is_the_one_that_runs(
    folder, autojump_clock
):
    text = (
        FILE
        + "@server.tool\nasync def grow() -> None:\n    server.add_tool(add, name='later')\n"
    )
    server, reloader = loaded()
    write(folder, text)
    async with client_of(server) as client:
        reloader.reload()
        await client.call_tool("grow")
        assert await names(client) == ["add", "grow", "later"]
        write(folder, text.replace("Add two", "Sum up two"))
        reloader.reload()
        assert await names(client) == [
            "add",
            "grow",
            "later",
        ]  # the file never had it, so it was not removed
        assert {*await told(client)} == {"tools"}


async def test_what_runs_meanwhile_ends_as_it_was_begun(folder, autojump_clock):
    text = FILE.replace(
        "    return str(a + b)", "    await trio.sleep(1)\n    return 'old'"
    ).replace("from mcp_trio", "import trio\nfrom mcp_trio", 1)
    write(folder, text)
    server, reloader = loaded()
    async with client_of(server) as client:
        call = client.begin(
            "tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}}
        )
        await trio.testing.wait_all_tasks_blocked()
        write(folder, text.replace("'old'", "'new'"))
        reloader.reload()
        assert (await client.finish(call)).text == "old"
        assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "new"


def test_completers_are_added_and_removed_with_the_file(folder):
    server, reloader = loaded()
    write(
        folder,
        FILE
        + "@server.complete('greet', 'name')\nasync def whom(value: str) -> list[str]:\n    return []\n",
    )
    reloader.reload()
    assert list(server.completers["greet"]) == ["name"]
    write(folder, FILE)
    reloader.reload()
    assert server.completers == {}


LIFESPAN = "@server.lifespan\nasync def around():\n    yield {}\n"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (FILE.replace('("changing")', '("other")'), True),
        (FILE.replace('("changing")', '("changing", instructions="x")'), True),
        (
            FILE.replace('("changing")', '("changing", access=token)').replace(
                "server =", "async def token(t): ...\nserver ="
            ),
            True,
        ),
        (FILE + LIFESPAN.format(2), True),
        ("\n\n" + FILE + LIFESPAN.format(1), False),
    ],
    ids=["name", "instructions", "access", "lifespan", "none"],
)
def test_it_is_said_what_takes_effect_with_the_next_start(folder, capsys, new, said):
    write(folder, FILE + LIFESPAN.format(1))
    server, reloader = loaded()
    write(folder, new)
    reloader.reload()
    assert ("restart the server to apply it" in capsys.readouterr().err) is said
    assert server.info.name == "changing"


def test_without_the_library_it_is_said_how_to_get_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(UsageError, match=r"pip install 'mcp_trio\[reload\]'"):
        loaded()


def test_what_is_not_the_users_is_not_watched(folder):
    with pytest.raises(UsageError, match="no file of yours to watch"):
        loaded("mcp_trio.demo")


# The command as a process, and clients on each transport


SLOW_TOOL = """
import trio

@server.tool
async def wait(seconds: float) -> str:
    await trio.sleep(seconds)
    return "waited"
"""


class Heard:
    """A client on one transport, and the time until its notification."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.at = 0.0

    async def listen(self) -> None:
        await self.client.hear("notifications/tools/list_changed")
        self.at = trio.current_time()
        assert "subtract" in await names(self.client)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["changing.py", "changing"])
async def test_a_changed_file_is_served_within_a_second_on_all_transports(folder, spec):
    """A running call finishes, and each connected client is notified of the change."""
    write(folder, FILE + SLOW_TOOL)
    command = [
        sys.executable,
        "-m",
        "mcp_trio",
        "run",
        spec,
        "--reload",
        "--stdio",
        "--http",
        "0",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.path.dirname(os.path.dirname(mcp_trio.__file__)),
    }
    process = await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    with trio.fail_after(20):
        async with process.stderr, trio.open_nursery() as nursery:
            try:
                url = (await process.stderr.receive_some()).decode().split()[-1]
                await all_hear(folder, process, url, nursery)
                process.stdin.close()
                assert await process.wait() == 0
            finally:
                process.kill()
                await process.wait()


async def all_hear(folder, process, url, nursery):
    from mcp_trio.client.client import talk
    from mcp_trio.client.stdio import LineWire

    wire = LineWire(process.stdin, process.stdout)
    nursery.start_soon(wire.run)
    async with (
        talk(wire, REVISION) as on_stdio,
        connect(url, REVISION) as on_http,
        connect(url.replace("http:", "ws:"), REVISION) as on_websocket,
    ):
        clients = [Heard(client) for client in (on_stdio, on_http, on_websocket)]
        calls = [
            one.client.begin(
                "tools/call", {"name": "wait", "arguments": {"seconds": 0.5}}
            )
            for one in clients
        ]
        for one in clients:
            assert await names(one.client) == ["add", "wait"]
        changed = trio.current_time()
        write(folder, FILE + SLOW_TOOL + ONE_MORE)
        async with trio.open_nursery() as listening:
            for one in clients:
                listening.start_soon(one.listen)
        assert max(one.at for one in clients) - changed < 1
        for one, call in zip(clients, calls, strict=True):
            assert (await one.client.finish(call)).text == "waited"
    wire.end_input()


# Pages and skills

PAGE_AND_SKILLS = """
from pathlib import Path
from mcp_trio import Server
server = Server("changing")
server.ui("ui://page/main", html=Path("page.html"))
server.skills("skills")
"""


def with_page_and_skills(folder):
    write(folder, PAGE_AND_SKILLS)
    write(folder, "<p>old", "page.html")
    write_skill(folder, "tea")


def write_skill(folder, name, description="Tea."):
    text = f"---\nname: {name}\ndescription: {description}\n---\n"
    write(folder, text, f"skills/{name}/SKILL.md")


async def skills_of(client):
    result = await client.request("skills/list")
    return [
        (entry["frontmatter"]["name"], entry["frontmatter"]["description"])
        for entry in result["skills"]
    ]


async def test_a_reloaded_file_serves_its_pages_and_skills_as_they_are_now(
    folder, autojump_clock
):
    with_page_and_skills(folder)
    server, reloader = loaded()
    async with client_of(server) as client:
        write(folder, "<p>new", "page.html")
        write_skill(folder, "tea", "Green tea.")
        write_skill(folder, "coffee", "Coffee.")
        assert reloader.reload() == ["resources"]
        assert (await client.read_resource("ui://page/main"))[0]["text"] == "<p>new"
        assert await skills_of(client) == [("coffee", "Coffee."), ("tea", "Green tea.")]
        # What the file reads now is watched, by the server that runs.
        write(folder, "<p>newer", "page.html")
        write_skill(folder, "tea", "Black tea.")
        paths = [folder / "page.html", folder / "skills" / "tea" / "SKILL.md"]
        reloader.reread_and_print(paths)
        assert (await client.read_resource("ui://page/main"))[0]["text"] == "<p>newer"
        assert ("tea", "Black tea.") in await skills_of(client)


async def test_skills_that_were_added_to_a_file_stay(folder, autojump_clock):
    server, reloader = loaded()
    write_skill(folder, "tea")
    server.skills("skills")
    async with client_of(server) as client:
        write(folder, FILE + ONE_MORE)
        assert reloader.reload() == ["tools"]
        assert await skills_of(client) == [("tea", "Tea.")]
        write_skill(folder, "coffee", "Coffee.")
        reloader.reread_and_print([folder / "skills" / "coffee"])
        assert ("coffee", "Coffee.") in await skills_of(client)


@pytest.mark.slow
async def test_pages_and_skills_are_watched(folder):
    with_page_and_skills(folder)
    command = [sys.executable, "-m", "mcp_trio", "run", "changing.py", "--reload"]
    with trio.fail_after(30):
        async with connect(command, REVISION) as client:
            await client.ping()
            write_skill(folder, "coffee", "Coffee.")
            while len(await skills_of(client)) < 2:
                await trio.sleep(0.05)
            write(folder, "<p>new", "page.html")
            while (await client.read_resource("ui://page/main"))[0]["text"] != "<p>new":
                await trio.sleep(0.05)
