"""The example of an app in a real browser, in a host on the official bridge."""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from websockets.sync.client import ClientConnection

from tests.clients.install import CLOCK_PAGE, Unavailable, app_host, clock_page
from tests.support.browser import Page, browser
from tests.support.command_line import ENVIRONMENT
from tests.support.paths import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.integration]

# All frames in one process, so that the tests can look into each.
FLAGS = (
    "--disable-site-isolation-trials",
    "--disable-features=IsolateSandboxedIframes,IsolateOrigins,site-per-process",
)


class HostPage(Page):
    """A host of apps in a tab. It knows the frames in it."""

    def __init__(self, wire: ClientConnection) -> None:
        self._contexts: list[int] = []
        super().__init__(wire)

    def _hear(self, method: str, params: Any) -> None:
        super()._hear(method, params)
        if method == "Runtime.executionContextCreated":
            self._contexts.append(params["context"]["id"])

    def ask_app(self, expression: str) -> Any:
        """Return the value of an expression in the app, or None without an app."""
        self.ask("0")  # hears of new frames
        for context in reversed(self._contexts):
            answer = self.call(
                "Runtime.evaluate",
                expression=f"document.title === 'Clock' ? [{expression}] : null",
                contextId=context,
                returnByValue=True,
            )
            if answer["result"].get("value"):
                return answer["result"]["value"][0]
        return None

    def until_app(self, expression: str) -> None:
        """Wait until an expression is true in the app."""
        for _ in range(2000):
            try:
                if self.ask_app(expression):
                    return
            except AssertionError:  # the frame was removed in the meantime
                self._contexts.clear()
                self.call("Runtime.disable")
                self.call("Runtime.enable")
        raise AssertionError(f"{expression} has not come true; {self.complaints}")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    """Yield the port of the host's pages."""
    try:
        folder = app_host()
    except Unavailable as reason:
        pytest.skip(str(reason))
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        try:
            yield httpd.server_port
        finally:
            httpd.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def clock() -> Iterator[str]:
    """Yield the URL of the example."""
    path = str(PROJECT / "examples" / "clock_app.py")
    command = [sys.executable, "-m", "mcp_trio", "run", path, "--http", "0", "--cors"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("Serving 'clock' on http://"), line
            yield line.split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=20)


def is_error(complaint: Any) -> bool:
    """Return whether the browser reports an exception or a violated policy."""
    entry = complaint.get("entry", {})
    return "exceptionDetails" in complaint or entry.get("source") == "security"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[HostPage]:
    with browser(tmp_path / "chromium", *FLAGS) as wire:
        yield HostPage(wire)


def test_the_example_is_shown_with_its_result_and_calls_a_tool(
    page: HostPage, site: int, clock: str
) -> None:
    query = {
        "server": clock,
        # Another name of this machine is another origin.
        "sandbox": f"http://localhost:{site}/sandbox.html",
        "tool": "show_clock",
        "arguments": json.dumps({"zone": "Europe/Berlin"}),
    }
    page.call(
        "Page.navigate", url=f"http://127.0.0.1:{site}/host.html?{urlencode(query)}"
    )
    page.until("globalThis.seen?.initialized")
    # The server knows that this host renders apps.
    assert "The user sees a clock" in page.ask("document.querySelector('p').innerText")
    assert page.ask("seen.page") == {
        "mimeType": "text/html;profile=mcp-app",
        "ui": {"prefersBorder": True},
    }
    assert page.ask("seen.tools.map((tool) => tool.visibility ?? null)") == [
        None,
        ["app"],
    ]

    # The result of the call arrives in the app.
    page.until_app("document.querySelector('#place').innerText.startsWith('Europe/')")
    page.until_app(
        "/^\\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('time').innerText)"
    )

    # The app calls a tool that only apps see.
    page.ask_app("document.querySelector('#zone').value = 'Asia/Tokyo'")
    page.ask_app("document.querySelector('#show').click()")
    page.until_app(
        "document.querySelector('#place').innerText.startsWith('Asia/Tokyo')"
    )
    (call,) = page.ask("seen.calls")
    assert call["params"]["name"] == "get_time"
    assert call["answer"]["structuredContent"]["zone"] == "Asia/Tokyo"

    folder = os.environ.get("MCP_TRIO_SCREENSHOTS")
    if folder:
        shot = page.call("Page.captureScreenshot")["data"]
        Path(folder, "clock_app.png").write_bytes(base64.b64decode(shot))
    assert not [said for said in page.complaints if is_error(said)]


def test_the_page_in_the_repository_is_built_from_its_sources() -> None:
    try:
        built = clock_page()
    except Unavailable as reason:
        pytest.skip(str(reason))
    committed = CLOCK_PAGE / "clock.html"
    assert built.read_bytes() == committed.read_bytes(), "run: npm ci && npm run build"
