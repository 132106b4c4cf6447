"""The examples: their traces on every transport, their errors, and the Inspector."""

from __future__ import annotations

import ast
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
import trio
import trio.testing

from mcp_trio.client.errors import RemoteError
from mcp_trio.load_spec import UsageError, load
from mcp_trio.testing import replay
from mcp_trio.trace.format import Transport, read
from mcp_trio.trace.replay import transports_of
from tests.clients.install import Unavailable, inspector
from tests.support.checked import NEWEST, OPENING, connect
from tests.support.golden import problems_in
from tests.support.paths import PROJECT
from tests.support.ports import refusing_port

EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))
TRACES = sorted((PROJECT / "examples" / "traces").glob("*.jsonl"))
SECONDS = 60

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
each_trace = pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)

Example = Callable[..., ModuleType]


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the examples that were imported, and unset their environment variables."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in ("API", "DATABASE", "FOLDER", "PROVIDER", "TOKEN"):
        monkeypatch.delenv(name, raising=False)
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        if name.partition("_served")[0] in {path.stem for path in EXAMPLES}:
            del sys.modules[name]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Example:
    """Import an example with these environment variables."""

    def imported(name: str, **variables: object) -> ModuleType:
        for variable, value in variables.items():
            monkeypatch.setenv(variable, str(value))
        server = load(str(PROJECT / "examples" / f"{name}.py"))
        return next(
            module
            for module in list(sys.modules.values())
            if getattr(module, "server", None) is server
        )

    return imported


async def answer_of(example: ModuleType, tool: str, **arguments: Any) -> Any:
    """Return the answer of a tool to a client of the newest revision."""
    async with connect(example.server) as client:
        return await client.call_tool(tool, arguments)


# All of them


def test_each_example_has_traces_of_both_eras() -> None:
    spoken = {(read(path).header.server, read(path).header.revision) for path in TRACES}
    assert spoken == {
        (f"examples/{path.name}", date)
        for path in EXAMPLES
        for date in (OPENING[-1], NEWEST)
    }


def over_each_transport() -> list[Any]:
    return [
        pytest.param(path, over, id=f"{path.stem}-{over}")
        for path in TRACES
        for over in transports_of(read(path))
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("path", "over"), over_each_transport())
async def test_the_trace_of_an_example_replays(path: Path, over: Transport) -> None:
    await replay(path, read(path).header.server, over=over)


@each_trace
def test_the_schema_agrees_with_what_an_example_says(path: Path) -> None:
    problems = problems_in(read(path))
    # An extension that an example defines is not in the schema.
    own = ("'notifications/clock/asked' is not named by", "a result for 'clock/noon'")
    assert not [one for one in problems if not any(word in one for word in own)]


@each_example
def test_an_example_is_short_and_documented(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert len(text.splitlines()) <= 160
    named = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    assert all(ast.get_docstring(node) for node in [tree, *named])
    assert f"python -m mcp_trio run examples/{path.name}" in (
        ast.get_docstring(tree) or ""
    )


@pytest.mark.slow
@each_example
def test_an_example_is_a_program_of_its_own(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)],
        input=b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n',
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        timeout=SECONDS,
        check=True,
    )
    assert json.loads(done.stdout)["id"] == 1
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("name", "variable", "value", "why"),
    [
        (
            "weather",
            "PROVIDER",
            "nothing_there:look_up",
            "module:function is wanted: No module named 'nothing_there'",
        ),
        (
            "weather",
            "PROVIDER",
            "os:no_such_function",
            "module:function is wanted: module 'os' has no attribute",
        ),
        (
            "database",
            "DATABASE",
            "no/such/file",
            "this is no SQLite file that can be read: unable to open",
        ),
        (
            "database",
            "DATABASE",
            "README.md",
            "this is no SQLite file that can be read: file is not a database",
        ),
        ("files", "FOLDER", "README.md", "this is no folder"),
        ("long_job", "FOLDER", "no/such/folder", "this is no folder"),
        ("agent", "FOLDER", "no/such/folder", "expected a folder"),
        ("http_api", "API", "example.org", "expected a URL such as https://"),
    ],
)
def test_what_is_wrong_with_its_variable_is_said_in_a_line(
    example: Example, name: str, variable: str, value: str, why: str
) -> None:
    with pytest.raises(UsageError) as caught:
        example(name, **{variable: value})
    assert variable in str(caught.value)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


# The weather


async def test_the_weather_is_read_from_the_configured_source(
    example: Example, tmp_path: Path
) -> None:
    (tmp_path / "my_weather.py").write_text(
        "from types import SimpleNamespace as Report\n"
        "async def look_up(location):\n    return Report(temperature=0.0, conditions='Snow', humidity=90.0)\n"
    )
    sys.path.append(str(tmp_path))
    weather = example("weather", PROVIDER="my_weather:look_up")
    result = await answer_of(
        weather, "get_weather", location="Atlantis", units="metric"
    )
    assert (
        result.text
        == "Current weather in Atlantis:\nTemperature: 0°C\nConditions: Snow"
    )


# The database


def test_the_sample_is_what_its_source_says() -> None:
    folder = PROJECT / "examples" / "data"
    with (
        closing(sqlite3.connect(folder / "shop.sqlite")) as sample,
        closing(sqlite3.connect(":memory:")) as made,
    ):
        made.executescript((folder / "shop.sql").read_text(encoding="utf-8"))
        assert list(sample.iterdump()) == list(made.iterdump())


WRITES = [
    "DELETE FROM orders",
    "INSERT INTO orders (customer_id, product_id, quantity) VALUES (1, 1, 1)",
    "DROP TABLE orders",
    "CREATE TEMP TABLE more (a)",
    "ATTACH ':memory:' AS other",
    "PRAGMA query_only = OFF",
    "VACUUM INTO 'copy.sqlite'",
    "SELECT load_extension('anything')",
    "BEGIN IMMEDIATE",
    "SELECT 1; DELETE FROM orders",
]


@pytest.mark.parametrize("sql", WRITES)
async def test_a_database_can_only_be_read(example: Example, sql: str) -> None:
    before = (PROJECT / "examples" / "data" / "shop.sqlite").read_bytes()
    result = await answer_of(example("database"), "query", sql=sql)
    assert result.is_error
    assert result.text.endswith(
        "; one SELECT is wanted, from customers, orders, products, sales"
    )
    assert (PROJECT / "examples" / "data" / "shop.sqlite").read_bytes() == before


def test_behind_the_authorizer_stand_two_more_locks(example: Example) -> None:
    with example("database").opened() as connection:
        connection.set_authorizer(None)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM orders")
        connection.execute("PRAGMA query_only = OFF")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM orders")


ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
)


async def test_an_endless_query_ends(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = example("database")
    monkeypatch.setattr(database, "MOST_SECONDS", 0.01)
    result = await answer_of(database, "query", sql=ENDLESS.format("count(*)"))
    assert result.text.startswith("The query failed: it took more than 0.01 s")


async def test_a_query_has_so_many_rows_and_no_more(example: Example) -> None:
    result = await answer_of(
        example("database"),
        "query",
        sql=ENDLESS.format("i, x'00ff' AS bytes, NULL, 1.5"),
    )
    assert len(result.structured["rows"]) == 100
    assert result.structured["rows"][0] == [1, "00ff", None, 1.5]
    assert result.structured["truncated"] is True


async def test_a_database_of_ones_own_is_served(
    example: Example, tmp_path: Path
) -> None:
    path = tmp_path / "of 100% mine?.sqlite"
    with closing(sqlite3.connect(path)) as mine:
        mine.executescript(
            "CREATE TABLE things (name TEXT); INSERT INTO things VALUES ('one');"
        )
    database = example("database", DATABASE=path)
    result = await answer_of(database, "query", sql="SELECT * FROM things")
    assert result.structured == {
        "columns": ["name"],
        "rows": [["one"]],
        "truncated": False,
    }
    assert "things" in str(database.server.instructions)


# The files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with good and bad files, and a secret next to it."""
    secret, inside = tmp_path / "secret.txt", tmp_path / "inside"
    secret.write_text("the key")
    (inside / "deep").mkdir(parents=True)
    (inside / "good.txt").write_text("good")
    (inside / "deep" / "good.txt").write_text("deep and good")
    (inside / ".hidden").write_text("the key")
    (inside / ".git").mkdir()
    (inside / ".git" / "config").write_text("the key")
    (inside / "link.txt").symlink_to(secret)
    (inside / "out").symlink_to(tmp_path)
    (inside / "twin.txt").symlink_to(inside / "good.txt")
    (inside / "loop").symlink_to(inside / "loop")
    (inside / "large.txt").write_bytes(b"a" * 200_001)
    (inside / "picture.png").write_bytes(b"\x89PNG\0")
    os.mkfifo(inside / "pipe")
    return inside


BAD = """
    ../secret.txt deep/../../secret.txt deep/../good.txt ./../secret.txt out/secret.txt link.txt loop .hidden
    .git/config large.txt picture.png pipe deep . .. / /etc/passwd missing.txt good.txt/x
""".split()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "path", [*BAD, "", "\0", "good.txt\0", "a" * 5000, "\\..\\secret.txt"]
)
async def test_nothing_but_text_files_of_the_folder_can_be_read(
    example: Example, folder: Path, path: str
) -> None:
    async with connect(example("files", FOLDER=folder).server) as client:
        result = await client.call_tool("read_file", {"path": path})
        assert result.is_error
        assert "the key" not in result.text
        for uri in (
            f"folder:///{path}",
            "folder:///" + "".join(f"%{byte:02x}" for byte in path.encode()),
        ):
            # A URI of more than 8,192 characters is refused before the lookup.
            refused = "Resource not found" if len(uri) <= 8192 else "length <= 8192"
            with pytest.raises(RemoteError, match=refused):
                await client.read_resource(uri)


async def test_only_what_can_be_read_is_found(example: Example, folder: Path) -> None:
    files = example("files", FOLDER=folder)
    result = await answer_of(files, "find_files")
    assert [link["name"] for link in result["content"]] == [
        "deep/good.txt",
        "good.txt",
        "large.txt",
        "picture.png",
    ]
    assert (
        await answer_of(files, "read_file", path="deep/good.txt")
    ).text == "deep and good"


@pytest.mark.slow
async def test_a_subscriber_of_a_file_is_told_of_its_changes(
    example: Example, folder: Path
) -> None:
    async with connect(example("files", FOLDER=folder).server, OPENING[-1]) as client:
        await client.request("resources/subscribe", {"uri": "folder:///deep/good.txt"})
        await trio.testing.wait_all_tasks_blocked(0.1)
        (folder / "deep" / "good.txt").write_text("better")
        with trio.fail_after(SECONDS):
            [heard] = await client.hear("notifications/resources/updated")
        assert heard["params"] == {"uri": "folder:///deep/good.txt"}
        assert (await client.read_resource("folder:///deep/good.txt"))[0][
            "text"
        ] == "better"


# The long job


async def test_a_long_job_ends_when_it_is_cancelled(
    example: Example, tmp_path: Path
) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}").write_bytes(b"as large as the others")
    async with connect(example("long_job", FOLDER=tmp_path).server) as client:
        id = client.begin(
            "tools/call",
            {"name": "find_duplicates", "arguments": {}},
            meta={"progressToken": 1},
        )
        await client.hear("notifications/progress", 3)
        client.notify("notifications/cancelled", {"requestId": id})
        await client.list_tools()
        told = len(client.heard)
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(client.heard) == told < 200


async def test_the_tool_says_that_the_user_cannot_be_asked(
    example: Example,
) -> None:
    result = await answer_of(example("long_job"), "find_duplicates", ask_above=0)
    assert result.is_error
    assert result.text.endswith(
        "This client cannot ask the user; to go on, give a larger ask_above"
    )


# The HTTP API

ISSUE = {"number": 7, "title": "A title", "state": "open", "body": None, "id": 1}
REPLIES: dict[str, tuple[int, bytes]] = {
    "/api/issues": (200, json.dumps([ISSUE]).encode()),
    "/api/issues/7": (200, json.dumps(ISSUE).encode()),
    "/api/issues/429": (429, b"slow down"),
    "/api/issues/500": (500, b"oh no"),
    "/api/issues/200": (200, b"<html>"),
    "/api/issues/201": (200, b"{}"),
}


class Api(ThreadingHTTPServer):
    """An API on a free port that stores its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiHandler)
        self.asked: list[tuple[str, str | None]] = []


class ApiHandler(BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        status, body = REPLIES.get(self.path.partition("?")[0], (404, b""))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "30")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_the_http_api_is_asked_with_the_token_and_the_arguments(
    example: Example, api: Api
) -> None:
    url = f"http://127.0.0.1:{api.server_address[1]}/api"
    issues = example("http_api", API=url, TOKEN="secret")
    listed = await answer_of(issues, "list_issues", state="closed", limit=3)
    assert listed.structured == [{"number": 7, "title": "A title", "state": "open"}]
    got = await answer_of(issues, "get_issue", number=7)
    assert got.structured["title"] == "A title"
    assert api.asked == [
        ("/api/issues?state=closed&per_page=3", "Bearer secret"),
        ("/api/issues/7", "Bearer secret"),
    ]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (404, "There is no issue 404; list_issues has the numbers"),
        (429, "The API refuses more requests; try again in 30 s"),
        (500, "The API answered with the status 500"),
        (200, "The API answered with something else: JSON is malformed"),
        (201, "The API answered with something else: Object missing required field"),
    ],
)
async def test_failures_of_the_http_api_are_told_to_the_model(
    example: Example, api: Api, number: int, says: str
) -> None:
    url = f"http://127.0.0.1:{api.server_address[1]}/api"
    result = await answer_of(example("http_api", API=url), "get_issue", number=number)
    assert result.is_error
    assert result.text.startswith(says)


async def test_an_http_api_that_is_away_is_told_to_the_model(example: Example) -> None:
    with refusing_port() as port:
        url = f"http://127.0.0.1:{port}"
        result = await answer_of(example("http_api", API=url), "list_issues")
    assert result.is_error
    assert result.text.startswith("The API cannot be reached: ")


# The Inspector

CALLS = {
    "weather": (
        ["get_weather", "get_weather_data"],
        "get_weather",
        ["location=London"],
        "Light rain",
    ),
    "database": (
        ["query"],
        "query",
        ["sql=SELECT product FROM sales ORDER BY sold DESC LIMIT 1"],
        "Sun hat",
    ),
    "files": (
        ["find_files", "read_file"],
        "read_file",
        ["path=shopping.txt"],
        "tomatoes",
    ),
    "clock_app": (
        [
            "show_clock"
        ],  # the Inspector does not show the other tool, which is for pages
        "show_clock",
        ["zone=Asia/Tokyo"],
        "in Asia/Tokyo.",
    ),
    "clock_extension": (
        ["get_noon"],
        "get_noon",
        ["hours_from_utc=9"],
        "3:00 UTC",
    ),
    "agent": (
        ["research", "search_notes"],
        "search_notes",
        ["word=tomato"],
        "tomato soup.md",
    ),
    "http_api": (
        ["list_issues", "get_issue"],
        "get_issue",
        ["number=2"],
        "It is too fast",
    ),
    "long_job": (
        ["find_duplicates"],
        "find_duplicates",
        ["ask_above=1"],
        "tomato soup.md",
    ),
}


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("way", ["stdio", "http"])
@each_example
def test_the_inspector_lists_and_calls_the_tools(path: Path, way: str) -> None:
    tools, tool, arguments, said = CALLS[path.stem]
    with target(path, way) as where:
        listed = inspected(*where, "--method", "tools/list")
        called = inspected(
            *where,
            "--method",
            "tools/call",
            "--tool-name",
            tool,
            "--tool-arg",
            *arguments,
        )
    assert [one["name"] for one in listed["tools"]] == tools
    assert not called.get("isError")
    assert said in called["content"][0]["text"]


@contextmanager
def target(path: Path, way: str) -> Iterator[list[str]]:
    """Return the arguments that let the Inspector connect to an example."""
    command = [sys.executable, "-m", "mcp_trio", "run", str(path)]
    if way == "stdio":
        yield command
        return
    with subprocess.Popen(
        [*command, "--http", "0"], cwd=PROJECT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield [process.stderr.readline().split()[-1], "--transport", "http"]
        finally:
            process.terminate()
        assert process.wait(SECONDS) == 0


def inspected(*arguments: str) -> Any:
    """Return the output of the Inspector."""
    try:
        command = [*inspector(), "--cli", *arguments]
    except Unavailable as reason:
        pytest.skip(f"cannot install the Inspector: {reason}")
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "timeout": SECONDS,
    }
    done = subprocess.run(command, cwd=PROJECT, check=False, text=True, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
