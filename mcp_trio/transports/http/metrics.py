"""Metrics, in the text format of Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from ...server.gauges import Gauge, labels
from ...server.request import Outcome, Request
from ...server.shared_state import SharedState
from ...server.worker_threads import WorkerThreads

# Upper bounds of the histogram's buckets, in seconds.
BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
# The most tools that have their own series. Further tools share one, because a server
# that adds and removes tools must not collect series without bound.
MAX_TOOLS = 200
OTHER_TOOLS = "(other)"
# The label of requests that name no tool the server has.
NO_TOOL = ""


class Series(Struct):
    """The requests of one method, or the calls of one tool."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    # The requests in each bucket; the last bucket has no upper bound.
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0


class Metrics:
    """The counters of one server. It is a request observer, for every transport.

    The labels are methods, tools, outcomes and statuses that the server knows, and
    their number is bounded, so clients cannot add any number of series.
    """

    def __init__(self) -> None:
        self.refused: Counter[int] = Counter()  # by status
        self.streams = 0
        self._series: dict[tuple[str, str], Series] = {}
        self._tools: set[str] = set()

    def began(self, request: Request) -> None:
        """Do nothing: requests are counted when they end."""

    def ended(self, request: Request, seconds: float) -> None:
        """Count a request that has ended."""
        method = request.call.method
        tool = request.target if method == "tools/call" else NO_TOOL
        series = self._series.get((method, tool))
        if series is None:
            series = self._add_series(method, tool)
        series.outcomes[request.outcome] += 1
        series.buckets[bisect_left(BOUNDS, seconds)] += 1
        series.seconds += seconds

    def _add_series(self, method: str, tool: str) -> Series:
        if tool != NO_TOOL and tool not in self._tools:
            if len(self._tools) >= MAX_TOOLS:
                tool = OTHER_TOOLS
            else:
                self._tools.add(tool)
        return self._series.setdefault((method, tool), Series())

    def render(self, gauges: Iterable[Gauge]) -> bytes:
        """Return the page for Prometheus."""
        streams = Gauge(
            "mcp_streams", "Event streams that clients read.", {"": self.streams}
        )
        lines = [
            *self._render_requests(),
            *self._render_seconds(),
            *_render_refused(self.refused),
        ]
        for gauge in (streams, *gauges):
            lines += _head(gauge.name, gauge.kind, gauge.help)
            lines += [
                f"{gauge.name}{labels} {value}"
                for labels, value in gauge.samples.items()
            ]
        return "".join(f"{line}\n" for line in lines).encode()

    def _render_requests(self) -> list[str]:
        name = "mcp_requests_total"
        lines = _head(name, "counter", "Requests that have ended.")
        for (method, tool), series in sorted(self._series.items()):
            for outcome, count in sorted(series.outcomes.items()):
                text = labels(method=method, tool=tool, outcome=outcome)
                lines.append(f"{name}{text} {count}")
        return lines

    def _render_seconds(self) -> list[str]:
        name = "mcp_request_seconds"
        help = "Seconds from the beginning of a request to its end."
        lines = _head(name, "histogram", help)
        for (method, tool), series in sorted(self._series.items()):
            total = 0
            for bound, count in zip((*BOUNDS, "+Inf"), series.buckets, strict=True):
                total += count
                text = labels(method=method, tool=tool, le=str(bound))
                lines.append(f"{name}_bucket{text} {total}")
            text = labels(method=method, tool=tool)
            lines.append(f"{name}_sum{text} {series.seconds}")
            lines.append(f"{name}_count{text} {total}")
        return lines


def thread_gauges(threads: WorkerThreads) -> list[Gauge]:
    """Return the state of the worker threads."""
    states = {
        labels(state="busy"): threads.busy,
        labels(state="abandoned"): threads.abandoned,
    }
    most = {"": threads.most}
    waiting = {"": threads.waiting}
    return [
        Gauge("mcp_worker_threads", "Worker threads that run a call.", states),
        Gauge("mcp_worker_threads_limit", "Maximum number of worker threads.", most),
        Gauge("mcp_worker_threads_waiting", "Calls that wait for a thread.", waiting),
    ]


def store_gauges(store: SharedState) -> list[Gauge]:
    """Return the statistics of the store that the processes share."""
    name = "mcp_store"
    statistics = store.statistics
    seconds = {"_sum": statistics.seconds, "_count": statistics.operations}
    errors = {"": statistics.errors}
    reconnections = {"": statistics.reconnections}
    return [
        Gauge(
            f"{name}_available",
            "Whether the store can be reached.",
            {"": int(store.is_available)},
        ),
        Gauge(
            f"{name}_operation_seconds",
            "Seconds that operations of the store took.",
            seconds,
            "summary",
        ),
        Gauge(
            f"{name}_errors_total",
            "Operations of the store that failed.",
            errors,
            "counter",
        ),
        Gauge(
            f"{name}_reconnections_total",
            "Reconnections to the store.",
            reconnections,
            "counter",
        ),
    ]


def _render_refused(refused: Counter[int]) -> list[str]:
    name = "mcp_http_refused_total"
    help = "HTTP requests that were refused before any method ran."
    lines = _head(name, "counter", help)
    for status, count in sorted(refused.items()):
        lines.append(f"{name}{labels(status=str(status))} {count}")
    return lines


def _head(name: str, kind: str, help: str) -> list[str]:
    """Return the lines that describe a metric."""
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
