"""An exception in a test of your own server is raised as itself, not in a group."""

import sys

import pytest
import trio

from mcp_trio import Server
from mcp_trio import client as clients
from mcp_trio.client.errors import RemoteError
from mcp_trio.testing import connect
from tests.support.checked import ALL


@pytest.mark.parametrize("revision", ALL)
async def test_an_error_of_the_server_can_be_caught_around_it_all(
    revision: str,
) -> None:
    with pytest.raises(RemoteError, match="not supported"):
        async with connect(Server("x"), revision) as client:
            await client.get_prompt("none")


async def test_what_a_test_raises_keeps_its_cause_and_context() -> None:
    cause, context = ValueError("cause"), KeyError("context")

    async def test() -> None:
        async with connect(Server("x")):
            try:
                raise context
            except KeyError:
                raise AssertionError("no") from cause

    with pytest.raises(AssertionError) as caught:
        await test()
    assert (caught.value.__cause__, caught.value.__context__) == (cause, context)


async def test_several_failures_stay_together() -> None:
    async def fail() -> None:
        raise ValueError("both")

    with pytest.RaisesGroup(ValueError, ValueError):
        async with connect(Server("x")), trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)


@pytest.mark.slow
async def test_the_same_of_a_process() -> None:
    with pytest.raises(AssertionError, match="no"):
        async with clients.connect([sys.executable, "-m", "mcp_trio"]):
            raise AssertionError("no")
