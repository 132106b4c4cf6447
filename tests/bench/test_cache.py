"""Downloads and builds are kept in the user's cache folder, never in the clone."""

from pathlib import Path

import pytest

from benchmarks.cache import cache_folder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MCP_TRIO_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    return tmp_path


def test_the_default_is_in_the_home_folder(home: Path) -> None:
    assert cache_folder() == home / ".cache" / "mcp_trio"


def test_xdg_cache_home_is_honored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    assert cache_folder() == home / "elsewhere" / "mcp_trio"


def test_a_relative_xdg_cache_home_is_ignored(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == home / ".cache" / "mcp_trio"


def test_mcp_trio_cache_takes_precedence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "elsewhere"))
    monkeypatch.setenv("MCP_TRIO_CACHE", str(home / "chosen"))
    assert cache_folder() == home / "chosen"
