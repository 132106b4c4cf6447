"""The text files of one folder: found, read, and watched for changes. Nothing outside of the folder can be reached.

    FOLDER=~/notes python -m mcp_trio run examples/files.py

Without FOLDER it is the sample beside this file. Names that begin with a dot are passed over, and so are symbolic
links. Clients hear of changes where `watchfiles` is installed: python -m pip install watchfiles
"""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import trio

from mcp_trio import ResourceLink, ResourceNotFound, Server, ToolAnnotations, ToolError

FOLDER = (
    Path(os.environ.get("FOLDER") or Path(__file__).with_name("data") / "notes")
    .expanduser()
    .resolve()
)
MOST_FILES = 100
MOST_BYTES = 200_000
# Patterns are compiled and kept, so a long one costs time and memory.
LONGEST_PATTERN = 200
# Files and folders that are looked at. In a larger folder the others are not found.
MOST_LOOKED_AT = 10_000
READS = ToolAnnotations(read_only_hint=True)

if not FOLDER.is_dir():
    sys.exit(f"FOLDER={FOLDER}: this is no folder")
server = Server(
    "files",
    instructions="The text files of one folder. Find a file first, then read it by its path.",
)


def is_within(path: Path) -> bool:
    """Whether a path leads to a plain file, within the folder, without a link or a hidden name on its way."""
    try:
        is_hidden = any(part.startswith(".") for part in path.relative_to(FOLDER).parts)
        return not is_hidden and path.is_file() and path.resolve() == path
    except (OSError, ValueError):
        return False


def names() -> Iterator[str]:
    """The paths of all files, within the folder."""
    return (
        path.relative_to(FOLDER).as_posix()
        for path in sorted(islice(FOLDER.rglob("*"), MOST_LOOKED_AT))
        if is_within(path)
    )


def uri_of(name: str) -> str:
    """The URI of a file."""
    return f"folder:///{quote(name)}"


@server.tool(annotations=READS)
def find_files(pattern: str = "*") -> list[ResourceLink]:
    """Find files by a pattern such as *.md or recipes/*. Links to the first 100 are given.

    Args:
        pattern: With * for any part of a path, and ? for any one character
    """
    if len(pattern) > LONGEST_PATTERN:
        raise ToolError(f"A pattern has at most {LONGEST_PATTERN} characters")
    fitting = [name for name in names() if fnmatch(name, pattern)]
    if not fitting:
        raise ToolError(f"No file fits {pattern!r}")
    return [
        ResourceLink(uri_of(name), name, size=(FOLDER / name).stat().st_size)
        for name in fitting[:MOST_FILES]
    ]


@server.tool(annotations=READS)
def read_file(path: str) -> str:
    """Read a text file.

    Args:
        path: Its path within the folder, as find_files tells it
    """
    if not is_within(FOLDER / path):
        raise ToolError(
            f"There is no file {path!r} here; find_files tells what there is"
        )
    with (FOLDER / path).open("rb") as opened:
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES or b"\0" in content:
        raise ToolError(f"{path} is no text, or longer than {MOST_BYTES:,} bytes")
    return content.decode(errors="replace")


@server.resource("folder:///{+path}", mime_type="text/plain")
def file(path: str) -> str:
    """A text file of the folder."""
    try:
        return read_file(path)
    except ToolError:
        raise ResourceNotFound(uri_of(path)) from None


@server.complete("folder:///{+path}", "path")
def complete_path(value: str) -> list[str]:
    """The paths that begin so."""
    return [name for name in names() if name.startswith(value)]


@server.lifespan
async def watched() -> AsyncIterator[None]:
    """Watch the folder for as long as the server runs."""
    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_changes, ended)
        try:
            yield
        finally:
            ended.set()


async def tell_changes(ended: trio.Event) -> None:
    """Tell the subscribers of each file that changes."""
    try:
        from watchfiles import awatch
    except ImportError:
        return
    async for changes in awatch(FOLDER, stop_event=ended):
        for _, path in changes:
            server.resource_updated(uri_of(Path(path).relative_to(FOLDER).as_posix()))


if __name__ == "__main__":
    server.run()
