"""The page about limits says what the code does."""

from mcp_trio import Limits
from mcp_trio.auth import access
from mcp_trio.server import app, subscriptions, worker_threads
from mcp_trio.server.schema import decode
from tests.support.paths import PROJECT

PAGE = (PROJECT / "docs" / "limits.md").read_text(encoding="utf-8")


def _row(what: str) -> str:
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {what}")]
    return line


def test_the_page_says_the_bounds_of_the_code() -> None:
    limits = Limits()
    assert f"{limits.max_result // 2**20} MiB" in _row("bytes of a result")
    assert f"| {limits.threads} |" in _row("worker threads for functions")
    assert worker_threads.SHARE == 0.75
    assert "three quarters" in _row("worker threads of one client")
    assert f"{worker_threads.PATIENCE:g} s" in _row("the wait for a worker thread")
    together = f"{access.MOST_VERIFYING}, of one address {access.MOST_VERIFYING_OF_ONE}"
    assert together in _row("tokens that are verified at once")
    assert f"{access.VERIFY_TIMEOUT:g} s" in _row("a verifier's time")
    assert f"{access.REMEMBERED:g} s" in _row("how long a valid token")
    assert f"at least {app.SHORTEST_SECRET}" in _row("bytes of the secret")
    most = subscriptions.MOST_SUBSCRIPTIONS
    assert f"{most:,}" in _row("resources that a session subscribes to")
    row = _row("arguments in which numbers")
    assert f"{decode.MOST_BYTES // 2**20} MiB and {decode.MOST_VALUES:,} values" in row
