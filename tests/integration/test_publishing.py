"""The distributions of this project and of the example can be installed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import jsonschema
import pytest

from benchmarks.cache import cache_folder
from mcp_trio.client import connect
from tests.clients.install import Unavailable, mcpb, python_with
from tests.support.paths import PROJECT

pytestmark = [pytest.mark.integration, pytest.mark.slow]

EXAMPLE = PROJECT / "examples" / "timezones"
SECONDS = 300

SERVER = '''
from mcp_trio import Server

server = Server("sums")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


@pytest.fixture(scope="module")
def tools() -> Path:
    """Return the folder of the programs that build, check and install distributions."""
    try:
        return python_with("publishing").parent
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def bundler() -> list[str]:
    try:
        return mcpb()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def distributions(
    tools: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Return the wheel and the source distribution, by their last suffix."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECT / "mcp_trio", source / "mcp_trio", ignore=ignore)
    run([tools / "python", "-m", "build", "--no-isolation", "--outdir", "dist"], source)
    return {path.suffix: path for path in (source / "dist").iterdir()}


def test_the_distributions_pass_the_checks_of_pypi(
    tools: Path, distributions: dict[str, Path]
) -> None:
    assert sorted(distributions) == [".gz", ".whl"]
    python = tools / "python"
    run([python, "-m", "twine", "check", "--strict", *distributions.values()])
    run([python, "-m", "check_wheel_contents", distributions[".whl"]])


def test_the_wheel_has_the_package_and_its_data_only(
    distributions: dict[str, Path],
) -> None:
    names = ZipFile(distributions[".whl"]).namelist()
    rooms = {name.split("/")[0] for name in names}
    assert {name for name in rooms if not name.endswith(".dist-info")} == {"mcp_trio"}
    assert "mcp_trio/py.typed" in names
    assert "mcp_trio/console/assets/page.html" in names


async def test_uvx_serves_a_file_in_an_empty_folder(
    tools: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    uvx = [*uvx_of(tools), "--from", distributions[".whl"], "mcp-trio"]
    # The first run installs packages, which may take longer than a client waits.
    printed = run([*uvx, "call", "server.py", "add", "a=1", "b=2"], tmp_path)
    assert printed.strip() == "3"
    command = [str(part) for part in [*uvx, "run", str(tmp_path / "server.py")]]
    async with connect(command) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


async def test_the_example_is_a_package_that_uvx_runs(
    tools: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    source = tmp_path / "timezones"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    wheel = distributions[".whl"]
    command = [*uvx_of(tools), "--with", wheel, "--from", source, "timezones-mcp"]
    run([*command], source)  # ends with its input, once it is installed
    async with connect([str(part) for part in command]) as client:
        names = [tool["name"] for tool in await client.list_tools()]
        assert names == ["get_current_time", "convert_time"]


def test_the_bundle_of_the_example_is_valid(bundler: list[str], tmp_path: Path) -> None:
    source = tmp_path / "timezones"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__"))
    printed = run([*bundler, "validate", source / "manifest.json"])
    assert "Manifest schema validation passes" in printed
    bundle = tmp_path / "timezones.mcpb"
    run([*bundler, "pack", source, bundle])
    assert {"manifest.json", "pyproject.toml", "timezones.py"} <= set(
        ZipFile(bundle).namelist()
    )


def test_the_registry_accepts_the_server_json_of_the_example() -> None:
    described = read(EXAMPLE / "server.json")
    jsonschema.validate(described, read(PROJECT / "tests/data/server_json.json"))
    # The registry looks for this line in the description on PyPI.
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert f"mcp-name: {described['name']}" in readme
    assert f'"{described["name"]}"' in (EXAMPLE / "Dockerfile").read_text("utf-8")


def test_all_files_of_the_example_have_the_same_version() -> None:
    described = read(EXAMPLE / "server.json")
    version = described["version"]
    assert described["packages"][0]["version"] == version
    assert read(EXAMPLE / "manifest.json")["version"] == version
    project = (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{version}"' in project


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def uvx_of(tools: Path) -> list[object]:
    """uvx, whose downloads are kept with those of the other tests."""
    return [tools / "uvx", "--cache-dir", cache_folder() / "uv"]


def run(command: Sequence[object], folder: Path | None = None) -> str:
    """Run a program, and return its output."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
