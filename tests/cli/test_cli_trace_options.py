"""The options of record and replay: what is redacted, asked, refused."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

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


def test_a_replay_says_that_it_repeats_calls(recorded, capsys):
    assert main(["replay", "one.jsonl", *COMMAND]) == 0
    said = capsys.readouterr().err
    assert said.startswith("Each replay repeats every call of its trace (log_in)")


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
        said = os.read(ours, 10_000)
    os.close(ours)
    assert process.returncode == code
    assert (b"Go on? [y/N]" in said) is not bool(options)
    assert (b"no differences" in out) is (code == 0)


def test_a_replay_of_a_server_that_is_loaded_here_asks_nothing(recorded, capsys):
    main(["replay", "one.jsonl", "mcp_trio.demo", "--over", "stdio"])
    assert "Each replay" not in capsys.readouterr().err
