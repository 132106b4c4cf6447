"""Limits and logging as flags and environment variables of `run`."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.checked import Json, call
from tests.support.paths import PROJECT

NEWEST = "2026-07-28"
SERVER = """
from mcp_trio import Limits, Server
server = Server("x", limits=Limits(rate="1/h", timeout=7, max_in_flight_per_connection=9))

@server.tool
async def large() -> str:
    return "x" * 5000

@server.tool
async def fail(secret: str) -> str:
    raise RuntimeError("it broke")
"""


def run(
    *arguments: str, given: list[Json], **environment: str
) -> tuple[list[Json], str]:
    done = subprocess.run(
        [sys.executable, "-m", "mcp_trio", "run", *arguments],
        input="".join(json.dumps(message) + "\n" for message in given),
        capture_output=True,
        check=True,
        cwd=PROJECT,
        env={**os.environ, **environment},
        text=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    return str(tmp_path / "server.py")


@pytest.mark.thorough
@pytest.mark.parametrize("by", ["flag", "environment"])
def test_a_burst_at_the_demo_gets_ten_answers_and_a_few_lines(by: str) -> None:
    burst = [
        call(NEWEST, id, "get_weather", {"location": "London"}) for id in range(100)
    ]
    if by == "flag":
        replies, log = run("--rate", "10/m", "--log-format", "json", given=burst)
    else:
        replies, log = run(
            given=burst, MCP_TRIO_RATE="10/m", MCP_TRIO_LOG_FORMAT="json"
        )
    texts = Counter(reply["result"]["content"][0]["text"] for reply in replies)
    assert (
        sum(
            count
            for text, count in texts.items()
            if text.startswith("Current weather in London")
        )
        == 10
    )
    refused = r"Too many calls: 10 a minute are allowed; try again in [56] s"
    assert sum(bool(re.fullmatch(refused, text)) for text in texts.elements()) == 90
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["event"] for line in lines] == ["refused"] * 11
    assert lines[-1]["more"] == 80


def test_a_flag_goes_before_what_the_code_says_and_leaves_the_rest(spec: str) -> None:
    large = [call(NEWEST, id, "large") for id in range(3)]
    replies, _ = run(spec, "--rate", "2/h", "--max-result", "1000", given=large)
    texts = [reply["result"]["content"][0]["text"] for reply in replies]
    assert ["[cut: 5,000 characters" in text for text in texts] == [True, True, False]
    assert "2 an hour are allowed" in texts[2]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("asked", "shown"), [((), False), (("--log-arguments",), True)]
)
def test_arguments_are_in_the_log_on_request(
    spec: str, asked: tuple[str, ...], shown: bool
) -> None:
    replies, log = run(
        spec,
        "--log-format=json",
        *asked,
        given=[call(NEWEST, 1, "fail", {"secret": "swordfish"})],
    )
    assert replies[0]["result"]["isError"] is True
    (line,) = map(json.loads, log.splitlines())
    assert "RuntimeError: it broke" in line["traceback"]
    assert ("swordfish" in log) is shown
    assert "it broke" not in json.dumps(replies)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("flag", "value", "told"),
    [
        ("--rate", "10", "'10/s', '100/m' or '1000/h'"),
        ("--max-in-flight", "0", "expected a whole number of at least 1, got '0'"),
        ("--max-result", "1e6", "expected a whole number of at least 1, got '1e6'"),
        ("--log-format", "xml", "expected one of text, json, got 'xml'"),
    ],
)
def test_an_impossible_limit_is_reported_in_one_line(
    flag: str, value: str, told: str
) -> None:
    command = [sys.executable, "-m", "mcp_trio", "run", flag, value]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        cwd=PROJECT,
        text=True,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
