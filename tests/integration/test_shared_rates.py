"""Rates that two processes count together in a Redis."""

from __future__ import annotations

import json
import secrets
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess, newest_request, serving, until
from tests.support.redis_server import running_redis

pytest.importorskip("coredis")
pytestmark = [pytest.mark.slow, pytest.mark.integration]

SERVER = """
from mcp_trio import Server

server = Server("limited")

@server.tool
async def work() -> str:
    return "done"

@server.tool(rate="10/m")
async def limited() -> str:
    return "done"
"""


def answered_by_curl(process: ServerProcess, tool: str, times: int) -> int:
    """Let curl call a tool this many times, and return how often it answered."""
    headers, body = newest_request("tools/call", {"name": tool, "arguments": {}})
    words = [f"-H{name}: {value}" for name, value in headers.items()]
    urls = [f"http://127.0.0.1:{process.port}/mcp"] * times
    command = ["curl", "-s", "-w", "\\n", *words, "-d", body, *urls]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = [json.loads(line)["result"] for line in done.stdout.splitlines()]
    assert len(results) == times
    return sum(not result.get("isError") for result in results)


@pytest.mark.parametrize(
    ("tool", "options"),
    [("limited", ()), ("work", ("--rate", "10/m"))],
    ids=["tool", "server"],
)
def test_clients_of_two_processes_get_ten_answers_a_minute(
    tmp_path: Path, tool: str, options: tuple[str, ...]
) -> None:
    spec = tmp_path / "limited_server.py"
    spec.write_text(SERVER)
    with ExitStack() as stack:
        redis = stack.enter_context(running_redis(tmp_path))
        all_options = ("--store", redis.url(), *options)
        a = stack.enter_context(serving(spec, *all_options))
        b = stack.enter_context(serving(spec, *all_options))
        pool = stack.enter_context(ThreadPoolExecutor(4))
        began = time.monotonic()
        call = partial(answered_by_curl, tool=tool, times=12)
        answered = sum(pool.map(call, (a, b, a, b)))
        seconds = time.monotonic() - began
    # Another call is allowed every six seconds.
    assert 10 <= answered <= 10 + seconds / 6


def answered(process: ServerProcess, times: int) -> int:
    """Call a tool this many times, and return how often it answered."""
    call = {"name": "work", "arguments": {}}
    results = [process.ask("tools/call", call) for _ in range(times)]
    return sum(not result.get("isError") for result in results)


def test_two_processes_answer_as_many_calls_as_the_rate_allows(tmp_path: Path) -> None:
    spec = tmp_path / "limited_server.py"
    spec.write_text(SERVER)
    with ExitStack() as stack:
        redis = stack.enter_context(running_redis(tmp_path))
        options = ("--store", redis.url(secrets.token_hex(4)), "--rate", "10/h")
        a = stack.enter_context(serving(spec, *options))
        b = stack.enter_context(serving(spec, *options))
        assert answered(a, 6) + answered(b, 10) + answered(a, 4) == 10
        # Without Redis, each process counts only its own requests.
        redis.kill()
        until(lambda: a.get("/readyz")[0] == b.get("/readyz")[0] == 503)
        assert answered(a, 12) == answered(b, 12) == 10
        redis.start()
        until(lambda: a.get("/readyz")[0] == b.get("/readyz")[0] == 200)
        assert answered(a, 3) + answered(b, 3) == 0
