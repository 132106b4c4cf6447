"""Folders of skills, as read and as seen by clients. All messages are checked."""

from __future__ import annotations

import hashlib
import os
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from mcp_trio import Server
from mcp_trio.cli.reload import Reloader
from mcp_trio.client.client import Client
from mcp_trio.client.errors import RemoteError
from mcp_trio.extensions.skills import SkillError
from tests.support.checked import ALL, MODERN, NEWEST, OPENING, connect
from tests.support.command_line import ENVIRONMENT

Json = dict[str, Any]
SKILLS = "io.modelcontextprotocol/skills"
DECLARED: Json = {"extensions": {SKILLS: {}}}
on_posix = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no such files"
)


def write_skill(folder: Path, name: str, more: str = "", body: str = "Body.\n") -> Path:
    """Write a skill, and return its folder."""
    skill = folder / name
    skill.mkdir(parents=True, exist_ok=True)
    text = (
        f"---\nname: {skill.name}\ndescription: What {name} does.\n{more}---\n\n{body}"
    )
    (skill / "SKILL.md").write_text(text, encoding="utf-8", newline="")
    return skill


def serving(folder: Path, **options: Any) -> Server[Any]:
    server = Server("skilled", **options)
    server.skills(folder)
    return server


async def listed(client: Client) -> list[Json]:
    found: list[Json] = (await client.request("skills/list"))["skills"]
    return found


async def directory(client: Client, uri: str) -> list[tuple[str, str]]:
    result = await client.request("resources/directory/read", {"uri": uri})
    return [(item["uri"], item["mimeType"]) for item in result["resources"]]


async def code_of(client: Client, method: str, **params: Any) -> int:
    with pytest.raises(RemoteError) as refused:
        await client.request(method, params)
    return refused.value.code


# What clients see


@pytest.mark.parametrize("revision", ALL)
async def test_every_file_can_be_verified_by_the_entry(
    revision: str, tmp_path: Path
) -> None:
    skill = write_skill(tmp_path, "tea")
    (skill / "data").mkdir()
    files = {
        "SKILL.md": (skill / "SKILL.md").read_bytes(),
        "data/windows.txt": b"\xef\xbb\xbfone\r\ntwo\r\n",
        "data/terminal.log": b"\x1b[31mred\x1b[0m",
        "data/bytes.bin": bytes(range(256)),
        "data/empty.md": b"",
        "data/ä b#c?.md": "grün\u202e".encode(),
    }
    for name, data in files.items():
        (skill / name).write_bytes(data)
    async with connect(serving(tmp_path), revision, capabilities=DECLARED) as client:
        (entry,) = await listed(client)
        read = {}
        for resource in entry["resources"]:
            (contents,) = await client.read_resource(resource["uri"])
            if "blob" in contents:
                data = b64decode(contents["blob"])
            else:
                data = contents["text"].encode()
            assert len(data) == resource["size"]
            digest = hashlib.sha256(data).hexdigest()
            assert resource["digest"] == f"sha256:{digest}"
            read[resource["uri"]] = data
    assert read.keys() == {
        "skill://tea/SKILL.md",
        "skill://tea/data/windows.txt",
        "skill://tea/data/terminal.log",
        "skill://tea/data/bytes.bin",
        "skill://tea/data/empty.md",
        "skill://tea/data/%C3%A4%20b%23c%3F.md",
    }
    assert sorted(read.values()) == sorted(files.values())


@pytest.mark.parametrize("revision", MODERN)
async def test_the_server_says_that_it_has_skills(
    revision: str, tmp_path: Path
) -> None:
    write_skill(tmp_path, "tea")
    async with connect(serving(tmp_path), revision) as client:
        capabilities = (await client.request("server/discover"))["capabilities"]
    assert capabilities["extensions"] == {SKILLS: {"directoryRead": True}}
    assert "resources" in capabilities


@pytest.mark.parametrize("revision", ALL)
async def test_a_client_need_not_declare_the_extension(
    revision: str, tmp_path: Path
) -> None:
    write_skill(tmp_path, "tea")
    async with connect(serving(tmp_path), revision) as client:
        assert [entry["uri"] for entry in await listed(client)] == [
            "skill://tea/SKILL.md"
        ]


@pytest.mark.parametrize("revision", ALL)
async def test_a_server_without_skills_has_no_such_methods(revision: str) -> None:
    async with connect(Server("plain"), revision, capabilities=DECLARED) as client:
        for method in ("skills/list", "skills/get", "resources/directory/read"):
            assert await code_of(client, method, uri="a") == -32601


async def test_a_nested_skill_is_listed_and_belongs_to_the_outer_one(
    tmp_path: Path,
) -> None:
    write_skill(tmp_path, "acme/billing/refunds/chargebacks")
    write_skill(tmp_path, "acme/billing/refunds")
    outer = "skill://acme/billing/refunds"
    async with connect(serving(tmp_path), NEWEST) as client:
        files = {
            entry["uri"]: [resource["uri"] for resource in entry["resources"]]
            for entry in await listed(client)
        }
    inner = f"{outer}/chargebacks/SKILL.md"
    assert files == {
        f"{outer}/SKILL.md": [f"{outer}/SKILL.md", inner],
        inner: [inner],
    }


async def test_a_folder_that_is_a_skill_is_served_by_its_name(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "tea")
    async with connect(serving(skill), NEWEST) as client:
        assert [entry["uri"] for entry in await listed(client)] == [
            "skill://tea/SKILL.md"
        ]
        assert await directory(client, "skill://tea") == [
            ("skill://tea/SKILL.md", "text/markdown")
        ]


async def test_hidden_files_and_caches_are_not_part_of_a_skill(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "tea")
    for name in (".git", "__pycache__"):
        (skill / name).mkdir()
        (skill / name / "file").write_text("", encoding="utf-8")
    (skill / ".env").write_text("SECRET=1", encoding="utf-8")
    async with connect(serving(tmp_path), NEWEST) as client:
        (entry,) = await listed(client)
        assert len(entry["resources"]) == 1
        assert await code_of(client, "resources/read", uri="skill://tea/.env") == -32602


@pytest.mark.parametrize("revision", [name for name in ALL if name != ALL[0]])
async def test_lists_have_pages(revision: str, tmp_path: Path) -> None:
    for number in range(5):
        skill = write_skill(tmp_path, f"skill-{number}")
        (skill / "a.md").write_text("", encoding="utf-8")
        (skill / "b.md").write_text("", encoding="utf-8")
    server = serving(tmp_path, pages=2)
    async with connect(server, revision) as client:
        first = await client.request("skills/list")
        assert [entry["uri"][-17:] for entry in first["skills"]] == [
            "/skill-0/SKILL.md",
            "/skill-1/SKILL.md",
        ]
        second = await client.request("skills/list", {"cursor": first["nextCursor"]})
        third = await client.request("skills/list", {"cursor": second["nextCursor"]})
        assert [entry["uri"] for entry in third["skills"]] == [
            "skill://skill-4/SKILL.md"
        ]
        assert "nextCursor" not in third
        params = {"uri": "skill://skill-0"}
        children = await client.request("resources/directory/read", params)
        assert len(children["resources"]) == 2
        params["cursor"] = children["nextCursor"]
        children = await client.request("resources/directory/read", params)
        assert len(children["resources"]) == 1
        assert "nextCursor" not in children
        assert await code_of(client, "skills/list", cursor="x") == -32602


async def test_a_directory_has_what_is_directly_in_it(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "acme/tea")
    (skill / "green").mkdir()
    (skill / "green" / "deep").mkdir()
    (skill / "green" / "sencha.md").write_text("", encoding="utf-8")
    async with connect(serving(tmp_path), NEWEST) as client:
        assert await directory(client, "skill://acme") == [
            ("skill://acme/tea", "inode/directory")
        ]
        assert await directory(client, "skill://acme/tea") == [
            ("skill://acme/tea/SKILL.md", "text/markdown"),
            ("skill://acme/tea/green", "inode/directory"),
        ]
        assert await directory(client, "skill://acme/tea/green") == [
            ("skill://acme/tea/green/deep", "inode/directory"),
            ("skill://acme/tea/green/sencha.md", "text/markdown"),
        ]
        assert await directory(client, "skill://acme/tea/green/deep") == []
        for uri in ("skill://", "skill://acme/", "skill://none", "tea", ""):
            assert await code_of(client, "resources/directory/read", uri=uri) == -32602


async def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    write_skill(tmp_path, "tea")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    async with connect(serving(tmp_path), OPENING[-1]) as client:
        assert (
            await code_of(client, "skills/get", uri="skill://none/SKILL.md") == -32602
        )
        assert await code_of(client, "skills/get", uri="skill://tea") == -32602
        for uri in (
            "skill://secret.txt",
            "skill://tea/../secret.txt",
            "skill://tea/%2e%2e/secret.txt",
            "skill:///etc/passwd",
            "skill://tea",
        ):
            assert await code_of(client, "resources/read", uri=uri) == -32002
            assert await code_of(client, "resources/subscribe", uri=uri) == -32002
        await client.request("resources/subscribe", {"uri": "skill://tea/SKILL.md"})


async def test_other_templates_with_the_same_scheme_are_served_too(
    tmp_path: Path,
) -> None:
    write_skill(tmp_path, "tea")
    server = serving(tmp_path)

    @server.resource("skill://made/{name}")
    async def made(name: str) -> str:
        return name

    async with connect(server, NEWEST) as client:
        assert (await client.read_resource("skill://made/up"))[0]["text"] == "up"


async def test_several_folders_are_served_together(tmp_path: Path) -> None:
    write_skill(tmp_path / "a", "tea")
    write_skill(tmp_path / "b", "coffee")
    server = serving(tmp_path / "a")
    server.skills(str(tmp_path / "b"))
    async with connect(server, NEWEST) as client:
        names = [entry["frontmatter"]["name"] for entry in await listed(client)]
    assert names == ["tea", "coffee"]


# Frontmatter


async def test_frontmatter_is_what_yaml_1_2_says(tmp_path: Path) -> None:
    more = (
        "license: MIT\n"
        "metadata:\n"
        "  date: 2026-01-05\n"
        "  on: yes\n"
        "  answers: [true, False, null, ~, ]\n"
        "  numbers: [1, -2, 010, 0x1F, 0o17, 1.50, 1e3, .5, 1_000, 12:30]\n"
        "  quoted: ['1', \"true\", !!str 2]\n"
        "  text: |\n"
        "    two\n"
        "    lines\n"
        "  again: &shared {a: 1}\n"
        "  twice: *shared\n"
        "  empty:\n"
        "  <<: merged\n"
    )
    write_skill(tmp_path, "tea", more)
    async with connect(serving(tmp_path), NEWEST) as client:
        (entry,) = await listed(client)
    assert entry["frontmatter"] == {
        "name": "tea",
        "description": "What tea does.",
        "license": "MIT",
        "metadata": {
            "date": "2026-01-05",
            "on": "yes",
            "answers": [True, False, None, None],
            "numbers": [1, -2, 10, 31, 15, 1.5, 1000.0, 0.5, "1_000", "12:30"],
            "quoted": ["1", "true", "2"],
            "text": "two\nlines\n",
            "again": {"a": 1},
            "twice": {"a": 1},
            "empty": None,
            "<<": "merged",
        },
    }


@pytest.mark.parametrize("start", ["\ufeff---\n", "---  \r\n"])
async def test_editors_may_mark_the_start_of_a_file(tmp_path: Path, start: str) -> None:
    skill = tmp_path / "tea"
    skill.mkdir()
    text = f"{start}name: tea\r\ndescription: Tea.\r\n---\r\n"
    (skill / "SKILL.md").write_bytes(text.encode())
    async with connect(serving(tmp_path), NEWEST) as client:
        (entry,) = await listed(client)
    assert entry["frontmatter"] == {"name": "tea", "description": "Tea."}


BOMB = "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(9)
)
WRONG = {
    "no frontmatter": ("# Tea\n", 1, "expected frontmatter, beginning with ---"),
    "no end": ("---\nname: tea\n", 1, "expected --- at the end of the frontmatter"),
    "bad yaml": ("---\nname: tea\n a: [\n---\n", 3, "expected valid YAML"),
    "a tab": ("---\nname: tea\nb:\n\tc: 1\n---\n", 4, "expected valid YAML"),
    "a list": ("---\n- name\n---\n", 2, "expected keys and values"),
    "nothing": ("---\n---\n", 2, "expected keys and values"),
    "no name": (
        "---\ndescription: Tea.\n---\n",
        1,
        "expected name to be a non-empty string",
    ),
    "a number": (
        "---\na: 1\nname: 7\n---\n",
        3,
        "expected name to be a non-empty string, got 7",
    ),
    "no description": (
        "---\nname: tea\n---\n",
        1,
        "expected description to be a non-empty string",
    ),
    "an empty description": (
        "---\nname: tea\ndescription: ' '\n---\n",
        3,
        "expected description to be a non-empty string",
    ),
    "a long description": (
        f"---\nname: tea\ndescription: {'x' * 1025}\n---\n",
        3,
        "at most 1024 characters, got 1025",
    ),
    "capitals": ("---\nname: Tea\ndescription: T.\n---\n", 2, "lowercase letters"),
    "hyphens": ("---\nname: t--ea\ndescription: T.\n---\n", 2, "single hyphens"),
    "another name": (
        "---\nname: coffee\ndescription: C.\n---\n",
        2,
        "expected the name to be that of the folder, 'tea', got 'coffee'",
    ),
    "a key twice": (
        "---\nname: tea\nname: tea\n---\n",
        3,
        "expected each key once, got 'name' twice",
    ),
    "a key that is a list": (
        "---\nname: tea\n? [a]\n: b\n---\n",
        3,
        "expected a string as the key",
    ),
    "infinity": (
        "---\nname: tea\na: .inf\n---\n",
        3,
        "expected a JSON number, got .inf",
    ),
    "a huge number": ("---\na: 1e999\n---\n", 2, "expected a JSON number, got 1e999"),
    "a long number": (
        f"---\na: {'9' * 5000}\n---\n",
        2,
        "expected a number with fewer digits",
    ),
    "a date by its tag": (
        "---\na: !!timestamp 2026-01-05\n---\n",
        2,
        "expected a JSON type",
    ),
    "python": ("---\na: !!python/name:os.system x\n---\n", 2, "expected a JSON type"),
    "a bomb": (f"---\n{BOMB}---\n", None, "expected at most 10,000 values"),
    "a value in itself": (
        "---\na: &a [*a]\n---\n",
        2,
        "got a value that contains itself",
    ),
    "an unknown alias": ("---\na: *b\n---\n", 2, "expected valid YAML"),
    "two documents": ("---\na: b\n...\nc: d\n---\n", None, "expected valid YAML"),
    "a control character": ("---\na: \x07\n---\n", None, "expected text in UTF-8"),
}


@pytest.mark.parametrize(("text", "line", "says"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_with_the_file_and_the_line(
    tmp_path: Path, text: str, line: int | None, says: str
) -> None:
    path = tmp_path / "tea" / "SKILL.md"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SkillError) as raised:
        Server("skilled").skills(tmp_path)
    where = str(path) if line is None else f"{path}, line {line}: "
    assert str(raised.value).startswith(where)
    assert says in str(raised.value)


# Folders


def test_a_folder_without_skills_is_told(tmp_path: Path) -> None:
    with pytest.raises(SkillError, match=r"expected a SKILL\.md in this folder"):
        Server("skilled").skills(tmp_path)
    with pytest.raises(SkillError, match="expected a folder of skills"):
        Server("skilled").skills(tmp_path / "none")


@on_posix
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("", encoding="utf-8")
    for target in (outside, outside / "file", Path("/etc/passwd"), Path("../../x")):
        skill = write_skill(tmp_path / "skills", "tea")
        link = skill / "link"
        link.symlink_to(target)
        with pytest.raises(SkillError, match="expected a link within") as raised:
            Server("skilled").skills(tmp_path / "skills")
        assert str(raised.value).startswith(str(link))
        link.unlink()


@on_posix
async def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "tea")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "style.md").write_text("Style.", encoding="utf-8")
    (skill / "shared").symlink_to(tmp_path / "shared")
    async with connect(serving(tmp_path), NEWEST) as client:
        contents = await client.read_resource("skill://tea/shared/style.md")
    assert contents[0]["text"] == "Style."


@on_posix
@pytest.mark.parametrize("target", ["link", "..", "nothing"])
def test_links_that_lead_nowhere_are_refused(tmp_path: Path, target: str) -> None:
    skill = write_skill(tmp_path, "tea")
    (skill / "link").symlink_to(target)
    with pytest.raises(
        SkillError, match=r"a loop|expected no loop|expected a file or a folder"
    ):
        Server("skilled").skills(tmp_path)


@on_posix
def test_a_pipe_is_refused(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "tea")
    os.mkfifo(skill / "pipe")
    with pytest.raises(SkillError, match="expected a file or a folder"):
        Server("skilled").skills(tmp_path)


def test_more_files_than_hosts_accept_are_refused(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "tea")
    for number in range(511):
        (skill / f"{number}.md").touch()
    Server("skilled").skills(tmp_path)
    (skill / "one-more.md").touch()
    with pytest.raises(SkillError, match="at most 512 files in a skill, got 513"):
        Server("skilled").skills(tmp_path)


def test_more_bytes_than_hosts_accept_are_refused(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "tea")
    with (skill / "large.bin").open("wb") as file:
        file.truncate(16 * 2**20)
    with pytest.raises(SkillError, match="at most 16,777,216 bytes"):
        Server("skilled").skills(tmp_path)


# Reloading


async def test_changes_are_served_after_a_reload(tmp_path: Path) -> None:
    tea = write_skill(tmp_path, "tea")
    write_skill(tmp_path, "coffee")
    server = serving(tmp_path)
    reloader = Reloader(server, None)
    async with connect(server, OPENING[-1]) as client:
        await client.request("resources/subscribe", {"uri": "skill://tea/SKILL.md"})
        before = {entry["uri"]: entry for entry in await listed(client)}
        write_skill(tmp_path, "tea", body="Another.\n")
        write_skill(tmp_path, "water")
        (tmp_path / "coffee" / "SKILL.md").unlink()
        (tea / "new.md").write_text("new", encoding="utf-8")
        assert {entry["uri"]: entry for entry in await listed(client)} == before
        reloader.reread_and_print([tea / "new.md"])
        await client.hear("notifications/resources/list_changed")
        await client.hear("notifications/resources/updated")
        after = {entry["uri"]: entry for entry in await listed(client)}
        assert after.keys() == {"skill://tea/SKILL.md", "skill://water/SKILL.md"}
        assert len(after["skill://tea/SKILL.md"]["resources"]) == 2
        contents = await client.read_resource("skill://tea/SKILL.md")
        assert contents[0]["text"].endswith("Another.\n")
        assert (
            await code_of(client, "skills/get", uri="skill://coffee/SKILL.md") == -32602
        )


async def test_a_mistake_leaves_everything_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tea = write_skill(tmp_path, "tea")
    server = serving(tmp_path)
    (tea / "SKILL.md").write_text("---\nname: [\n---\n", encoding="utf-8")
    Reloader(server, None).reread_and_print([tea / "SKILL.md"])
    told = capsys.readouterr().err
    assert "SKILL.md, line 3: expected valid YAML" in told
    assert "The previous version is still served." in told
    async with connect(server, NEWEST) as client:
        assert len(await listed(client)) == 1


async def test_cursors_survive_a_change_of_a_file(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_skill(tmp_path, name)
    server = serving(tmp_path, pages=2)
    async with connect(server, NEWEST) as client:
        first = await client.request("skills/list")
        (tmp_path / "a" / "more.md").write_text("more", encoding="utf-8")
        Reloader(server, None).reread_and_print([tmp_path / "a" / "more.md"])
        rest = await client.request("skills/list", {"cursor": first["nextCursor"]})
    assert [entry["uri"] for entry in rest["skills"]] == ["skill://c/SKILL.md"]


def test_pyyaml_is_asked_for_when_it_is_missing(tmp_path: Path) -> None:
    import subprocess

    write_skill(tmp_path, "tea")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "yaml.py").write_text(
        "raise ModuleNotFoundError('No module named yaml', name='yaml')",
        encoding="utf-8",
    )
    environment = {**ENVIRONMENT}
    environment["PYTHONPATH"] = f"{tmp_path / 'hidden'}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import mcp_trio; mcp_trio.Server('a').skills({str(tmp_path)!r})",
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImportError: skills need: pip install 'mcp_trio[skills]'" in done.stderr
