"""Count requests, in the text format that Prometheus reads."""

from collections import Counter
from collections.abc import Mapping

from ...server.worker_threads import WorkerThreads


class Metrics:
    """The counters of one server.

    Their labels are methods, outcomes and statuses that the server knows, so that no
    client can add to their number without end.
    """

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # by method and outcome
        self.refused: Counter[int] = Counter()  # by status
        self.seconds = 0.0
        self.streams = 0

    def count(self, method: str, outcome: str, seconds: float) -> None:
        """Count a request that has ended."""
        self.requests[method, outcome] += 1
        self.seconds += seconds

    def render(
        self, sessions: int, in_flight: int, threads: WorkerThreads | None = None
    ) -> bytes:
        """Return the page for Prometheus."""
        requests = {
            f'{{method="{method}",outcome="{outcome}"}}': count
            for (method, outcome), count in self.requests.items()
        }
        summary = {"_sum": self.seconds, "_count": self.requests.total()}
        refused = {
            f'{{status="{status}"}}': count
            for status, count in sorted(self.refused.items())
        }
        lines = [
            *_family("mcp_requests_total", "counter", dict(sorted(requests.items()))),
            *_family("mcp_request_seconds", "summary", summary),
            *_family("mcp_requests_in_flight", "gauge", {"": in_flight}),
            *_family("mcp_sessions", "gauge", {"": sessions}),
            *_family("mcp_streams", "gauge", {"": self.streams}),
            *_family("mcp_http_refused_total", "counter", refused),
            *_thread_families(threads),
        ]
        return "".join(f"{line}\n" for line in lines).encode()


def _thread_families(threads: WorkerThreads | None) -> list[str]:
    """Return the lines about the worker threads, while the server runs."""
    if threads is None:
        return []
    states = {
        '{state="busy"}': threads.busy,
        '{state="abandoned"}': threads.abandoned,
    }
    return [
        *_family("mcp_worker_threads", "gauge", states),
        *_family("mcp_worker_threads_limit", "gauge", {"": threads.most}),
        *_family("mcp_worker_threads_waiting", "gauge", {"": threads.waiting}),
    ]


def _family(name: str, kind: str, values: Mapping[str, float]) -> list[str]:
    """Return the lines of one metric. The keys are its labels, or suffixes."""
    samples = [f"{name}{label} {value}" for label, value in values.items()]
    return [f"# TYPE {name} {kind}", *samples]
