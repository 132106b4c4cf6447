"""A folder with a server, and commands run in it."""

import os
import sys

import pytest

from mcp_trio.cli.main import main
from tests.support.command_line import ROOT, SERVER


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a server in `server.py`."""
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    return tmp_path


@pytest.fixture
def here(folder, monkeypatch, capfd):
    """Run a command in this process. Returns its exit code and its output."""
    for variable in [name for name in os.environ if name.startswith("MCP_TRIO_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def run_here(*arguments):
        try:
            code = main(arguments)
        except SystemExit as left:
            code = left.code
        out, err = capfd.readouterr()
        return code, out.replace("written at import\n", ""), err

    yield run_here
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
