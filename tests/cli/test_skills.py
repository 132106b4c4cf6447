"""`run --skills`: a folder of skills without Python code, or in addition to a SPEC."""

import subprocess
import sys

import pytest

from mcp_trio.client.target import connect
from tests.support.command_line import ENVIRONMENT

NEWEST = "2026-07-28"
SPEC = """
from mcp_trio import Server
server = Server("beside")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change to a folder that has a folder of skills."""
    monkeypatch.chdir(tmp_path)
    skill = tmp_path / "recipes" / "tea"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(
        "---\nname: tea\ndescription: Make tea.\n---\n", encoding="utf-8"
    )
    return tmp_path


def failed(*arguments, **variables):
    """Return the error of the command."""
    done = subprocess.run(
        [sys.executable, "-m", "mcp_trio", "run", *arguments],
        env={**ENVIRONMENT, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    return done.stderr


async def test_a_folder_is_served_without_python(folder):
    command = [sys.executable, "-m", "mcp_trio", "run", "--skills", "recipes"]
    async with connect(command, NEWEST) as client:
        about = (await client.request("server/discover"))["_meta"]
        assert about["io.modelcontextprotocol/serverInfo"]["name"] == "recipes"
        result = await client.request("skills/list")
        assert [entry["uri"] for entry in result["skills"]] == ["skill://tea/SKILL.md"]
        assert await client.list_tools() == []


@pytest.mark.thorough
async def test_a_folder_is_served_beside_a_spec(folder):
    (folder / "beside.py").write_text(SPEC, encoding="utf-8")
    run = [sys.executable, "-m", "mcp_trio", "run"]
    async with connect([*run, "beside.py", "--skills", "recipes"], NEWEST) as client:
        result = await client.request("skills/list")
        assert len(result["skills"]) == 1
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


def test_what_is_wrong_is_one_line(folder):
    path = folder / "recipes" / "tea" / "SKILL.md"
    path.write_text("---\nname: tea\n  a: [\n---\n", encoding="utf-8")
    assert failed("--skills", "recipes") == (
        f"mcp-trio: error: --skills: {path}, line 3: expected valid YAML: mapping values "
        "are not allowed here\n"
    )


@pytest.mark.thorough
def test_a_folder_that_is_not_there_is_told(folder):
    expected = "mcp-trio: error: --skills: none: expected a folder of skills"
    assert failed("--skills", "none").startswith(expected)
    assert failed(MCP_TRIO_SKILLS="none").startswith(expected)


@pytest.mark.thorough
def test_pyyaml_is_asked_for_when_it_is_missing(folder):
    # A finder that does not know yaml, in the interpreter of the command.
    (folder / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'yaml' else found(name)\n",
        encoding="utf-8",
    )
    path = f"{folder}:{ENVIRONMENT['PYTHONPATH']}"
    assert failed("--skills", "recipes", PYTHONPATH=path) == (
        "mcp-trio: error: --skills needs: pip install 'mcp_trio[skills]'\n"
    )
