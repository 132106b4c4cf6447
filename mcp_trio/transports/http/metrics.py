"""What is counted, in the text form that Prometheus reads."""

from collections import Counter


class Metrics:
    """Counters. Their labels come from tables: of methods, from those that the gate lets pass. So they have an end."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()  # by labels
        self.refused: Counter[int] = Counter()  # by status
        self.seconds = 0.0
        self.streams = 0

    def count(self, method: str, outcome: str, seconds: float) -> None:
        """A request has ended."""
        self.requests[f'{{method="{method}",outcome="{outcome}"}}'] += 1
        self.seconds += seconds

    def render(self, sessions: int, in_flight: int) -> bytes:
        """All of it."""
        families: dict[str, dict[str, float]] = {
            "mcp_requests_total counter": dict(sorted(self.requests.items())),
            "mcp_request_seconds summary": {
                "_sum": self.seconds,
                "_count": self.requests.total(),
            },
            "mcp_requests_in_flight gauge": {"": in_flight},
            "mcp_sessions gauge": {"": sessions},
            "mcp_streams gauge": {"": self.streams},
            "mcp_http_refused_total counter": {
                f'{{status="{s}"}}': count for s, count in sorted(self.refused.items())
            },
        }
        lines = []
        for family, values in families.items():
            name = family.partition(" ")[0]
            lines += [
                f"# TYPE {family}",
                *(f"{name}{label} {value}" for label, value in values.items()),
            ]
        return "\n".join([*lines, ""]).encode()
