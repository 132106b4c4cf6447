"""The command line as a process: exit codes, standard output and standard error."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
import trio

import mcp_trio
from mcp_trio.cli.commands import COMMANDS
from mcp_trio.cli.main import report
from mcp_trio.client.target import connect
from mcp_trio.load_spec import UsageError
from tests.support.command_line import (
    ENVIRONMENT,
    PATIENCE,
    SERVER,
    begin,
    call,
    command,
    hear,
    request,
    run,
    serving,
    tell,
)

# What leaves by stdout


def test_requests_before_the_end_of_input_get_their_replies(folder):
    done = run(
        folder,
        "run",
        "server.py",
        given=call(1, "wait", seconds=0.1) + call(2, "add", a=1) + call(3, "noise"),
    )
    replies = {
        message["id"]: message["result"]
        for message in map(json.loads, done.stdout.splitlines())
    }
    assert {id: result["content"][0]["text"] for id, result in replies.items()} == {
        1: "waited",
        2: "1 and 0.5",
        3: "done",
    }
    assert done.returncode == 0


def test_nothing_that_is_printed_reaches_the_wire(folder):
    done = run(folder, "run", "server.py:server", given=call(1, "noise"))
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1]
    for text in (
        "printed at import",
        "written at import",
        "printed",
        "written",
        "by a child",
    ):
        assert text in done.stderr.decode().splitlines()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments", [(), ("run",), ("--stdio",), ("--grace", "1")], ids=" ".join
)
def test_without_a_spec_the_demo_is_served(tmp_path, arguments):
    done = run(tmp_path, *arguments, given=request(1, "tools/list"))
    assert "get_weather" in [
        tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]
    ]
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_last_request_without_its_line_end_is_answered(folder):
    done = run(folder, "run", "server.py", given=call(1, "add", a=1).rstrip())
    assert json.loads(done.stdout)["id"] == 1


# Stopping


@pytest.mark.thorough
@pytest.mark.parametrize(
    "by", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_ends_what_does_not_finish_within_the_grace(folder, by):
    with serving(folder, "run", "server.py", "--grace", "0.1") as process:
        begin(process, call(1, "wait_for_ever", mark="cleaned up"), call(2, "block"))
        process.send_signal(by)
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""
        assert b"Traceback" not in process.stderr.read()
    assert (folder / "cleaned up").exists()


def test_a_signal_lets_what_runs_finish_and_takes_no_more(folder):
    with serving(folder, "run", "server.py", "--grace", "60") as process:
        begin(process, call(1, "wait", seconds=0.2))
        process.send_signal(signal.SIGTERM)
        assert hear(process)["id"] == 1
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""


def test_a_signal_gives_a_subscription_its_proper_end(folder):
    listen = request(
        1, "subscriptions/listen", notifications={"toolsListChanged": True}
    )
    with serving(folder, "run", "server.py", "--grace", "60") as process:
        tell(process, listen)
        assert hear(process)["method"] == "notifications/subscriptions/acknowledged"
        process.send_signal(signal.SIGTERM)
        assert hear(process)["id"] == 1
        assert process.wait(PATIENCE) == 0


@pytest.mark.thorough
def test_a_second_signal_ends_at_once(folder):
    with serving(folder, "run", "server.py", "--grace", "60") as process:
        begin(process, call(1, "wait", seconds=0.1), call(2, "wait_for_ever"))
        process.send_signal(signal.SIGINT)
        assert hear(process)["id"] == 1  # the first one has been processed by now
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def test_sigterm_that_a_parent_repeats_counts_as_one(folder):
    with serving(folder, "run", "server.py", "--grace", "60") as process:
        begin(process, call(1, "wait", seconds=0.1), call(2, "wait", seconds=0.5))
        process.send_signal(signal.SIGTERM)
        assert hear(process)["id"] == 1  # the first one has been processed by now
        process.send_signal(signal.SIGTERM)
        assert hear(process)["id"] == 2
        assert process.wait(PATIENCE) == 0


def test_ctrl_c_after_sigterm_ends_at_once(folder):
    with serving(folder, "run", "server.py", "--grace", "60") as process:
        begin(process, call(1, "wait", seconds=0.1), call(2, "wait_for_ever"))
        process.send_signal(signal.SIGTERM)
        assert hear(process)["id"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


LIFESPAN = """
import sys
import trio
from mcp_trio import Server

server = Server("slow to start or to end")

@server.lifespan
async def around():
    print("starting", file=sys.stderr, flush=True)
    await trio.sleep({start})
    yield
    await trio.sleep({end})
"""


def test_a_signal_while_the_lifespan_starts_ends_at_once(folder):
    (folder / "slow.py").write_text(
        LIFESPAN.format(start=3600, end=0), encoding="utf-8"
    )
    with serving(folder, "run", "slow.py") as process:
        assert process.stderr.readline() == b"starting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


@pytest.mark.thorough
def test_the_end_of_the_lifespan_gets_no_more_than_the_grace(folder):
    (folder / "slow.py").write_text(
        LIFESPAN.format(start=0, end=3600), encoding="utf-8"
    )
    with serving(folder, "run", "slow.py", "--grace", "0.2") as process:
        assert process.stderr.readline() == b"starting\n"
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


@pytest.mark.thorough
def test_a_third_signal_kills_what_does_not_let_itself_be_cancelled(folder):
    with serving(folder, "run", "server.py", "--grace", "60") as process:
        begin(process, call(1, "wait", seconds=0.1), call(2, "hold_on"))
        process.send_signal(signal.SIGINT)
        assert hear(process)["id"] == 1
        for _ in range(100):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                assert process.wait(0.1) == -signal.SIGINT
                return
        pytest.fail("it is still there")


@pytest.mark.thorough
def test_a_client_that_does_not_read_holds_the_end_up_no_longer_than_the_grace(folder):
    with serving(folder, "run", "server.py", "--grace", "0.1") as process:
        begin(process, call(1, "wait_for_ever"))
        tell(process, call(2, "large"))
        assert process.stdout.read(1) == b"{"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_the_end_of_input_ends_what_does_not_finish_within_the_grace(folder):
    # Without the flag, the command would take longer than `run` waits.
    done = run(
        folder,
        "run",
        "server.py",
        "--grace",
        "0.1",
        given=call(1, "wait_for_ever") + call(2, "add", a=1),
        MCP_TRIO_GRACE="60",
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [2]
    assert done.returncode == 0


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["pipes", "sockets"])
@pytest.mark.parametrize("tool", ["wait_for_ever", "block"])
def test_without_a_parent_the_server_ends_without_a_grace(folder, kind, tool):
    """The server only notices that the pipes are closed."""
    with serving_on(kind, folder, "run", "server.py", "--grace", "60") as (
        process,
        to_server,
        from_server,
    ):
        to_server.write(call(1, tool) + call(2, "add", a=1))
        to_server.flush()
        assert json.loads(from_server.readline())["id"] == 2
        to_server.close()
        from_server.close()
        assert process.wait(PATIENCE) == 0  # long before the grace is over


@contextmanager
def serving_on(kind, folder, *arguments):
    if kind == "pipes":
        with serving(folder, *arguments) as process:
            yield process, process.stdin, process.stdout
        return
    (stdin, to_server), (stdout, from_server) = (
        socket.socketpair(),
        socket.socketpair(),
    )  # as Node has it
    with serving(folder, *arguments, stdin=stdin, stdout=stdout) as process:
        for end in (stdin, stdout):
            end.close()
        with (
            to_server,
            from_server,
            to_server.makefile("wb") as writing,
            from_server.makefile("rb") as reading,
        ):
            to_server.close()  # their files keep them
            from_server.close()
            yield process, writing, reading


# Settings


@pytest.mark.thorough
def test_settings_are_also_read_from_the_environment(folder):
    environment = {**ENVIRONMENT, "MCP_TRIO_GRACE": "0.1"}
    with serving(folder, "run", "server.py", env=environment) as process:
        begin(process, call(1, "wait_for_ever"))
        process.stdin.close()
        ended = time.monotonic()
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - ended < 4  # without the variable it would be 5
    done = run(
        folder,
        "run",
        "server.py",
        given=call(1, "wait", seconds=60),
        MCP_TRIO_TIMEOUT="0.1",
    )
    assert "took longer than 0.1 s" in done.stdout.decode()


def test_a_flag_wins_over_the_environment(folder):
    given = call(1, "wait", seconds=60)
    done = run(
        folder,
        "run",
        "server.py",
        "--timeout",
        "0.1",
        given=given,
        MCP_TRIO_TIMEOUT="1000",
    )
    assert "took longer than 0.1 s" in done.stdout.decode()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "setting", [("--profile", "pocket"), ()], ids=["flag", "environment"]
)
def test_a_profile_can_be_chosen(folder, setting):
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    lines = request(1, "initialize", modern=False, **opening)
    lines += b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    lines += request(2, "tools/call", modern=False, name="add", arguments={"a": 1})
    done = run(
        folder,
        "run",
        "server.py",
        *setting,
        given=lines,
        **({} if setting else {"MCP_TRIO_PROFILE": "pocket"}),
    )
    result = json.loads(done.stdout.splitlines()[1])["result"]
    assert (result["structuredContent"], result["isError"]) == ({}, False)


def test_a_failing_lifespan_is_reported_in_one_line(folder):
    failing = "\n@server.lifespan\nasync def database():\n    raise OSError('no database')\n    yield\n"
    (folder / "server.py").write_text(SERVER + failing, encoding="utf-8")
    for arguments in ("run", "server.py"), ("inspect", "server.py"):
        done = run(folder, *arguments)
        told = done.stderr.decode().splitlines()[-1]
        assert done.returncode == 2
        assert "Traceback" not in done.stderr.decode()
        assert re.fullmatch(
            r"mcp-trio: error: OSError: no database \(.*server.py, line \d+\), raised by the.* lifespan",
            told,
        )


def test_all_problems_of_a_group_are_reported(capfd):
    problems = [
        UsageError("one"),
        ExceptionGroup("", [UsageError("two"), OSError("three")]),
    ]
    assert report(ExceptionGroup("", problems)) == 2
    assert capfd.readouterr().err == (
        "mcp-trio: error: one\nmcp-trio: error: two\nmcp-trio: error: three\n"
    )
    assert (
        report(BaseExceptionGroup("", [UsageError("one"), KeyboardInterrupt()])) == 130
    )
    assert report(ExceptionGroup("", [UsageError("one"), KeyError()])) is None


@pytest.mark.thorough
def test_the_log_goes_to_stderr_from_its_level_on(folder):
    text = SERVER + "\nimport logging\nlogging.getLogger('mine').info('told')\n"
    (folder / "server.py").write_text(text, encoding="utf-8")
    assert (
        b"INFO mine: told"
        in run(folder, "run", "server.py", "--log-level", "info").stderr
    )
    assert (
        b"INFO mine: told"
        in run(folder, "run", "server.py", MCP_TRIO_LOG_LEVEL="INFO").stderr
    )
    assert b"told" not in run(folder, "run", "server.py").stderr


# Mistakes

MISTAKES = {
    "no such file": (("run", "nothing.py"), ["nothing.py", "does not exist"]),
    "broken file": (("run", "broken.py"), ["ZeroDivisionError", "broken.py, line 1"]),
    "no such object": (("run", "server.py:other"), ["'other'", "server.py:server"]),
    "nobody at a WebSocket": (
        ("inspect", "ws://127.0.0.1:9/mcp"),
        ["ws://127.0.0.1:9/mcp cannot be opened: all attempts"],
    ),
    "unknown command": (
        ("serve",),
        [", ".join(COMMANDS), "got 'serve'; to serve a file, run: mcp-trio run FILE"],
    ),
    "unknown flag": (("run", "--what"), ["--what", "--help"]),
    "unknown bare flag": (("--what",), ["--what", "--help"]),
    "bad number": (
        ("run", "--grace", "soon"),
        ["--grace", "number of seconds", "'soon'"],
    ),
    "no time": (("run", "--timeout", "0"), ["--timeout", "more than 0 seconds", "'0'"]),
    "bad profile": (("run", "--profile", "giant"), ["--profile", "pocket", "'giant'"]),
    "bad level": (
        ("run", "--log-level", "loud"),
        ["expected one of debug, info, warning, error", "'loud'"],
    ),
    "too many specs": (("run", "a.py", "b.py"), ["b.py"]),
    "a command to run": (("run", "--", "python"), ["inspect -- python"]),
    "inspect: no such file": (
        ("inspect", "nothing.py"),
        ["nothing.py", "does not exist"],
    ),
    "inspect: nobody there": (
        ("inspect", "http://127.0.0.1:1/mcp"),
        ["connect to 127.0.0.1:1 failed"],
    ),
    "inspect: bad revision": (
        ("inspect", "--revision", "1999"),
        ["--revision", "2024-10-07", "'1999'"],
    ),
    "inspect: no such command": (
        ("inspect", "--", "no-such-command"),
        ["no-such-command", "cannot be started"],
    ),
    "store: no store": (
        ("run", "server.py", "--store", "http://127.0.0.1"),
        ["--store: expected memory: or redis://", "got 'http://127.0.0.1'"],
    ),
    "store: no such database": (
        ("run", "server.py", "--store", "redis://me:secret@127.0.0.1/x"),
        ["--store: expected redis://", "'redis://...@127.0.0.1/x'", "not a number"],
    ),
    "work: no store": (
        ("work", "server.py"),
        [
            "work: expected the --store that the servers use",
            "--store redis://127.0.0.1:6379/0",
        ],
    ),
    "inspect: gone at once": (
        ("inspect", "--", sys.executable, "-c", ""),
        ["the server ended the conversation"],
    ),
    "inspect: no MCP server": (
        ("inspect", "--", "echo", "hello"),
        ["not an MCP server", "not JSON"],
    ),
    "call: nothing": (
        ("call",),
        ["expected a server and a tool", "mcp-trio call server.py"],
    ),
    "call: no tool": (("call", "server.py"), ["expected a server and a tool"]),
    "call: unknown tool": (
        ("call", "server.py", "nope"),
        ["'nope'", "add, wait_for_ever"],
    ),
    "call: no pair": (
        ("call", "server.py", "add", "1"),
        ["expected KEY=VALUE, got '1'", "a, b"],
    ),
    "call: no such argument": (
        ("call", "server.py", "add", "c=1"),
        ["no argument 'c'", "a, b"],
    ),
    "call: wrong type": (
        ("call", "server.py", "add", "a=one"),
        ["a: expected integer, got 'one'"],
    ),
    "call: wrong number": (
        ("call", "server.py", "add", "a=1.5"),
        ["a: expected integer, got '1.5'"],
    ),
    "call: bad JSON": (
        ("call", "server.py", "add", "--json", "{"),
        ["--json: expected a JSON object"],
    ),
    "call: no object": (
        ("call", "server.py", "add", "--json", "[]"),
        ["--json: expected a JSON object"],
    ),
}
AS_PROCESSES = {"no such file", "broken file", "unknown command", "unknown bare flag"}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_in_one_line(folder, here, mistake):
    (folder / "broken.py").write_text("1 / 0", encoding="utf-8")
    arguments, says = MISTAKES[mistake]
    if mistake in AS_PROCESSES:
        done = run(folder, *arguments)
        code, out, err = done.returncode, done.stdout.decode(), done.stderr.decode()
    else:
        code, out, err = here(*arguments)
    lines = [line for line in err.splitlines() if " at import" not in line]
    assert (code, out, len(lines)) == (2, "", 1), err
    for part in ("mcp-trio: error: ", *says):
        assert part in lines[0]


def test_work_needs_tasks(folder, here):
    code, _, err = here("work", "server.py", "--store", "redis://127.0.0.1:1/0")
    assert (code, err.count("\n")) == (2, 1)
    assert "work: expected a tool with `task=` in 'test', found none" in err


def test_a_wrong_environment_variable_is_reported_by_its_name(
    folder, here, monkeypatch
):
    monkeypatch.setenv("MCP_TRIO_GRACE", "soon")
    code, _, err = here("run", "server.py")
    assert (code, err.count("\n")) == (2, 1)
    assert "MCP_TRIO_GRACE" in err


def test_closed_standard_input_is_reported_in_one_line(folder):
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *command("run", "server.py")]
    done = subprocess.run(
        closed,
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "words",
    [["inspect", "server.py"], ["config", "server.py"], ["version"]],
    ids=" ".join,
)
def test_closed_standard_output_is_not_an_error(folder, words):
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command(*words)]
    done = subprocess.run(
        closed,
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, b"mcp-trio" in done.stderr) == (0, b"", False)


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)], ids=str)
def test_help_fits_a_terminal_of_80_letters(here, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = here(*words, "--help")
    assert [
        line
        for line in out.splitlines()
        if len(line) > 80 or re.match(r"  [a-z]+[A-Z]", line)
    ] == []


# inspect and call


def test_inspect_shows_what_a_server_offers(here):
    code, out, _ = here("inspect", "server.py")
    assert code == 0
    add = r"^Tools \(10\)\n  add +Add two numbers\.\n    a +integer, required\n    b +number, default 0\.5$"
    assert re.search(add, out, re.MULTILINE)
    assert re.search(r"^Resources \(1\)\n  notes://a +Some notes\.$", out, re.MULTILINE)
    greet = r"^Prompts \(1\)\n  greet +Greet somebody\.\n    name +required\n    mood +optional$"
    assert re.search(greet, out, re.MULTILINE)
    assert "Templates" not in out


def test_inspect_shows_the_wire(here):
    _, out, _ = here("inspect", "server.py", "--json")
    offered = json.loads(out)
    assert offered["tools"][0]["inputSchema"]["properties"]["a"] == {"type": "integer"}
    assert [prompt["name"] for prompt in offered["prompts"]] == ["greet"]
    assert (offered["resources"][0]["uri"], offered["resourceTemplates"]) == (
        "notes://a",
        [],
    )


@pytest.mark.parametrize(
    ("revision", "titled"),
    [("2024-10-07", False), ("2025-06-18", True), ("2026-07-28", True)],
)
def test_inspect_speaks_the_revision_that_is_asked_for(here, folder, revision, titled):
    text = "from mcp_trio import Server\ns = Server('a')\n@s.tool(title='T')\nasync def f() -> None: ..."
    (folder / "server.py").write_text(text, encoding="utf-8")
    _, out, _ = here("inspect", "server.py", "--json", "--revision", revision)
    assert ("title" in json.loads(out)["tools"][0]) is titled


def test_inspect_without_a_target_shows_the_demo(here):
    assert "get_weather" in here("inspect")[1]


def test_a_server_with_nothing_says_so(here, folder):
    (folder / "server.py").write_text(
        "from mcp_trio import Server\nserver = Server('a')", encoding="utf-8"
    )
    assert (
        here("inspect", "server.py")[1]
        == "The server has no tools, resources or prompts.\n"
    )


@pytest.mark.thorough
def test_a_command_is_a_target_too(here):
    assert "Add two numbers." in here("inspect", "--", *command("run", "server.py"))[1]
    code, out, _ = here("call", "add", "a=1", "--", *command("run", "server.py"))
    assert (code, out) == (0, "1 and 0.5\n")


def test_call_types_its_values_by_the_schema(here):
    assert here("call", "server.py", "add", "a=1", "b=2")[1] == "1 and 2.0\n"
    _, out, _ = here(
        "call",
        "server.py",
        "kinds",
        "text=12",
        "flag=true",
        "some=[1, 2]",
        "maybe=null",
    )
    assert json.loads(out) == {
        "text": "12",
        "flag": True,
        "some": [1, 2],
        "maybe": None,
    }


def test_call_takes_its_arguments_as_one_object(here):
    assert (
        here("call", "server.py", "add", "--json", '{"a": 1, "b": 2}')[1]
        == "1 and 2.0\n"
    )
    assert (
        here("call", "--json", '{"a": 1}', "server.py", "add", "b=3")[1]
        == "1 and 3.0\n"
    )


def test_call_describes_content_that_is_not_text(here):
    assert here("call", "server.py", "picture")[1] == "[image image/png 5 bytes]\n"


def test_a_tool_that_fails_is_exit_code_1(here):
    code, out, err = here("call", "server.py", "fail")
    assert (code, out) == (1, "")
    assert err.endswith("it is broken\n")


def test_what_a_called_tool_prints_stays_out_of_its_result(here):
    _, out, err = here("call", "server.py", "add", "a=1")
    assert out == "1 and 0.5\n"
    assert "printed at import" in err


def test_one_interrupt_ends_a_call_without_a_word(folder):
    with serving(
        folder, "call", "server.py", "wait_for_ever", "mark=left", "--json", "{}"
    ) as process:
        assert process.stderr.readline() == b"printed at import\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert process.stderr.read() == b""


# At a terminal


@contextmanager
def terminal(folder, *arguments):
    """Run a process whose stdin and stderr are a terminal."""
    ours, its = pty.openpty()
    try:
        with serving(folder, *arguments, stdin=its, stderr=its) as process:
            os.close(its)
            yield process, ours
    finally:
        os.close(ours)


def read_until(descriptor, text):
    seen = b""
    while text not in seen:
        seen += os.read(descriptor, 1000)
    return seen.decode().replace("\r\n", "\n")


def test_at_a_terminal_it_says_what_it_does_and_how_to_stop_it(tmp_path):
    with terminal(tmp_path) as (process, screen):
        told = read_until(screen, b"Ctrl-D.")
        assert "standard input" in told
        assert "python -m mcp_trio inspect" in told
        assert 2 <= len(told.strip().splitlines()) <= 4
        os.write(screen, b"\x04")
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""


@pytest.mark.thorough
def test_a_question_is_answered_at_the_terminal(tmp_path):
    with terminal(tmp_path, "call", "mcp_trio.demo", "plan_trip") as (process, screen):
        read_until(screen, b"Where to, of the sample's cities: ")
        os.write(screen, b"Berlin\n")
        read_until(screen, b"For how many days: ")
        os.write(screen, b"many\n")
        assert "expected integer" in read_until(screen, b"For how many days: ")
        os.write(screen, b"4\n")
        assert process.stdout.read().startswith(b"4 days in Berlin")
        assert process.wait(PATIENCE) == 0


@pytest.mark.thorough
def test_progress_is_shown_at_a_terminal(tmp_path):
    with terminal(
        tmp_path, "call", "mcp_trio.demo", "count_slowly", "steps=2", "seconds=0.3"
    ) as (process, screen):
        assert process.stdout.read() == b"Counted to 2\n"
        assert "1/2 step 1 of 2" in read_until(screen, b"1 of 2")


# Help


def test_every_command_has_help_with_an_example(here):
    for name in COMMANDS:
        code, out, _ = here(name, "--help")
        assert code == 0
        assert "example: mcp-trio " in out
        assert name in here("--help")[1]


def test_the_version_is_printed(here):
    code, out, _ = here("version")
    assert code == 0
    assert mcp_trio.__version__ in out
    assert "2024-10-07" in out
    assert here("--version")[1] == out


# HTTP and WebSocket


def places(process, count):
    """Return the URLs that a server prints."""
    return [process.stderr.readline().decode().split()[-1] for _ in range(count)]


async def call_at(url, revision):
    with trio.fail_after(PATIENCE):
        async with connect(url, revision) as client:
            assert not (
                await client.call_tool("get_weather", {"location": "London"})
            ).is_error


def test_all_transports_at_once_until_the_input_ends(tmp_path):
    with serving(tmp_path, "--stdio", "--http", "0", "--ws", "0") as process:
        http, ws = places(process, 2)
        tell(process, call(1, "get_weather", location="London"))
        assert hear(process)["id"] == 1
        trio.run(call_at, http, "2026-07-28")
        trio.run(call_at, http.replace("/mcp", "/sse"), "2024-11-05")
        trio.run(call_at, http.replace("http:", "ws:"), "2025-11-25")
        trio.run(call_at, ws, "2025-11-25")
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""


@pytest.mark.thorough
def test_the_port_of_websocket_has_nothing_else(tmp_path):
    with serving(tmp_path, "--ws", "0", "--path", "/here") as process:
        (url,) = places(process, 1)
        assert url.startswith("ws://127.0.0.1:")
        place = url.split("/")[2]
        assert ask(place, "GET", "/here").startswith(b"HTTP/1.1 426 ")
        assert ask(place, "GET", "/here", f"Host: {place}").startswith(
            b"HTTP/1.1 400 "
        )  # a second signal
        assert ask(place, "GET", "/mcp").startswith(b"HTTP/1.1 404 ")
        trio.run(call_at, url, "2025-11-25")


@pytest.mark.thorough
def test_a_server_at_a_url_is_a_target_too(tmp_path):
    with serving(tmp_path, "--http", "0") as process:
        (url,) = places(process, 1)
        called = run(tmp_path, "call", url, "get_weather", "location=New York")
        assert called.stdout.decode().startswith("Current weather in New York:")
        assert (
            b"get_weather_data"
            in run(tmp_path, "inspect", url, "--revision", "2026-07-28").stdout
        )


def dial(place, method, path, *headers, body=b""):
    host, port = place.split(":")
    asking = socket.create_connection((host, int(port)), PATIENCE)
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {place}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    asking.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body)
    return asking


def ask(place, method, path, *headers):
    with dial(place, method, path, *headers, "Connection: close") as asking:
        return asking.makefile("rb").read()


MODERN_HEADERS = (
    "Content-Type: application/json",
    "MCP-Protocol-Version: 2026-07-28",
    "Mcp-Method: tools/call",
)
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


# With other tests beside it, this one can only tell that the grace is not waited for
# twice.
@pytest.mark.slow
@pytest.mark.parametrize("seconds", [pytest.param(1, marks=pytest.mark.load), 2.8])
def test_a_signal_stops_the_busiest_server_soon_after_the_grace(folder, seconds):
    with (
        serving(folder, "run", "server.py", "--http", "0", "--grace", "3") as process,
        ExitStack() as closing,
    ):
        place = places(process, 1)[0].split("/")[2]
        idle = closing.enter_context(dial(place, "GET", "/sse"))
        websocket = closing.enter_context(dial(place, "GET", "/mcp", *UPGRADE))
        asleep = dial(
            place,
            "POST",
            "/mcp",
            *MODERN_HEADERS,
            "Mcp-Name: wait",
            body=call(1, "wait", seconds=3600),
        )
        deaf = dial(
            place,
            "POST",
            "/mcp",
            *MODERN_HEADERS,
            "Mcp-Name: large",
            body=call(1, "large"),
        )
        for opened in (asleep, deaf):
            closing.enter_context(opened)
        for answered in (idle, websocket, deaf):
            assert answered.recv(10).startswith(b"HTTP/1.1 ")
        process.send_signal(signal.SIGTERM)
        stopped = time.monotonic()
        assert idle.makefile("rb").read().endswith(b"\r\n0\r\n\r\n")
        assert websocket.makefile("rb").read().endswith(b"\x88\x02\x03\xe9")
        assert time.monotonic() - stopped < 2.8  # nothing runs on these two
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - stopped < 3 + seconds
        assert b"Traceback" not in process.stderr.read()
