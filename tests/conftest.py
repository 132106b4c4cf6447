"""Settings for all tests."""

import os
import signal

import pytest
from hypothesis import settings

# A loaded machine is not a bug, so there are no deadlines. CI uses the same examples
# each time; elsewhere there are new ones in each run.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# A shell that starts the tests in the background makes them ignore Ctrl-C, and the
# servers that they start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test was skipped and the environment variable NO_SKIPS is set."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not os.environ.get("NO_SKIPS"):
        return
    if reporter.stats.get("skipped"):
        reporter.write_line("\nA test was skipped, and NO_SKIPS is set.", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
