"""A token file that is rewritten in place rejects nobody during the write."""

import logging
import os
from hashlib import sha256
from pathlib import Path

import pytest
import trio.testing

from mcp_trio.auth.token_file import CHECK_INTERVAL, token_file


def _line(name: str, token: str) -> str:
    return f"{name} {sha256(token.encode()).hexdigest()}\n"


def _write(path: Path, text: str) -> None:
    """Write in place, and change the modification time."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    path.chmod(0o600)
    os.utime(path, ns=(before + 10**9, before + 10**9))


async def _name(
    verify: token_file, token: str, clock: trio.testing.MockClock
) -> str | None:
    clock.jump(CHECK_INTERVAL)
    principal = await verify(token)
    return None if principal is None else principal.name


@pytest.mark.parametrize("in_between", ["", "\n \n", "somebody 1234"])
async def test_the_last_good_content_holds_while_a_file_is_rewritten(
    tmp_path: Path,
    in_between: str,
    mock_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "tokens"
    _write(path, _line("one", "first"))
    verify = token_file(path)
    assert await _name(verify, "first", mock_clock) == "one"
    _write(path, in_between)
    with caplog.at_level(logging.WARNING, "mcp_trio"):
        for _ in range(2):
            assert await _name(verify, "first", mock_clock) == "one"
    (message,) = caplog.messages
    assert message.endswith("the tokens read before remain valid")
    _write(path, _line("two", "second"))
    assert await _name(verify, "second", mock_clock) == "two"
    assert await _name(verify, "first", mock_clock) is None


async def test_a_file_with_only_a_comment_revokes_every_token(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "tokens"
    _write(path, _line("one", "first"))
    verify = token_file(path)
    _write(path, "# nobody\n")
    assert await _name(verify, "first", mock_clock) is None


async def test_a_file_that_is_empty_at_the_start_lets_nobody_in(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "tokens"
    _write(path, "")
    verify = token_file(path)
    assert await _name(verify, "first", mock_clock) is None
    _write(path, _line("one", "first"))
    assert await _name(verify, "first", mock_clock) == "one"
