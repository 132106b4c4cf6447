"""Tokens in a file, and the command that makes them."""

import os
import re
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import mcp_trio
from mcp_trio import Access, Principal, Server, token_file
from mcp_trio.cli.main import main
from mcp_trio.cli.run import require_tokens
from mcp_trio.load_spec import UsageError
from tests.support.access_sites import HOSTS, Bearer, guarded, make_server
from tests.support.http_wire import Site

ROOT = Path(mcp_trio.__file__).parents[1]


def digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


ALICE, BOB = f"alice {digest('one')} admin,mcp", f"bob {digest('two').upper()}"


def written(path: Path, *lines: str, mode: int = 0o600) -> Path:
    """Replace a file by these lines, in one step."""
    fresh = path.with_name("fresh")
    fresh.write_text("\n".join(lines) + "\n")
    fresh.chmod(mode)
    os.replace(fresh, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


async def test_a_token_gives_the_principal_that_its_line_names(path: Path) -> None:
    verify = token_file(
        written(
            path,
            "# who may come",
            "",
            f"  {ALICE}  # from the start",
            BOB,
            f"alice {digest('3')}",
        )
    )
    assert await verify("one") == Principal("alice", frozenset({"admin", "mcp"}))
    assert await verify("two") == Principal("bob")
    assert await verify("3") == Principal("alice")
    for unknown in ("", "four", digest("one")):
        assert await verify(unknown) is None


async def test_a_file_lets_in_over_http(path: Path) -> None:
    server = make_server(
        access=Access(token_file(written(path, ALICE, BOB)), scopes={"mcp"})
    )
    async with guarded(server, token="one") as there:
        tools = (await there.modern("tools/list")).json["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["add", "purge", "wait"]
        assert (await there.by("two").modern("tools/list")).status == 403
        assert (await there.by("three").modern("tools/list")).status == 401


BAD = {
    "no digest": "alice",
    "a token in its place": "alice secret",
    "a short digest": f"alice {digest('one')[:-1]}",
    "an invalid digest": f"alice {'x' * 64}",
    "scopes with blanks": f"{ALICE}, more",
    "an empty scope": f"alice {digest('one')} admin,,mcp",
    "an invalid scope": f'alice {digest("one")} ad"min',
    "no name": f"{digest('one')}",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_an_invalid_line_is_reported_with_its_place(path: Path, line: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"tokens, line 2: expected NAME SHA256-HEX \[SCOPE,SCOPE\], as",
    ) as told:
        token_file(written(path, BOB, line))
    assert digest("one")[:-1] not in str(told.value)


def test_a_file_that_is_not_text_is_reported(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="line 1"):
        token_file(path)


async def test_a_file_is_read_again_when_it_has_changed(
    path: Path, mock_clock: MockClock
) -> None:
    verify = token_file(written(path, ALICE))
    assert await verify("two") is None
    written(path, BOB)
    assert await verify("one") is not None  # one look a second
    mock_clock.jump(1)
    assert await verify("one") is None
    assert await verify("two") == Principal("bob")


async def test_a_file_that_has_become_invalid_changes_nothing_and_is_logged_once(
    path: Path, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    verify = token_file(written(path, ALICE))
    for spoil in (lambda: written(path, ALICE, "nonsense"), path.unlink):
        spoil()
        for _ in range(3):
            mock_clock.jump(1)
            assert await verify("one") is not None
        (record,) = caplog.records
        assert (record.levelname, str(path) in record.getMessage()) == ("WARNING", True)
        caplog.clear()
    written(path, BOB)
    mock_clock.jump(1)
    assert await verify("one") is None
    assert await verify("two") is not None


async def test_a_digest_replaced_in_place_is_noticed(
    path: Path, mock_clock: MockClock
) -> None:
    verify = token_file(written(path, ALICE))
    before = path.stat()
    with path.open("r+") as file:
        file.write(ALICE.replace(digest("one"), digest("other")))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000))
    after = path.stat()
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
    mock_clock.jump(1)
    assert await verify("one") is None
    assert await verify("other") is not None


async def test_a_pipe_is_read_once_and_holds_nothing_up(
    path: Path, mock_clock: MockClock
) -> None:
    os.mkfifo(path, 0o600)
    writer = threading.Thread(target=path.write_text, args=(f"{ALICE}\n",))
    writer.start()
    verify = token_file(path)
    writer.join()
    for _ in range(3):
        mock_clock.jump(1)
        assert await verify("one") is not None


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize(
    ("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)]
)
def test_a_file_that_is_open_to_others_is_warned_of(
    path: Path, mode: int, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    token_file(written(path, ALICE, mode=mode))
    assert ["chmod 600" in record.getMessage() for record in caplog.records] == [
        True
    ] * warns


# The command line


async def test_the_command_makes_a_token_and_the_line_that_lets_it_in(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "alice", "--scope", "mcp", "--scope", "admin"]) == 0
    out, err = capsys.readouterr()
    token = out.removesuffix("\n")
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert err == f"alice {digest(token)} admin,mcp\n"
    assert await token_file(written(path, err))(token) == Principal(
        "alice", frozenset({"admin", "mcp"})
    )
    assert main(["token", "alice"]) == 0
    out, err = capsys.readouterr()
    assert err == f"alice {digest(out.strip())}\n"
    assert out.strip() != token


@pytest.mark.parametrize(
    "words", [["a b"], ["#a"], [""], ["a", "--scope", "b,c"], ["a", "--scope", 'b"']]
)
def test_what_could_not_stand_in_the_file_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_the_flag_ends_with_one_line_where_the_file_cannot_be_used(
    path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", "--http", "0", "--token-file", str(path)]) == 2
    assert (
        capfd.readouterr().err
        == f"mcp-trio: error: --token-file: cannot read {path}: No such file or directory; to make a token and its line: mcp-trio token NAME\n"
    )
    monkeypatch.setenv("MCP_TRIO_TOKEN_FILE", str(written(path, "nonsense")))
    assert main(["run", "--http", "0"]) == 2
    wanted = f"mcp-trio: error: --token-file: {path}, line 1: expected NAME SHA256-HEX [SCOPE,SCOPE], as printed by: mcp-trio token NAME\n"
    assert capfd.readouterr().err == wanted


SERVER = """
from mcp_trio import Context, Server
server = Server("of a process")

@server.tool(scopes={"admin"})
async def purge(context: Context) -> str:
    return f"purged by {context.principal.name}"
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    command, environment = (
        [sys.executable, "-m", "mcp_trio", *words],
        {**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
async def test_a_process_lets_those_in_whose_tokens_the_flag_names(
    path: Path, host: str
) -> None:
    path.with_name("server.py").write_text(SERVER)
    words = [
        "run",
        "server.py",
        "--http",
        "0",
        "--http-engine",
        host,
        "--token-file",
        str(written(path, ALICE, BOB)),
    ]
    with started(path.parent, *words) as process:
        assert process.stderr
        said = await trio.to_thread.run_sync(process.stderr.readline)
        site = Site(
            Server("elsewhere"),
            int(said.rpartition(":")[2].partition("/")[0]),
            trio.Event(),
        )
        allowed = await Bearer(site, "one").modern("tools/call", {"name": "purge"})
        assert allowed.json["result"]["content"][0]["text"] == "purged by alice"
        assert (await Bearer(site, "two").modern("tools/call", {"name": "purge"})).json[
            "error"
        ]["code"] == -32602
        assert (await Bearer(site, "three").modern("tools/list")).status == 401
        process.terminate()
        refused = "WARNING mcp_trio: refused: 127.0.0.1 (401): The token is invalid, expired or revoked\n"
        assert process.stderr.read() == refused
    assert process.returncode == 0


async def test_the_flag_takes_the_place_of_the_servers_verifier_and_leaves_the_rest(
    path: Path,
) -> None:
    async def nobody(token: str) -> None:
        """Reject every token."""

    server = Server("x", access=Access(nobody, scopes={"mcp"}))
    require_tokens(server, str(written(path, ALICE, BOB)))
    async with guarded(server, token="one") as there:
        assert (await there.modern("tools/list")).status == 200
        assert (await there.by("two").modern("tools/list")).status == 403
    with pytest.raises(UsageError, match="--token-file"):
        require_tokens(server, str(path.parent))
