"""A pytest plugin that runs traces as tests: one for each transport of each trace.

It collects the traces in the folders of the ini option `mcp_traces`. Without that
option, the plugin does nothing.

Every run of pytest imports this module, so it imports the rest of the package only when
it collects a trace.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini options."""
    parser.addini(
        "mcp_traces",
        "folders of traces (*.jsonl) of MCP conversations, to be replayed",
        "paths",
        [],
    )
    parser.addini(
        "mcp_server",
        "the server: SPEC, URL or -- COMMAND...; default: the server in each trace",
        default="",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Check the folders, and collect from them unless the command line names paths."""
    folders: list[Path] = config.getini("mcp_traces")
    for folder in folders:
        if not folder.is_file() and not any(folder.rglob("*.jsonl")):
            raise pytest.UsageError(
                f"mcp_traces: expected traces (*.jsonl), found none in {folder}"
            )
    if config.args_source is config.ArgsSource.ARGS:
        return
    collected = [config.invocation_params.dir / argument for argument in config.args]
    collected = [path.resolve() for path in collected]
    for folder in folders:
        # pytest would collect a file twice if two arguments contain it.
        if not _is_in(folder, collected):
            config.args.append(str(folder))


def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Collect a trace if it is in one of the folders."""
    if file_path.suffix != ".jsonl":
        return None
    folders: list[Path] = parent.config.getini("mcp_traces")
    if not _is_in(file_path, folders):
        return None
    return TraceFile.from_parent(parent, path=file_path)


def _is_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


class TraceFile(pytest.File):
    """One trace."""

    def collect(self) -> Iterable[pytest.Item]:
        """Return a test for each transport that the trace and the server support."""
        from ..load_spec import UsageError
        from . import format, replay, suite, targets

        try:
            trace = format.read(self.path)
            self.server = self._server() or suite.server_of(trace)
        except (UsageError, ValueError) as problem:
            raise self.CollectError(str(problem)) from None
        reachable = targets.reachable(self.server)
        return [
            TraceTest.from_parent(self, name=transport)
            for transport in replay.transports_of(trace)
            if transport in reachable
        ]

    def _server(self) -> str | list[str]:
        """Return the target in the ini option.

        A path in it is relative to the file that contains the option.
        """
        server: str = self.config.getini("mcp_server")
        if server.startswith("-- "):
            return shlex.split(server.removeprefix("-- "))
        folder = self.config.rootpath
        if self.config.inipath:
            folder = self.config.inipath.parent
        stem, suffix, rest = server.partition(".py")
        file = folder / f"{stem}{suffix}"
        if file.is_file():
            return f"{file}{rest}"
        return server


class TraceTest(pytest.Item):
    """One trace over one transport."""

    # pytest-trio reads this attribute of every item.
    obj = None

    def runtest(self) -> None:
        """Replay the trace. If it differs, fail with the report and no traceback."""
        import trio

        from . import suite
        from .format import Transport

        file = cast(TraceFile, self.parent)
        transport = cast(Transport, self.name)
        [result] = trio.run(suite.replay_all, [self.path], file.server, [transport])
        report = list(suite.report_lines(result))
        if report:
            pytest.fail("\n".join(report), pytrace=False)
