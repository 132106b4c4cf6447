"""What the recorder writes placeholders for, and that a trace stays replayable."""

import json

import pytest

from mcp_trio.trace.format import Http, Line, Pattern, read
from mcp_trio.trace.format import line as line_of
from mcp_trio.trace.privacy import Redactor
from mcp_trio.trace.record import Recorder

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer redacted-1"),
        (f"<{JWT}>", "<redacted-1>"),
        ("sk-proj-abcdefghijklmnop1234", "redacted-1"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789 x", "redacted-1 x"),
        ("AKIAABCDEFGHIJKLMNOP", "redacted-1"),
        ("xoxb-1234567890-abc", "redacted-1"),
        ("postgres://user:hunter2@db/x", "postgres://redacted-1@db/x"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
            "redacted-1",
        ),
        ("Authorization: Bearer TOKEN is wanted", None),
        ("a task-oriented desk_lamp and eyJust", None),
        ("https://example.org/@name", None),
        ("", None),
    ],
)
def test_what_looks_like_a_secret_gets_a_placeholder(text, kept):
    redactor = Redactor()
    assert redactor.text(text) == (text if kept is None else kept)
    assert redactor.replaced == (0 if kept is None else 1)


def redacted(redactor, *messages):
    """Return lines for messages of the client and the server in turn, redacted."""
    lines = []
    for number, message in enumerate(messages, 2):
        sender = "client" if number % 2 == 0 else "server"
        line = line_of(0.0, sender, json.dumps(message).encode())
        lines.append(redactor.line(line, number))
    return lines


def test_a_value_under_a_secret_key_gets_a_placeholder():
    params = {"arguments": {"user": "ann", "password": "hunter2", "api_key": ""}}
    schema = {"properties": {"password": {"type": "string"}}, "required": ["password"]}
    first, second = redacted(
        Redactor(),
        {"id": 1, "method": "tools/call", "params": params},
        {"id": 1, "result": {"schema": schema}},
    )
    assert first.content["params"]["arguments"] == {
        "user": "ann",
        "password": "redacted-1",
        "api_key": "",
    }
    assert second.content["result"] == {"schema": schema}


def test_identifiers_of_the_protocol_are_kept():
    meta = {"_meta": {"progressToken": "a-progress-token-of-some-length"}}
    message = {"id": 1, "method": "tools/call", "params": meta}
    [line] = redacted(Redactor(), message)
    assert line.content == message


def test_the_same_secret_has_the_same_placeholder_and_stays_replayable():
    redactor = Redactor()
    _, logged_in, used = redacted(
        redactor,
        {"id": 1, "method": "tools/call"},
        {"id": 1, "result": {"session": {"token": "abc123"}}},
        {"id": 2, "params": {"arguments": {"token": "abc123", "note": "x abc123"}}},
    )
    assert logged_in.content["result"]["session"]["token"] == "redacted-1"
    assert logged_in.match == {"/result/session/token": Pattern(type="any")}
    assert used.content["params"]["arguments"]["token"] == "redacted-1"
    assert used.match == {
        "/params/arguments/token": Pattern(same="/result/session/token", line=3)
    }


def test_a_secret_within_a_text_of_the_server_becomes_a_pattern():
    _, line = redacted(
        Redactor(), {}, {"id": 1, "result": {"text": f"Your key (new): {JWT}."}}
    )
    assert line.content["result"]["text"] == "Your key (new): redacted-1."
    [pattern] = line.match.values()
    assert pattern == Pattern(regex=r"Your key \(new\): .+\.")


def test_pointers_and_patterns_of_the_user_are_redacted_too():
    redactor = Redactor(["/params/arguments/*/ssn"], [r"\d{4}-\d{4}"])
    [line] = redacted(
        redactor,
        {"params": {"arguments": {"ann": {"ssn": 17}}, "card": "is 1234-5678"}},
    )
    assert line.content == {
        "params": {
            "arguments": {"ann": {"ssn": "redacted-1"}},
            "card": "is redacted-2",
        }
    }
    assert redactor.replaced == 2


def test_a_message_without_secrets_is_kept_byte_by_byte():
    data = b'{"a": 1.0, "b":"\\u00e9",   "token_count": 5}'
    line = line_of(0.0, "server", data)
    assert Redactor().line(line, 2) is line


@pytest.mark.parametrize(
    ("path", "kept", "whole"),
    [
        ("/mcp?a=1&b", "/mcp?a=&b", "/mcp?a=1&b"),
        ("/mcp?api_key=12", "/mcp?api_key=", "/mcp?api_key=redacted-1"),
        ("/mcp", "/mcp", "/mcp"),
    ],
)
def test_the_values_of_a_query_are_kept_only_if_asked_for(path, kept, whole):
    assert Redactor().path(path) == kept
    assert Redactor(keep_query=True).path(path) == whole


def test_sessions_and_credentials_of_http_have_placeholders(tmp_path):
    path = tmp_path / "a.jsonl"
    recorder = Recorder(path, transport="http")
    recorder.note(
        "server",
        stream=1,
        http=Http(status=200, headers={"mcp-session-id": "5f2e"}),
    )
    recorder.note(
        "client",
        b"{}",
        stream=2,
        http=Http(
            "POST",
            "/mcp",
            headers={
                "mcp-session-id": "5f2e",
                "authorization": "Bearer short",
                "cookie": "a=b",
            },
        ),
    )
    recorder.note("server", stream=3, event={"event": "endpoint", "data": "/m?s=9a8b"})
    recorder.note("client", stream=4, http=Http("POST", "/m?s=9a8b"))
    recorder.close()
    first, second, third, fourth = read(path).lines
    assert first.http.headers == {"mcp-session-id": "session-1"}
    assert second.http.headers == {
        "mcp-session-id": "session-1",
        "authorization": "Bearer redacted-1",
        "cookie": "redacted-2",
    }
    assert third.event["data"] == fourth.http.path == "/m?s=session-2"
    assert recorder.redactor.replaced == 6


def test_session_ids_do_not_make_the_recorder_search_messages():
    redactor = Redactor()
    redactor.session("5f2e")
    line = line_of(0.0, "server", b'{"result": {"text": "5f2e"}}')
    assert redactor.line(line, 2) is line


def test_a_secret_is_found_again_where_nothing_marks_it():
    redactor = Redactor()
    _, line = redacted(
        redactor,
        {"params": {"password": "swordfish"}},
        {"result": {"text": "swordfish"}},
    )
    assert line.content == {"result": {"text": "redacted-1"}}


def test_a_command_is_written_without_its_secrets(tmp_path):
    command = f"API_KEY=hunter2 node server.js --token swordfish --auth {JWT} --x y"
    recorder = Recorder(tmp_path / "a.jsonl", server=command)
    recorder.close()
    assert recorder.header.server == (
        "API_KEY=redacted-2 node server.js --token redacted-3 --auth redacted-1 --x y"
    )


def test_raw_data_and_events_are_searched_as_well():
    redactor = Redactor()
    raw = Line(t=0.0, sender="server", raw=f"key {JWT}")
    event = Line(t=0.0, sender="server", event={"data": JWT})
    assert redactor.line(raw, 2).raw == "key redacted-1"
    assert redactor.line(event, 3).event == {"data": "redacted-1"}
