"""Invalid settings of the HTTP endpoint are reported before anything is served."""

from typing import Any

import pytest

from mcp_trio import Server
from mcp_trio.transports.http.settings import HttpSettings

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"path": "a b"}, "path: expected a path such as /mcp, got 'a b'"),
    ({"path": "/mcp?x"}, "path: expected a path such as /mcp, got '/mcp?x'"),
    ({"path": "/mcp#x"}, "path: expected a path such as /mcp, got '/mcp#x'"),
    ({"path": "/mcp\n"}, r"path: expected a path such as /mcp, got '/mcp\n'"),
    ({"path": "/é"}, "path: expected a path such as /mcp, got '/é'"),
    ({"path": "http://a/mcp"}, "path: expected a path such as /mcp, got 'http://a"),
    ({"path": 5}, "path: expected a string, got 5"),
    ({"path": "sse/"}, "path: expected a path that the server does not use itself"),
    ({"path": "/healthz"}, "got '/healthz'; choose another one, such as /mcp"),
    (
        {"path": "/.well-known/oauth-protected-resource/x"},
        "path: expected a path that the server does not use itself",
    ),
    ({"allowed_hosts": "a.org"}, "allowed_hosts: expected a list of strings, got 'a"),
    ({"allowed_hosts": 5}, "allowed_hosts: expected a list of strings, got 5"),
    ({"allowed_hosts": [None]}, "allowed_hosts: expected a string, got None"),
    ({"allowed_hosts": [""]}, "expected a host such as mcp.example.org"),
    ({"allowed_hosts": ["https://a.org"]}, "or * for any, got 'https://a.org'"),
    ({"allowed_hosts": ["a.org/mcp"]}, "or * for any, got 'a.org/mcp'"),
    ({"allowed_hosts": ["a.org:http"]}, "or * for any, got 'a.org:http'"),
    ({"allowed_hosts": ["a b"]}, "or * for any, got 'a b'"),
    ({"allowed_hosts": ["[::1"]}, "or * for any, got '[::1'"),
    ({"allowed_origins": "*"}, "allowed_origins: expected a list of strings, got '*'"),
    ({"allowed_origins": ["a.org"]}, "allowed_origins: expected an origin such as"),
    ({"allowed_origins": ["https://"]}, "or * for any, got 'https://'"),
    ({"allowed_origins": ["https://a.org/app"]}, "got 'https://a.org/app'"),
    ({"allowed_origins": [""]}, "or * for any, got ''"),
    ({"tls": "cert.pem"}, "tls: expected the file of a certificate and the file of"),
    ({"tls": ("cert.pem",)}, "and the file of its key, got ('cert.pem',)"),
    ({"public_url": 5}, "public_url: expected a string, got 5"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
def test_a_wrong_setting_is_named_with_what_was_expected(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        HttpSettings(**options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


RIGHT: list[dict[str, Any]] = [
    {"path": ""},
    {"path": "/"},
    {"path": "mcp"},
    {"path": "/a/b-c_d.e~f%20/"},
    {"path": "/sse/mcp"},
    {"allowed_hosts": ["*", "a.org", "a.org:8000", "127.0.0.1", "[::1]:80", "::1"]},
    {"allowed_hosts": (host for host in ["a_b", "münchen.example"])},
    {"allowed_origins": ["*", "null", "https://a.org/", "http://[::1]:80"]},
    {"allowed_origins": {"vscode-webview://abc", "chrome-extension://abc"}},
    {"public_url": "https://mcp.example.org"},
    {"public_url": "http://[::1]:8000/tools/mcp"},
]


@pytest.mark.parametrize("options", RIGHT)
def test_other_settings_are_taken(options: dict[str, Any]) -> None:
    settings = HttpSettings(**options)
    assert settings.hosts == list(settings.hosts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "nothing to serve on: expected stdio=True or an address"),
        ({"http": "abc"}, "http: expected [HOST:]PORT such as 8000"),
        ({"http": 99999}, "http: expected a port between 0 and 65535, got 99999"),
        ({"http": -1}, "http: expected [HOST:]PORT"),
        ({"http": True}, "http: expected [HOST:]PORT"),
        ({"http": "[::1:80"}, "http: expected [HOST:]PORT"),
        ({"http": "http://127.0.0.1:80"}, "http: expected [HOST:]PORT"),
        ({"ws": "localhost:"}, "ws: expected [HOST:]PORT"),
        ({"console": "x"}, "console: expected [HOST:]PORT"),
        ({"http": 0, "http_engine": "x"}, "http_engine: expected 'native' or 'hyper"),
        ({"http": 0, "path": "a b"}, "path: expected a path such as /mcp"),
        ({"http": 0, "public_url": "x"}, "public_url: expected the endpoint's URL"),
    ],
)
async def test_serve_says_what_is_wrong_before_it_serves(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is in `says`)
        await Server("x").serve(**options)
    assert says in str(caught.value)
