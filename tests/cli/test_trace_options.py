"""The options of record and replay: redaction, confirmation, errors."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest

import mcp_trio
from mcp_trio.cli.main import main
from mcp_trio.trace.format import read

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(mcp_trio.__file__).parents[1])}
MCP_TRIO = [sys.executable, "-m", "mcp_trio"]
ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": message["params"]}
    print(json.dumps(answer), flush=True)
"""
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "log_in", "arguments": {"password": "hunter2", "pin": "1234"}},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("echo.py").write_text(ECHO, encoding="utf-8")
    return tmp_path


def record(*options):
    command = [*MCP_TRIO, "record", "-o", "one.jsonl", *options]
    return subprocess.run(
        [*command, "--", sys.executable, "echo.py"],
        input=json.dumps(CALL).encode() + b"\n",
        capture_output=True,
        env=ENVIRONMENT,
        timeout=30,
        check=False,
    )


@pytest.mark.thorough
def test_the_recorder_says_how_many_secrets_it_replaced(folder):
    done = record("--redact", "/params/name", "--redact-pattern", r"\b\d{4}\b")
    assert json.loads(done.stdout)["result"] == CALL["params"]
    assert done.stderr.decode() == "record: placeholders for secrets: 6\n"
    text = Path("one.jsonl").read_text(encoding="utf-8")
    assert "hunter2" not in text
    assert "1234" not in text
    assert read(Path("one.jsonl")).lines[0].content["params"] == {
        "name": "redacted-1",
        "arguments": {"password": "redacted-2", "pin": "redacted-3"},
    }
    target = [sys.executable, "echo.py"]
    assert main(["replay", "one.jsonl", "--over", "stdio", "--", *target]) == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["record", "-o", "a", "--redact", "x"], "expected a JSON Pointer such as"),
        (["record", "-o", "a", "--redact-pattern", "("], "expected a regular expr"),
        (["replay", "a.jsonl", "--header", "x"], "expected 'NAME: VALUE', got 'x'"),
        (["replay", "a.jsonl", "--token", "x"], "expected a URL as the target"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(folder, capsys, words, problem):
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert problem in capsys.readouterr().err


@pytest.fixture
def recorded(folder):
    record()
    return folder


COMMAND = ["--", sys.executable, "echo.py"]


@pytest.mark.thorough
def test_a_replay_says_that_it_repeats_calls(recorded, capsys):
    assert main(["replay", "one.jsonl", *COMMAND]) == 0
    said = capsys.readouterr().err
    assert said.startswith("Each replay repeats every call of its trace (log_in)")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("typed", "options", "code"),
    [(b"n\n", [], 2), (b"\n", [], 2), (b"y\n", [], 0), (b"", ["--yes"], 0)],
)
def test_a_replay_asks_at_a_terminal(recorded, typed, options, code):
    ours, theirs = pty.openpty()
    words = [*MCP_TRIO, "replay", *options, "one.jsonl", *COMMAND]
    with subprocess.Popen(
        words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT
    ) as process:
        os.close(theirs)
        os.write(ours, typed)
        assert process.stdout is not None
        out = process.stdout.read()
        said = read_terminal(ours)
    os.close(ours)
    assert process.returncode == code
    assert (b"Continue? [y/N]" in said) is not bool(options)
    assert (b"no differences" in out) is (code == 0)


def test_a_replay_of_a_server_that_is_loaded_here_asks_nothing(recorded, capsys):
    main(["replay", "one.jsonl", "mcp_trio.demo", "--over", "stdio"])
    assert "Each replay" not in capsys.readouterr().err


# Reviewing differences


@pytest.fixture
def differing(folder):
    """Return a trace with two values that the server does not send."""
    result = {"name": "log in", "arguments": {"password": "hunter2", "pin": "12"}}
    answer = {"jsonrpc": "2.0", "id": 1, "result": result}
    rows = [
        {"mcp_trace": 1, "transport": "stdio", "over": ["stdio"]},
        {"t": 0, "from": "client", "message": CALL},
        {"t": 1, "from": "server", "message": answer},
    ]
    path = Path("one.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


STDIO = ["one.jsonl", "--over", "stdio", *COMMAND]


def read_terminal(terminal):
    """Return all that was written to a terminal, when the last writer has closed it."""
    said = b""
    # Linux reports the end as an error.
    with suppress(OSError):
        while piece := os.read(terminal, 10_000):
            said += piece
    return said


def review(typed):
    """Run `replay --update` at a terminal. Returns its exit code and its output."""
    ours, theirs = pty.openpty()
    words = [*MCP_TRIO, "replay", "--update", *STDIO]
    with subprocess.Popen(
        words, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        # The first answer is to the question whether to call the server.
        os.write(ours, b"y\n" + typed)
        assert process.stdout is not None
        process.stdout.read()
        said = read_terminal(ours)
    os.close(ours)
    return process.returncode, said.decode()


def test_an_update_shows_each_change_in_words(differing, capsys):
    assert main(["replay", "--update", *STDIO]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        'one.jsonl: line 3: $.result.name changes from "log in" to "log_in"',
        'one.jsonl: line 3: $.result.arguments.pin changes from "12" to "1234"',
        "one.jsonl: updated",
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("typed", "code", "name", "pin"),
    [
        (b"y\nn\n", 1, "log_in", "12"),
        (b"n\ny\n", 1, "log in", "1234"),
        (b"a\n", 0, "log_in", "1234"),
        (b"q\n", 1, "log in", "12"),
    ],
)
def test_an_update_asks_about_each_change_at_a_terminal(
    differing, typed, code, name, pin
):
    done, out = review(typed)
    result = read(differing).lines[1].content["result"]
    assert (result["name"], result["arguments"]["pin"]) == (name, pin)
    assert "Accept it? [y]es, [n]o, [a]ll, [q]uit: " in out
    assert done == code


def test_a_report_for_a_pull_request_has_both_sides(differing, capsys):
    assert main(["replay", "--report", "report.md", *STDIO]) == 1
    text = Path("report.md").read_text(encoding="utf-8")
    assert text.startswith("# Replayed traces\n\n1 trace, ")
    assert '@@ message.result.name\n- "log in"\n+ "log_in"\n' in text
    now = text.index("The conversation now, over stdio")
    assert '"log in"' in text[:now]
    assert '"log_in"' in text[now:]


def test_results_are_written_as_junit(differing, capsys):
    Path("bad.jsonl").write_text("no", encoding="utf-8")
    code = main(["replay", "--junit", "report.xml", "one.jsonl", "bad.jsonl", *COMMAND])
    assert code == 2
    suite = ElementTree.parse("report.xml").getroot()[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "2",
        "failures": "1",
        "errors": "1",
    }
    first, second = suite
    assert (first.get("classname"), first.get("name")) == ("one.jsonl", "stdio")
    assert "one.jsonl:3: $.result.name" in first[0].get("message")
    assert '- "log in"' in first[0].text
    assert "bad.jsonl: not a trace" in second[0].get("message")
