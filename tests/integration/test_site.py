"""The documentation as a site: it builds without warnings, and its search works."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.browser import Page, browser
from tests.support.paths import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.slow]

# Search words of newcomers, and the page that must be found first.
QUESTIONS = {
    "return an image": "results",
    "limit calls per minute": "limits",
    "Host is not allowed": "troubleshooting",
    "behind nginx": "deployment",
    "database pool": "libraries",
    "test a tool": "testing",
    "print breaks stdio": "transports",
    "progress": "context",
    "report progress": "context",
    "several machines": "scaling",
    "migrate from FastMCP": "migrating",
    "HTTP headers": "context",
    "ask the user": "elicitation",
    "stateless": "scaling",
    "logs": "logging",
    "see logs": "logging",
    "Python version": "policies",
    "require a token": "authentication",
    "report a bug": "troubleshooting",
    "install": "quickstart",
    "getting started": "quickstart",
    "Claude Desktop": "hosts",
    "environment variables": "hosts",
    "timeout": "tools",
    "No module named": "troubleshooting",
    "Internal error reference": "results",
    "port is in use": "troubleshooting",
    "CORS": "transports",
    "TLS certificate": "transports",
    "uvicorn": "transports",
    "Docker": "deployment",
    "systemd": "deployment",
    "OAuth": "authentication",
    "dependency injection": "tools",
    "shared state between processes": "scaling",
    "cancel a call": "context",
    "pydantic model": "tools",
    "no running event loop": "troubleshooting",
    "metrics": "observability",
    "Prometheus": "observability",
    "resource template": "resources",
    "error message to the model": "results",
    "security checklist": "security",
    "sampling": "elicitation",
    "authentication": "authentication",
    "rate limit": "limits",
    "logging": "logging",
    "pagination": "resources",
    "environment variable": "hosts",
    "httpx": "libraries",
    "Windows": "hosts",
    "elicitation": "elicitation",
    "structured content": "results",
    "lifespan": "tools",
    "middleware": "middleware",
    "OpenTelemetry": "observability",
    "PyPI": "publishing",
    "nginx": "deployment",
    "Redis": "scaling",
    "FastMCP": "migrating",
    "OpenAPI": "openapi",
    "golden trace": "traces",
    "record": "traces",
    "subscriptions": "resources",
    "the port is in use": "troubleshooting",
    "unit test": "testing",
    "JSON Schema dialect": "revisions",
    "return a file": "results",
    "architecture": "internals",
    "bearer token": "authentication",
    "apps": "apps",
    "HTML page": "apps",
    "MCP Apps": "apps",
    "migrating": "migrating",
    "migration guide": "migrating",
    "what is stateless": "scaling",
    "how do I see logs": "logging",
    "which Python versions": "policies",
    "how do I return an image": "results",
    "how do I limit calls per minute": "limits",
    "how do I run behind nginx": "deployment",
    "how do I use a database pool": "libraries",
    "how do I test a tool": "testing",
    "why does my print break stdio": "transports",
    "how do I add progress": "context",
    "how do I deploy to several machines": "scaling",
    "how do I migrate a FastMCP server": "migrating",
    "how do I get the HTTP headers": "context",
    "how do I ask the user something": "elicitation",
    "how do I require a token": "authentication",
    "how do I report a bug": "troubleshooting",
    "what does Host is not allowed mean": "troubleshooting",
}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as wire:
        page = Page(wire)
        page.call("Page.navigate", url=f"{address}/")
        page.until("document.querySelector('[data-md-component=search-query]')")
        yield page


def first_result(page: Page, words: str) -> str:
    """Type words into the search, and return the path of the first result."""
    query = "document.querySelector('[data-md-component=search-query]')"
    links = "document.querySelectorAll('.md-search-result__link')"
    # Empty results make the next search distinct from the last one.
    page.ask(f"{query}.focus(); {query}.value = 'qqqqzzzz'")
    page.ask(f"{query}.dispatchEvent(new Event('keyup', {{bubbles: true}}))")
    page.until(f"{links}.length === 0")
    page.ask(f"{query}.value = {words!r}")
    page.ask(f"{query}.dispatchEvent(new Event('keyup', {{bubbles: true}}))")
    page.until(f"{links}.length > 0")
    path = page.ask(f"new URL({links}[0].href).pathname")
    return str(path).strip("/")


@pytest.mark.parametrize(("words", "expected"), QUESTIONS.items(), ids=QUESTIONS)
def test_the_first_page_that_the_search_offers_answers(
    page: Page, words: str, expected: str
) -> None:
    assert first_result(page, words) == expected


def test_each_public_class_is_in_the_reference(site: Path) -> None:
    text = (site / "reference" / "server" / "index.html").read_text(encoding="utf-8")
    for name in ("mcp_trio.Server.tool", "mcp_trio.Context.progress"):
        assert f'id="{name}"' in text
