"""Rates that two processes count together in a Redis."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess, serving, until
from tests.support.redis_server import running_redis

pytest.importorskip("coredis")
pytestmark = [pytest.mark.slow, pytest.mark.integration]

SERVER = """
from mcp_trio import Server

server = Server("limited")

@server.tool
async def work() -> str:
    return "done"
"""


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
