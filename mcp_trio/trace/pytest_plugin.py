"""A pytest plugin: each trace in the folders of the ini option `mcp_traces` is a test on each of its transports.

Without that option it does nothing. What is imported here is imported by each run of pytest.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """The ini options."""
    parser.addini(
        "mcp_traces",
        "folders of traces (*.jsonl) of MCP conversations, to be replayed",
        "paths",
        [],
    )
    parser.addini(
        "mcp_server",
        "the server: SPEC, URL or -- COMMAND...; default: what each trace names",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Where the command line does not say what to test, the traces are tested too."""
    for folder in config.getini("mcp_traces"):
        if not folder.is_file() and not any(folder.rglob("*.jsonl")):
            raise pytest.UsageError(
                f"mcp_traces: there are no traces (*.jsonl) in {folder}"
            )
    if config.args_source is not config.ArgsSource.ARGS:
        named = [
            (config.invocation_params.dir / argument).resolve()
            for argument in config.args
        ]
        folders = [
            folder
            for folder in config.getini("mcp_traces")
            if not _is_in(folder, named)
        ]
        config.args += map(str, folders)


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """A trace in one of the folders."""
    if file_path.suffix == ".jsonl" and _is_in(
        file_path, parent.config.getini("mcp_traces")
    ):
        return TraceFile.from_parent(parent, path=file_path)
    return None


class TraceFile(pytest.File):
    """One trace."""

    def collect(self) -> Iterable[pytest.Item]:
        """A test for each of its transports that lead to the server."""
        from ..load_spec import UsageError
        from . import format, replay
        from . import suite as runs
        from . import targets as hosts

        try:
            trace = format.read(self.path)
            self.server = self._server() or runs.server_of(trace)
        except (UsageError, ValueError) as problem:
            raise self.CollectError(str(problem)) from None
        over = [
            one for one in replay.holds_on(trace) if one in hosts.reachable(self.server)
        ]
        return [TraceTest.from_parent(self, name=one) for one in over]

    def _server(self) -> str | list[str]:
        """The ini option; a file is looked for beside the file that has it."""
        server: str = self.config.getini("mcp_server")
        if server.startswith("-- "):
            return shlex.split(server.removeprefix("-- "))
        folder = (
            self.config.inipath.parent if self.config.inipath else self.config.rootpath
        )
        name, suffix, rest = server.partition(".py")
        file = folder / f"{name}{suffix}"
        return f"{file}{rest}" if file.is_file() else server


class TraceTest(pytest.Item):
    """One trace on one transport."""

    obj = None  # pytest-trio looks at that of each item

    def runtest(self) -> None:
        """Replay it; what differs is told without the way here."""
        import trio

        from . import suite as runs

        test: Any = self
        [result] = trio.run(
            runs.replay_all, [self.path], test.parent.server, [test.name]
        )
        if told := list(runs.told(result)):
            pytest.fail("\n".join(told), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is."""
        return self.path, None, f"{self.path.name} over {self.name}"
