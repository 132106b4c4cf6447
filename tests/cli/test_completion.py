"""What a shell completes."""

import os
import pty
import re
import shlex
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from mcp_trio.cli.commands import COMMANDS
from mcp_trio.cli.completion import SCRIPTS, completed
from mcp_trio.cli.options import Parser
from tests.support.command_line import ENVIRONMENT, PATIENCE, ROOT

FLAGS_OF_CALL = ["--help", "--json", "--revision"]


@pytest.fixture
def complete(here):
    """Return the completions of the last word. After a space, it is empty."""
    return lambda line: completed(COMMANDS, line.split(" "))


def test_commands_are_completed(complete):
    assert complete("") == list(COMMANDS)
    assert complete("in") == ["inspect"]
    assert complete("nothing") == []


def test_flags_are_completed_for_their_command(complete):
    assert set(FLAGS_OF_CALL) <= set(complete("call --"))
    assert complete("call --js") == ["--json"]
    assert complete("run server.py --re") == ["--reload"]
    assert (
        complete("--rel") == complete("--stdio --rel") == ["--reload"]
    )  # it is run without its name
    assert complete("nothing --") == []


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_flag_of_every_command_is_completed(complete, name):
    parser = Parser(prog="mcp-trio")
    COMMANDS[name].add_arguments(parser)
    assert set(complete(f"{name} -")) >= set(
        re.findall(r"(?<!\S)--?[a-z][a-z-]*", parser.format_help())
    )


def test_what_a_flag_takes_is_completed(complete):
    assert complete("run -t s") == ["stdio", "streamable-http", "sse"]
    assert complete("config server.py --for c") == [
        "claude-desktop",
        "claude-code",
        "cursor",
    ]
    assert complete("run --http ") == []
    assert complete("completion z") == ["zsh"]


def test_tools_of_a_file_are_completed_and_then_their_arguments(complete, capfd):
    assert complete("call server.py wait") == ["wait_for_ever", "wait"]
    assert complete("call --json {} server.py ad") == ["add"]
    assert complete("call server.py add ") == ["a=", "b="]
    assert complete("call server.py add a=1 ") == ["b="]
    assert complete("bench server.py ad") == ["add"]
    assert capfd.readouterr() == ("", "")  # output of a file is not a completion


@pytest.mark.parametrize(
    "line",
    [
        "call ser",
        "inspect ",
        "call nothing.py ",
        "call http://127.0.0.1:9/mcp ",
        "call add -- npx ",
    ],
)
def test_the_shell_completes_file_names_itself(complete, line):
    assert complete(line) == []


def test_a_script_is_printed_and_asks_this_command_again(here):
    for shell, script in SCRIPTS.items():
        assert here("completion", shell) == (0, script, "")
        assert here("completion", shell, "--", "insp") == (0, "inspect\n", "")
        assert f"completion {shell} -- " in script


def test_an_unknown_shell_is_reported(here):
    code, _, err = here("completion", "tcsh")
    assert code == 2
    assert "SHELL: expected one of bash, zsh, fish, got 'tcsh'" in err


def in_bash(folder, typed, until):
    """Return the completions that bash shows for a line."""
    ours, its = pty.openpty()
    environment = {
        **ENVIRONMENT,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "TERM": "dumb",
        "PS1": "$ ",
    }
    command = ["bash", "--norc", "--noprofile", "-i"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    seen = b""
    try:
        for part in ['eval "$(mcp-trio completion bash)"; echo rea""dy\n', *typed]:
            os.write(ours, part.encode())
            wanted = b"ready\r\n" if "rea" in part else until.encode()
            deadline = time.monotonic() + PATIENCE
            while wanted not in seen and time.monotonic() < deadline:
                seen += os.read(ours, 4096)
    finally:
        process.kill()
        process.wait()
        with suppress(OSError):
            os.close(ours)
    return seen.decode()


@pytest.mark.thorough
def test_bash_completes_commands_flags_tools_and_files(folder):
    program = folder / "mcp-trio"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mcp_trio "$@"\n'
    )
    program.chmod(0o755)
    seen = in_bash(
        folder,
        ["mcp-trio cal\tserv\tad\ta\t7 --rev\t2025-11-25; echo do''ne\n"],
        "done\r\n",
    )
    assert "mcp-trio call server.py add a=7 --revision 2025-11-25" in seen.replace(
        "\a", ""
    )
    assert "\r\n7 and 0.5\r\n" in seen
    assert str(ROOT) not in seen
