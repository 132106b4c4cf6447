"""The page at `/metrics`: counters, and what the server holds now."""

from collections.abc import Sized

from ...server.app import Server
from ...server.gauges import Gauge, labels
from .metrics import Metrics, store_gauges, thread_gauges

# What the ledger charges. These kinds are shown even if they are not in use.
KINDS = frozenset(
    {
        *("bodies", "connections", "events", "listens"),
        *("replies", "requests", "sessions", "subscriptions"),
    }
)


class MetricsRenderer:
    """Renders the metrics of one server in this process."""

    def __init__(self, server: Server, metrics: Metrics, sessions: Sized) -> None:
        self._server = server
        self._metrics = metrics
        self._sessions = sessions

    def render(self) -> bytes:
        """Return the page, in the text format of Prometheus."""
        return self._metrics.render(self._gauges())

    def _gauges(self) -> list[Gauge]:
        in_flight = {"": self._server.limiter.total}
        sessions = {"": len(self._sessions)}
        held = {labels(kind=kind): size for kind, size in self._held().items()}
        gauges = [
            Gauge("mcp_requests_in_flight", "Requests that are waiting.", in_flight),
            Gauge("mcp_sessions", "HTTP sessions that are open.", sessions),
            Gauge("mcp_held_bytes", "Bytes that are held for clients.", held),
        ]
        threads = self._server.environment.worker_threads
        if threads is not None:
            gauges += thread_gauges(threads)
        if self._server.shared_state is not None:
            gauges += store_gauges(self._server.shared_state)
        if self._server.extensions is not None:
            gauges += self._server.extensions.gauges()
        return gauges

    def _held(self) -> dict[str, int]:
        """Return the bytes that are held for clients, by kind."""
        by_kind = self._server.ledger.by_kind
        return {kind: by_kind[kind] for kind in sorted(KINDS | by_kind.keys())}
