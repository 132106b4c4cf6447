"""The JSON Schema of the format, and `show --check`, which validates files with it."""

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator

from mcp_trio.cli.main import main
from mcp_trio.trace.check import problems, schema
from mcp_trio.trace.format import Header, Http, Line, Pattern

ROOT = Path(__file__).resolve().parents[2]
TRACES = sorted((ROOT / "traces").rglob("*.jsonl"))


def test_the_schema_is_a_schema_and_each_trace_here_is_valid():
    Draft202012Validator.check_schema(schema())
    assert TRACES
    assert [problem for path in TRACES for problem in problems(path)] == []


@pytest.mark.parametrize(
    ("name", "type"),
    [("header", Header), ("line", Line), ("pattern", Pattern)],
)
def test_the_schema_has_the_keys_that_the_program_reads(name, type):
    known = {field.encode_name for field in msgspec.structs.fields(type)}
    assert set(schema()["$defs"][name]["properties"]) == known


def test_the_schema_has_the_keys_of_a_head():
    known = {field.encode_name for field in msgspec.structs.fields(Http)}
    assert set(schema()["$defs"]["line"]["properties"]["http"]["properties"]) == known


HEADER = {"mcp_trace": 1, "transport": "stdio"}
PING = {"t": 0, "from": "client", "message": {"method": "ping"}}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([HEADER | {"later": 1}], "1: $: Additional properties are not allowed"),
        ([HEADER | {"mcp_trace": 2}], "1: $.mcp_trace: 1 was expected"),
        ([{"mcp_trace": 1}], "1: $: 'transport' is a required property"),
        ([HEADER | {"ignore": ["a"]}], "1: $.ignore[0]: 'a' does not match"),
        ([HEADER, PING | {"raw": ""}], "2: $: "),
        ([HEADER, PING | {"from": "me"}], "2: $.from: 'me' is not one of"),
        ([HEADER, PING, {"t": 0, "from": "server"}], "3: $: "),
        ([HEADER, PING, {}], "3: $: 't' is a required property"),
        (
            [HEADER, PING | {"match": {"/a": {"type": "text"}}}],
            "2: $.match./a.type: 'text' is not one of",
        ),
        (
            [HEADER, PING | {"match": {"/a": {"type": "any"}}}],
            "2: not a line of a trace: match: /a: expected same and line",
        ),
    ],
)
def test_a_check_names_file_line_and_path(tmp_path, capsys, rows, told):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["show", "--check", str(path)]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{path}:{told}")
    assert last == "1 of 1 trace not valid"


def test_a_check_takes_files_and_folders(tmp_path, capsys):
    for name in ("a", "b"):
        text = json.dumps(HEADER) + "\n" + json.dumps(PING) + "\n"
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    assert main(["show", "--check", str(tmp_path), str(tmp_path / "a.jsonl")]) == 0
    assert capsys.readouterr().out == "2 traces valid\n"
    (tmp_path / "b.jsonl").write_text("no\n{", encoding="utf-8")
    assert main(["show", "--check", str(tmp_path)]) == 1
    assert "b.jsonl:1: not JSON: " in capsys.readouterr().out
    assert main(["show", "--check", str(tmp_path / "c.jsonl")]) == 1
    assert "cannot be read" in capsys.readouterr().out


def test_only_one_trace_is_shown_at_a_time(tmp_path, capsys):
    assert main(["show", "a.jsonl", "b.jsonl"]) == 2
    assert "expected one trace to show, got 2" in capsys.readouterr().err
