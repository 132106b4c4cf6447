"""The recorder between real clients and real servers, and the traces that it writes."""

import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import FrameProtocol

from mcp_trio import Context, Server
from mcp_trio.client.target import connect
from mcp_trio.serve import serve
from mcp_trio.trace import suite
from mcp_trio.trace.format import BadTrace, encode, read
from mcp_trio.trace.record import Recorder, record_network
from mcp_trio.trace.sniffer import public
from tests.support.paths import PROJECT as ROOT
from tests.support.ports import refusing_port

STAND_IN = """
import sys, trio
from pathlib import Path
from mcp_trio.trace.record import Recorder, record_stdio
recorder = Recorder(Path(sys.argv[1]), server="the server", transport="stdio")
sys.exit(trio.run(record_stdio, sys.argv[2:], recorder))
"""
ECHO = [
    sys.executable,
    "-c",
    "import os\nwhile chunk := os.read(0, 65536): os.write(1, chunk)",
]
DEMO = [sys.executable, "-m", "mcp_trio"]
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def recorder(path, transport="stdio"):
    return Recorder(path, server="the server", transport=transport)


def lines(path, *, but="t"):
    """Return the lines of a trace as dicts, without the times."""
    return [
        {key: value for key, value in json.loads(encode(line)).items() if key != but}
        for line in read(path).lines
    ]


def messages(path, sender):
    return [
        line["message"]
        for line in lines(path)
        if line["from"] == sender and "message" in line
    ]


# The file


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.jsonl"


def test_a_recording_has_a_header_from_the_start(path):
    Recorder(
        path, server="demo", client="by hand", title="A title", transport="stdio"
    ).close()
    trace = read(path)
    assert (trace.header.server, trace.header.client, trace.header.title) == (
        "demo",
        "by hand",
        "A title",
    )
    assert trace.header.revision == ""
    assert trace.lines == []


def test_messages_are_kept_as_they_are_and_other_bytes_as_raw(path):
    given = [
        b'{"a": 1.0, "b":"\\u00e9\xc3\xa9",  "a":2}',
        b"[]",
        b' [{"id":1},\t2] \r',
        b'{"not": "closed"',
        b'{"bytes": "\xff"}',
        b"7",
        b"",
        b"[" * 100_000,
        b'{"a":1}{"b":2}',
    ]
    writer = recorder(path)
    for data in given:
        writer.note("client", data)
    kept = read(path).lines
    assert [line.data for line in kept] == [
        data if data[:2] != b" [" else data.strip() for data in given
    ]
    assert [isinstance(line.raw, str) for line in kept] == [False] * 3 + [True] * 6


def test_line_ends_between_tokens_become_spaces(path):
    recorder(path).note("server", b'{\r\n "a": "\\n"\n}\n')
    assert read(path).lines[0].data == b'{   "a": "\\n" }'


def test_times_grow_from_zero(path):
    writer = recorder(path)
    for _ in range(3):
        writer.note("client", PING)
    times = [line.t for line in read(path).lines]
    assert times == sorted(times)
    assert 0 <= times[0] < 5


def opened(revision):
    return json.dumps(
        {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": revision}}
    ).encode()


def declares(revision):
    meta = {"io.modelcontextprotocol/protocolVersion": revision}
    return json.dumps(
        {"jsonrpc": "2.0", "id": 0, "method": "m", "params": {"_meta": meta}}
    ).encode()


@pytest.mark.parametrize(
    ("told", "revision"),
    [
        ([PING], ""),
        ([opened("2025-06-18")], "2025-06-18"),
        ([declares("2026-07-28"), declares("2025-01-01")], "2026-07-28"),
        ([declares("2026-07-28"), opened("2025-11-25")], "2025-11-25"),
        ([opened("a revision that is no date")], ""),
    ],
)
def test_the_header_says_the_revision_that_was_agreed_on(path, told, revision):
    writer = recorder(path)
    for message in told:
        writer.note("server", message)
    trace = read(path)
    assert trace.header.revision == revision
    assert [line.data for line in trace.lines] == told


def asked(id, method):
    return "client", {"jsonrpc": "2.0", "id": id, "method": method}


def answered(id, what="result"):
    return "server", {"jsonrpc": "2.0", "id": id, what: {}}


@pytest.mark.parametrize(
    ("said", "paced"),
    [
        (
            [
                asked(0, "initialize"),
                answered(0),
                asked(1, "a"),
                asked(2, "b"),
                answered(1),
                answered(2),
            ],
            False,
        ),
        ([asked("d", "server/discover"), answered("d"), asked(1, "a")], False),
        ([asked(1, "a"), answered(1), ("client", {"method": "a notification"})], False),
        (
            [
                asked(1, "a"),
                ("server", {"id": 1, "method": "a question"}),
                asked(2, "b"),
            ],
            False,
        ),
        (
            [
                asked(0, "initialize"),
                answered(0),
                asked(1, "a"),
                answered(1, "error"),
                asked(2, "b"),
            ],
            True,
        ),
        (
            [
                ("client", [asked(1, "a")[1]]),
                ("server", [answered(1)[1]]),
                ("client", [asked(2, "b")[1]]),
            ],
            True,
        ),
    ],
)
def test_the_header_says_whether_the_client_waited_for_an_answer(path, said, paced):
    writer = recorder(path)
    for sender, message in said:
        writer.note(sender, json.dumps(message).encode())
    trace = read(path)
    assert trace.header.paced is paced
    assert len(trace.lines) == len(said)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (
            "http://user:pw@host:1/mcp?api_key=SECRET&x=a=b",
            "http://host:1/mcp?api_key=&x=",
        ),
        ("wss://token@[::1]/", "wss://[::1]/"),
        ("/mcp?a=1&b", "/mcp?a=&b"),
        ("http://host/@name", "http://host/@name"),
    ],
)
def test_a_url_is_written_without_its_secrets(url, kept):
    assert public(url) == kept


def test_a_trace_that_cannot_be_written_is_given_up_in_words(capsys):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    writer = recorder(Path("/dev/full"))
    writer.note("client", PING)
    writer.note("client", PING)
    assert capsys.readouterr().err.splitlines() == [
        "record: /dev/full: [Errno 28] No space left on device; nothing more is recorded"
    ]


# Over stdio


@contextmanager
def standing_in(path, command, **options):
    """Start the recorder as a client would, in place of a server."""
    started = [sys.executable, "-c", STAND_IN, str(path), *command]
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        **options,
    }
    with subprocess.Popen(started, cwd=ROOT, bufsize=0, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def through(path, command, data):
    """Return the output of the recorder for an input, its exit code, and its stderr."""
    with standing_in(path, command) as process:
        out, err = process.communicate(data, timeout=20)
    return out, process.returncode, err.decode()


def test_every_byte_passes_over_stdio(path):
    data = (
        b'\xef\xbb\xbf{"bom":1}\n\r\n{"crlf":1}\r\n\xff\xfe\x00\n{"not json\n\n'
        + b'{"huge":"%b"}\n' % (b"x" * 5_000_000)
    )
    data += b'{"last":"without a line end"}'
    out, code, err = through(path, ECHO, data)
    assert (out == data, code, err) == (True, 0, "")
    for sender in ("client", "server"):
        sent = [line for line in read(path).lines if line.sender == sender]
        raws = [
            line.raw.encode("latin-1") for line in sent if isinstance(line.raw, str)
        ]
        assert raws == [
            b'\xef\xbb\xbf{"bom":1}',
            b"\r",
            b"\xff\xfe\x00",
            b'{"not json',
            b"",
        ]
        assert [
            json.loads(bytes(line.message)).popitem()[0]
            for line in sent
            if line.message
        ] == [
            "crlf",
            "huge",
            "last",
        ]
        assert sent[-1].ends


def test_bytes_pass_before_their_line_ends(path):
    with standing_in(path, ECHO) as process:
        for byte in PING:
            process.stdin.write(bytes([byte]))
            assert process.stdout.read(1) == bytes([byte])
        assert read(path).lines == []
        process.stdin.close()
        assert process.wait(20) == 0
    assert [line.data for line in read(path).lines] == [PING, None, PING, None]


async def test_a_conversation_over_stdio_is_recorded(path):
    stand_in = [sys.executable, "-c", STAND_IN, str(path), *DEMO]
    with trio.fail_after(30):
        async with connect(stand_in, "2025-06-18") as client:
            result = await client.call_tool("get_weather", {"location": "London"})
            assert "London" in result.text
    trace = read(path)
    assert trace.header.revision == "2025-06-18"
    assert [message["method"] for message in messages(path, "client")] == [
        "initialize",
        "notifications/initialized",
        "tools/call",
    ]
    assert messages(path, "server")[-1]["result"] == result
    assert [line.sender for line in trace.lines if line.ends] == ["client", "server"]


def test_the_exit_code_is_the_servers_and_its_errors_are_ours(path):
    out, code, err = through(
        path, [sys.executable, "-c", "import sys; input(); sys.exit('a word')"], b"\n"
    )
    assert (out, code) == (b"", 1)
    assert err.splitlines() == ["a word", "record: the server exited with code 1"]


def test_a_server_that_dies_in_mid_line_leaves_a_whole_trace(path):
    script = 'import os; os.read(0, 99); os.write(1, b\'{"whole":1}\\n{"cut\'); os.kill(os.getpid(), 9)'
    with standing_in(path, [sys.executable, "-c", script]) as process:
        process.stdin.write(PING + b"\n")
        assert process.stdout.read() == b'{"whole":1}\n{"cut'
        assert process.wait(20) == 128 + 9
        said = process.stderr.read().decode()
    assert (
        said
        == "record: the server was terminated by SIGKILL in the middle of a line before the client closed its input\n"
    )
    assert lines(path) == [
        {"from": "client", "message": json.loads(PING)},
        {"from": "server", "message": {"whole": 1}},
        {"from": "server", "raw": '{"cut'},
        {"from": "server", "ends": True},
    ]


def test_a_server_that_answers_twice_or_without_being_asked_is_recorded_as_it_was(path):
    script = "import os; os.write(1, b'hello\\n'); os.read(0, 99); os.write(1, b'{\"id\":1}\\n' * 2); os.read(0, 99)"
    out, code, _ = through(path, [sys.executable, "-c", script], PING + b"\n")
    assert (out, code) == (b'hello\n{"id":1}\n{"id":1}\n', 0)
    assert [line for line in lines(path) if line["from"] == "server"] == [
        {"from": "server", "raw": "hello"},
        {"from": "server", "message": {"id": 1}},
        {"from": "server", "message": {"id": 1}},
        {"from": "server", "ends": True},
    ]


@pytest.mark.thorough
async def test_what_a_server_says_besides_messages_is_recorded_and_replays(path):
    script = (
        "import sys; out = sys.stdout.buffer; "
        "out.write(b'\\xef\\xbb\\xbfhello\\r\\n\\n'); sys.stdin.readline(); "
        'out.write(b\' \\r\\n{"jsonrpc":"2.0","id":1,"result":{}}\\r\\n\'); '
        "out.flush(); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script]
    out, code, err = through(path, command, PING + b"\n")
    assert (code, err) == (0, "")
    assert out.startswith(b"\xef\xbb\xbfhello\r\n\n \r\n{")
    raws = [line.raw for line in read(path).lines if line.sender == "server"]
    assert raws[:3] == ["\xef\xbb\xbfhello\r", "", " \r"]
    [result] = await suite.replay_all([path], command, over=["stdio"])
    assert list(suite.report_lines(result)) == []


def test_a_client_that_vanishes_is_noted_and_the_server_ends(path):
    script = "import os\nos.read(0, 99)\nwhile True: os.write(1, b'{}\\n' * 1000)"
    with standing_in(path, [sys.executable, "-c", script]) as process:
        process.stdin.write(PING + b"\n")
        process.stdout.read(10)
        process.stdout.close()
        process.stdin.close()
        assert process.wait(20) == 1
        said = process.stderr.read().decode().splitlines()
    assert said[0] == "record: the client has stopped reading"
    # The server may print a traceback of its own.
    assert "mcp_trio" not in "".join(said[1:-1])
    assert said[-1] == "record: the server exited with code 1"
    assert read(path).lines[0].data == PING


def test_a_server_that_closes_its_input_is_noted_and_the_client_learns_of_it(path):
    script = "import os, signal; signal.alarm(20); os.close(0); os.write(1, b'{}\\n'); signal.pause()"
    with standing_in(path, [sys.executable, "-c", script]) as process:
        assert process.stdout.read(3) == b"{}\n"
        process.stdin.write(PING + b"\n")
        broken = select.poll()
        broken.register(process.stdin, 0)
        heard = broken.poll(5000)
        process.terminate()
        process.wait(20)
        assert heard
        assert process.stderr.readline() == b"record: the server has stopped reading\n"
    assert [line.data for line in read(path).lines if line.sender == "client"] == [PING]


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(path, number):
    script = f"import os, signal; signal.signal({number:d}, lambda *_: os._exit(7)); os.write(1, b'ready\\n')"
    with standing_in(
        path, [sys.executable, "-c", script + "; signal.pause()"]
    ) as process:
        assert process.stdout.read(6) == b"ready\n"
        process.send_signal(number)
        assert process.wait(20) == 7
        assert (
            process.stderr.read()
            == b"record: the server exited with code 7 before the client closed its input\n"
        )


def test_a_killed_stand_in_takes_the_server_with_it_and_leaves_a_whole_trace(path):
    with standing_in(path, ECHO) as process:
        for _ in range(50):
            process.stdin.write(PING + b"\n")
            assert process.stdout.read(len(PING) + 1) == PING + b"\n"
        process.kill()
        assert (
            process.stdout.read() == b""
        )  # the pipe is closed, because no process has it open
        process.wait(20)
    try:
        trace = read(path)
    except BadTrace as cut:
        trace = cut.whole
    assert len(trace.lines) >= 99
    assert {line.data for line in trace.lines} == {PING}


@pytest.mark.slow
def test_what_a_server_leaves_behind_does_not_keep_the_stand_in(path):
    script = "import subprocess, sys; subprocess.Popen(['sleep', '9'], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)"
    with standing_in(path, [sys.executable, "-c", script + "; print('{}')"]) as process:
        assert process.stdout.read() == b"{}\n"
        assert process.wait(5) == 0
    assert lines(path)[0] == {"from": "server", "message": {}}


def test_files_may_be_in_place_of_the_client(path, tmp_path):
    (tmp_path / "in").write_bytes(PING + b"\n")
    with (
        open(tmp_path / "in", "rb") as given,
        open(tmp_path / "out", "wb") as taken,
        standing_in(path, ECHO, stdin=given, stdout=taken) as process,
    ):
        assert process.wait(20) == 0
    assert (tmp_path / "out").read_bytes() == PING + b"\n"


def test_a_command_that_does_not_exist_is_an_os_error(path):
    _, code, err = through(path, ["there-is-no-such-command"], b"")
    assert code == 1
    assert err.splitlines()[-1].startswith("FileNotFoundError")


# The command


@contextmanager
def record(*words):
    """`mcp-trio record`, begun."""
    pipes = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(
        [*DEMO, "record", *map(str, words)], cwd=ROOT, **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.thorough
def test_each_of_several_recorders_writes_a_file_of_its_own(path):
    path.write_bytes(b"of somebody else")
    with ExitStack() as at_end:
        recorders = [
            at_end.enter_context(record("-o", path, "--", *ECHO)) for _ in range(3)
        ]
        said = [
            one.communicate(PING + b"\n", timeout=20)[1].decode() for one in recorders
        ]
    written = {path.with_name(f"a-{number}.jsonl") for number in (2, 3, 4)}
    assert set(said) == {
        f"record: {path} exists; recording to {one}\n" for one in written
    }
    assert [one.stat().st_mode & 0o777 for one in written] == [0o600] * 3
    assert [len(read(one).lines) for one in written] == [4] * 3
    assert path.read_bytes() == b"of somebody else"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [
        ["--", "./nowhere"],
        ["no_such_server.py", "--listen", "0"],
        ["http://", "--listen", "0"],
    ],
)
def test_what_cannot_begin_leaves_only_what_was_there(path, words):
    path.write_bytes(b"of somebody else\n")
    with record("-o", path, *words) as process:
        assert b"Traceback" not in process.communicate(timeout=20)[1]
        assert process.returncode == 2
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_cannot_be_recorded_to(tmp_path):
    with record("-o", tmp_path, "--", *ECHO) as process:
        assert process.wait(20) == 2
        assert (
            process.stderr.read().decode()
            == f"mcp-trio: error: --output: expected a file, got the folder {tmp_path}\n"
        )


def test_a_recorded_url_is_shown_without_its_secrets(path):
    with record(
        "-o", path, "--listen", "0", "http://user:pw@127.0.0.1:1/mcp?api_key=SECRET"
    ) as process:
        said = process.stderr.readline().decode()
        header = read(path).header
        own = socket.create_connection(
            ("127.0.0.1", int(re.search(r" on http://127.0.0.1:(\d+)/", said)[1]))
        )
        reached = process.stderr.readline().decode()
        own.close()
        process.terminate()
        assert process.wait(20) == 0
    assert header.server == "http://127.0.0.1:1/mcp?api_key="
    assert said.startswith(
        "Recording http://127.0.0.1:1/mcp?api_key= on http://127.0.0.1:"
    )
    assert reached.startswith(
        "record: http://127.0.0.1:1/mcp?api_key= cannot be reached"
    )
    assert not path.exists()  # nothing was said


# On the network


def make_recorded_server():
    server = Server("recorded")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait(seconds: float, context: Context) -> str:
        await context.progress(0, 1)
        await trio.sleep(seconds)
        return "waited"

    return server


@asynccontextmanager
async def in_front_of(url, path):
    """Run the recorder in front of a URL. Yields the recorder's own URL."""
    async with trio.open_nursery() as nursery:
        writer = recorder(path, "http")
        own = await nursery.start(partial(record_network, url, "127.0.0.1:0", writer))
        yield own.partition("://")[2].partition("/")[0]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def in_front_of_a_server(path, host="127.0.0.1"):
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            [url] = await nursery.start(
                partial(serve, make_recorded_server(), http=f"{host}:0")
            )
            async with in_front_of(url, path) as own:
                yield own
            nursery.cancel_scope.cancel()


async def recorded(path, scheme, where, revision):
    """Where a client has a conversation; the trace of it."""
    async with (
        in_front_of_a_server(path) as own,
        connect(f"{scheme}://{own}{where}", revision) as client,
    ):
        result = await client.call_tool(
            "wait", {"seconds": 0}, meta={"progressToken": "p"}
        )
        assert result.text == "waited"
        assert await client.hear("notifications/progress")
    return read(path)


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25"])
async def test_a_session_over_http_is_recorded(path, revision):
    trace = await recorded(path, "http", "/mcp", revision)
    assert (trace.header.transport, trace.header.revision) == ("http", revision)
    first, answer = lines(path)[:2]
    assert first["stream"] == answer["stream"] == 1
    assert first["http"]["method"] == "POST"
    assert first["http"]["path"] == "/mcp"
    assert first["http"]["headers"]["content-type"] == "application/json"
    assert first["message"]["method"] == "initialize"
    assert answer["http"]["status"] == 200
    assert "mcp-session-id" in answer["http"]["headers"]
    call = next(
        line
        for line in lines(path)
        if line.get("message", {}).get("method") == "tools/call"
    )
    assert (
        call["http"]["headers"]["mcp-session-id"]
        == answer["http"]["headers"]["mcp-session-id"]
    )
    *streamed, end = [
        line
        for line in lines(path)
        if line["stream"] == call["stream"] and line["from"] == "server"
    ]
    assert streamed[0]["http"]["headers"]["content-type"] == "text/event-stream"
    assert [
        line["message"].get("method") for line in streamed if "message" in line
    ] == ["notifications/progress", None]
    assert end == {"from": "server", "stream": call["stream"], "ends": True}
    assert all(
        "host" not in line.get("http", {}).get("headers", {}) for line in lines(path)
    )


async def test_stateless_requests_are_recorded(path):
    trace = await recorded(path, "http", "/mcp", "2026-07-28")
    assert (trace.header.transport, trace.header.revision) == ("http", "2026-07-28")
    [call] = [line for line in lines(path) if line["from"] == "client"]
    assert call["http"]["headers"]["mcp-method"] == "tools/call"
    assert call["http"]["headers"]["mcp-name"] == "wait"


async def test_a_request_that_is_cancelled_by_closing_its_stream_is_recorded(path):
    async with (
        in_front_of_a_server(path) as own,
        connect(f"http://{own}/mcp", "2026-07-28") as client,
    ):
        id = client.begin(
            "tools/call",
            {"name": "wait", "arguments": {"seconds": 60}},
            meta={"progressToken": 1},
        )
        await client.hear("notifications/progress")
        client.notify("notifications/cancelled", {"requestId": id})
        while not any(line.ends for line in read(path).lines):
            await trio.testing.wait_all_tasks_blocked(0.001)
    ends = [line for line in lines(path) if line.get("ends")]
    assert ends == [{"from": "client", "stream": 1, "ends": True}]


async def test_http_with_sse_is_recorded(path):
    trace = await recorded(path, "http", "/sse", "2024-11-05")
    assert (trace.header.transport, trace.header.revision) == ("sse", "2024-11-05")
    asked, opened, endpoint = lines(path)[:3]
    assert asked == {
        "from": "client",
        "stream": 1,
        "http": {
            "method": "GET",
            "path": "/sse",
            "headers": {"accept": "text/event-stream"},
        },
    }
    assert opened["http"]["status"] == 200
    assert endpoint["event"]["event"] == "endpoint"
    assert endpoint["event"]["data"].startswith("/messages")
    posted = {
        line["http"]["path"]
        for line in lines(path)[3:]
        if line["from"] == "client" and "http" in line
    }
    # The session id is a placeholder that only the client knows.
    assert posted == {endpoint["event"]["data"]} == {"/messages?session=session-1"}
    assert all(
        line["stream"] == 1
        for line in lines(path)
        if line["from"] == "server" and "message" in line
    )


@pytest.mark.parametrize("revision", ["2024-11-05", "2026-07-28"])
async def test_a_websocket_is_recorded(path, revision):
    trace = await recorded(path, "ws", "/mcp", revision)
    assert (trace.header.transport, trace.header.revision) == ("ws", revision)
    said = lines(path)
    assert all("http" not in line and "stream" not in line for line in said)
    assert [line["from"] for line in said if line.get("ends")] == ["client", "server"]
    assert said[0]["message"]["method"] in ("initialize", "tools/call")


@pytest.fixture
def certificate(tmp_path):
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("there is no openssl to make a certificate with")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*made, *named, "-out", files[0], "-keyout", files[1]],
        check=True,
        capture_output=True,
    )
    return [str(file) for file in files]


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_a_server_behind_tls_is_recorded(
    path, certificate, is_trusted, monkeypatch, capsys
):
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    ended = trio.Event()

    async def answer(stream):
        server = trio.SSLStream(
            stream, context, server_side=True, https_compatible=True
        )
        with suppress(trio.BrokenResourceError):
            if await server.receive_some() == post("{}"):
                await server.send_all(response("200 OK", "[]"))
                assert await server.receive_some() == b""
        ended.set()

    with trio.fail_after(30):
        async with upstream(answer) as url:
            url = url.replace("http://127.0.0.1", "https://localhost")
            async with in_front_of(url, path) as own, await to(own) as client:
                if is_trusted:
                    await client.send_all(post("{}"))
                    assert await client.receive_some() == response("200 OK", "[]")
                    await client.send_eof()
                else:
                    with pytest.raises(trio.BrokenResourceError):
                        await client.receive_some()
                await ended.wait()
    said = capsys.readouterr().err
    assert len(lines(path)) == (2 if is_trusted else 0)
    assert (
        said == ""
        if is_trusted
        else f"record: {url} cannot be reached: [SSL: CERTIFICATE_VERIFY_FAILED]"
        in said
    )


async def test_a_server_elsewhere_gets_its_own_name(path):
    async with in_front_of_a_server(path, "0.0.0.0") as own:
        stream = await to(own)
        for byte in b"GET /healthz HTTP/1.1\r\nHost: %b\r\n\r\n" % own.encode():
            await stream.send_all(bytes([byte]))
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
        await stream.aclose()


async def passed(path, asked, answered, step=2**20):
    """Return the requests and the responses after the recorder.

    Each was sent in pieces of this many bytes.
    """
    came = bytearray()

    async def send(stream, data):
        for at in range(0, len(data), step):
            await stream.send_all(data[at : at + step])

    async def answer(stream):
        while len(came) < len(asked):
            came.extend(await stream.receive_some())
        await send(stream, answered)
        await stream.send_eof()
        with suppress(trio.BrokenResourceError):
            assert not await stream.receive_some()

    with trio.fail_after(30):
        async with (
            upstream(answer) as url,
            in_front_of(url, path) as own,
            await to(own) as client,
        ):
            await send(client, asked)
            back = b"".join([bytes(chunk) async for chunk in client])
    return bytes(came), back


@asynccontextmanager
async def upstream(handler):
    """Run a server whose bytes are all in the test. Yields its URL."""
    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(
            partial(trio.serve_tcp, handler, 0, host="127.0.0.1")
        )
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        nursery.cancel_scope.cancel()


async def to(own):
    host, port = own.split(":")
    return await trio.open_tcp_stream(host, int(port))


def post(body, *headers):
    return "\r\n".join(
        ["POST /mcp HTTP/1.1", *headers, f"Content-Length: {len(body)}", "", body]
    ).encode()


def response(status, body="", *headers):
    return "\r\n".join(
        [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}", "", body]
    ).encode()


def asks(stream, *, body=None, method="POST", headers=None):
    http = {
        "method": method,
        "path": "/mcp",
        **({"headers": headers} if headers else {}),
    }
    return {"from": "client", "stream": stream, "http": http, **(body or {})}


def answers(stream, status, *, body=None, headers=None):
    http = {"status": status, **({"headers": headers} if headers else {})}
    return {"from": "server", "stream": stream, "http": http, **(body or {})}


def ends(side, stream):
    return {"from": side, "stream": stream, "ends": True}


def by_stream(said):
    return sorted(said, key=lambda line: line["stream"])


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
CONVERSATIONS = {
    "pipelined requests": (
        post(
            '{"id":1}', "Content-Type: application/json", "Authorization: Bearer secret"
        )
        + post("[]")
        + post("no"),
        response(
            "200 OK", '{"id":1}', "Content-Type: application/json", "Set-Cookie: secret"
        )
        + response("202 Accepted")
        + b"HTTP/1.1 204 No Content\r\n\r\n",
        [
            asks(
                1,
                body={"message": {"id": 1}},
                headers={**JSON, "authorization": "Bearer redacted-1"},
            ),
            answers(1, 200, body={"message": {"id": 1}}, headers=JSON),
            asks(2, body={"message": []}),
            answers(2, 202),
            asks(3, body={"raw": "no"}),
            answers(3, 204),
        ],
    ),
    "a head alone": (
        b"HEAD /mcp HTTP/1.1\r\nMcp-Method: a\r\nMcp-Method: b\r\n\r\n",
        b"HTTP/1.1 405 No\r\nContent-Length: 99\r\nAllow: POST\r\n\r\n",
        [
            asks(1, method="HEAD", headers={"mcp-method": "a, b"}),
            answers(1, 405, headers={"allow": "POST"}),
        ],
    ),
    "chunks, and a word before the answer": (
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n[\r\n1\r\n]\r\n0\r\n\r\n",
        [asks(1, body={"message": {}}), answers(1, 200, body={"message": []})],
    ),
    "an answer that ends with the connection": (
        post("{}"),
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        [asks(1, body={"message": {}}), answers(1, 200, body={"message": []})],
    ),
    "events": (
        post("{}"),
        STREAM
        + b"\r\n\xef\xbb\xbf"
        + b"id: 1\ndata: \n\n: a comment\n\nretry: 10\r\n\r\nevent: message\ndata:{\ndata: }\n\ndata: word\r\r",
        [
            asks(1, body={"message": {}}),
            answers(1, 200, headers=EVENTS),
            {"from": "server", "stream": 1, "event": {"id": "1", "data": ""}},
            {"from": "server", "stream": 1, "event": {"retry": "10"}},
            {
                "from": "server",
                "stream": 1,
                "event": {"event": "message"},
                "message": {},
            },
            {"from": "server", "stream": 1, "event": {"data": "word"}},
            ends("server", 1),
        ],
    ),
    "an event that is cut": (
        post("{}"),
        STREAM + b'\r\ndata: {}\n\nid: 1\ndata: {"cut',
        [
            asks(1, body={"message": {}}),
            answers(1, 200, headers=EVENTS),
            {"from": "server", "stream": 1, "message": {}},
            {"from": "server", "stream": 1, "event": {"id": "1", "data": '{"cut'}},
            ends("server", 1),
        ],
    ),
    "a comment that is cut": (
        post("{}"),
        STREAM + b"\r\n: still there\n",
        [
            asks(1, body={"message": {}}),
            answers(1, 200, headers=EVENTS),
            ends("server", 1),
        ],
    ),
    "an answer that is compressed": (
        post("{}"),
        response("200 OK", "\x1f", "Content-Encoding: gzip"),
        [
            asks(1, body={"message": {}}),
            answers(1, 200, body={"raw": "\x1f"}, headers={"content-encoding": "gzip"}),
        ],
    ),
    "a query with a secret": (
        b"GET /mcp?api_key=SECRET&x HTTP/1.1\r\n\r\n",
        response("405 No"),
        [
            {
                "from": "client",
                "stream": 1,
                "http": {"method": "GET", "path": "/mcp?api_key=&x"},
            },
            answers(1, 405),
        ],
    ),
    "no answer": (post("{}"), b"", [asks(1, body={"message": {}}), ends("server", 1)]),
    "an answer that is cut": (
        post("{}"),
        b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"cut',
        [
            asks(1, body={"message": {}}),
            answers(1, 200, body={"raw": '{"cut', "cut": True}),
        ],
    ),
    "two answers": (
        post("{}"),
        response("200 OK", "{}") * 2,
        [asks(1, body={"message": {}}), *[answers(1, 200, body={"message": {}})] * 2],
    ),
    "an upgrade that is refused": (
        b"GET /mcp HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
        + post("{}"),
        response("426 No") + response("202 Accepted"),
        [
            asks(1, method="GET"),
            answers(1, 426),
            asks(2, body={"message": {}}),
            answers(2, 202),
        ],
    ),
    "an upgrade that is only offered": (
        post("{}", "Connection: Upgrade", "Upgrade: h2c") * 2,
        response("202 Accepted") * 2,
        [
            asks(1, body={"message": {}}),
            answers(1, 202),
            asks(2, body={"message": {}}),
            answers(2, 202),
        ],
    ),
}


@pytest.mark.parametrize(
    ("name", "step"),
    # Another protocol is recognized if the head arrives in one piece.
    [
        (name, step)
        for name in CONVERSATIONS
        for step in (1, 7, 2**20)
        if step > 7 or "offered" not in name
    ],
)
async def test_http_passes_unchanged_and_is_understood(path, name, step, capsys):
    asked, answered, said = CONVERSATIONS[name]
    assert await passed(path, asked, answered, step) == (asked, answered)
    assert by_stream(lines(path)) == said
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("asked", "answered", "raw"),
    [
        (
            b"\x16\x03\x01 no HTTP\r\n\r\n",
            b"none either",
            ["\x16\x03\x01 no HTTP\r\n\r\n", "none either"],
        ),
        (b"POST /mcp HTTP/1.1\r\nContent-", b"", ["POST /mcp HTTP/1.1\r\nContent-"]),
        (post("{}"), b"garbage \xff", ["garbage \xff"]),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n",
            response("400 Bad", "{}"),
            None,
        ),
    ],
)
async def test_bytes_that_are_not_http_pass_through(path, asked, answered, raw, capsys):
    assert await passed(path, asked, answered) == (asked, answered)
    raws = [line["raw"] for line in lines(path) if "raw" in line]
    assert raws == ([asked.decode("latin-1")] if raw is None else raw)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(raws)
    assert all("cannot parse" in line for line in said)


@pytest.mark.thorough
async def test_a_large_body_passes_and_is_recorded(path):
    body = json.dumps({"text": "x" * 6_000_000})
    stream = STREAM + b"\r\ndata: %b\n\n" % body.encode()
    assert await passed(path, post(body), stream) == (post(body), stream)
    assert [len(bytes(line.message)) for line in read(path).lines if line.message] == [
        len(body)
    ] * 2


UPGRADE = b"GET /mcp HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
UPGRADED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
)


def frames(is_client, compressed):
    """Return a side's frames: fragments around a ping, an invalid one, and bytes."""
    deflate = PerMessageDeflate()
    deflate.finalize("permessage-deflate")
    protocol = FrameProtocol(is_client, [deflate] if compressed else [])
    first, rest = (
        protocol.send_data('{"é', fin=False),
        protocol.send_data('":1}', fin=True),
    )
    others = [
        protocol.send_data("{", fin=True),
        protocol.send_data(b"\xff", fin=True),
        protocol.close(1000),
    ]
    # Between fragments that are compressed, the library forgets over a ping that they
    # are.
    return b"".join(
        [first, rest, protocol.ping(b"?")]
        if compressed
        else [first, protocol.ping(b"?"), rest]
    ) + b"".join(others)


@pytest.mark.parametrize("step", [1, 2**20])
@pytest.mark.parametrize("compressed", [False, True])
async def test_websocket_messages_are_joined_and_unpacked(path, step, compressed):
    extension = (
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if compressed else b""
    )
    asked = UPGRADE + frames(True, compressed)
    answered = UPGRADED + extension + b"\r\n" + frames(False, compressed)
    assert await passed(path, asked, answered, step) == (asked, answered)
    said = [{"message": {"é": 1}}, {"raw": "{"}, {"raw": "\xff"}, {"ends": True}]
    for side in ("client", "server"):
        assert [line for line in lines(path) if line["from"] == side] == [
            {"from": side, **line} for line in said
        ]
    assert read(path).header.transport == "ws"


async def test_bad_frames_pass_all_the_same(path, capsys):
    asked, answered = UPGRADE + b"\xff\xff", UPGRADED + b"\r\n\x81\x02{}"
    assert await passed(path, asked, answered) == (asked, answered)
    assert (
        lines(path)
        == [
            {"from": "client", "raw": "\xff\xff"},
            {"from": "server", "message": {}},
            {"from": "client", "ends": True},
            {"from": "server", "ends": True},
        ]
        or capsys.readouterr()
    )


async def test_a_reset_is_passed_on_and_noted(path):
    ended = trio.Event()

    async def answer(stream):
        await stream.receive_some()
        await stream.send_all(STREAM + b"\r\n")
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        ended.set()

    with trio.fail_after(30):
        async with upstream(answer) as url, in_front_of(url, path) as own:
            client = await to(own)
            await client.send_all(post("{}"))
            await client.receive_some()
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            client.socket.close()
            await ended.wait()
    assert lines(path)[-1] == ends("client", 1)


async def test_a_server_that_resets_is_passed_on_and_noted(path):
    async def answer(stream):
        await stream.receive_some()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with trio.fail_after(30):
        async with (
            upstream(answer) as url,
            in_front_of(url, path) as own,
            await to(own) as client,
        ):
            await client.send_all(post("{}"))
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some()
    assert lines(path) == [asks(1, body={"message": {}}), ends("server", 1)]


async def test_a_server_that_is_not_there_is_named_and_the_client_let_go(path, capsys):
    with refusing_port() as port, trio.fail_after(30):
        async with (
            in_front_of(f"http://127.0.0.1:{port}/mcp", path) as own,
            await to(own) as client,
        ):
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some()
    assert capsys.readouterr().err.startswith(
        f"record: http://127.0.0.1:{port}/mcp cannot be reached: "
    )
    assert read(path).lines == []


async def test_the_end_of_the_recording_leaves_a_whole_trace(path):
    async def answer(stream):
        await stream.receive_some()
        await stream.send_all(STREAM + b"\r\ndata: {}\n\n")
        await trio.sleep_forever()

    with trio.fail_after(30):
        async with upstream(answer) as url, in_front_of(url, path) as own:
            client = await to(own)
            await client.send_all(post("{}"))
            while len(read(path).lines) < 3:
                await trio.testing.wait_all_tasks_blocked(0.001)
        await client.aclose()
    assert lines(path)[-1] == {"from": "server", "stream": 1, "message": {}}


@pytest.mark.parametrize(
    "name", ["localhost:{port}", "127.0.0.1:{port}", "localhost", "evil.example"]
)
async def test_host_is_kept_where_it_is_not_the_stand_ins_own(path, name):
    async with in_front_of_a_server(path) as own, await to(own) as client:
        name = name.format(port=own.partition(":")[2])
        await client.send_all(f"GET /mcp HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        await client.receive_some()
    assert lines(path)[0]["http"].get("headers", {}) == (
        {} if name.endswith(own.partition(":")[2]) else {"host": name}
    )


@pytest.mark.parametrize(
    ("url", "listen", "own"),
    [
        ("wss://example.test/a/b?c", "0", r"ws://127\.0\.0\.1:\d+/a/b\?c"),
        ("ws://user:word@example.test:1/", "localhost:0", r"ws://localhost:\d+/"),
        ("https://example.test", "[::1]:0", r"http://\[::1\]:\d+"),
    ],
)
async def test_it_prints_its_own_address(path, url, listen, own):
    async with trio.open_nursery() as nursery:
        try:
            said = await nursery.start(
                partial(record_network, url, listen, recorder(path, "http"))
            )
        except OSError:
            pytest.skip("there is no IPv6")
        assert re.fullmatch(own, said)
        nursery.cancel_scope.cancel()


async def test_a_target_that_is_not_a_url_is_refused(path):
    with pytest.raises(ValueError, match=r"expected a URL such as .*, got 'ftp:"):
        await record_network("ftp://localhost/mcp", "0", recorder(path, "http"))
