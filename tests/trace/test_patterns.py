"""Patterns in traces: what they accept, how replays report them, how they are found."""

import json
from itertools import count
from pathlib import Path

import pytest
from msgspec import Raw

from mcp_trio import Server
from mcp_trio.load_spec import UsageError
from mcp_trio.trace import suite
from mcp_trio.trace.compare import ABSENT
from mcp_trio.trace.format import BadTrace, Header, Line, Pattern, Trace, read
from mcp_trio.trace.patterns import checks_of, infer
from mcp_trio.trace.replay import Replay


def line(sender, message, **fields):
    return Line(
        t=0.0, sender=sender, message=Raw(json.dumps(message).encode()), **fields
    )


def fault(pattern, value, message=ABSENT):
    """Return what a pattern expected, or an empty string if it accepts the value."""
    recorded = line("server", {"id": 1}, match={"/result": pattern})
    [check] = checks_of(recorded, message, {2: {"a": [7]}}.get)
    return check.fault(value)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (Pattern(type="any"), [None, 0, "", {}], [ABSENT]),
        (Pattern(type="string"), ["", "a"], [1, None, ABSENT]),
        (Pattern(type="number"), [0, 1.5], [True, "1", None]),
        (Pattern(type="integer"), [0, -1], [1.5, False, "1"]),
        (Pattern(type="boolean"), [True, False], [0, None]),
        (Pattern(type="array"), [[]], [{}, None]),
        (Pattern(type="object"), [{}], [[], None]),
        (Pattern(type="date"), ["2026-01-31"], ["2026-02-30", "31.1.2026", 5]),
        (
            Pattern(type="date-time"),
            ["2026-01-31T12:00:00Z", "2026-01-31 12:00:00.5+01:00"],
            ["2026-01-31", "12:00", "2026-01-31T25:00:00Z", 5],
        ),
        (Pattern(regex="a+"), ["a", "aa"], ["", "ab", "ba", 1, ABSENT]),
        (Pattern(regex="a.b"), ["a\nb"], ["a\nbc"]),
        (Pattern(same="/a/0", line=2), [7, 7.0][:1], [8, "7", ABSENT]),
    ],
)
def test_a_pattern_accepts_and_rejects(pattern, good, bad):
    assert [fault(pattern, value) for value in good] == [""] * len(good)
    assert all(fault(pattern, value) for value in bad)


def test_a_pattern_says_what_it_expected():
    assert fault(Pattern(type="date"), 1) == "a date as in ISO 8601"
    assert fault(Pattern(regex=r"\d+"), "x") == r"a string that matches \d+"
    assert fault(Pattern(same="/a/0", line=2), 1) == (
        "the same as at /a/0 on line 2, which is 7"
    )
    assert fault(Pattern(same="/b"), 1, {"b": "c"}) == (
        'the same as at /b, which is "c"'
    )


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({}, "expected one of type, regex and same"),
        ({"type": "any", "regex": "a"}, "expected one of type, regex and same"),
        ({"regex": "("}, "regex '(': missing )"),
        ({"same": "a"}, "expected a JSON Pointer"),
        ({"type": "any", "line": 2}, "line: expected same together with line"),
    ],
)
def test_a_pattern_that_makes_no_sense_is_refused(fields, problem):
    with pytest.raises(ValueError, match="match: ") as caught:
        Pattern(**fields)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("values", "pattern"),
    [
        (["2026-01-31", "2026-02-01"], Pattern(type="date")),
        (
            ["2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"],
            Pattern(type="date-time"),
        ),
        (["took 12 ms", "took 9 ms"], Pattern(regex=r"took \d+ ms")),
        (["took 1.5 ms", "took 2 ms"], Pattern(type="string")),
        (["(1) a.b?", "(2) a.b?"], Pattern(regex=r"\(\d+\) a\.b\?")),
        (
            ["Thu Nov 19 2026 02:01", "Fri Dec 4 2026 12:30"],
            Pattern(
                regex=r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b "
                r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b "
                r"\d+ \d+ \d+:\d+"
            ),
        ),
        (["abc", "x"], Pattern(type="string")),
        (
            ["id 0f8fad5bd9cb469fa165", "id 7c9e66797425440de944"],
            Pattern(regex=r"id [0-9a-f]{16,}"),
        ),
        ([1, 2], Pattern(type="integer")),
        ([1, 2.5], Pattern(type="number")),
        ([True, False], Pattern(type="boolean")),
        ([{}, {"a": 1}], Pattern(type="object")),
        ([1, "a"], None),
        ([1, ABSENT], None),
        ([True, 1], None),
    ],
)
def test_a_pattern_is_found_for_values_that_differ(values, pattern):
    assert infer(values) == pattern
    if pattern is not None:
        assert [fault(pattern, value) for value in values] == [""] * len(values)


# In a replay


SERVER = '''
import time
from msgspec import Raw

from mcp_trio import Server
server = Server("notes", version="1")
notes = {}

@server.tool
async def create(text: str) -> dict[str, str]:
    """Keep a note."""
    id = f"note{time.monotonic_ns()}"
    notes[id] = text
    return {"id": id, "text": text}

@server.tool
async def look(id: str) -> str:
    """Read a note."""
    return notes[id]
'''


def request(id, method, **params):
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return line("client", message)


def call(number, name, **arguments):
    return request(number, "tools/call", name=name, arguments=arguments)


def answer(id, **result):
    if "content" in result and "structuredContent" not in result:
        result["isError"] = False
    return line("server", {"jsonrpc": "2.0", "id": id, "result": result})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").write_text(SERVER, encoding="utf-8")
    return tmp_path


@pytest.fixture
async def recorded(folder):
    """Return a trace of the notes, whose first note is called note1."""
    opening = request(
        0,
        "initialize",
        protocolVersion="2025-11-25",
        capabilities={},
        clientInfo={"name": "test", "version": "1"},
    )
    structured = {"id": "note12345", "text": "milk"}
    text = json.dumps(structured, separators=(",", ":"))
    trace = Trace(
        Header(mcp_trace=1, revision="2025-11-25", transport="stdio", paced=True),
        [
            opening,
            answer(0),
            call(1, "create", text="milk"),
            answer(
                1,
                content=[{"type": "text", "text": text}],
                structuredContent=structured,
            ),
            call(2, "look", id="note12345"),
            answer(2, content=[{"type": "text", "text": "milk"}]),
        ],
        Path("one.jsonl"),
    )
    # The reply to `initialize` does not matter here.
    replay = Replay(trace, "stdio", patient=True)
    await replay.against("notes.py")
    trace = replay.updated(lambda finding: finding.line == 3)
    suite.write(Path("one.jsonl"), trace)
    return Path("one.jsonl")


def pair(path):
    async def both():
        first = await suite.replay_all([path], "notes.py", patient=True)
        second = await suite.replay_all([path], "notes.py", patient=True)
        return first[0], second[0]

    return both


async def test_what_differs_is_asserted_and_what_the_client_repeats_is_sent_anew(
    recorded,
):
    [before] = await suite.replay_all([recorded], "notes.py", ["stdio"])
    assert before.findings
    found = suite.stabilise(*await pair(recorded)())
    assert [str(one) for one in found if "Content/id" in one.pointer] == [
        "/result/structuredContent/id: expected from now on: "
        r"a string that matches note\d+"
    ]
    assert read(recorded).lines[4].match == {
        "/params/arguments/id": Pattern(same="/result/structuredContent/id", line=5)
    }
    for _ in range(3):
        [after] = await suite.replay_all([recorded], "notes.py")
        assert list(suite.report_lines(after)) == []


async def test_a_value_that_does_not_match_is_named_with_its_path(recorded):
    suite.stabilise(*await pair(recorded)())
    Path("notes.py").write_text(
        SERVER.replace('f"note{', 'f"memory{'), encoding="utf-8"
    )
    [result] = await suite.replay_all([recorded], "notes.py", ["stdio"])
    told = list(suite.report_lines(result))
    assert any(
        row.startswith(
            "one.jsonl:5: $.result.structuredContent.id is not a string that matches "
            r"note\d+ (stdio"
        )
        for row in told
    )


async def test_an_update_drops_a_pattern_that_does_not_match_any_more(recorded):
    suite.stabilise(*await pair(recorded)())
    Path("notes.py").write_text(
        SERVER.replace('f"note{', 'f"memory{'), encoding="utf-8"
    )
    [result] = await suite.replay_all([recorded], "notes.py", ["stdio"], patient=True)
    assert suite.update(result)
    kept = read(recorded).lines[3].match
    assert "/result/structuredContent/id" not in kept


async def test_one_message_may_ignore_what_others_do_not(folder):
    numbers = count(1)
    server = Server("counter", version="1")

    @server.tool
    async def number() -> str:
        """Count."""
        return str(next(numbers))

    def counted(id, text):
        content = [{"type": "text", "text": text}]
        return answer(id, content=content)

    trace = Trace(
        Header(mcp_trace=1, revision="2025-11-25", transport="stdio"),
        [
            request(
                0,
                "initialize",
                protocolVersion="2025-11-25",
                capabilities={},
                clientInfo={"name": "test", "version": "1"},
            ),
            line(
                "server", {"jsonrpc": "2.0", "id": 0, "result": {}}, ignore=["/result"]
            ),
            call(1, "number"),
            counted(1, "1"),
            call(2, "number"),
            line(
                "server",
                {
                    "jsonrpc": "2.0",
                    "id": 2,
                    "result": {"content": [], "isError": False},
                },
                ignore=["/result/content"],
            ),
            call(3, "number"),
            counted(3, "4"),
        ],
    )
    replay = Replay(trace, "stdio")
    await replay.against(server)
    assert [(one.line, one.difference.path) for one in replay.findings] == [
        (9, "$.result.content[0].text")
    ]


# In a file


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            {"from": "client", "message": {}, "match": {"/a": {"type": "any"}}},
            ":3: not a line of a trace: match: /a: expected same and line",
        ),
        (
            {
                "from": "server",
                "message": {},
                "match": {"/a": {"same": "/b", "line": 9}},
            },
            ":3: match: /a: expected the number of an earlier line with a message",
        ),
        (
            {
                "from": "server",
                "message": {},
                "match": {"/a": {"same": "/b", "line": 3}},
            },
            ":3: match: /a: expected the number of an earlier line with a message",
        ),
        (
            {"from": "server", "message": {}, "match": {"a": {"type": "any"}}},
            ":3: not a line of a trace: match: expected a JSON Pointer",
        ),
        (
            {"from": "server", "message": {}, "match": {"/a": {"typ": "any"}}},
            ":3: not a line of a trace: Object contains unknown field `typ`",
        ),
    ],
)
def test_a_bad_pattern_is_named_with_its_line(tmp_path, row, problem):
    path = tmp_path / "a.jsonl"
    rows = [
        {"mcp_trace": 1, "transport": "stdio"},
        {"t": 0, "from": "client", "message": {}},
        {"t": 0, **row},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    with pytest.raises(BadTrace) as caught:
        read(path)
    assert isinstance(caught.value, UsageError)
    assert problem in str(caught.value)


# Announcements


CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_an_optional_notification_may_be_missing(folder):
    server = Server("quiet", version="1")
    lines = [
        request(
            0,
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "test", "version": "1"},
        ),
        line("server", {"jsonrpc": "2.0", "id": 0, "result": {}}, ignore=["/result"]),
        line("server", CHANGED),
        request(1, "ping"),
        answer(1),
    ]
    header = Header(mcp_trace=1, revision="2025-11-25", transport="stdio")
    replay = Replay(Trace(header, lines), "stdio", timeout=0.1)
    await replay.against(server)
    assert [finding.line for finding in replay.findings] == [4]
    header.optional = ["notifications/tools/list_changed"]
    replay = Replay(Trace(header, lines), "stdio", timeout=0.1)
    await replay.against(server)
    assert replay.findings == []
    assert replay.updated().lines == lines


async def test_an_announcement_that_is_sent_only_sometimes_becomes_optional(
    folder, autojump_clock
):
    path = Path("one.jsonl")
    header = Header(mcp_trace=1, revision="2025-11-25", transport="stdio")
    lines = [
        request(
            0,
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "test", "version": "1"},
        ),
        line("server", {"jsonrpc": "2.0", "id": 0, "result": {}}, ignore=["/result"]),
        line("server", CHANGED),
    ]
    suite.write(path, Trace(header, lines))
    runs = [
        await suite.replay_all([path], "notes.py", over=["stdio"], patient=True)
        for _ in range(2)
    ]
    [[first], [second]] = runs
    assert suite.make_optional(first, second) == [CHANGED["method"]]
    [result] = await suite.replay_all([path], "notes.py", over=["stdio"])
    assert list(suite.report_lines(result)) == []
