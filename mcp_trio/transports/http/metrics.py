"""What is counted, in the text form that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate

from ...server.handlers import HANDLERS

BOUNDS = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    """Counters. Their labels come from tables, never from clients, so that there is no end to neither."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()  # by method and outcome
        self.refused: Counter[int] = Counter()  # by status
        self.slower = [0] * (len(BOUNDS) + 1)  # requests by the bound that they took no longer than
        self.seconds = 0.0
        self.streams = 0

    def count(self, method: str, outcome: str, seconds: float) -> None:
        """A request has ended."""
        self.requests[method if method in HANDLERS else "other", outcome] += 1
        self.seconds += seconds
        self.slower[bisect_left(BOUNDS, seconds)] += 1

    def render(self, sessions: int, in_flight: int) -> bytes:
        """All of it."""
        bounds = zip([*map(str, BOUNDS), "+Inf"], accumulate(self.slower), strict=True)
        histogram = {f'_bucket{{le="{bound}"}}': str(count) for bound, count in bounds}
        histogram |= {"_sum": f"{self.seconds:.6f}", "_count": str(sum(self.slower))}
        requests = sorted(self.requests.items())
        families: dict[str, Mapping[str, int | str]] = {
            "mcp_requests_total counter": {
                f'{{method="{method}",outcome="{end}"}}': n for (method, end), n in requests
            },
            "mcp_request_seconds histogram": histogram,
            "mcp_requests_in_flight gauge": {"": in_flight},
            "mcp_sessions gauge": {"": sessions},
            "mcp_streams gauge": {"": self.streams},
            "mcp_http_refused_total counter": {f'{{status="{s}"}}': count for s, count in sorted(self.refused.items())},
        }
        lines = []
        for family, values in families.items():
            name = family.partition(" ")[0]
            lines += [f"# TYPE {family}", *(f"{name}{label} {value}" for label, value in values.items())]
        return "\n".join([*lines, ""]).encode()
