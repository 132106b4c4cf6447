"""A job that takes its time: finding files that are the same. It tells how far it is, asks first, and can be cancelled.

    FOLDER=~/pictures python -m mcp_trio run examples/long_job.py

Without FOLDER it is the sample beside this file. One function asks in both eras of the protocol: up to 2025-11-25 it
waits for the answer; in 2026-07-28 it ends with its question, and runs again from its top when the answer has come.
"""

import hashlib
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import trio
from msgspec import Meta, Struct

from mcp_trio import (
    Context,
    MissingClientCapability,
    Server,
    ToolAnnotations,
    ToolError,
)

FOLDER = (
    Path(os.environ.get("FOLDER") or Path(__file__).with_name("data") / "notes")
    .expanduser()
    .resolve()
)
CHUNK = 2**20

if not FOLDER.is_dir():
    sys.exit(f"FOLDER={FOLDER}: this is no folder")
server = Server("long_job")


class Consent(Struct):
    """What the user is asked."""

    go_on: Annotated[bool, Meta(description="Read all of them")] = True


class Duplicates(Struct):
    """What was found."""

    groups: Annotated[
        list[list[str]],
        Meta(description="The paths of files that are the same, group by group"),
    ]
    wasted: Annotated[
        int,
        Meta(description="Bytes that would be free with one file left of each group"),
    ]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def find_duplicates(
    ctx: Context, ask_above: Annotated[int, Meta(ge=0)] = 100
) -> Duplicates:
    """Find files in the folder that have the same contents. Nothing is changed.

    Args:
        ask_above: Above so many megabytes the user is asked first
    """
    sizes = await trio.to_thread.run_sync(survey)
    total = sum(sizes.values())
    if total >= ask_above * 10**6:
        await ask(
            ctx, f"{len(sizes)} files with {total:,} bytes have to be read. Go on?"
        )
    same, done = defaultdict(list), 0
    for path, size in sizes.items():
        same[await trio.to_thread.run_sync(digest, path)].append(path)
        done += size
        await ctx.progress(done, total, path.name)
    groups = [paths for paths in same.values() if len(paths) > 1]
    wasted = sum(sizes[path] for paths in groups for path in paths[1:])
    return Duplicates(
        [[path.relative_to(FOLDER).as_posix() for path in paths] for paths in groups],
        wasted,
    )


async def ask(ctx: Context, question: str) -> None:
    """Let the user say whether to go on. Raises ToolError where that is not to be."""
    try:
        answer = await ctx.elicit(question, Consent)
    except MissingClientCapability:
        raise ToolError(
            f"{question} This client cannot ask the user; to go on, give a larger ask_above"
        ) from None
    if answer.content is None or not answer.content.go_on:
        raise ToolError("The user does not want it")


def survey() -> dict[Path, int]:
    """The files that may be the same as another, as there is one of their size, and those sizes."""
    files = [
        path
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    sizes = {path: path.stat().st_size for path in files}
    count = Counter(sizes.values())
    return {path: size for path, size in sizes.items() if count[size] > 1}


def digest(path: Path) -> bytes:
    """What tells a file's contents from others. It ends early when the request is cancelled."""
    summed = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            trio.from_thread.check_cancelled()
            summed.update(chunk)
    return summed.digest()


if __name__ == "__main__":
    server.run()
