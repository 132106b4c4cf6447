"""The skills extension: listing, getting and reading skills."""

from __future__ import annotations

from typing import Any

from .playing import ALL, LATEST, NEWEST, SERVERS, Json, Scenarios, Talk
from .web import HttpTalk

SKILLED = f"{SERVERS}skilled.py"
IDENTIFIER = "io.modelcontextprotocol/skills"
DECLARED: Json = {"extensions": {IDENTIFIER: {}}}
BREWING = "skill://brewing"
REFUNDS = "skill://acme/billing/refunds"
SCENARIOS = Scenarios()


def add(revision: str = NEWEST, **options: Any) -> Any:
    """Add a scenario with the server of this module."""
    return SCENARIOS.add([revision], server=SKILLED, folder="skills", **options)


async def all_pages(talk: Talk, method: str, params: Json | None = None) -> None:
    """Ask for each page of a list."""
    talk.paced = True
    cursor: Json = {}
    while True:
        (reply,) = await talk.ask(method, {**(params or {}), **cursor})
        following = reply["result"].get("nextCursor")
        if following is None:
            return
        cursor = {"cursor": following}


@add()
async def discovered(talk: Talk) -> None:
    """The server says that it has skills
    It also lists directories."""
    await talk.open()
    await talk.ask("server/discover")


@add()
async def listed(talk: Talk) -> None:
    """Skills are listed, page by page
    Each with its frontmatter and all of its files; a nested one has an entry of its
    own."""
    await talk.open(DECLARED)
    await all_pages(talk, "skills/list")


@add()
async def listed_by_any_client(talk: Talk) -> None:
    """A client lists skills that has not declared the extension
    It is enough that the server has it."""
    await talk.open()
    await talk.ask("skills/list")


@add()
async def unknown_cursor(talk: Talk) -> None:
    """A cursor that the server has not given
    It is refused by both lists."""
    await talk.open(DECLARED)
    await talk.ask("skills/list", {"cursor": "x"})
    await talk.ask("resources/directory/read", {"uri": BREWING, "cursor": "x"})


@add(LATEST)
async def listed_in_a_session(talk: Talk) -> None:
    """Skills are listed in a session
    Without hints for caches, which that revision does not have."""
    await talk.open(DECLARED)
    await all_pages(talk, "skills/list")


@add(ALL[0])
async def listed_in_the_first_revision(talk: Talk) -> None:
    """Skills are listed in the first revision
    It has no pages."""
    await talk.open(DECLARED)
    await talk.ask("skills/list")


@add()
async def got(talk: Talk) -> None:
    """Skills are got by their URIs
    Each entry is the one in the list."""
    await talk.open(DECLARED)
    for skill in (BREWING, REFUNDS, f"{REFUNDS}/chargebacks"):
        await talk.ask("skills/get", {"uri": f"{skill}/SKILL.md"})


@add(LATEST)
async def got_in_a_session(talk: Talk) -> None:
    """A skill is got in a session
    As in the newest revision."""
    await talk.open(DECLARED)
    await talk.ask("skills/get", {"uri": f"{BREWING}/SKILL.md"})


@add()
async def no_such_skill(talk: Talk) -> None:
    """A skill is got that there is not
    Neither a file of a skill nor its directory is one."""
    await talk.open(DECLARED)
    for uri in ("skill://none/SKILL.md", f"{BREWING}/references/tea.md", BREWING, ""):
        await talk.ask("skills/get", {"uri": uri})


@add()
async def without_a_uri(talk: Talk) -> None:
    """A request lacks its URI
    The error says where."""
    await talk.open(DECLARED)
    await talk.ask("skills/get")
    await talk.ask("resources/directory/read", {"uri": 7})


@add()
async def read(talk: Talk) -> None:
    """Files of a skill are read
    Text, bytes, a name with a space, and a file of a nested skill."""
    await talk.open(DECLARED)
    for uri in (
        f"{BREWING}/SKILL.md",
        f"{BREWING}/references/tea.md",
        f"{BREWING}/references/cup.gif",
        f"{BREWING}/a%20script.py",
        f"{REFUNDS}/chargebacks/SKILL.md",
    ):
        await talk.ask("resources/read", {"uri": uri})


@add()
async def no_such_file(talk: Talk) -> None:
    """Files are read that there are not
    A directory is not read so, and nothing outside of the folder is."""
    await talk.open(DECLARED)
    for uri in (
        f"{BREWING}/none.md",
        f"{BREWING}/references",
        f"{BREWING}/../naming/SKILL.md",
        f"{BREWING}/..%2F..%2Fskilled.py",
        "skill:///etc/passwd",
    ):
        await talk.ask("resources/read", {"uri": uri})


@add()
async def listed_as_resources(talk: Talk) -> None:
    """Resources are listed
    Manifests are resources, and a template stands for all other files."""
    await talk.open(DECLARED)
    await all_pages(talk, "resources/list")
    await talk.ask("resources/templates/list")


@add()
async def directories(talk: Talk) -> None:
    """Directories are listed
    That of a skill, one in it, and those above it."""
    await talk.open(DECLARED)
    for uri in (BREWING, f"{BREWING}/references", REFUNDS, "skill://acme"):
        await all_pages(talk, "resources/directory/read", {"uri": uri})


@add(LATEST)
async def directories_in_a_session(talk: Talk) -> None:
    """A directory is listed in a session
    As in the newest revision."""
    await talk.open(DECLARED)
    await all_pages(talk, "resources/directory/read", {"uri": BREWING})


@add()
async def no_such_directory(talk: Talk) -> None:
    """Directories are listed that are none
    A file, one that there is not, one with a slash at its end, and all skills."""
    await talk.open(DECLARED)
    for uri in (f"{BREWING}/SKILL.md", f"{BREWING}/none", f"{BREWING}/", "skill://"):
        await talk.ask("resources/directory/read", {"uri": uri})


@add(transport="http")
async def http(talk: HttpTalk) -> None:
    """Skills over HTTP
    A list, an entry, a file, a directory, and an error."""
    await talk.open(DECLARED)
    await talk.ask("skills/list")
    await talk.ask("skills/get", {"uri": f"{BREWING}/SKILL.md"})
    await talk.ask("resources/read", {"uri": f"{BREWING}/references/tea.md"})
    await talk.ask("resources/directory/read", {"uri": BREWING})
    await talk.ask("skills/get", {"uri": "skill://none/SKILL.md"})
