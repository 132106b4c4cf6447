"""The apps extension: pages, and the tools that have pages."""

from __future__ import annotations

from typing import Any

from .playing import ALL, LATEST, NEWEST, SERVERS, Json, Scenarios, Talk
from .web import HttpTalk

APPS = f"{SERVERS}apps.py"
IDENTIFIER = "io.modelcontextprotocol/ui"
HTML = "text/html;profile=mcp-app"
DECLARED: Json = {"extensions": {IDENTIFIER: {"mimeTypes": [HTML]}}}
OTHER: Json = {"extensions": {IDENTIFIER: {"mimeTypes": ["text/uri-list"]}}}
SCENARIOS = Scenarios()


def add(revision: str = NEWEST, **options: Any) -> Any:
    """Add a scenario with the server of this module."""
    return SCENARIOS.add([revision], server=APPS, folder="apps", **options)


@add()
async def discovered(talk: Talk) -> None:
    """The server says that it has apps
    To everybody who asks what it can do."""
    await talk.open()
    await talk.ask("server/discover")


@add(LATEST)
async def opened_by_a_host(talk: Talk) -> None:
    """A host that renders apps opens a session
    It is told of the extension, because it named extensions itself."""
    await talk.open(DECLARED)


@add(LATEST)
async def opened_by_another_client(talk: Talk) -> None:
    """A client without extensions opens a session
    It is told of none."""
    await talk.open()


@add()
async def tools_of_a_host(talk: Talk) -> None:
    """A host lists tools
    Each names its page, and one is for pages alone."""
    await talk.open(DECLARED)
    await talk.ask("tools/list")


@add()
async def tools_of_another_client(talk: Talk) -> None:
    """A client that renders no apps lists tools
    The one that is for pages alone is not there."""
    await talk.open()
    await talk.ask("tools/list")


@add(LATEST)
async def tools_in_a_session(talk: Talk) -> None:
    """A host lists tools in a session
    As in the newest revision."""
    await talk.open(DECLARED)
    await talk.ask("tools/list")


@add(ALL[2])
async def tools_of_an_older_revision(talk: Talk) -> None:
    """A host lists tools in a revision in which tools say nothing more of themselves
    What is for pages alone is left out, as the host cannot know it."""
    await talk.open(DECLARED)
    await talk.ask("tools/list")


@add()
async def pages(talk: Talk) -> None:
    """A host lists the pages
    They are resources, with what they need of the host."""
    await talk.open(DECLARED)
    await talk.ask("resources/list")


@add()
async def read(talk: Talk) -> None:
    """A host reads pages
    What it must know about a page comes with its contents; one is a function."""
    await talk.open(DECLARED)
    for name in ("main", "plain", "function"):
        await talk.ask("resources/read", {"uri": f"ui://dice/{name}"})


@add(LATEST)
async def read_in_a_session(talk: Talk) -> None:
    """A host reads a page in a session
    As in the newest revision."""
    await talk.open(DECLARED)
    await talk.ask("resources/read", {"uri": "ui://dice/main"})


@add(ALL[0])
async def read_in_the_first_revision(talk: Talk) -> None:
    """A page is read in the first revision
    Contents say nothing more about themselves there."""
    await talk.open(DECLARED)
    await talk.ask("resources/read", {"uri": "ui://dice/main"})


@add()
async def no_such_page(talk: Talk) -> None:
    """A page is read that there is not
    The error is that of any resource."""
    await talk.open(DECLARED)
    await talk.ask("resources/read", {"uri": "ui://dice/other"})


@add()
async def called_by_a_host(talk: Talk) -> None:
    """A host calls tools
    The tool knows that its page is shown; the page calls one back."""
    await talk.open(DECLARED)
    await talk.use("throw", {"sides": 20})
    await talk.use("throw_again")


@add()
async def called_by_another_client(talk: Talk) -> None:
    """A client that renders no apps calls a tool
    It gets the text."""
    await talk.open()
    await talk.use("throw")


@add()
async def another_type_of_page(talk: Talk) -> None:
    """A host that renders pages of another type
    It gets the text too."""
    await talk.open(OTHER)
    await talk.use("throw")


@add(transport="http")
async def http_host(talk: HttpTalk) -> None:
    """A host over HTTP
    It lists the tools, reads a page, and calls for it."""
    await talk.open(DECLARED)
    await talk.ask("tools/list")
    await talk.ask("resources/read", {"uri": "ui://dice/main"})
    await talk.use("throw_again")
