"""The page for Prometheus counts requests by method, tool and outcome."""

import shutil
import subprocess

import pytest
import trio

from mcp_trio import Server, ToolError
from mcp_trio.transports.http import metrics
from tests.support.http_wire import site


def make_server() -> Server:
    server = Server("metrics")

    @server.tool
    async def good() -> str:
        """Succeed."""
        return "ok"

    @server.tool(rate="1/m")
    async def limited() -> str:
        """Succeed once a minute."""
        return "ok"

    @server.tool
    async def unlucky() -> str:
        """Report a failure."""
        raise ToolError("no luck")

    @server.tool
    async def broken() -> str:
        """Fail."""
        raise RuntimeError("secret")

    @server.tool(timeout=0.01)
    async def slow() -> str:
        """Take too long."""
        await trio.sleep_forever()
        return "never"

    return server


async def page_after(*tools: str) -> list[str]:
    """Call tools one after the other, and return the lines of the page."""
    async with site(make_server()) as there:
        for tool in tools:
            await there.modern("tools/call", {"name": tool})
        reply = await there.send("GET", "/metrics")
    return reply.body.decode().splitlines()


async def test_calls_are_counted_by_tool_and_outcome() -> None:
    lines = await page_after(
        "good", "limited", "limited", "limited", "unlucky", "broken", "slow"
    )
    counted = {
        line.removeprefix('mcp_requests_total{method="tools/call",tool=')
        for line in lines
        if line.startswith("mcp_requests_total")
    }
    assert counted == {
        '"good",outcome="ok"} 1',
        '"limited",outcome="ok"} 1',
        '"limited",outcome="refused"} 2',
        '"unlucky",outcome="tool_error"} 1',
        '"broken",outcome="error"} 1',
        '"slow",outcome="timeout"} 1',
    }


async def test_seconds_are_a_histogram_whose_buckets_add_up() -> None:
    lines = await page_after("good", "good", "slow")
    counts = {
        line.split("} ")[0] + "}": line.split("} ")[1]
        for line in lines
        if line.startswith("mcp_request_seconds")
    }
    good = 'method="tools/call",tool="good"'
    assert counts["mcp_request_seconds_count{" + good + "}"] == "2"
    assert counts["mcp_request_seconds_bucket{" + good + ',le="+Inf"}'] == "2"
    slow = 'method="tools/call",tool="slow"'
    assert counts["mcp_request_seconds_bucket{" + slow + ',le="0.005"}'] == "0"
    assert counts["mcp_request_seconds_bucket{" + slow + ',le="+Inf"}'] == "1"


async def test_a_cancelled_request_is_counted_as_cancelled() -> None:
    counting = metrics.Metrics()
    server = Server("cancelling")
    begun = trio.Event()

    @server.tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await trio.sleep_forever()
        return "never"

    from mcp_trio.testing import connect

    server.observe_requests(counting)
    async with connect(server, "2025-11-25") as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "wait")
        await begun.wait()
        nursery.cancel_scope.cancel()
    page = counting.render([]).decode()
    assert 'method="tools/call",tool="wait",outcome="cancelled"} 1' in page


async def test_requests_on_stdio_and_memory_are_counted_too() -> None:
    from mcp_trio.testing import connect

    counting = metrics.Metrics()
    server = make_server()
    server.observe_requests(counting)
    async with connect(server) as client:
        await client.call_tool("good")
        await client.list_tools()
    page = counting.render([]).decode()
    assert 'mcp_requests_total{method="tools/call",tool="good",outcome="ok"} 1' in page
    assert 'mcp_requests_total{method="tools/list",outcome="ok"} 1' in page


async def test_tools_beyond_a_number_share_one_series(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mcp_trio.testing import connect

    monkeypatch.setattr(metrics, "MAX_TOOLS", 2)
    counting = metrics.Metrics()
    server = make_server()
    server.observe_requests(counting)
    async with connect(server) as client:
        for tool in ("good", "limited", "unlucky", "broken", "good"):
            await client.call_tool(tool)
    page = counting.render([]).decode()
    assert 'tool="good",outcome="ok"} 2' in page
    assert 'tool="(other)",outcome="tool_error"} 1' in page
    assert 'tool="(other)",outcome="error"} 1' in page
    assert "broken" not in page


def test_a_label_with_quotes_is_escaped() -> None:
    assert metrics.labels(tool='a"b\\c\nd') == '{tool="a\\"b\\\\c\\nd"}'


@pytest.mark.integration
@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)
async def test_promtool_accepts_the_page() -> None:
    lines = await page_after("good", "limited", "limited", "unlucky", "broken")
    page = "".join(f"{line}\n" for line in lines)
    checked = await trio.run_process(
        ["promtool", "check", "metrics"],
        stdin=page.encode(),
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert checked.stdout == b""
    assert checked.returncode == 0
