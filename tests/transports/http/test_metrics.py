"""The page for Prometheus counts requests by method, tool and outcome."""

import shutil
import subprocess

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from mcp_trio import Context, InvalidParams, Server, ToolError
from mcp_trio.client import TASKS, Client, RemoteError
from mcp_trio.extensions import labels
from mcp_trio.extensions.tasks import Tasks
from mcp_trio.testing import connect
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


def server_with_tasks() -> Server:
    server = Server("metrics", extensions=[Tasks(slots=2)])

    @server.tool(task="optional")
    async def wait() -> str:
        """Wait for ever."""
        await trio.sleep_forever()
        return "never"

    @server.tool(task="optional")
    async def ask(ctx: Context) -> str:
        """Ask for the roots."""
        await ctx.roots()
        return "asked"

    @server.tool(task="optional")
    async def unlucky() -> str:
        """Report a failure."""
        raise ToolError("no luck")

    @server.tool(task="optional")
    async def refuse() -> str:
        """Fail with an error of the protocol."""
        raise InvalidParams("never")

    @server.tool(task="optional", ttl=1)
    async def expire() -> str:
        """Take longer than the task is kept."""
        await trio.sleep_forever()
        return "never"

    return server


def task_lines(server: Server) -> dict[str, float]:
    """Return the samples of the metrics of tasks."""
    assert server.extensions is not None
    samples: dict[str, float] = {}
    for gauge in server.extensions.gauges():
        samples |= {gauge.name + key: gauge.samples[key] for key in gauge.samples}
    return samples


async def create_task(client: Client, tool: str) -> str:
    params = {"name": tool, "arguments": {}}
    task = await client.request("tools/call", params)
    await trio.testing.wait_all_tasks_blocked()
    id: str = task["taskId"]
    return id


CAPABILITIES = {"roots": {}, "extensions": {TASKS: {}}}


async def test_tasks_are_counted_by_state(autojump_clock: MockClock) -> None:
    server = server_with_tasks()
    async with connect(server, capabilities=CAPABILITIES) as client:
        for tool in ("ask", "wait", "wait", "wait"):
            await create_task(client, tool)
        assert task_lines(server) == {
            'mcp_tasks{state="working"}': 2,
            'mcp_tasks{state="input_required"}': 1,
            'mcp_tasks{state="queued"}': 1,
        }


async def test_tasks_that_are_over_are_counted_by_outcome(
    autojump_clock: MockClock,
) -> None:
    server = server_with_tasks()
    async with connect(server, capabilities=CAPABILITIES) as client:
        with pytest.raises(RemoteError, match="never"):
            await client.call_tool("refuse")
        await client.call_tool("unlucky")
        for tool in ("wait", "ask"):
            id = await create_task(client, tool)
            await client.request("tasks/cancel", {"taskId": id})
            await client.request("tasks/cancel", {"taskId": id})
        # The third waits for a slot until it has expired.
        for _ in range(3):
            await create_task(client, "expire")
        await trio.sleep(10)
        assert task_lines(server) == {
            'mcp_tasks{state="working"}': 0,
            'mcp_tasks{state="input_required"}': 0,
            'mcp_tasks{state="queued"}': 0,
            'mcp_tasks_total{outcome="failed"}': 1,
            'mcp_tasks_total{outcome="completed"}': 1,
            'mcp_tasks_total{outcome="cancelled"}': 2,
            'mcp_tasks_total{outcome="expired"}': 3,
        }


@pytest.mark.parametrize("tool", ["work", "start_work"])
async def test_a_call_that_becomes_a_task_counts_as_one_that_succeeds(
    tool: str, autojump_clock: MockClock
) -> None:
    counting = metrics.Metrics()
    server = Server("metrics")

    @server.tool(task="optional")
    async def work() -> str:
        """Work for three seconds."""
        await trio.sleep(3)
        return "done"

    @server.tool(task="optional", manual_start=True)
    async def start_work(ctx: Context) -> str:
        """Start a task, and work for three seconds."""
        await ctx.start_task()
        await trio.sleep(3)
        return "done"

    server.observe_requests(counting)
    async with connect(server, capabilities=CAPABILITIES) as client:
        await client.call_tool(tool)
    page = counting.render([]).decode()
    assert f'tool="{tool}",outcome="task"}} 1' in page
    assert f'tool="{tool}",outcome="ok"}} 1' in page


async def test_the_page_has_the_tasks_of_a_server_that_has_them() -> None:
    async with site(server_with_tasks()) as there:
        page = (await there.send("GET", "/metrics")).body.decode()
    assert "# TYPE mcp_tasks gauge\nmcp_tasks{" in page
    assert "# TYPE mcp_tasks_total counter\n" in page
    async with site(make_server()) as there:
        page = (await there.send("GET", "/metrics")).body.decode()
    assert "mcp_tasks" not in page


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

    server.observe_requests(counting)
    async with connect(server, "2025-11-25") as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "wait")
        await begun.wait()
        nursery.cancel_scope.cancel()
    page = counting.render([]).decode()
    assert 'method="tools/call",tool="wait",outcome="cancelled"} 1' in page


async def test_requests_on_stdio_and_memory_are_counted_too() -> None:
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
    assert labels(tool='a"b\\c\nd') == '{tool="a\\"b\\\\c\\nd"}'


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
