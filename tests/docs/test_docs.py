"""README.md and docs/: their code runs, their commands print the output that they show.

Blocks run in the order of the page. All Python blocks of a page share a namespace. A
block whose first line is `# name.py` is also a file that later blocks may import and
commands may name. The text below a command is its output, with `...` for the parts that
differ between runs. Ports are replaced by free ones.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import trio
import trio.testing

from mcp_trio import Context, Server
from mcp_trio.cli.commands import COMMANDS
from mcp_trio.cli.options import Parser
from mcp_trio.client.errors import RemoteError
from mcp_trio.testing import connect
from tests.clients.install import Unavailable, python_with
from tests.support.paths import PROJECT
from tests.support.ports import free_port

REFERENCE = sorted((PROJECT / "docs" / "reference").glob("*.md"))
PAGES = [
    PROJECT / "README.md",
    *sorted((PROJECT / "docs").glob("*.md")),
    *REFERENCE,
]
LINKING = [
    *PAGES,
    *(
        PROJECT / name
        for name in (
            "CONTRIBUTING.md",
            "ROADMAP.md",
            "SECURITY.md",
            "benchmarks/README.md",
            "traces/README.md",
        )
    ),
]
PUBLIC_API = PROJECT / "tests" / "data" / "public_api.txt"
SECONDS = 60
# Characters of lines that commands draw.
COLUMNS = 100

# Commands that do not run here, each with the reason.
NOT_RUN = {
    r"python -m pip install .*": "it needs the network; CI installs the project by the same command",
    r"docker (build|run) .*": "it needs the network and a daemon",
    r"sudo .*": "it changes the machine",
    r"python -m benchmarks.*": "it takes minutes; tests/bench/test_benchmarks.py runs the harness",
    r"python -m mcp_trio replay traces/": "it takes a minute; .ci/run runs it",
    r"(uvx|twine|mcp-publisher) .*": "it needs the network; tests/integration/test_publishing.py runs uvx and twine",
    r"python -m build": "tests/integration/test_publishing.py runs it",
    r"opentelemetry-instrument .*": "it needs a collector; tests/integration/test_tracing.py runs it",
    r"npx .*": "it needs the network; tests/docs/test_examples.py runs the Inspector from its lock file",
}
# Options that make a command faster than a reader would run it.
SHORTER = {"-m mcp_trio bench": "--seconds 0.1"}
PLUGIN = "mcp_trio.trace.pytest_plugin"
# Commands that run until they are stopped.
SERVES = re.compile(
    r"-m mcp_trio (run|record)\b.* (--(http|ws|listen|console|port)\b|-p \d)"
)
# Files of the repository that commands may name.
IN_A_CLONE = ("examples", "traces", "tests")

each_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(PROJECT).with_suffix("").as_posix()
)
each_linking_page = pytest.mark.parametrize(
    "page", LINKING, ids=lambda page: page.relative_to(PROJECT).as_posix()
)


class Block(NamedTuple):
    """A fenced block: its language, its text, and its first line's number."""

    kind: str
    text: str
    line: int

    @property
    def file(self) -> str:
        """Return the file name in its first line."""
        named = re.match(r"(?:#|//|--) ([\w./-]+\.\w+)\n", self.text)
        return named[1] if named else ""


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in found
    ]


def written(block: Block, folder: Path) -> None:
    """Write a block with a file name to a file."""
    if block.file:
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")


def test_each_block_says_what_it_is() -> None:
    known = {
        "python",
        "console",
        "ini",
        "json",
        "jsonl",
        "nginx",
        "systemd",
        "dockerfile",
        "text",
        "html",
        "yaml",
    }
    assert [
        (page.name, one.line, one.kind)
        for page in PAGES
        for one in blocks(page)
        if one.kind not in known
    ] == []


# Python


@each_page
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    module = ModuleType(f"page_{page.stem}".replace("-", "_"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    try:
        for block in blocks(page):
            written(block, tmp_path)
            if block.kind == "python" and not is_not_for_here(block):
                run_python(block, module, page)
    finally:
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(
                str(tmp_path)
            ):
                del sys.modules[name]


def is_not_for_here(block: Block) -> bool:
    """Return whether a block is shown as wrong, or written for another library."""
    return block.file.startswith("broken") or bool(library_of(block))


def library_of(block: Block) -> str:
    """Return the other library that a block is written for."""
    found = (
        re.search(r"^from (mcp|fastmcp)\b", block.text, re.MULTILINE)
        if block.kind == "python"
        else None
    )
    return found[1] if found else ""


def run_python(block: Block, module: ModuleType, page: Path) -> None:
    """Run a block, with `await` at the top level, and the tests that it defines."""
    source = "\n" * block.line + block.text
    code = compile(
        source, str(page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    before = dict(vars(module))

    async def run() -> None:
        if inspect.iscoroutine(running := eval(code, vars(module))):
            await running
        for name, value in list(vars(module).items()):
            if name.startswith("test_") and before.get(name) is not value:
                await value()

    trio.run(run)


# Code for other libraries

FOREIGN = [block for page in PAGES for block in blocks(page) if library_of(block)]
# The package of each, and a program that runs a block and its tests.
REQUIREMENTS = {"mcp": "v2", "fastmcp": "fastmcp-server"}
RUNS = """
import asyncio, runpy, sys
shown = runpy.run_path(sys.argv[1])
for name, value in shown.items():
    if name.startswith("test_"):
        asyncio.run(value())
"""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    "block", FOREIGN, ids=lambda block: f"{library_of(block)}-{block.line}"
)
def test_what_is_shown_of_another_library_runs_there(
    block: Block, tmp_path: Path
) -> None:
    python = interpreter_with(library_of(block))
    file = tmp_path / "shown.py"
    file.write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [python, "-c", RUNS, file],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if "mcp.run()" in block.text:
        called: list[Any] = [*"-m mcp_trio call add a=1 b=2 --".split(), python, file]
        done = subprocess.run(
            [sys.executable, *called],
            capture_output=True,
            text=True,
            cwd=PROJECT,
            check=False,
        )
        assert done.stdout.strip() == "3", done.stderr


def interpreter_with(library: str) -> str:
    try:
        return str(python_with(REQUIREMENTS[library]))
    except Unavailable as reason:
        pytest.skip(f"cannot install {library}: {reason}")


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "server"),
    [("fastmcp", "fastmcp.FastMCP"), ("mcp", "mcp.server.mcpserver.MCPServer")],
)
def test_the_words_of_another_library_are_its_own(library: str, server: str) -> None:
    page = (PROJECT / "docs" / "migrating.md").read_text(encoding="utf-8")
    if library == "mcp":
        # Only the last table has a column for the official SDK.
        page = page.partition("## API equivalents")[2]
    rows = [
        row.split("|")
        for row in re.findall(r"^\| `mcp.*$|^\| `ctx.*$", page, re.MULTILINE)
    ]
    words = [
        re.search(r"(mcp|ctx)\.(\w+)", row[1 if library == "fastmcp" else 2])
        for row in rows
    ]
    module, _, name = server.rpartition(".")
    owners = {"mcp": name, "ctx": "Context"}
    checks = "; ".join(f"{owners[word[1]]}.{word[2]}" for word in words if word)
    code = f"from {module} import Context, {name}; {checks}"
    done = subprocess.run(
        [interpreter_with(library), "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# Commands


class Command(NamedTuple):
    """A command, and the output that is shown below it."""

    words: str
    shown: str
    line: int


def commands(block: Block) -> Iterator[Command]:
    for match in re.finditer(
        r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE
    ):
        yield Command(
            match[1].replace("\\\n", " "),
            match[2],
            block.line + 1 + block.text.count("\n", 0, match.start()),
        )


def reason_not_to_run(words: str) -> str | None:
    return next(
        (reason for pattern, reason in NOT_RUN.items() if re.fullmatch(pattern, words)),
        None,
    )


def test_what_is_not_run_is_there() -> None:
    everything = [
        one
        for page in PAGES
        for block in blocks(page)
        for one in commands(block)
        if block.kind == "console"
    ]
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command.words) for command in everything), (
            pattern
        )


@each_page
def test_every_command_can_be_read_by_a_shell(page: Path) -> None:
    for block in blocks(page):
        for command in commands(block) if block.kind == "console" else ():
            assert shlex.split(command.words, comments=True)
            done = subprocess.run(
                ["bash", "-n", "-c", command.words],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stderr == "", (page.name, command.line)


class Shell:
    """A folder with the files of a page, where its commands run in order."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._ports: dict[str, str] = {}
        self._servers: dict[str, Any] = {}
        programs = folder / ".bin"
        programs.mkdir()
        # Where the tests run in a clone that is not installed, pytest does not know the
        # plugin by itself.
        plugin = (
            ""
            if any(one.value == PLUGIN for one in entry_points(group="pytest11"))
            else f" -p {PLUGIN}"
        )
        given = {
            "python": "",
            "mcp-trio": " -m mcp_trio",
            "pytest": f" -m pytest -p no:cacheprovider{plugin}",
        }
        for name, options in given.items():
            (programs / name).write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{options} "$@"\n'
            )
            (programs / name).chmod(0o755)
        for name in IN_A_CLONE:
            (folder / name).symlink_to(PROJECT / name)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MCP_TRIO_", "PYTEST_"))
        }
        self._environment = {
            **kept,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(PROJECT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": str(COLUMNS),
        }

    def with_free_ports(self, text: str) -> str:
        """Return a text with free ports for 8000 to 8099, and the real folder."""
        return re.sub(
            r"(?<![\d.-])80\d\d\b(?!-)", lambda found: self._port(found[0]), text
        )

    def _port(self, written: str) -> str:
        if written not in self._ports:
            self._ports[written] = str(free_port())
        return self._ports[written]

    def run(self, command: Command) -> str:
        """Run a command, and return its output.

        Of a server, which does not end, only the start is checked.
        """
        words = self.with_free_ports(command.words)
        for part, shorter in SHORTER.items():
            words = words.replace(part, f"{part} {shorter}")
        if SERVES.search(words) and not command.shown.startswith("mcp-trio:"):
            return self._serve(words)
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "capture_output": True,
            "timeout": SECONDS,
        }
        done = subprocess.run(
            ["bash", "-c", words], **options, **self._here(), check=False
        )
        if done.returncode and not (command.shown and not done.stdout):
            raise AssertionError(
                f"line {command.line}: {words}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return str(done.stderr + done.stdout)

    def _here(self) -> dict[str, Any]:
        return {"cwd": self._folder, "env": self._environment, "text": True}

    def _serve(self, words: str) -> str:
        for server in [
            server for port, server in self._servers.items() if port in words
        ]:
            server.close()
        stack = self._stack.enter_context(ExitStack())
        printed = stack.enter_context(self._listening(words))
        self._servers |= {port: stack for port in self._ports.values() if port in words}
        return printed

    @contextmanager
    def _listening(self, words: str) -> Iterator[str]:
        with subprocess.Popen(
            ["bash", "-c", f"exec env {words}"],
            **self._here(),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr is not None
            printed = process.stderr.readline()
            if printed.startswith("Console") and re.search("--(http|ws)", words):
                printed += process.stderr.readline()
            if not printed.startswith(("Serving", "Recording", "Console")):
                process.terminate()
                raise AssertionError(f"{words}\n{printed}{process.stderr.read()}")
            try:
                yield printed
            finally:
                process.terminate()
            assert process.wait(SECONDS) == 0


def looks_like(printed: str, shown: str) -> bool:
    """Return whether the output matches. `...` matches anything, and on its own any
    lines.
    """
    pattern = re.escape(shown.rstrip()).replace(re.escape("..."), r"[\s\S]*?")
    return re.fullmatch(pattern, printed.rstrip()) is not None


@pytest.mark.slow
@each_page
def test_the_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path) -> None:
    if "$ curl " in page.read_text(encoding="utf-8") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with ExitStack() as stack:
        shell = Shell(tmp_path, stack)
        for block in blocks(page):
            written(block._replace(text=shell.with_free_ports(block.text)), tmp_path)
            for command in commands(block) if block.kind == "console" else ():
                if reason_not_to_run(command.words) is None:
                    printed = shell.run(command)
                    shown = shell.with_free_ports(command.shown)
                    same = not shown or looks_like(printed, shown)
                    assert same, (
                        f"{page.name}:{command.line}: shown:\n{shown}\nprinted:\n{printed}"
                    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ["", "run"])
def test_every_command_and_each_flag_of_run_is_documented(command: str) -> None:
    page = (PROJECT / "docs" / "command-line.md").read_text(encoding="utf-8")
    words = [sys.executable, "-m", "mcp_trio", *command.split(), "--help"]
    told = subprocess.run(
        words, capture_output=True, text=True, cwd=PROJECT, check=True
    ).stdout
    pattern = (
        r"^ +(?:-\w(?: [A-Z]+)?, )?(--[\w-]+)" if command else r"^  ([a-z]+)(?= |[A-Z])"
    )
    names = set(re.findall(pattern, told, re.MULTILINE)) - {"--help"}
    assert len(names) > 5
    assert {name for name in names if f"`{name}" not in page} == set()


# Messages that the text quotes


async def test_the_messages_on_the_troubleshooting_page_are_real(
    autojump_clock: trio.testing.MockClock,
) -> None:
    page = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", page)
    server = Server("troubles")

    @server.tool(name="get_weather", timeout=5)
    async def sleep() -> str:
        await trio.sleep(10)
        return ""

    @server.tool
    async def ship(ctx: Context) -> str:
        return str(await ctx.elicit("", dict[str, str]))

    async with connect(server) as client:
        said = [(await client.call_tool("get_weather")).text]
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("ship")
    said.append(caught.value.message)
    for wrong in ({"name": "ship"}, {"desc": ""}):
        with pytest.raises((TypeError, ValueError)) as refused:
            server.tool(**wrong)(sleep)  # type: ignore[call-overload]
        said.append(str(refused.value))
    assert [message for message in said if f"`{message}`" not in text] == []


# Files for other programs


@each_page
def test_the_data_of_a_page_can_be_read(page: Path, tmp_path: Path) -> None:
    readers = {
        "json": read_json,
        "jsonl": read_json_lines,
        "ini": read_ini,
        "systemd": read_unit,
    }
    readers |= {
        "dockerfile": read_dockerfile,
        "nginx": read_nginx,
        "yaml": read_workflow,
    }
    for block in blocks(page):
        if block.kind in readers:
            readers[block.kind](block, tmp_path)


def read_json(block: Block, folder: Path) -> None:
    json.loads(re.sub(r"\A//.*\n", "", block.text))


def read_json_lines(block: Block, folder: Path) -> None:
    assert all(json.loads(line) for line in block.text.splitlines())


def read_ini(block: Block, folder: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(block.text)
    assert parser.sections()


def read_unit(block: Block, folder: Path) -> None:
    read_ini(block, folder)
    unit = folder / Path(block.file).name
    unit.write_text(
        re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", block.text),
        encoding="utf-8",
    )
    if shutil.which("systemd-analyze"):
        command = ["systemd-analyze", "verify", "--man=no", str(unit)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def read_workflow(block: Block, folder: Path) -> None:
    """Check that the commands of this program in a workflow, if any, can be read."""
    assert "\t" not in block.text
    commands = re.findall(r"uvx mcp-trio (.+)", block.text)
    for words in commands:
        name, *given = shlex.split(words)
        end = given.index("--") if "--" in given else len(given)
        parser = Parser(prog=name)
        COMMANDS[name].add_arguments(parser)
        parser.parse_intermixed_args(given[:end])


INSTRUCTIONS = "FROM RUN COPY WORKDIR ENV EXPOSE USER CMD ENTRYPOINT HEALTHCHECK ARG LABEL VOLUME ADD".split()


def read_dockerfile(block: Block, folder: Path) -> None:
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", block.text)).splitlines()
    assert lines[0].startswith("FROM ")
    for word, _, rest in [line.partition(" ") for line in lines if line]:
        assert word in INSTRUCTIONS
        assert rest
        if word in ("CMD", "ENTRYPOINT"):
            assert all(isinstance(part, str) for part in json.loads(rest))


def read_nginx(block: Block, folder: Path) -> None:
    assert block.text.count("{") == block.text.count("}")
    if shutil.which("nginx") is None:
        return
    places = "".join(
        f"{name}_temp_path {folder}; "
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # The certificate of the page is not here, and the port that it names may belong to
    # others.
    text = re.sub(r"(?m)^\s*ssl_certificate.*\n", "", block.text).replace(
        "443 ssl", "127.0.0.1:0"
    )
    text = re.sub(r"listen 127.0.0.1:0", "listen 127.0.0.1:8443", text)
    config = folder / "nginx.conf"
    config.write_text(
        f"pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {places}\n{text}}}\n"
    )
    command = ["nginx", "-t", "-q", "-c", str(config), "-e", "stderr"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# The reference


def public_names() -> list[str]:
    """Return the names in the list of the public API, with their modules."""
    names = []
    for line in PUBLIC_API.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            module = line.removeprefix("# ")
        elif named := re.match(r"(?:@\w+ )?(?:async )?(?:class |def )?(\w+)", line):
            names.append(f"{module}.{named[1]}")
    return sorted(set(names))


def sections(page: Path) -> Iterator[tuple[str, str]]:
    """Yield each name of the API that a page describes, with the text about it."""
    text = page.read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        for name in re.findall(r"^::: (\S+)$", section, re.MULTILINE):
            yield name, section


def test_each_public_name_is_described_with_an_example() -> None:
    described = {}
    for page in REFERENCE:
        described.update(sections(page))
    examples = {
        name: "".join(re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S))
        for name, section in described.items()
    }
    assert [name for name in public_names() if name not in described] == []
    without = [
        name
        for name in public_names()
        if not re.search(rf"\b{name.rpartition('.')[2]}\b|@server", examples[name])
    ]
    assert without == []


def test_what_the_reference_describes_exists() -> None:
    for page in REFERENCE:
        for name, _ in sections(page):
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name


# Links


def slug(heading: str) -> str:
    """Return the anchor of a heading."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def prose(page: Path) -> str:
    """Return the text of a page without its code."""
    text = re.sub(
        r"^```.*?^```$",
        "",
        page.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: Path) -> set[str]:
    text = re.sub(
        r"^```.*?^```$",
        "",
        page.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@each_linking_page
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            url = urlsplit(target)
            assert (url.scheme, bool(url.hostname)) == ("https", True), target
            continue
        name, _, anchor = target.partition("#")
        leads_to = (page.parent / name).resolve() if name else page
        assert leads_to.exists(), target
        assert leads_to.is_relative_to(PROJECT), target
        assert not anchor or anchor in anchors(leads_to), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, pending = set(), [PROJECT / "README.md"]
    while pending:
        page = pending.pop()
        if page not in reached and page.suffix == ".md" and page.exists():
            reached.add(page)
            pending += [
                (page.parent / name).resolve()
                for name in re.findall(r"\]\(([^)#\s:]+)", prose(page))
            ]
    assert [page.name for page in PAGES if page not in reached] == []
