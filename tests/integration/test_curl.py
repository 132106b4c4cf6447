"""HTTP as curl sees it: a status for each error, and replies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcp_trio.protocol.jsonrpc import MAX_MESSAGE
from tests.support.http_wire import HEADERS, MODERN, Response, message, modern_headers
from tests.support.paths import PROJECT

pytestmark = pytest.mark.integration

SERVER = [sys.executable, "-m", "mcp_trio", "--http", "0"]
PATIENCE = 10
# Whatever its user has set up for it is left out.
CURL = ["curl", "-q", "-sS", "--noproxy", "*", "--max-time", str(PATIENCE)]
APP, EVIL = "https://app.example", "https://evil.example"
TYPE = "Content-Type: application/json"
STREAM = "Accept: text/event-stream"
EXPECT, NO_EXPECT = (
    "Expect: 100-continue",
    "Expect:",
)  # a header without a value is one that curl leaves out
WANTED = {
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "mcp-session-id",
    "content-type",
    "authorization",
}
WEATHER = message(
    "tools/call", {"name": "get_weather", "arguments": {"location": "New York"}}
)
MODERN_WEATHER = {**WEATHER, "params": {**WEATHER["params"], "_meta": MODERN}}
SAID = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "curl", "version": "1"},
}


class Said(Response):
    """A response, and the statuses that came before it."""

    def __init__(self, output: bytes) -> None:
        self.before: list[int] = []
        status = 100
        while status < 200:
            first, *lines = output.partition(b"\r\n\r\n")[0].decode().split("\r\n")
            output = output.partition(b"\r\n\r\n")[2]
            status = int(first.split(" ")[1])
            self.before.append(status)
        pairs = [line.split(": ", 1) for line in lines]
        super().__init__(
            self.before.pop(), {name.lower(): value for name, value in pairs}, output
        )


def curl(
    url: str,
    *arguments: str,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
) -> Said:
    given = [
        part
        for name, value in (headers or {}).items()
        for part in ("-H", f"{name}: {value}")
    ]
    data = [] if body is None or "-T" in arguments else ["--data-binary", "@-"]
    done = subprocess.run(
        [*CURL, "-i", *given, *data, *arguments, url],
        input=body,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return Said(done.stdout)


def post(
    url: str, body: Any, *arguments: str, headers: dict[str, str] | None = None
) -> Said:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return curl(
        url, *arguments, headers=HEADERS if headers is None else headers, body=sent
    )


def text_of(reply: Any) -> str:
    (content,) = reply["result"]["content"]
    return str(content["text"])


def names_in(header: str) -> set[str]:
    return {name.strip().lower() for name in header.split(",")}


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Where the demo server is, without the endpoint's path."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MCP_TRIO_")
    }
    with subprocess.Popen(
        [*SERVER, *arguments], cwd=PROJECT, env=plain, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline().split()[-1].removesuffix("/mcp")
        finally:
            process.terminate()
        assert process.wait(PATIENCE) == 0
        said = process.stderr.read().splitlines()
        # Nothing that was wrong was the server's own fault.
        assert [
            line for line in said if not line.startswith("WARNING mcp_trio: refused: ")
        ] == []


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """Run a server that the pages of one site may use."""
    with serving("--allowed-origin", APP) as root:
        yield root


@pytest.fixture(scope="module")
def url(root: str) -> str:
    return root + "/mcp"


@pytest.fixture(scope="module")
def open_root() -> Iterator[str]:
    """Run a server that the pages of all sites may use."""
    with serving("--cors") as root:
        yield root


@pytest.fixture
def session(url: str) -> dict[str, str]:
    """Open a session, and return its headers."""
    opened = post(url, message("initialize", OPENING))
    assert (opened.status, opened.json["result"]["protocolVersion"]) == (
        200,
        "2025-11-25",
    )
    headers = {
        **HEADERS,
        "Mcp-Session-Id": opened.headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-11-25",
    }
    noted = post(
        url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers
    )
    assert (noted.status, noted.body) == (202, b"")
    return headers


# What is wrong

WRONG = {
    "unknown path": ("/nowhere", [], 404),
    "path below": ("/mcp/x", ["-d", "{}", "-H", TYPE], 404),
    "unnormalised path": ("/x/../mcp", ["--path-as-is", "-d", "{}", "-H", TYPE], 404),
    "form": ("/mcp", ["-d", "{}"], 415),  # curl's messages
    "text": ("/mcp", ["-d", "{}", "-H", "Content-Type: text/plain"], 415),
    "no type": ("/mcp", ["-d", "{}", "-H", "Content-Type:"], 415),
    "html wanted": ("/mcp", ["-d", "{}", "-H", TYPE, "-H", "Accept: text/html"], 406),
    "no stream wanted": ("/mcp", ["-H", "Accept: application/json"], 406),
    "no JSON": ("/mcp", ["-d", "{", "-H", TYPE], 400),
    "empty": ("/mcp", ["-X", "POST", "-H", TYPE], 400),
    "no session": ("/mcp", ["-d", json.dumps(WEATHER), "-H", TYPE], 400),
    "no session's stream": ("/mcp", ["-H", STREAM], 400),
    "no session's end": ("/mcp", ["-X", "DELETE"], 400),
    "unknown session": (
        "/mcp",
        ["-d", json.dumps(WEATHER), "-H", TYPE, "-H", "Mcp-Session-Id: x"],
        404,
    ),
    "unknown session's stream": (
        "/mcp",
        ["-H", STREAM, "-H", "Mcp-Session-Id: x"],
        404,
    ),
    "unknown session's end": ("/mcp", ["-X", "DELETE", "-H", "Mcp-Session-Id: x"], 404),
    "unknown expectation": (
        "/mcp",
        ["-d", "{}", "-H", TYPE, "-H", "Expect: 200-ok"],
        417,
    ),
    "no Host": ("/healthz", ["-H", "Host:"], 400),
    "long header": ("/healthz", ["-H", f"X-Large: {'x' * 40_000}"], 431),
    "many headers": (
        "/healthz",
        [part for number in range(200) for part in ("-H", f"X-{number}: 1")],
        431,
    ),
    "long path": ("/" + "x" * 40_000, [], 431),
}


@pytest.mark.parametrize(("path", "arguments", "status"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_has_its_status_and_says_so(
    root: str, path: str, arguments: list[str], status: int
) -> None:
    response = curl(root + path, *arguments)
    assert response.status == status
    assert response.headers["content-type"] == "application/json"
    assert response.json["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/mcp", "POST, GET, DELETE"),
        ("PATCH", "/mcp/", "POST, GET, DELETE"),
        ("POST", "/healthz", "GET, HEAD"),
        ("DELETE", "/metrics", "GET, HEAD"),
        ("POST", "/sse", "GET"),
        ("GET", "/messages", "POST"),
    ],
)
def test_a_wrong_method_gets_a_list_of_allowed_ones(
    root: str, method: str, path: str, allowed: str
) -> None:
    response = curl(root + path, "-X", method)
    assert (response.status, response.headers["allow"]) == (405, allowed)


def test_without_sessions_there_is_only_post(url: str) -> None:
    response = curl(url, "-H", STREAM, "-H", "MCP-Protocol-Version: 2026-07-28")
    assert (response.status, response.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("way", ["header", "name"])
def test_another_name_is_refused_and_the_setting_named(url: str, way: str) -> None:
    if way == "header":
        response = post(url, WEATHER, "-H", "Host: evil.example")
    else:  # as a browser whose page has resolved its own name to this machine
        port = urlsplit(url).port
        response = post(
            f"http://evil.example:{port}/mcp",
            WEATHER,
            "--resolve",
            f"evil.example:{port}:127.0.0.1",
        )
    assert response.status == 421
    assert "--allowed-host" in response.json["error"]["message"]
    assert "evil.example" in response.json["error"]["message"]


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "https://app.example.evil.example", "http://app.example"]
)
def test_another_origin_is_refused_and_the_setting_named(url: str, origin: str) -> None:
    response = post(url, WEATHER, "-H", f"Origin: {origin}")
    assert response.status == 403
    assert "--allowed-origin" in response.json["error"]["message"]
    assert "access-control-allow-origin" not in response.headers


# Bodies


def padded(size: int) -> bytes:
    """Return a call of this many bytes."""
    return json.dumps(MODERN_WEATHER).encode().ljust(size)


CHUNKED = ["-X", "POST", "-T", "-"]  # unchanged, in chunks
SENDINGS = {
    "declared": ["-H", NO_EXPECT],
    "declared, with a question": ["-H", EXPECT],
    "chunked": [*CHUNKED, "-H", NO_EXPECT],
    "chunked, with a question": [*CHUNKED, "-H", EXPECT],
}


@pytest.mark.parametrize("how", SENDINGS.values(), ids=SENDINGS)
def test_a_body_at_the_limit_is_taken(url: str, how: list[str]) -> None:
    response = post(
        url, padded(MAX_MESSAGE), *how, headers=modern_headers(MODERN_WEATHER)
    )
    assert (response.status, text_of(response.json)) == (200, SAID)
    assert response.before == ([100] if EXPECT in how else [])


@pytest.mark.parametrize("size", [MAX_MESSAGE + 1, 5 * MAX_MESSAGE])
@pytest.mark.parametrize("how", SENDINGS.values(), ids=SENDINGS)
def test_a_body_beyond_the_limit_is_refused(
    url: str, how: list[str], size: int
) -> None:
    response = post(url, padded(size), *how, headers=modern_headers(MODERN_WEATHER))
    assert response.status == 413
    # One byte too many may have been read together with the end, and then nothing of
    # this request is in the way.
    assert size == MAX_MESSAGE + 1 or response.headers["connection"] == "close"
    assert "larger than 4 MiB" in response.json["error"]["message"]
    # What says that it is too large is not asked for.
    assert response.before == ([100] if EXPECT in how and "-T" in how else [])


def test_a_body_that_is_trickled_is_counted(url: str) -> None:
    command = [*CURL, "-i", "-H", TYPE, *CHUNKED, url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sent = 0
        try:
            while True:  # it never ends by itself
                sent += process.stdin.write(b" " * 4096)
        except BrokenPipeError:
            pass
        assert Said(process.stdout.read()).status == 413
        assert process.wait(PATIENCE) == 0
    assert sent > MAX_MESSAGE


def test_a_large_body_for_an_evil_origin_is_not_asked_for(url: str) -> None:
    response = post(url, padded(MAX_MESSAGE), "-H", EXPECT, "-H", f"Origin: {EVIL}")
    assert (response.status, response.before) == (403, [])


# CORS


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/sse", "/messages", "/healthz"])
def test_a_preflight_gets_a_list_of_what_is_allowed(root: str, path: str) -> None:
    asked = "content-type,mcp-method,mcp-name,mcp-param-region,mcp-protocol-version"
    headers = {
        "Origin": APP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": asked,
    }
    response = curl(root + path, "-X", "OPTIONS", headers=headers)
    assert (response.status, response.body) == (204, b"")
    assert response.headers["access-control-allow-origin"] == APP
    assert "OPTIONS" in response.headers["access-control-allow-methods"]
    assert names_in(response.headers["access-control-allow-headers"]) >= {
        *WANTED,
        "mcp-param-region",
    }


def test_a_preflight_of_an_evil_origin_is_refused(url: str) -> None:
    headers = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
    response = curl(url, "-X", "OPTIONS", headers=headers)
    assert response.status == 403
    assert not any(name.startswith("access-control") for name in response.headers)


ERRORS = {
    **{name: WRONG[name] for name in WRONG if name != "no Host"},
    "wrong method": ("/mcp", ["-X", "PUT"], 405),
    "wrong name": ("/mcp", ["-H", "Host: evil.example"], 421),
    "large body": (
        "/mcp",
        ["-d", "x" * 100, "-H", TYPE, "-H", f"Content-Length: {2 * MAX_MESSAGE}"],
        413,
    ),
}


@pytest.mark.parametrize("way", ["--allowed-origin", "--cors"])
@pytest.mark.parametrize(("path", "arguments", "status"), ERRORS.values(), ids=ERRORS)
def test_pages_may_read_errors(
    root: str, open_root: str, way: str, path: str, arguments: list[str], status: int
) -> None:
    response = curl(
        (open_root if way == "--cors" else root) + path,
        "-H",
        f"Origin: {APP}",
        *arguments,
    )
    assert response.status == status
    assert response.headers["access-control-allow-origin"] == APP
    assert "mcp-session-id" in names_in(
        response.headers["access-control-expose-headers"]
    )
    assert response.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", [EVIL, "null"])
def test_with_cors_any_page_may_come(open_root: str, origin: str) -> None:
    response = post(
        open_root + "/mcp",
        MODERN_WEATHER,
        headers={**modern_headers(MODERN_WEATHER), "Origin": origin},
    )
    assert (response.status, text_of(response.json)) == (200, SAID)
    assert response.headers["access-control-allow-origin"] == origin


# What is right


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
@pytest.mark.parametrize(
    "version", ["--http1.0", "--http1.1", "--http2"]
)  # the last asks for an upgrade to h2c
def test_a_call_without_a_session_is_answered(
    root: str, path: str, version: str
) -> None:
    response = post(
        root + path, MODERN_WEATHER, version, headers=modern_headers(MODERN_WEATHER)
    )
    assert response.status == 200
    assert response.json["result"]["resultType"] == "complete"
    assert text_of(response.json) == SAID
    assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
def test_a_session_is_used_and_ended(
    root: str, path: str, session: dict[str, str]
) -> None:
    assert text_of(post(root + path, WEATHER, headers=session).json) == SAID
    assert curl(root + path, "-X", "DELETE", headers=session).status == 204
    assert post(root + path, WEATHER, headers=session).status == 404


@pytest.mark.parametrize(
    ("version", "encoding"), [("--http1.0", None), ("--http1.1", "chunked")]
)
def test_progress_is_a_stream_in_every_version_of_http(
    url: str, version: str, encoding: str | None
) -> None:
    params = {
        "name": "count_slowly",
        "arguments": {"steps": 3, "seconds": 0},
        "_meta": {**MODERN, "progressToken": 1},
    }
    body = message("tools/call", params)
    response = post(url, body, version, headers=modern_headers(body))
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers.get("transfer-encoding") == encoding
    assert [sent.get("method") for sent in response.messages] == [
        "notifications/progress"
    ] * 3 + [None]
    assert text_of(response.messages[-1]) == "Counted to 3"


@pytest.mark.parametrize(
    ("path", "status"),
    [("/healthz", 200), ("/metrics", 200), ("/mcp", 405), ("/nowhere", 404)],
)
def test_head_has_a_length_and_no_body(root: str, path: str, status: int) -> None:
    response = curl(root + path, "-I")
    assert (response.status, response.body) == (status, b"")
    assert int(response.headers["content-length"]) > 0


def test_requests_share_a_connection(root: str) -> None:
    pages = [
        part
        for path in ("/healthz", "/nowhere", "/healthz")
        for part in ("-o", os.devnull, root + path)
    ]
    done = subprocess.run(
        [*CURL, "-w", "%{http_code} %{num_connects}\n", *pages],
        capture_output=True,
        check=True,
    )
    assert done.stdout.splitlines() == [b"200 1", b"404 0", b"200 0"]
