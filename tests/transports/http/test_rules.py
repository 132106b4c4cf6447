"""The rules of the MCP endpoint, without a network."""

from typing import Any

import msgspec
import pytest

from mcp_trio.protocol.errors import HeaderMismatch
from mcp_trio.protocol.mirrored_headers import mirrors
from mcp_trio.protocol.params import CallParams
from mcp_trio.protocol.session import Call
from mcp_trio.transports.http.messages import Head
from mcp_trio.transports.http.rules import (
    Guard,
    Routes,
    accepted,
    bare,
    check_arguments,
    check_request,
    header_text,
    is_json,
    preflight,
)


def head(target: bytes = b"/mcp", local: str = "", **headers: str) -> Head:
    named = {
        name.replace("_", "-").encode(): value.encode()
        for name, value in headers.items()
    }
    return Head(b"POST", target, named, local, "mcp")


def status(guard: Guard, **headers: str) -> int:
    refused = guard.check(head(b"/mcp", "", **headers))
    return refused.status if refused else 200


# Routing


@pytest.mark.parametrize(
    ("target", "route"),
    [
        (b"/mcp", "mcp"),
        (b"/mcp/", "mcp"),
        (b"/mcp?x=1", "mcp"),
        (b"http://localhost:8000/mcp", "mcp"),
        (b"/healthz", "health"),
        (b"/metrics", "metrics"),
        (b"/sse", "sse"),
        (b"/messages?session=1", "messages"),
        (b"/", None),
        (b"/mcp/x", None),
        (b"/MCP", None),
        (b"localhost:80", None),
    ],
)
def test_a_target_leads_to_its_route(target: bytes, route: str | None) -> None:
    assert Routes("/mcp").find(head(target)) == route


def test_the_host_of_a_whole_url_replaces_the_header() -> None:
    absolute = head(b"http://evil.example/mcp", host="localhost")
    Routes("/mcp").find(absolute)
    assert Guard().check(absolute).status == 421


# Which requests are accepted


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST",
        "127.0.0.1:1",
        "127.8.8.8",
        "[::1]:8000",
    ],
)
def test_the_machine_itself_is_let_in(host: str) -> None:
    assert status(Guard(), host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "10.0.0.1",
        "",
    ],
)
def test_other_hosts_are_refused_and_the_setting_is_named(host: str) -> None:
    refused = Guard().check(head(host=host))
    assert refused is not None
    assert refused.status == 421
    assert b"--allowed-host" in refused.body


def test_hosts_can_be_allowed_with_a_port_without_and_all() -> None:
    assert status(Guard(["mcp.example"]), host="MCP.example:443") == 200
    assert status(Guard(["mcp.example:1"]), host="mcp.example:1") == 200
    assert status(Guard(["mcp.example:1"]), host="mcp.example:2") == 421
    assert status(Guard(["*"]), host="whatever") == 200


def test_the_address_that_was_connected_to_is_let_in() -> None:
    assert Guard().check(head(local="192.0.2.1", host="192.0.2.1:80")) is None
    assert Guard().check(head(local="192.0.2.1", host="192.0.2.2:80")) is not None


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("http://localhost.evil.example", 403),
        ("file://localhost", 403),
    ],
)
def test_only_local_origins_are_accepted_by_default(origin: str, expected: int) -> None:
    assert status(Guard(), host="localhost", origin=origin) == expected


def test_origins_can_be_allowed() -> None:
    assert (
        status(
            Guard(allowed_origins=["https://app.example"]),
            host="localhost",
            origin="https://app.example",
        )
        == 200
    )
    assert (
        status(Guard(cors=True), host="localhost", origin="https://any.example") == 200
    )
    assert (
        status(
            Guard(allowed_hosts=["mcp.example"]),
            host="mcp.example",
            origin="https://mcp.example",
        )
        == 200
    )


def test_a_page_on_loopback_may_not_use_a_public_name() -> None:
    assert (
        status(
            Guard(allowed_hosts=["mcp.example"]),
            host="mcp.example",
            origin="http://localhost:1",
        )
        == 403
    )


def test_node_is_not_treated_as_a_browser() -> None:
    assert status(Guard(), host="localhost", sec_fetch_mode="cors") == 200


def test_only_allowed_origins_get_permission_to_read() -> None:
    guard = Guard(allowed_origins=["https://app.example"])
    told = dict(guard.cors(head(host="localhost", origin="https://app.example")))
    assert told[b"Access-Control-Allow-Origin"] == b"https://app.example"
    assert guard.cors(head(host="localhost", origin="https://evil.example")) == ()


def test_a_preflight_echoes_only_the_headers_of_mirrored_arguments() -> None:
    asked = head(access_control_request_headers="mcp-param-region, x-evil")
    allowed = dict(preflight(asked).headers)[b"Access-Control-Allow-Headers"].split(
        b", "
    )
    assert b"mcp-param-region" in allowed
    assert b"x-evil" not in allowed
    assert {
        b"Authorization",
        b"MCP-Protocol-Version",
        b"Mcp-Method",
        b"Mcp-Name",
    } < set(allowed)


# What it brings


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, (True, True)),
        ("*/*", (True, True)),
        ("application/json, text/event-stream", (True, True)),
        ("text/event-stream;q=0.9 , application/json", (True, True)),
        ("application/json", (True, False)),
        ("text/*", (False, True)),
        ("text/event-stream;q=0, application/json", (True, False)),
        ("text/html", (False, False)),
    ],
)
def test_accept_says_which_types_a_client_takes(
    accept: str | None, expected: tuple[bool, bool]
) -> None:
    assert (
        accepted({} if accept is None else {b"accept": accept.encode()})[:2] == expected
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/plain", False),
        ("application/jsonx", False),
        ("application/x-www-form-urlencoded", False),
    ],
)
def test_a_content_type_says_whether_a_body_is_json(kind: str, expected: bool) -> None:
    assert is_json({b"content-type": kind.encode()}) is expected
    assert not is_json({})


# Headers that repeat the body


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"us-west1", "us-west1"),
        (b"=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
        (b"=?base64?IHBhZGRlZCA=?=", " padded "),
        (b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        (b"=?BASE64?aGk=?=", "=?BASE64?aGk=?="),
    ],
)
def test_encoded_values(given: bytes, text: str) -> None:
    assert header_text(b"Mcp-Name", given) == text


@pytest.mark.parametrize(
    "given",
    [b"=?base64?!!!!?=", b"=?base64?/w==?=", b"=?base64?aGk?=", "é".encode(), b"a\x01"],
)
def test_what_no_header_can_hold(given: bytes) -> None:
    with pytest.raises(HeaderMismatch):
        header_text(b"Mcp-Name", given)


SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {
            "type": "object",
            "properties": {"n": {"type": "integer", "x-mcp-header": "N"}},
        },
        "on": {"type": "boolean", "x-mcp-header": "On"},
        "many": {
            "type": "array",
            "items": {"properties": {"x": {"x-mcp-header": "X"}}},
        },
    },
}


def check(arguments: object, **headers: str) -> None:
    call = Call(
        1,
        "tools/call",
        CallParams(name="t", arguments=msgspec.Raw(msgspec.json.encode(arguments))),
        None,
        None,
    )
    check_arguments(list(mirrors(SCHEMA)), call, head(b"/mcp", "", **headers).headers)


def test_only_properties_lead_to_a_mirrored_argument() -> None:
    assert [header for header, _ in mirrors(SCHEMA)] == [
        b"Mcp-Param-Region",
        b"Mcp-Param-N",
        b"Mcp-Param-On",
    ]


@pytest.mark.parametrize("n", ["42", "42.0", "42."])
def test_integers_are_compared_as_numbers(n: str) -> None:
    check({"deep": {"n": 42}}, mcp_param_n=n)


def test_values_that_are_null_or_absent_have_no_header() -> None:
    check({"region": None})
    check({})
    check({"region": "a", "on": True}, mcp_param_region="a", mcp_param_on="true")


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"region": "a"}, {}),
        ({"region": "a"}, {"mcp_param_region": "b"}),
        ({}, {"mcp_param_region": "b"}),
        ({"deep": {"n": 42}}, {"mcp_param_n": "42.5"}),
        ({"deep": {"n": 42}}, {"mcp_param_n": "4_2"}),
        ({"on": True}, {"mcp_param_on": "True"}),
        ({"on": 1}, {"mcp_param_on": "true"}),
        # The header is decoded to "hi".
        ({"region": "=?base64?aGk=?="}, {"mcp_param_region": "=?base64?aGk=?="}),
    ],
)
def test_headers_that_contradict_the_arguments_are_refused(
    arguments: object, headers: dict[str, str]
) -> None:
    with pytest.raises(HeaderMismatch):
        check(arguments, **headers)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("localhost", "localhost"),
        ("localhost:80", "localhost"),
        ("localhost:", "localhost"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("", ""),
        (":80", ""),
        ("[::1]x", "[::1]x"),
        ("::1", "::1"),
        ("a:b", "a:b"),
    ],
)
def test_a_host_is_taken_out_of_its_port_and_brackets(host: str, name: str) -> None:
    assert bare(host) == name


@pytest.mark.parametrize(
    ("accept", "prefers_stream"),
    [
        ("text/event-stream", True),
        ("text/event-stream, application/json", True),
        ("text/event-stream, */*", True),
        ("application/json, text/event-stream", False),
        ("application/json", False),
        ("*/*", False),
        ("*/*, text/event-stream", True),
        ("text/*, application/json", False),
        ("text/event-stream;q=0, application/json", False),
    ],
)
def test_a_client_that_names_the_stream_first_prefers_it(
    accept: str, prefers_stream: bool
) -> None:
    assert accepted({b"accept": accept.encode()}).prefers_stream is prefers_stream


JSON = "application/json"
STREAM = "text/event-stream"


@pytest.mark.parametrize(
    ("method", "route", "headers", "expected"),
    [
        (b"POST", "mcp", {"content_type": JSON}, None),
        (b"POST", "mcp", {"content_type": JSON, "accept": JSON}, None),
        (b"POST", "mcp", {"content_type": JSON, "accept": STREAM}, None),
        (b"POST", "mcp", {"content_type": JSON, "accept": "text/html"}, 406),
        (b"POST", "mcp", {"content_type": "text/plain"}, 415),
        (b"POST", "mcp", {}, 415),
        (b"POST", "messages", {"content_type": JSON, "accept": "text/html"}, None),
        (b"POST", "messages", {"content_type": "text/plain"}, 415),
        (b"GET", "mcp", {"accept": STREAM}, None),
        (b"GET", "mcp", {"accept": JSON}, 406),
        (b"GET", "sse", {"accept": STREAM}, None),
        (b"GET", "sse", {"accept": JSON}, 406),
        (b"GET", "health", {"accept": JSON}, None),
        (b"GET", "metrics", {"accept": JSON}, None),
        (b"DELETE", "mcp", {"accept": JSON}, None),
        (b"PUT", "mcp", {}, 405),
        (b"POST", "sse", {"content_type": JSON}, 405),
        (b"GET", "messages", {}, 405),
        (b"POST", "health", {"content_type": JSON}, 405),
        (b"HEAD", "health", {}, None),
    ],
)
def test_method_and_types_have_to_fit_the_route(
    method: bytes, route: str, headers: dict[str, Any], expected: int | None
) -> None:
    request = head(**headers)
    request.method = method
    request.route = route
    refused = check_request(request)
    assert (None if refused is None else refused.status) == expected
