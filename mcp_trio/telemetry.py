"""OpenTelemetry: a span for each request, histograms of requests and of sessions.

The names follow OpenTelemetry's semantic conventions for MCP. The parent of a span is
the trace context in the request's `_meta`, or else in its HTTP headers, or else the
current span, such as that of an instrumented ASGI server.

This only uses `opentelemetry-api`. The program, or `opentelemetry-instrument`,
configures where the data is exported to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct, field, json

from .server.conversation import Conversation
from .server.request import Outcome, Request

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, TracerProvider

    from .server.app import Server

# The boundaries of the histograms' buckets in seconds, from the conventions.
BOUNDARIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
# The values of `error.type` for outcomes without an error code.
ERROR_TYPES: dict[Outcome, str] = {
    "tool_error": "tool_error",
    "error": "internal_error",
    "refused": "refused",
    "cancelled": "cancelled",
    "timeout": "timeout",
}
NETWORK_TRANSPORTS = {"stdio": "pipe", "memory": "inproc"}
NETWORK_PROTOCOLS = {"http": "http", "sse": "http", "ws": "websocket"}


class TraceMeta(Struct):
    """The keys of `_meta` that carry a trace context."""

    traceparent: str = ""
    tracestate: str = ""
    baggage: str = ""


class TracedParams(Struct):
    """The part of a request's params that is used for tracing."""

    meta: TraceMeta = field(default_factory=TraceMeta, name="_meta")


class Telemetry:
    """An observer of requests and sessions that reports to OpenTelemetry.

    The defaults of the providers are the global ones.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "telemetry needs: pip install 'mcp_trio[otel]'", name="opentelemetry"
            ) from None

        from importlib.metadata import version

        own_version = version("mcp_trio")
        self._tracer = trace.get_tracer("mcp_trio", own_version, tracer_provider)
        meter = metrics.get_meter("mcp_trio", own_version, meter_provider)
        self._durations = meter.create_histogram(
            "mcp.server.operation.duration",
            unit="s",
            description="Seconds from the beginning of a request to its end.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        self._session_durations = meter.create_histogram(
            "mcp.server.session.duration",
            unit="s",
            description="Seconds from the initialization of a session to its end.",
            explicit_bucket_boundaries_advisory=BOUNDARIES,
        )
        # When each session began. A session that never ends is not recorded.
        self._sessions: WeakKeyDictionary[Conversation, float] = WeakKeyDictionary()
        self._spans: dict[Request, tuple[Span, Token[Context]]] = {}

    def began(self, request: Request) -> None:
        """Start the span of a request, and make it the current one."""
        from opentelemetry import context, trace

        parent, links = _parent_and_links(request)
        attributes = _common_attributes(request) | _own_attributes(request)
        span = self._tracer.start_span(
            request.call.method,
            context=parent,
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            links=links,
        )
        token = context.attach(trace.set_span_in_context(span, parent))
        self._spans[request] = span, token

    def ended(self, request: Request, seconds: float) -> None:
        """End the span of a request, and record how long it took."""
        from opentelemetry import context, trace

        span, token = self._spans.pop(request)
        target = _target_attributes(request)
        if request.target:
            # Only known names, so that clients cannot create any number of span names.
            span.update_name(f"{request.call.method} {request.target}")
        span.set_attributes(target)
        failure = _failure_attributes(request)
        if failure:
            span.set_attributes(failure)
            message = request.error.message if request.error is not None else None
            span.set_status(trace.StatusCode.ERROR, message)
        span.end()
        context.detach(token)
        attributes = _common_attributes(request) | target | failure
        self._durations.record(seconds, attributes)
        if request.call.method == "initialize" and request.outcome == "ok":
            self._sessions[request.conversation] = perf_counter()

    def session_ended(self, conversation: Conversation) -> None:
        """Record the duration of a session, if it was initialized."""
        began = self._sessions.pop(conversation, None)
        revision = conversation.session.revision
        if began is None or revision is None:
            return
        attributes = {"mcp.protocol.version": revision.name}
        attributes |= _network_attributes(conversation.transport)
        self._session_durations.record(perf_counter() - began, attributes)


@contextmanager
def observing(server: Server[Any]) -> Iterator[None]:
    """Report a server's requests and sessions inside this block."""
    telemetry = Telemetry()
    server.observe_requests(telemetry)
    server.observe_sessions(telemetry)
    try:
        yield
    finally:
        server.stop_observing_sessions(telemetry)
        server.stop_observing_requests(telemetry)


# The parent


def _parent_and_links(request: Request) -> tuple[Context | None, list[Link]]:
    """Return the parent's context, and a link to the transport's if they differ."""
    from opentelemetry import propagate, trace

    carrier = _carrier_in_meta(request.call.raw)
    from_headers = _context_of_headers(request)
    if not carrier:
        return from_headers, []
    links = []
    ambient = trace.get_current_span(from_headers).get_span_context()
    if ambient.is_valid:
        links.append(trace.Link(ambient))
    return propagate.extract(carrier), links


def _context_of_headers(request: Request) -> Context | None:
    """Return the trace context of the HTTP request, or None for the current one."""
    from opentelemetry import propagate, trace

    headers: Mapping[bytes, bytes] = getattr(request.channel, "headers", {})
    is_traced = trace.get_current_span().get_span_context().is_valid
    if is_traced or b"traceparent" not in headers:
        return None
    names = (b"traceparent", b"tracestate", b"baggage")
    carrier = {
        name.decode(): headers[name].decode("latin-1")
        for name in names
        if name in headers
    }
    return propagate.extract(carrier)


def _carrier_in_meta(raw: Raw) -> dict[str, str]:
    """Return the trace context in a request's `_meta`, or an empty one."""
    if b"traceparent" not in bytes(raw):
        return {}
    try:
        meta = json.decode(raw, type=TracedParams).meta
    except ValueError:
        return {}
    if not meta.traceparent:
        return {}
    fields = {
        "traceparent": meta.traceparent,
        "tracestate": meta.tracestate,
        "baggage": meta.baggage,
    }
    return {name: value for name, value in fields.items() if value}


# Attributes


def _common_attributes(request: Request) -> dict[str, str]:
    """Return the attributes of both the span and the histogram."""
    call = request.call
    attributes = {
        "mcp.method.name": call.method,
        "mcp.protocol.version": call.revision.name,
    }
    return attributes | _network_attributes(request.conversation.transport)


def _network_attributes(transport: str) -> dict[str, str]:
    """Return the attributes that describe a client's connection."""
    attributes = {"network.transport": NETWORK_TRANSPORTS.get(transport, "tcp")}
    protocol = NETWORK_PROTOCOLS.get(transport)
    if protocol is not None:
        attributes["network.protocol.name"] = protocol
    return attributes


def _target_attributes(request: Request) -> dict[str, str]:
    """Return the attributes that name the tool or the prompt, if it exists."""
    if not request.target:
        return {}
    if request.call.method == "prompts/get":
        return {"gen_ai.prompt.name": request.target}
    return {
        "gen_ai.tool.name": request.target,
        "gen_ai.operation.name": "execute_tool",
    }


def _own_attributes(request: Request) -> dict[str, str]:
    """Return the attributes that identify a request, for its span only."""
    call = request.call
    conversation = request.conversation
    attributes = {"jsonrpc.request.id": str(call.id)}
    uri = getattr(call.params, "uri", None)
    if uri is not None:
        attributes["mcp.resource.uri"] = uri
    session_id: bytes = getattr(conversation, "id", b"")
    if session_id:
        attributes["mcp.session.id"] = session_id.decode()
    if conversation.address:
        attributes["client.address"] = conversation.address
    return attributes


def _failure_attributes(request: Request) -> dict[str, str]:
    """Return the additional attributes of a failed request."""
    if request.outcome in ("ok", "task"):
        return {}
    if request.error is None:
        return {"error.type": ERROR_TYPES[request.outcome]}
    code = str(request.call.revision.error(request.error)["code"])
    return {"error.type": code, "rpc.response.status_code": code}
