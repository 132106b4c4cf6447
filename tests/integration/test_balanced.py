"""Two processes behind nginx, configured as in docs/deployment.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import trio

from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect
from tests.support.deployment import balanced, running_server

pytestmark = pytest.mark.integration

PATIENCE = 20


@contextmanager
def process(secret: str) -> Iterator[int]:
    """Yield the port of a demo server with this secret."""
    with running_server(environment={"MCP_TRIO_SECRET": secret}) as port:
        yield port


async def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"city": "Nairobi", "days": 5}}


async def trip(url: str) -> str:
    """Return the results of a tool that asks."""
    capabilities = {"elicitation": {"form": {}}}
    with trio.fail_after(PATIENCE):
        async with connect(url, capabilities=capabilities, answer=answer) as client:
            return (await client.call_tool("plan_trip")).text


def calls(port: int) -> str:
    """What a process says of the calls that it has answered."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as told:
        return str(
            re.findall(
                r'total\{method="tools/call".*outcome="(\w+)"\} (\d+)',
                told.read().decode(),
            )
        )


@pytest.mark.slow
async def test_a_question_of_one_process_is_answered_to_another(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ports = [
            stack.enter_context(process("the same secret for all processes"))
            for _ in range(2)
        ]
        url = stack.enter_context(balanced(tmp_path, ports))
        assert await trip(url) == "5 days in Nairobi: Sunny. Pack light clothes."
        assert [calls(port) for port in ports] == ["[('ok', '1')]"] * 2


@pytest.mark.slow
async def test_processes_with_secrets_of_their_own_do_not_know_each_others_questions(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        ports = [
            stack.enter_context(process(secret)) for secret in ("1" * 32, "2" * 32)
        ]
        url = stack.enter_context(balanced(tmp_path, ports))
        with pytest.raises(RemoteError, match="not one that this server has given"):
            await trip(url)
