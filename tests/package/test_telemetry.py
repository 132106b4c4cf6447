"""OpenTelemetry gets a span and a duration for every request."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import trio
from opentelemetry import trace
from opentelemetry.instrumentation.httpx import AsyncOpenTelemetryTransport
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from trio_websocket import open_websocket_url

from mcp_trio import Context, Server, ToolError
from mcp_trio.client.errors import RemoteError
from mcp_trio.client.event_parser import EventParser
from mcp_trio.client.target import connect as connect_to
from mcp_trio.telemetry import Telemetry
from mcp_trio.testing import connect
from mcp_trio.transports.websocket import serve_websocket
from tests.support.http_wire import HEADERS, request, site

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
OTHER_TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


class Collected:
    """What was reported, in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self._reader])

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def durations(
        self, name: str = "mcp.server.operation.duration"
    ) -> list[dict[str, Any]]:
        """Return the attributes of every series of a histogram."""
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        (metric,) = [metric for metric in metrics if metric.name == name]
        assert metric.unit == "s"
        return [dict(point.attributes or {}) for point in metric.data.data_points]


@contextmanager
def collecting(server: Server) -> Iterator[Collected]:
    collected = Collected()
    telemetry = Telemetry(
        tracer_provider=collected.tracer_provider,
        meter_provider=collected.meter_provider,
    )
    server.observe_requests(telemetry)
    server.observe_sessions(telemetry)
    yield collected
    server.stop_observing_sessions(telemetry)
    server.stop_observing_requests(telemetry)


def make_server() -> Server:
    server = Server("traced")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def wait() -> str:
        """Wait, then say which span is current."""
        await trio.lowlevel.checkpoint()
        return format(trace.get_current_span().get_span_context().span_id, "016x")

    @server.tool
    async def unlucky() -> str:
        """Report a failure."""
        raise ToolError("no luck")

    @server.prompt
    async def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello {name}"

    @server.resource("notes://{id}")
    async def note(id: str) -> str:
        """Read a note."""
        return id

    return server


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_tool_call_has_a_span_with_the_conventional_attributes() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server, "2025-11-25") as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    span = collected.spans["tools/call add"]
    assert span.kind is SpanKind.SERVER
    assert span.status.status_code is StatusCode.UNSET
    attributes = attributes_of(span)
    assert attributes.pop("jsonrpc.request.id") in ("1", "2")
    assert attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "inproc",
        "gen_ai.tool.name": "add",
        "gen_ai.operation.name": "execute_tool",
    }


async def test_every_method_has_a_span_and_a_duration() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server, "2025-11-25") as client:
            await client.list_tools()
            await client.read_resource("notes://1")
            await client.get_prompt("greet", {"name": "x"})
    assert set(collected.spans) == {
        "initialize",
        "tools/list",
        "resources/read",
        "prompts/get greet",
    }
    read = attributes_of(collected.spans["resources/read"])
    assert read["mcp.resource.uri"] == "notes://1"
    methods = [series["mcp.method.name"] for series in collected.durations()]
    assert sorted(methods) == [
        "initialize",
        "prompts/get",
        "resources/read",
        "tools/list",
    ]


async def test_failures_have_a_type_and_a_status() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server, "2025-11-25") as client:
            await client.call_tool("unlucky")
            with pytest.raises(RemoteError):
                await client.call_tool("missing")
    unlucky = collected.spans["tools/call unlucky"]
    assert unlucky.status.status_code is StatusCode.ERROR
    assert attributes_of(unlucky)["error.type"] == "tool_error"
    missing = collected.spans["tools/call"]
    assert attributes_of(missing)["error.type"] == "-32602"
    assert attributes_of(missing)["rpc.response.status_code"] == "-32602"
    assert "missing" in str(missing.status.description)


async def test_an_unknown_name_is_not_used_as_a_label() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server, "2025-11-25") as client:
            with pytest.raises(RemoteError):
                await client.call_tool("invented-by-the-client")
    assert not any("invented" in name for name in collected.spans)
    assert not any("invented" in str(series) for series in collected.durations())


async def test_the_parent_is_the_context_in_meta() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server) as client:
            await client.call_tool(
                "add", {"a": 1, "b": 2}, meta={"traceparent": TRACEPARENT}
            )
    span = collected.spans["tools/call add"]
    assert span.parent is not None
    assert format(span.parent.trace_id, "032x") == TRACE_ID
    assert format(span.parent.span_id, "016x") == PARENT_ID


async def test_the_parent_is_the_http_header_where_meta_has_none() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with site(server) as there:
            await there.modern(
                "tools/call",
                {"name": "add", "arguments": {"a": 1, "b": 2}},
                traceparent=TRACEPARENT,
            )
    span = collected.spans["tools/call add"]
    assert span.parent is not None
    assert format(span.parent.trace_id, "032x") == TRACE_ID
    assert attributes_of(span)["network.protocol.name"] == "http"
    assert attributes_of(span)["client.address"] == "127.0.0.1"


async def test_the_http_context_is_a_link_where_meta_has_the_parent() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with site(server) as there:
            await there.modern(
                "tools/call",
                {
                    "name": "add",
                    "arguments": {"a": 1, "b": 2},
                    "_meta": {"traceparent": TRACEPARENT},
                },
                traceparent=f"00-{OTHER_TRACE_ID}-{PARENT_ID}-01",
            )
    span = collected.spans["tools/call add"]
    assert span.parent is not None
    assert format(span.parent.trace_id, "032x") == TRACE_ID
    (link,) = span.links
    assert format(link.context.trace_id, "032x") == OTHER_TRACE_ID


def with_tenant(server: Server) -> Server:
    @server.tool
    async def tenant(ctx: Context) -> str:
        """Return a header."""
        return ctx.headers["x-tenant"]

    return server


CONNECTION_HEADERS = {"traceparent": TRACEPARENT, "X-Tenant": "blue"}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "tenant",
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}


async def test_a_websocket_has_the_headers_and_the_parent_of_its_handshake() -> None:
    server = with_tenant(make_server())
    upgrade = partial(serve_websocket, server, stopping=trio.Event())
    with collecting(server) as collected:
        async with (
            site(server, upgrade) as there,
            open_websocket_url(
                f"ws://127.0.0.1:{there.port}/mcp",
                extra_headers=[
                    (name.encode(), value.encode())
                    for name, value in CONNECTION_HEADERS.items()
                ],
            ) as connection,
        ):
            await connection.send_message(json.dumps(CALL))
            assert "blue" in str(await connection.get_message())
    assert_parent(collected.spans["tools/call tenant"])


async def test_http_sse_has_the_headers_and_the_parent_of_its_stream() -> None:
    server = with_tenant(make_server())
    with collecting(server) as collected:
        async with site(server) as there, there.wire() as wire:
            parser = EventParser()
            await wire.send(request("GET", "/sse", CONNECTION_HEADERS))
            await wire.head()
            path = (await wire.event(parser)).data
            body = json.dumps(CALL).encode()
            await there.send("POST", path, HEADERS, body)
            assert "blue" in (await wire.event(parser)).data
    assert_parent(collected.spans["tools/call tenant"])


def assert_parent(span: ReadableSpan) -> None:
    assert span.parent is not None
    assert format(span.parent.trace_id, "032x") == TRACE_ID


async def test_a_session_has_a_duration() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server, "2025-11-25") as client:
            await client.list_tools()
        async with connect(server, "2026-07-28") as client:
            await client.list_tools()
        async with site(server) as there:
            url = f"http://127.0.0.1:{there.port}/mcp"
            async with connect_to(url, revision="2025-06-18") as client:
                await client.list_tools()
    assert collected.durations("mcp.server.session.duration") == [
        {"mcp.protocol.version": "2025-11-25", "network.transport": "inproc"},
        {
            "mcp.protocol.version": "2025-06-18",
            "network.transport": "tcp",
            "network.protocol.name": "http",
        },
    ]


async def test_a_bad_traceparent_starts_a_new_trace() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server) as client:
            for bad in ("", "nonsense", 7, None):
                await client.call_tool("wait", meta={"traceparent": bad})
    assert collected.spans["tools/call wait"].parent is None


async def test_the_span_is_current_in_the_function_and_nowhere_else() -> None:
    server = make_server()
    with collecting(server) as collected:
        async with connect(server) as client:
            seen = (await client.call_tool("wait")).text
            context = collected.spans["tools/call wait"].get_span_context()
            assert context is not None
            assert seen == format(context.span_id, "016x")
            await client.call_tool("add", {"a": 1, "b": 2})
    assert collected.spans["tools/call add"].parent is None


async def test_one_trace_goes_from_an_instrumented_client_through_a_tool() -> None:
    """A client's span is the parent of ours, and ours of what the tool requests."""
    collected = Collected()
    behind = Server("behind")
    front = Server("front")

    @behind.tool
    async def lookup() -> str:
        """Look something up."""
        return "found"

    def traced_client() -> httpx.AsyncClient:
        transport = AsyncOpenTelemetryTransport(
            httpx.AsyncHTTPTransport(), tracer_provider=collected.tracer_provider
        )
        return httpx.AsyncClient(transport=transport)

    async def call(client: httpx.AsyncClient, port: int, tool: str) -> httpx.Response:
        return await client.post(
            f"http://127.0.0.1:{port}/mcp",
            json={
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": tool},
            },
            headers={
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2025-11-25",
            },
        )

    telemetry = Telemetry(
        tracer_provider=collected.tracer_provider,
        meter_provider=collected.meter_provider,
    )
    front.observe_requests(telemetry)
    async with site(behind) as second, site(front) as first:

        @front.tool
        async def search() -> str:
            """Ask the server behind."""
            async with traced_client() as client:
                return (await call(client, second.port, "lookup")).text

        async with traced_client() as client:
            reply = await call(client, first.port, "search")
        assert "found" in reply.text
    by_id = {
        span.context.span_id: span
        for span in collected.exporter.get_finished_spans()
        if span.context is not None
    }
    ours = collected.spans["tools/call search"]
    assert ours.parent is not None
    assert by_id[ours.parent.span_id].kind is SpanKind.CLIENT
    children = [
        span
        for span in by_id.values()
        if span.parent
        and span.parent.span_id == (ours.context.span_id if ours.context else None)
    ]
    assert [span.kind for span in children] == [SpanKind.CLIENT]
    assert len({span.context.trace_id for span in by_id.values() if span.context}) == 1


async def test_telemetry_is_a_setting_of_the_server() -> None:
    server = Server("traced", telemetry=True)

    @server.tool
    async def ping() -> str:
        """Answer."""
        return "pong"

    assert server.request_observers == ()
    async with connect(server) as client:
        assert len(server.request_observers) == 1
        assert (await client.call_tool("ping")).text == "pong"
    assert server.request_observers == ()
