"""A trace through nginx and a tool, exported over OTLP by opentelemetry-instrument."""

from __future__ import annotations

import gzip
import shutil
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.httpx import SyncOpenTelemetryTransport
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from tests.support.deployment import (
    nginx_of,
    running_nginx,
    running_server,
    with_certificate,
)
from tests.support.ports import free_port

pytestmark = pytest.mark.integration

SERVER = """
import os

import httpx

from mcp_trio import Server

server = Server("front")


@server.tool
async def look_up() -> str:
    \"\"\"Look something up at another service.\"\"\"
    async with httpx.AsyncClient() as client:
        return (await client.get(os.environ["UPSTREAM"])).text
"""
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2025-11-25",
}


class Receiver(ThreadingHTTPServer):
    """Receives OTLP over HTTP, and answers GET as the service behind the tool."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.spans: list[Span] = []
        self.metrics: set[str] = set()
        self.traceparent = ""

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            for resource in traces.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(body)
            for measured in metrics.resource_metrics:
                for scoped in measured.scope_metrics:
                    self.metrics |= {metric.name for metric in scoped.metrics}


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_GET(self) -> None:
        self.server.traceparent = self.headers["traceparent"]
        self.answer(b"found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Content-Encoding"] == "gzip":
            body = gzip.decompress(body)
        self.server.take(self.path, body)
        self.answer(b"")

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Be quiet."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = Thread(target=receiver.serve_forever, args=[0.05])
        thread.start()
        try:
            yield receiver
        finally:
            receiver.shutdown()
            thread.join()


@contextmanager
def traced_client(receiver: Receiver, certificate: Path) -> Iterator[httpx.Client]:
    provider = TracerProvider(resource=Resource({"service.name": "client"}))
    exporter = OTLPSpanExporter(endpoint=f"{receiver.url}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    plain = httpx.HTTPTransport(
        verify=ssl.create_default_context(cafile=str(certificate))
    )
    transport = SyncOpenTelemetryTransport(plain, tracer_provider=provider)
    with httpx.Client(transport=transport, headers=HEADERS) as client:
        yield client
    provider.shutdown()


def environment_for(receiver: Receiver) -> dict[str, str]:
    return {
        "UPSTREAM": receiver.url,
        "OTEL_SERVICE_NAME": "front",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        # The distribution would choose a gRPC exporter.
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "OTEL_METRICS_EXPORTER": "otlp_proto_http",
        "OTEL_LOGS_EXPORTER": "none",
    }


@pytest.mark.slow
def test_one_trace_goes_through_nginx_and_a_tool_to_what_the_tool_asks(
    tmp_path: Path,
) -> None:
    program = shutil.which("opentelemetry-instrument", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("opentelemetry-distro is not installed")
    (tmp_path / "front.py").write_text(SERVER, encoding="utf-8")
    port = free_port()
    url = f"https://localhost:{port}/mcp"
    with receiving() as receiver:
        server = running_server(
            *["front.py", "--otel", "--public-url", url],
            folder=tmp_path,
            environment=environment_for(receiver),
            prefix=[program],
        )
        with server as behind:
            config = nginx_of("deployment.md", "mcp.conf", [behind])
            config = with_certificate(config, tmp_path, port)
            certificate = tmp_path / "certificate.pem"
            with (
                running_nginx(tmp_path, config, port),
                traced_client(receiver, certificate) as client,
            ):
                assert post(client, url, "tools/list")["tools"]
                called = post(client, url, "tools/call", {"name": "look_up"})
                assert called["content"][0]["text"] == "found"
        # The server has ended, and has exported all that it had.
        check_call(receiver)
        check_list(receiver)
        assert "mcp.server.operation.duration" in receiver.metrics


def post(
    client: httpx.Client, url: str, method: str, params: dict[str, str] | None = None
) -> dict[str, list[dict[str, str]]]:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    result: dict[str, list[dict[str, str]]] = client.post(url, json=message).json()[
        "result"
    ]
    return result


def check_call(receiver: Receiver) -> None:
    """The client's span is the parent of the server's, which is the parent of the
    tool's.
    """
    by_id = {span.span_id: span for span in receiver.spans}
    (ours,) = [span for span in receiver.spans if span.name == "tools/call look_up"]
    assert ours.kind == Span.SPAN_KIND_SERVER
    parent = by_id[ours.parent_span_id]
    assert parent.kind == Span.SPAN_KIND_CLIENT
    assert not parent.parent_span_id
    (child,) = [span for span in by_id.values() if span.parent_span_id == ours.span_id]
    assert child.kind == Span.SPAN_KIND_CLIENT
    assert {parent.trace_id, child.trace_id} == {ours.trace_id}
    assert receiver.traceparent.split("-")[1:3] == [
        ours.trace_id.hex(),
        child.span_id.hex(),
    ]


def check_list(receiver: Receiver) -> None:
    """A list has a span too, in the trace of its own request."""
    (listed,) = [span for span in receiver.spans if span.name == "tools/list"]
    (parent,) = [
        span for span in receiver.spans if span.span_id == listed.parent_span_id
    ]
    assert parent.kind == Span.SPAN_KIND_CLIENT
