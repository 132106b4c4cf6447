"""Reading traces, and the errors for files that are not traces."""

import pytest

from mcp_trio.trace.format import BadTrace, Header, Http, Line, Trace, encode, read

HEADER = b'{"mcp_trace":1,"transport":"stdio"}\n'
PING = b'{"t":0.5,"from":"client","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}\n'


@pytest.fixture
def written(tmp_path):
    """Writes a file; gives its path."""

    def write(data):
        path = tmp_path / "a.jsonl"
        path.write_bytes(data)
        return path

    return write


def problem(path):
    with pytest.raises(BadTrace) as caught:
        read(path)
    return str(caught.value).removeprefix(str(path)), caught.value.whole


def test_a_trace_is_read_and_written_back_as_it_was(written):
    lines = [
        b'{"t":0.0,"from":"client","stream":1,"http":{"method":"GET","path":"/sse"}}\n',
        b'{"t":0.1,"from":"server","stream":1,"event":{"event":"endpoint","data":"/messages"}}\n',
        b'{"t":0.2,"from":"server","message":{"a": 1.0, "b":"\\u00e9\xc3\xa9"}}\n',
        '{"t":0.3,"from":"client","raw":"\xff\\n"}\n'.encode(),
        b'{"t":0.4,"from":"server","stream":1,"ends":true}\n',
    ]
    trace = read(written(HEADER + b"".join(lines)))
    assert trace.header == Header(mcp_trace=1, transport="stdio")
    assert trace.dump() == HEADER + b"".join(lines)
    assert trace.lines[0].http == Http("GET", "/sse")
    assert [line.data for line in trace.lines] == [
        None,
        None,
        b'{"a": 1.0, "b":"\\u00e9\xc3\xa9"}',
        b"\xff\n",
        None,
    ]


def test_every_byte_can_be_raw(written):
    every = bytes(range(256))
    line = encode(Line(t=0.0, sender="server", raw=every.decode("latin-1")))
    [kept] = read(written(HEADER + line)).lines
    assert kept.data == every


def test_a_trace_may_consist_of_its_header_only(written):
    assert read(written(HEADER)).lines == []


def test_white_space_does_no_harm(written):
    trace = read(written(b'{"mcp_trace": 1, "transport": "ws"}   \n' + PING))
    assert trace.header.transport == "ws"


def test_unknown_header_keys_are_named(written):
    said, _ = problem(
        written(b'{"mcp_trace":1,"transport":"ws","later":{},"ignored":[]}\n')
    )
    assert said == (
        ":1: unknown key in the header: 'later', 'ignored' (did you mean ignore?); "
        "a newer version of mcp_trio may know it"
    )


def test_a_trace_says_what_it_has_not(written):
    trace = Trace(Header(mcp_trace=1, transport="http", ignore=["/result/*/x"]), [])
    assert read(written(trace.dump())).header == trace.header


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ": not a trace: the file is empty"),
        (b'{"mcp_tr', ": not a trace: its only line is truncated"),
        (
            b'{"mcp_trace":2,"anything":1}\n',
            ":1: expected version 1 of the format, got 2; a newer version of mcp_trio may read it",
        ),
        (b"\n", ":1: not the header of a trace: Input data was truncated"),
        (b"[]\n", ":1: not the header of a trace: Expected `object`, got `array`"),
        (
            b"\xff\n",
            ":1: not the header of a trace: JSON is malformed: invalid character (byte 0)",
        ),
        (
            PING,
            ":1: not the header of a trace: Object missing required field `mcp_trace`",
        ),
        (
            b'{"mcp_trace":1}\n',
            ":1: not the header of a trace: Object missing required field `transport`",
        ),
        (
            b'{"mcp_trace":1,"transport":"udp"}\n',
            ":1: not the header of a trace: Invalid enum value 'udp' - at `$.transport`",
        ),
        (
            HEADER[:-2] + b',"ignore":["a"]}\n',
            ":1: not the header of a trace: ignore: expected a JSON Pointer such as /result/time, got 'a'",
        ),
        (HEADER + PING + b"\n", ":3: not a line of a trace: Input data was truncated"),
        (
            HEADER + b'{"t":0}\n',
            ":2: not a line of a trace: Object missing required field `from`",
        ),
        (
            HEADER + b'{"t":0,"from":"me","raw":""}\n',
            ":2: not a line of a trace: Invalid enum value 'me' - at `$.from`",
        ),
        (
            HEADER + b'{"t":0,"from":"client"}\n',
            ":2: not a line of a trace: expected message, raw, http, event or ends, got none of them",
        ),
        (
            HEADER + b'{"t":0,"from":"client","message":{},"raw":""}\n',
            ":2: not a line of a trace: expected message or raw, got both",
        ),
        (
            HEADER + b'{"t":0,"from":"client","mesage":{}}\n',
            ":2: not a line of a trace: Object contains unknown field `mesage`",
        ),
        (
            HEADER[:-2] + b',"settle":61}\n',
            ":1: not the header of a trace: settle: expected 0 to 60 seconds, got 61",
        ),
    ],
)
def test_a_file_that_is_not_a_trace_is_refused_in_one_line_with_its_place(
    written, data, said
):
    assert problem(written(data)) == (said, None)


def test_of_a_trace_that_is_cut_off_the_rest_is_there(written):
    said, whole = problem(written(HEADER + PING * 2 + PING[:20]))
    assert (
        said
        == ":4: truncated in the middle of a line; the 3 lines before it are complete"
    )
    assert whole.header.transport == "stdio"
    assert len(whole.lines) == 2


def test_a_bad_line_before_the_cut_is_reported_first(written):
    said, whole = problem(written(HEADER + b"bad\n" + PING[:20]))
    assert said.startswith(":2: not a line of a trace: ")
    assert whole is None


def test_deep_nesting_is_a_problem_in_words(written):
    said, _ = problem(
        written(HEADER + b'{"t":0,"from":"client","message":' + b"[" * 100_000 + b"\n")
    )
    assert said.startswith(":2: not a line of a trace: ")


def test_a_file_that_is_not_there_is_a_problem_in_words(tmp_path):
    assert problem(tmp_path / "none.jsonl") == (
        " cannot be read: No such file or directory",
        None,
    )
