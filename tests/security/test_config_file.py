"""`config --into` protects files that may have secrets, and that other programs use."""

import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from mcp_trio.cli import private_file
from mcp_trio.cli.main import main
from mcp_trio.cli.private_file import back_up, locked, replace_file

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="POSIX has permissions and symbolic links"
)


def _config(file: Path, name: str) -> int:
    words = ["config", "--http", "http://127.0.0.1:8000/mcp", "--for", "cursor"]
    return main([*words, "--into", str(file), "--name", name])


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask() -> object:
    """Set a umask without restrictions, so that the modes are those of the code."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_new_file_and_a_backup_are_private(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    assert _config(file, "one") == 0
    assert _mode(file) == 0o600
    file.chmod(0o644)
    assert _config(file, "two") == 0
    assert _mode(file) == 0o644  # as its owner has set it
    assert _mode(tmp_path / "mcp.json.bak") == 0o600


def test_the_temporary_file_is_private_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    file = tmp_path / "mcp.json"
    file.write_text("{}")
    file.chmod(0o666)
    assert _config(file, "one") == 0
    assert modes == [0o600, 0o600]


@pytest.mark.parametrize("name", ["mcp.json.bak", ".mcp.json.PID"])
def test_a_planted_symbolic_link_is_not_followed(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "mcp.json"
    file.write_text("{}")
    victim = tmp_path / "victim"
    (folder / name.replace("PID", str(os.getpid()))).symlink_to(victim)
    assert _config(file, "one") == 0
    assert not victim.exists()
    assert "one" in json.loads(file.read_text())["mcpServers"]


def test_no_entry_is_lost_when_several_run_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    names = {f"server-{number}" for number in range(12)}
    start = threading.Barrier(len(names))

    def add(name: str) -> None:
        start.wait()
        _config(file, name)

    threads = [threading.Thread(target=add, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(json.loads(file.read_text())["mcpServers"]) == names
    left = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in left if name.startswith(".")]


def test_a_lock_that_is_held_for_long_is_one_line_of_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(private_file, "LOCK_TIMEOUT", 0.0)
    file = tmp_path / "mcp.json"
    with locked(tmp_path):
        assert _config(file, "one") == 2
    expected = "another process has locked the folder for 0 s"
    assert capsys.readouterr().err.rstrip().endswith(expected)
    assert not file.exists()
    assert _config(file, "one") == 0


def test_a_failed_write_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (back_up, replace_file):
        with pytest.raises(OSError, match="No space left"):
            write(tmp_path / "file", b"content")
    assert list(tmp_path.iterdir()) == []
