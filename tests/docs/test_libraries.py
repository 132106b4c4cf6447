"""docs/libraries.md is right about which libraries work."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from mcp_trio.load_spec import load
from mcp_trio.testing import connect
from tests.clients.install import Unavailable, python_with
from tests.support.paths import PROJECT

PAGE = (PROJECT / "docs" / "libraries.md").read_text(encoding="utf-8")
SECONDS = 60

NO_LOOP = "no running event loop"
NOT_TRIO = "trio.run received unrecognized yield message"

# Each is the body of an async function in a trio program. `port` is that of a server
# that speaks only HTTP.
WORKING = {
    "httpx": """
        import httpx
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{port}/models")).text""",
    "httpx2": """
        import httpx2
        async with httpx2.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{port}/models")).text""",
    "openai": """
        import openai
        url = f"http://127.0.0.1:{port}"
        async with openai.AsyncOpenAI(api_key="x", base_url=url) as client:
            return str(await client.models.list())""",
    "anthropic": """
        import anthropic
        url = f"http://127.0.0.1:{port}"
        async with anthropic.AsyncAnthropic(api_key="x", base_url=url) as client:
            return str(await client.models.list())""",
    "requests in a thread": """
        import requests
        url = f"http://127.0.0.1:{port}/models"
        return (await trio.to_thread.run_sync(requests.get, url)).text""",
    "asyncio.run in a thread": """
        import asyncio
        def nap():
            return asyncio.run(asyncio.sleep(0, "model-1"))
        return await trio.to_thread.run_sync(nap)""",
    "aiohttp under asyncio.run in a thread": """
        import aiohttp
        import asyncio
        async def get():
            async with aiohttp.ClientSession() as session:
                url = f"http://127.0.0.1:{port}/models"
                async with session.get(url) as response:
                    return await response.text()
        return await trio.to_thread.run_sync(asyncio.run, get())""",
}
FAILING = {
    "aiohttp": (
        NO_LOOP,
        """
        import aiohttp
        async with aiohttp.ClientSession() as session:
            await session.get(f"http://127.0.0.1:{port}")""",
    ),
    "redis.asyncio": (
        NO_LOOP,
        """
        import redis.asyncio
        await redis.asyncio.Redis(port=port).ping()""",
    ),
    "asyncpg": (
        NO_LOOP,
        """
        import asyncpg
        await asyncpg.connect(f"postgresql://x@127.0.0.1:{port}/x")""",
    ),
    "psycopg.AsyncConnection": (
        NO_LOOP,
        """
        import psycopg
        url = f"postgresql://x@127.0.0.1:{port}/x"
        await psycopg.AsyncConnection.connect(url)""",
    ),
    "SQLAlchemy's async engine": (
        NO_LOOP,
        """
        from sqlalchemy.ext.asyncio import create_async_engine
        url = f"postgresql+asyncpg://x@127.0.0.1:{port}/x"
        async with create_async_engine(url).connect():
            pass""",
    ),
    "aiosqlite": (
        NOT_TRIO,
        """
        import aiosqlite
        async with aiosqlite.connect(":memory:"):
            pass""",
    ),
    "asyncio.sleep": (
        NO_LOOP,
        """
        import asyncio
        await asyncio.sleep(1)""",
    ),
    "asyncio.gather": (
        NOT_TRIO,
        """
        import asyncio
        await asyncio.gather(asyncio.sleep(0))""",
    ),
    "sqlite3 in another thread": (
        "SQLite objects created in a thread can only be used in that same thread",
        """
        import sqlite3
        connection = sqlite3.connect(":memory:")
        await trio.to_thread.run_sync(connection.execute, "SELECT 1")""",
    ),
}
PROGRAM = """
import sys
import trio

async def main(port):
{body}

print(trio.run(main, int(sys.argv[1])))
"""


class Api(BaseHTTPRequestHandler):
    """A list of models, and a forecast for Oslo."""

    def do_GET(self) -> None:
        """Answer a request."""
        url = urlsplit(self.path)
        if url.path.endswith("/models"):
            model = b'{"id": "model-1", "type": "model", "object": "model"}'
            self.answer(200, b'{"object": "list", "data": [' + model + b"]}")
        elif parse_qs(url.query).get("city") == ["Oslo"]:
            self.answer(200, b"snow")
        else:
            self.answer(404, b"")

    def answer(self, status: int, body: bytes) -> None:
        """Send a response with a body."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def run(body: str, port: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the body of an async function in trio, with the libraries installed."""
    try:
        python = python_with("libraries")
    except Unavailable as reason:
        pytest.skip(f"cannot install the libraries: {reason}")
    program = folder / "program.py"
    program.write_text(PROGRAM.format(body=body), encoding="utf-8")
    return subprocess.run(
        [python, program, str(port)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("library", WORKING)
def test_a_library_works_under_trio(library: str, port: int, tmp_path: Path) -> None:
    done = run(WORKING[library], port, tmp_path)
    assert "model-1" in done.stdout, done.stderr


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize("library", FAILING)
def test_a_library_fails_under_trio_with_the_error_that_the_page_names(
    library: str, port: int, tmp_path: Path
) -> None:
    error, body = FAILING[library]
    done = run(body, port, tmp_path)
    assert done.returncode == 1
    assert error in done.stderr
    assert error in " ".join(PAGE.split())


async def test_the_http_client_of_the_lifespan_serves_calls(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORECAST_API", f"http://127.0.0.1:{port}")
    shown = re.search(r"^```python\n(# forecast.py\n.*?)^```$", PAGE, re.M | re.S)
    assert shown is not None
    file = tmp_path / "forecast.py"
    file.write_text(shown[1], encoding="utf-8")
    async with connect(load(str(file))) as client:
        known = await client.call_tool("forecast", {"city": "Oslo"})
        unknown = await client.call_tool("forecast", {"city": "Atlantis"})
    assert known.text == "snow"
    assert unknown.is_error
    assert unknown.text == "Unknown city: 'Atlantis'"
