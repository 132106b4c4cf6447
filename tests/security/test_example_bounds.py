"""The examples limit every request of a client, as a good server should."""

import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from mcp_trio.load_spec import load
from tests.support.checked import NEWEST, connect

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SERIES = (
    "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
)
WIDE = ", ".join(["hex(zeroblob(4999))"] * 100)
# One step of a query, and a long one.
SLOW = "hex(zeroblob(4990)) LIKE '" + "%0" * 40 + "%1'"


async def _answer(name: str, tool: str, **arguments: Any) -> Any:
    server: Any = load(str(EXAMPLES / f"{name}.py"))
    async with connect(server, NEWEST) as client:
        return await client.call_tool(tool, arguments)


async def test_a_query_is_bounded_in_bytes() -> None:
    tracemalloc.start()
    result = await _answer("database", "query", sql=SERIES.format(WIDE))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.structured["truncated"] is True
    assert len(result.text) < 1_000_000
    assert peak < 20 * 2**20


async def test_a_query_is_bounded_in_columns() -> None:
    columns = ", ".join(["1"] * 101)
    result = await _answer("database", "query", sql=f"SELECT {columns}")
    assert result.is_error
    assert "too many columns" in result.text


async def test_a_value_of_a_query_is_bounded_in_bytes() -> None:
    result = await _answer("database", "query", sql="SELECT zeroblob(10001)")
    assert result.is_error
    assert "too big" in result.text


async def test_a_query_is_bounded_in_length() -> None:
    result = await _answer("database", "query", sql="SELECT 1" + " " * 10_000)
    assert result.is_error


async def test_a_like_pattern_is_bounded_in_length() -> None:
    sql = f"SELECT 'x' LIKE '{'%x' * 51}'"
    result = await _answer("database", "query", sql=sql)
    assert "LIKE or GLOB pattern too complex" in result.text


@pytest.mark.slow
@pytest.mark.parametrize("what", ["count(*)", f"max({SLOW})"])
async def test_a_query_is_stopped_in_time(what: str) -> None:
    # The time of this process only: others may keep it waiting.
    began = time.process_time()
    result = await _answer("database", "query", sql=SERIES.format(what))
    assert result.is_error
    assert time.process_time() - began < 3.5


async def test_a_pattern_is_bounded_in_length() -> None:
    result = await _answer("files", "find_files", pattern="*" + "a" * 200)
    assert result.is_error
    assert result.text == "A pattern has at most 200 characters"


async def test_so_many_files_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text("text")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    code = (
        (EXAMPLES / "files.py")
        .read_text()
        .replace("MOST_LOOKED_AT = 10_000", "MOST_LOOKED_AT = 5")
    )
    example = tmp_path / "example.py"
    example.write_text(code)
    server: Any = load(str(example))
    async with connect(server, NEWEST) as client:
        result = await client.call_tool("find_files", {"pattern": "*.txt"})
    assert 0 < len(result["content"]) <= 5
