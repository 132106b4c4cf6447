"""The command config adds a server to a host's file and keeps the rest of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import PATIENCE, ROOT, request

FILE = "from mcp_trio import Server\nserver = Server('my server')\n@server.tool\nasync def f() -> str:\n    return 'a'\n"


@pytest.fixture
def place(folder, monkeypatch):
    """Change to a folder that has a server."""
    monkeypatch.chdir(folder)
    (folder / "server.py").write_text(FILE, encoding="utf-8")
    return folder


@pytest.fixture
def config(here, place, monkeypatch):
    """Run the command, which must succeed, and return its output."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def run(*arguments):
        code, out, err = here("config", *arguments)
        assert (code, err) == (0, "")
        return out

    return run


def started(spec, **besides):
    return {
        **besides,
        "command": sys.executable,
        "args": ["-m", "mcp_trio", "run", str(spec)],
    }


# What is printed

URL = "http://127.0.0.1:8000/mcp"
TO_START = {
    "claude-desktop": ("mcpServers", {}),
    "claude-code": ("mcpServers", {"type": "stdio"}),
    "cursor": ("mcpServers", {"type": "stdio"}),
    "vscode": ("servers", {"type": "stdio"}),
    "windsurf": ("mcpServers", {}),
}
TO_REACH = {
    "claude-code": ("mcpServers", {"type": "http", "url": URL}),
    "cursor": ("mcpServers", {"url": URL}),
    "vscode": ("servers", {"type": "http", "url": URL}),
    "windsurf": ("mcpServers", {"serverUrl": URL}),
}


@pytest.mark.parametrize("host", TO_START)
def test_each_host_gets_the_command_in_its_own_format(config, place, host):
    key, besides = TO_START[host]
    entry = started(place / "server.py", **besides)
    assert json.loads(config("server.py", "--for", host)) == {key: {"my-server": entry}}


@pytest.mark.parametrize("host", TO_REACH)
def test_each_host_gets_the_url_in_its_own_format(config, host):
    key, entry = TO_REACH[host]
    assert json.loads(config("--http", URL, "--name", "there", "--for", host)) == {
        key: {"there": entry}
    }


def test_the_server_names_itself_also_where_it_is_reached_by_a_url(config):
    assert list(
        json.loads(config("server.py", "--http", URL, "--for", "cursor"))["mcpServers"]
    ) == ["my-server"]


def test_without_a_spec_the_demo_is_configured(config):
    ((_, entry),) = json.loads(config())["mcpServers"].items()
    assert entry["args"] == ["-m", "mcp_trio", "run"]


def test_a_module_of_this_folder_is_found_from_elsewhere(config, place):
    (place / "configured.py").write_text(FILE, encoding="utf-8")
    entry = json.loads(config("configured:server"))["mcpServers"]["my-server"]
    assert entry == started("configured:server", env={"PYTHONPATH": str(place)})


@pytest.mark.thorough
def test_the_entry_starts_the_server_from_anywhere(here, place, tmp_path_factory):
    (place / "configured.py").write_text(FILE, encoding="utf-8")
    for spec in ("configured.py:server", "configured"):
        entry = json.loads(here("config", spec)[1])["mcpServers"]["my-server"]
        done = subprocess.run(
            [entry["command"], *entry["args"]],
            input=request(1, "tools/list"),
            cwd=tmp_path_factory.getbasetemp(),
            env={"PATH": os.environ["PATH"], **entry["env"]},
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        assert [
            tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]
        ] == ["f"]
    assert str(ROOT) in entry["env"]["PYTHONPATH"]


# A host's file


def files(folder):
    return {path.name for path in folder.iterdir() if path.name != "server.py"}


@pytest.mark.parametrize(
    ("file", "key"),
    [
        (".vscode/mcp.json", "servers"),
        (".cursor/mcp.json", "mcpServers"),
        ("x.json", "mcpServers"),
    ],
)
def test_a_file_that_is_not_there_is_made_as_its_name_wants_it(
    config, place, file, key
):
    assert config("server.py", "--into", file) == f"added 'my-server' to {file}\n"
    text = (place / file).read_text()
    assert text.endswith("}\n")
    assert list(json.loads(text)) == [key]


THERE = {
    "theme": "dark",
    "mcpServers": {"other": {"command": "é", "env": {"N": "1"}}},
    "size": 1.5,
}
MANNERS = {
    "two blanks": json.dumps(THERE, indent=2, ensure_ascii=False) + "\n",
    "four blanks": json.dumps(THERE, indent=4, ensure_ascii=False),
    "tabs": json.dumps(THERE, indent="\t", ensure_ascii=False) + "\n",
    "Windows": (json.dumps(THERE, indent=2, ensure_ascii=False) + "\n").replace(
        "\n", "\r\n"
    ),
    "a mark": "\ufeff" + json.dumps(THERE, indent=2, ensure_ascii=False),
    "one line": json.dumps(THERE, ensure_ascii=False) + "\n",
}


@pytest.mark.parametrize("text", MANNERS.values(), ids=MANNERS)
def test_what_is_there_is_kept_and_so_is_its_layout(config, place, text):
    path = place / "host.json"
    path.write_bytes(text.encode())
    path.chmod(0o640)
    told = config("server.py", "--into", "host.json")
    assert (
        told == f"added 'my-server' to host.json; backup: {place / 'host.json.bak'}\n"
    )
    assert (place / "host.json.bak").read_bytes() == text.encode()
    assert files(place) == {"host.json", "host.json.bak"}
    assert path.stat().st_mode & 0o777 == 0o640
    written = path.read_bytes().decode()
    found = json.loads(written.removeprefix("\ufeff"))
    assert found["mcpServers"].pop("my-server") == started(place / "server.py")
    assert list(found.items()) == list(THERE.items())
    assert written.startswith(text[: text.index('"other"')])
    assert written.endswith(text[text.index('"size"') :])


def test_a_second_time_changes_nothing(config, place):
    config("server.py", "--into", "host.json")
    before = (place / "host.json").stat()
    assert (
        config("server.py", "--into", "host.json")
        == "host.json already has 'my-server'\n"
    )
    assert (place / "host.json").stat() == before
    assert files(place) == {"host.json"}


def test_another_entry_of_the_same_name_is_replaced_on_request(config, here, place):
    path = place / "host.json"
    path.write_text(
        before := '{"mcpServers": {"my-server": {"command": "x"}, "b": {}}}'
    )
    code, out, err = here("config", "server.py", "--into", "host.json")
    assert (code, out, path.read_text(), files(place)) == (2, "", before, {"host.json"})
    assert (
        "already has a different 'my-server'; replace it with --force, or choose another"
        in err
    )
    config("server.py", "--into", "host.json", "--force")
    assert list(json.loads(path.read_text())["mcpServers"].items()) == [
        ("my-server", started(place / "server.py")),
        ("b", {}),
    ]


def test_earlier_backups_are_kept(config, place):
    (place / "host.json").write_text("{}")
    for name in ("a", "b", "c"):
        config("server.py", "--into", "host.json", "--name", name)
    assert files(place) == {
        "host.json",
        "host.json.bak",
        "host.json.bak1",
        "host.json.bak2",
    }
    assert (place / "host.json.bak").read_text() == "{}"


def test_a_link_stays_a_link(config, place):
    (place / "real").mkdir()
    (place / "real" / "host.json").write_text("{}")
    (place / "host.json").symlink_to(Path("real") / "host.json")
    config("server.py", "--into", "host.json")
    assert (place / "host.json").is_symlink()
    assert "my-server" in (place / "real" / "host.json").read_text()


@pytest.mark.parametrize("text", ["", " \n", "{}", '{"mcpServers": {}}'])
def test_an_empty_file_is_filled(config, place, text):
    (place / "host.json").write_text(text)
    config("server.py", "--into", "host.json")
    assert json.loads((place / "host.json").read_text()) == {
        "mcpServers": {"my-server": started(place / "server.py")}
    }


# Mistakes

WRONG_FILES = {
    "comments": (
        '{\n  // mine\n  "mcpServers": {}\n}',
        "comments and trailing commas would be lost",
    ),
    "a comment behind": (
        '{"mcpServers": {} // mine\n}',
        "comments and trailing commas would be lost",
    ),
    "a trailing comma": (
        '{"mcpServers": {},}',
        "comments and trailing commas would be lost",
    ),
    "no JSON": ("hello", "it is not valid JSON (Expecting value: line 1"),
    "too deep": ("[" * 100_000, "it is not valid JSON"),
    "no object": ("[]", "expected a JSON object"),
    "a list of servers": (
        '{"mcpServers": []}',
        "expected 'mcpServers' to be an object",
    ),
    "names twice": ('{"mcpServers": {"a": 1, "a": 2}}', "the same name twice"),
    "another host's": (
        '{"servers": {}}',
        "expected the key 'mcpServers', found 'servers': it belongs to another host; try --for vscode",
    ),
    "not text": (b"\xff\xfe{}", "expected JSON in UTF-8"),
}


@pytest.mark.parametrize(("text", "says"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_a_file_that_cannot_be_added_to_is_left_as_it_is(here, place, text, says):
    path = place / "host.json"
    path.write_bytes(content := text if isinstance(text, bytes) else text.encode())
    code, out, err = here("config", "server.py", "--into", "host.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert "host.json" in err
    assert (path.read_bytes(), files(place)) == (content, {"host.json"})


MISTAKES = {
    "no such host": (
        "server.py --for cursur",
        "cursor, vscode, windsurf, got 'cursur' (did you mean cursor?)",
    ),
    "no such file": ("nothing.py", "nothing.py does not exist"),
    "no server": ("empty.py", "has no Server object"),
    "a URL in place of a SPEC": (
        URL,
        f"got a URL; run: mcp-trio config --http {URL} --name NAME",
    ),
    "no URL": (
        "--http 8000 --for cursor",
        "--http: expected a URL such as http://127.0.0.1:8000/mcp, got '8000'",
    ),
    "a URL where none may be": (
        f"--http {URL}",
        "the file of claude-desktop does not support URLs",
    ),
    "a URL without a name": (
        f"--http {URL} --for cursor",
        "config: expected --name NAME",
    ),
    "a folder": ("server.py --into .", "cannot be read: Is a directory"),
    "a folder that is not there": (
        "server.py --into a/b/c.json",
        "a/b/c.json cannot be written: No such file",
    ),
    "a command": ("-- npx server", "config: expected a SPEC, got a command"),
}


@pytest.mark.parametrize(("line", "says"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_in_one_line_and_writes_nothing(here, place, line, says):
    (place / "empty.py").write_text("")
    code, out, err = here("config", *line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert files(place) == {"empty.py"}


@pytest.mark.skipif(os.name != "posix", reason="pipes with a name are POSIX's")
def test_a_path_that_is_not_a_file_is_neither_read_nor_replaced(here, place):
    os.mkfifo(place / "host.json")
    code, out, err = here("config", "server.py", "--into", "host.json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "host.json: expected a file, got a pipe or a device" in err
    assert (place / "host.json").is_fifo()
    assert files(place) == {"host.json"}


def test_a_file_that_is_read_only_stays_as_it_is(here, place, monkeypatch):
    (place / "host.json").write_text("{}")
    (place / "host.json").chmod(0o400)
    monkeypatch.setattr(
        os, "access", lambda path, mode: bool(os.stat(path).st_mode & 0o200)
    )  # root may write all
    code, out, err = here("config", "server.py", "--into", "host.json")
    assert (code, out, err) == (
        2,
        "",
        f"mcp-trio: error: {place / 'host.json'} is read-only; it was not changed\n",
    )
    assert ((place / "host.json").read_text(), files(place)) == ("{}", {"host.json"})


def test_a_disk_that_is_full_leaves_the_file_as_it_was(here, place, monkeypatch):
    (place / "host.json").write_text("{}")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = here("config", "server.py", "--into", "host.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "can be written: No space left on device" in err
    assert (place / "host.json").read_text() == "{}"
    assert files(place) == {"host.json"}


# Environment variables


def test_environment_variables_are_part_of_the_entry(config, place):
    out = config("server.py", "--env", "API_KEY=a=b", "--env", "REGION=")
    entry = json.loads(out)["mcpServers"]["my-server"]
    assert entry == started(place / "server.py", env={"API_KEY": "a=b", "REGION": ""})


def test_environment_variables_are_added_to_the_import_path(config, place):
    (place / "configured.py").write_text(FILE, encoding="utf-8")
    entry = json.loads(config("configured", "--env", "REGION=eu"))["mcpServers"]
    assert entry["my-server"]["env"] == {"PYTHONPATH": str(place), "REGION": "eu"}


def test_an_environment_variable_that_is_given_wins(config, place):
    (place / "configured.py").write_text(FILE, encoding="utf-8")
    entry = json.loads(config("configured", "--env", "PYTHONPATH=/srv"))["mcpServers"]
    assert entry["my-server"]["env"] == {"PYTHONPATH": "/srv"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("server.py --env API_KEY", "--env: expected KEY=VALUE, got 'API_KEY'"),
        ("server.py --env =secret", "--env: expected KEY=VALUE, got ''"),
        ("server.py --env A-B=secret", "--env: expected KEY=VALUE, got 'A-B'"),
        (
            f"--http {URL} --name a --for cursor --env A=secret",
            "--env: cannot be combined with --http",
        ),
    ],
)
def test_a_wrong_environment_variable_is_an_error_that_hides_the_value(
    here, place, line, says
):
    code, out, err = here("config", *line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"mcp-trio: error: {says}" in err
    assert "secret" not in err


def test_a_server_started_by_its_entry_has_the_environment_variables(here, place):
    text = FILE.replace("return 'a'", "import os\n    return os.environ['GREETING']")
    (place / "server.py").write_text(text, encoding="utf-8")
    out = here("config", "server.py", "--env", "GREETING=hello there")[1]
    entry = json.loads(out)["mcpServers"]["my-server"]
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=request(1, "tools/call", name="f", arguments={}),
        env={"PATH": os.environ["PATH"], **entry["env"]},
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    result = json.loads(done.stdout)["result"]
    assert result["content"][0]["text"] == "hello there"
