"""Traces as sequence diagrams: content, width, and safety of the page."""

import base64
import hashlib
import json
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_trio.trace.diagram import as_html, in_terminal
from mcp_trio.trace.format import BadTrace, Header, Http, Trace, read
from tests.support.diagrams import (
    CONVERSATION,
    hostile,
    line,
    notification,
    request,
    result,
    trace,
)


def columns(row: str) -> int:
    """Return the columns that a row takes in a terminal.

    A wide character takes two, and a combining mark none.
    """
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in row)
    return (
        len(row)
        + wide
        - sum(unicodedata.category(char) in ("Mn", "Me") for char in row)
    )


def plain(picture: Trace, width: int = 100) -> list[str]:
    return in_terminal(picture, width, color=False).split("\n")


def row_with(text: str, rows: list[str]) -> str:
    (row,) = [row for row in rows if text in row]
    return row


# The content of a diagram


def test_an_arrow_points_away_from_the_sender() -> None:
    rows = plain(
        trace(
            line(0, "client", request(1, "ping")), line(0.5, "server", result(1, {}))
        ),
        60,
    )
    assert rows[-4:] == [
        "       client                                         server",
        "0.0000 ├─ #1 ping ────────────────────────────────────────▶│",
        "0.5000 │◀────────────────── #1 result of ping · 500.00 ms ─┤",
        "       │                                                {} │",
    ]


def test_the_header_says_what_was_recorded() -> None:
    assert plain(CONVERSATION)[:8] == [
        "title     A tool asks how to answer",
        "revision  2025-11-25",
        "transport http",
        "server    mcp_trio.demo",
        "client    by hand",
        "notes     A question inside a stream of events, a batch, a request that is given up, and bytes that",
        "          are no JSON.",
        "lines     21, request 5, question 1, response 4, error 2, notification 3, raw 2, wire 6",
    ]
    assert plain(CONVERSATION)[8] == "lasted    1.80 s"


@pytest.mark.parametrize(
    "said",
    [
        "0.0000 ├─ #1 initialize · POST /mcp · stream 1 ─",
        "─ #1 result of initialize · 2.10 ms · HTTP 200 · stream 1 ─┤",
        '0.0051 ├─ #"a" tools/call get_weather · POST /mcp · stream 3 ─',
        "─ notifications/progress p 1/4 · event message 3-1 · stream 3 ─┤",
        "─ #1 elicitation/create · event message 3-2 · stream 3 ─┤",
        "1.2513 ├─ #1 result of elicitation/create · 1.24 s · POST /mcp · stream 4 ─",
        '─ #"a" result of tools/call · 1.26 s · event message 3-3 · stream 3 ─┤',
        "─ ends stream 3 ─┤",
        "─ #2 error -32601 of no/such/method · 0.70 ms · HTTP 200 · stream 5 ─┤",
        "├─ #3 ping · 1 of 3 in a batch · POST /mcp · stream 6 ─",
        "├─ notifications/cancelled 9 · 2 of 3 in a batch ─",
        "├─ no message · 3 of 3 in a batch ─",
        "├─ #4 tools/call sleep · no answer · POST /mcp · stream 7 ─",
        "1.7003 ├─ ends stream 7 ─",
        r'│ {"jsonrpc": \xff\x1b[31m\r\n  ',
        '│ {"name": "get_weather", "arguments": {"location": "東京 🗼"}}  ',
        " content-type: text/event-stream │",
    ],
)
def test_it_says_what_passed(said: str) -> None:
    assert row_with(said, plain(CONVERSATION))


def test_without_streams_an_end_is_that_of_the_conversation() -> None:
    assert row_with(
        "├─ ends the conversation ─", plain(trace(line(1, "client", ends=True)))
    )


def test_an_id_that_two_connections_use_is_answered_on_its_own() -> None:
    both = trace(
        line(0, "client", request(1, "one"), stream=1),
        line(0, "client", request(1, "two"), stream=2),
        line(1, "server", result(1, {}), stream=1),
        line(2, "server", result(1, {}), stream=2),
    )
    assert row_with("#1 result of one · 1.00 s · stream 1", plain(both))
    assert row_with("#1 result of two · 2.00 s · stream 2", plain(both))


def test_the_ids_of_both_sides_are_kept_apart() -> None:
    rows = plain(
        trace(
            line(0, "client", request(1, "tools/call")),
            line(1, "server", request(1, "roots/list")),
            line(2, "server", result(1, {})),
            line(4, "client", result(1, {})),
        )
    )
    assert row_with("#1 result of tools/call · 2.00 s ─┤", rows)
    assert row_with("├─ #1 result of roots/list · 3.00 s", rows)


def test_a_number_is_shown_as_it_was_sent() -> None:
    message = b'{"jsonrpc": "2.0",\t"id": 1.0, "method": "m", "params": {"n": 12345678901234567890123, "n": 1e999}}'
    rows = plain(trace(line(0, "client", message)))
    assert row_with("#1.0 m", rows)
    assert row_with('{"n": 12345678901234567890123, "n": 1e999}', rows)


# That it fits

AWKWARD = trace(
    line(0, "client", request("x" * 300, "m" * 300, {"name": "長い名前" * 60})),
    line(
        1,
        "server",
        notification("notifications/message", {"level": "🗼" * 90, "data": "é́́́" * 200}),
    ),
    line(1e300, "server", request("\u202e\x9b31m", "a\u2028b", ["❤️" * 80])),
    line(-5, "client", raw="\x1b]0;title\x07\x1b[2J\x00\x9b31m\xff" * 30),
    line(3, "server", b"[]"),
    line(3, "server", b'{"jsonrpc": "2.0", "method": 5, "params": "\xff\x80"}'),
    line(3, "server", b'{"jsonrpc": "2.0", "id": {}, "error": []}'),
    line(4, "client", http=Http()),
    title="題" * 50 + " \x1b[31m",
    notes="é́" * 300 + " \x07",
    server="長" * 90,
)
EMPTY = Trace(Header(mcp_trace=1, transport="ws"), [])


@pytest.mark.parametrize("width", [*range(24, 44), 57, 80, 120, 121, 300])
@pytest.mark.parametrize(
    "picture",
    [CONVERSATION, AWKWARD, EMPTY, hostile()],
    ids=["plain", "awkward", "empty", "hostile"],
)
def test_no_row_is_wider_than_the_terminal(picture: Trace, width: int) -> None:
    rows = plain(picture, width)
    assert max(map(columns, rows)) <= width
    drawn = [
        row
        for row in rows
        if "│" in row and not row.startswith(("title", "notes", "server"))
    ]
    assert {columns(row.replace("\ufe0f", "_")) for row in drawn} <= {width}


@given(st.text(), st.binary(min_size=1), st.integers(24, 200))
def test_anything_fits(text: str, data: bytes, width: int) -> None:
    said = [
        line(
            0,
            "client",
            request(1, "tools/call", {"name": text.encode(errors="replace").decode()}),
        ),
        line(0, "server", raw=data.decode("latin-1"), event={"id": text}),
        line(0, "server", data),
    ]
    rows = plain(trace(*said, title=text, notes=text), width)
    assert max(map(columns, rows)) <= width
    assert all(row.isprintable() for row in rows)


def test_colours_change_no_character() -> None:
    coloured = in_terminal(CONVERSATION, 80, color=True)
    assert re.sub(r"\x1b\[\d+m", "", coloured) == in_terminal(
        CONVERSATION, 80, color=False
    )
    kinds = dict(re.findall(r"\x1b\[(\d+)m[├│][─◀]+ (\S+ \S+)", coloured))
    assert len(kinds) == 7
    assert re.findall("\x1b[^[]|\x1b\\[[^\\d]", coloured) == []


@pytest.mark.parametrize("picture", [CONVERSATION, AWKWARD, EMPTY, hostile()])
def test_without_colors_no_control_characters_are_printed(picture: Trace) -> None:
    assert all(row.isprintable() for row in plain(picture))


def test_a_trace_that_is_cut_off_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "cut.jsonl"
    file.write_bytes(CONVERSATION.dump()[:-20])
    with pytest.raises(BadTrace) as raised:
        read(file)
    assert raised.value.whole is not None
    rows = plain(raised.value.whole)
    assert row_with("0.0000 ├─ #1 initialize", rows)
    assert rows[-2].startswith("1.8004")


def test_an_empty_trace_is_its_header() -> None:
    assert plain(EMPTY)[:2] == ["transport ws", "lines     0"]


# The file for a browser


class Elements(HTMLParser):
    """The elements of a page, with their contents."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        self.found.append((tag, dict(attributes)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self._open, []).append(data)
        self._open = ""


@pytest.mark.parametrize("picture", [CONVERSATION, AWKWARD, EMPTY, hostile()])
def test_the_page_is_the_same_whatever_the_trace_holds(picture: Trace) -> None:
    page, empty = Elements(as_html(picture)), Elements(as_html(EMPTY))
    assert page.found == empty.found
    data = page.texts["script"][0]
    assert not set(data) & set("<>&\u2028\u2029")
    as_html(picture).encode()
    steps = json.loads(data)["steps"]
    assert len(steps) >= len(picture.lines)


def texts_on_page(picture: Trace) -> list[str]:
    steps = json.loads(Elements(as_html(picture)).texts["script"][0])["steps"]
    return [step["text"] for step in steps]


def test_a_page_shows_a_large_message_in_full() -> None:
    large = "x" * 1_000_000
    (text,) = texts_on_page(trace(line(0, "server", result(1, {"text": large}))))
    assert large in text


@pytest.mark.slow
def test_a_page_of_many_large_messages_shows_the_beginning_of_each() -> None:
    large = result(1, {"text": "x" * 1_000_000})
    texts = texts_on_page(trace(*[line(0, "server", large)] * 20))
    assert len(texts) == 20
    assert all(len(text) < 900_000 for text in texts)
    assert all(text.startswith('{\n  "jsonrpc": "2.0"') for text in texts)
    assert re.search("xxx…\n\n200,[0-9]{3} more characters are in the trace.", texts[0])


def test_the_page_loads_nothing() -> None:
    page = Elements(as_html(EMPTY))
    assert not {tag for tag, _ in page.found} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
    }
    assert not {name for _, attributes in page.found for name in attributes} & {
        "src",
        "href",
        "style",
        "action",
    }
    assert not re.search(
        r"https?://|//\w|@import|url\(|\bfetch\b|innerHTML|outerHTML|insertAdjacent|eval\(",
        as_html(EMPTY),
    )


def test_the_page_runs_only_its_own_script() -> None:
    page = Elements(as_html(CONVERSATION))
    policy = next(
        a["content"]
        for _, a in page.found
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    wanted = base64.b64encode(
        hashlib.sha256(page.texts["script"][1].encode()).digest()
    ).decode()
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{wanted}'; "), (
        "the script has changed: so must this"
    )


def test_the_page_knows_what_belongs_together() -> None:
    found = json.loads(Elements(as_html(CONVERSATION)).texts["script"][0])["steps"]
    pairs = {
        (step["method"], found[step["partner"]]["label"])
        for step in found
        if step["method"] and step["partner"]
    }
    assert pairs == {
        ("initialize", "#1 result of initialize"),
        ("tools/call", '#"a" result of tools/call'),
        ("elicitation/create", "#1 result of elicitation/create"),
        ("no/such/method", "#2 error -32601 of no/such/method"),
        ("ping", "#3 result of ping"),
    }
    assert all(
        found[step["partner"]]["partner"] == index
        for index, step in enumerate(found)
        if step["partner"] is not None
    )
