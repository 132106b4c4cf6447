"""What a type checker sees of the public API: mypy runs on a user's programs."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import PROJECT as ROOT

pytestmark = pytest.mark.types


@pytest.fixture(autouse=True)
def mypy_is_installed() -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: pip install mypy")


# The programs begin with this.
COMMON = """
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import assert_type

import mcp_trio
from mcp_trio import Access, Context, Elicit, Limits, Roots, Server, ToolAnnotations
from mcp_trio import SamplingMessage, ToolUse
from mcp_trio.testing import connect, replay


class Database:
    async def query(self, text: str) -> int:
        return len(text)


@dataclass
class Form:
    name: str


async def open_database() -> AsyncIterator[Database]:
    yield Database()


async def open_text() -> AsyncIterator[str]:
    yield "text"


@asynccontextmanager
async def database_of(server: Server[Database]) -> AsyncIterator[Database]:
    yield Database()


server = Server("demo")
typed: Server[Database] = Server("typed")
given = Server("given", lifespan=open_database)
managed = Server("managed", lifespan=database_of)
"""

CORRECT = (
    COMMON
    + """
@server.tool
async def add(a: int, b: int = 1) -> int:
    return a + b


@server.tool(
    name="sub",
    title="Subtract",
    annotations=ToolAnnotations(read_only_hint=True),
    timeout=5,
    rate="10/s",
    max_in_flight=3,
    max_result=1000,
    scopes={"math"},
)
def subtract(a: int, b: int) -> int:
    return a - b


@server.resource("notes://{id}", mime_type="text/plain", scopes={"notes"})
async def note(id: str) -> str:
    return id


@server.prompt
async def greet(name: str) -> str:
    return name


@server.prompt(title="Part", scopes=["part"])
async def part(name: str) -> str:
    return name


@server.complete("greet", "name")
async def names(so_far: str) -> list[str]:
    return [so_far]


@server.lifespan
async def anything() -> AsyncIterator[int]:
    yield 1


@typed.lifespan
async def connection() -> AsyncIterator[Database]:
    yield Database()


@typed.tool
async def query(text: str, ctx: Context[Database]) -> int:
    assert_type(ctx.lifespan, Database)
    return await ctx.lifespan.query(text)


@server.tool
async def untyped(ctx: Context) -> str:
    await ctx.progress(1, total=2, message="half")
    await ctx.log("info", {"any": "JSON"})
    sampled = await ctx.sample("Hello", max_tokens=10, temperature=0.5)
    answer = await ctx.sample(
        [
            "Hello",
            {"role": "assistant", "content": "Yes?"},
            SamplingMessage("assistant", ToolUse("a", "add", {})),
            [ToolUse("a", "add", {}).result("5")],
            sampled,
        ],
        max_tokens=10,
        tools=[{"name": "add", "inputSchema": {"type": "object"}}],
        tool_choice="auto",
    )
    assert_type(answer.tool_uses, list[ToolUse])
    form = await ctx.elicit("Who are you?", Form)
    assert_type(form.content, Form | None)
    roots = await ctx.roots()
    return sampled.text + roots[0].uri + str(ctx.lifespan)


async def main() -> None:
    assert_type(await add(1, b=2), int)
    assert_type(subtract(2, 1), int)
    assert_type(await note("a"), str)
    assert_type(given, Server[Database])
    assert_type(managed, Server[Database])
    server.add_tool(lambda: "x", name="x")
    server.add_resource("notes://all", lambda: "x", size=1)
    server.add_prompt(lambda: "x", name="x")
    await server.serve(http="127.0.0.1:0", path="/mcp", tls=("cert.pem", "key.pem"))
    server.asgi("/mcp", allowed_origins=["https://example.com"])
    async with connect(server, "2025-06-18", capabilities={"roots": {}}) as client:
        assert_type((await client.call_tool("add", {"a": 1})).text, str)
    await replay("trace.jsonl", typed, over="http")
"""
)

# The error codes at the end of a line are what mypy must report there.
WRONG = (
    COMMON
    + """
@server.tool(timout=5)  # call-overload, untyped-decorator
async def one() -> str:
    return "x"


@server.prompt(titel="One")  # call-overload, untyped-decorator
async def two() -> str:
    return "x"


@server.resource("notes://all", mimetype="text/plain")  # call-arg
async def three() -> str:
    return "x"


@server.tool
async def add(a: int) -> int:
    return a


@server.tool(name="sub")
async def subtract(a: int) -> int:
    return a


@typed.tool
async def query(ctx: Context[Database]) -> int:
    await ctx.sample("Hello")  # call-arg
    await ctx.sample([5], max_tokens=1)  # list-item
    await ctx.sample("Hello", max_tokens=1, temprature=1)  # call-arg
    return await ctx.lifespan.ask("text")  # attr-defined, no-any-return


async def main() -> None:
    await add("1")  # arg-type
    await subtract(b=1)  # call-arg
    await server.serve(htpp="127.0.0.1:8000")  # call-arg
    await server.serve(http=8000, http_engine="nginx")  # arg-type
    server.asgi("/mcp", tls=("cert.pem", "key.pem"))  # call-arg
    server.add_tool(add, timeout="5")  # arg-type
    server.add_tool(5)  # type-var
    Server("x", page=5)  # call-arg
    Server("x", lifespan=Database)  # arg-type
    typed.lifespan(open_text)  # arg-type
    other: Server[str] = given  # assignment
    async with connect(server, principle=None) as client:  # call-arg
        await client.call_tool("add")
    mcp_trio.Servr("x")  # attr-defined
"""
)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, int, str]]:
    """What mypy --strict reports on both programs: file, line and error code."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "correct.py").write_text(CORRECT, encoding="utf-8")
    (folder / "wrong.py").write_text(WRONG, encoding="utf-8")
    options = ["--strict", "--follow-imports=silent", "--config-file=", "--no-pretty"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "correct.py", "wrong.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"^(\S+):(\d+): error: .*\[(.*)\]$", done.stdout, re.MULTILINE)
    return {(file, int(line), code) for file, line, code in found}


def test_a_correct_program_has_no_errors(reported: set[tuple[str, int, str]]) -> None:
    assert [error for error in reported if error[0] == "correct.py"] == []


def test_each_mistake_is_an_error(reported: set[tuple[str, int, str]]) -> None:
    expected = set()
    for number, line in enumerate(WRONG.splitlines(), 1):
        _, comment, codes = line.partition("  # ")
        if comment:
            expected |= {("wrong.py", number, code) for code in codes.split(", ")}
    assert {error for error in reported if error[0] == "wrong.py"} == expected
