"""A remote server for several tenants: each token belongs to a tenant, which sees its own notes and no others.

    python -m mcp_trio token acme/ada --scope write >> ada.token 2>> tokens.txt
    FOLDER=/srv/notes python -m mcp_trio run examples/services/tenants.py --http 8001 --token-file tokens.txt

A principal's name is TENANT/USER. Run as many processes as you like behind nginx, with the same MCP_TRIO_SECRET: each
tenant's notes are in one SQLite file in FOLDER, which they share. See docs/deployment.md.
"""

import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from mcp_trio import Context, MiddlewareCall, Proceed, Server, ToolError

FOLDER = Path(os.environ.get("FOLDER", ""))
SCHEMA = """
CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, author TEXT, text TEXT)
"""
# Seconds that a process waits for another one that writes to the same file.
MOST_SECONDS = 5

if not os.environ.get("FOLDER") or not FOLDER.is_dir():
    sys.exit(f"FOLDER={os.environ.get('FOLDER', '')}: expected a folder for the notes")
server = Server("notes", instructions="Notes that your whole company shares.")


class Note(Struct):
    """A note."""

    id: int
    author: str
    text: str


class Consent(Struct):
    """What the user is asked before a note is deleted."""

    delete: bool


@server.middleware
async def choose_tenant(call: MiddlewareCall, proceed: Proceed) -> object:
    """Find out whose notes a call is about. Without a tenant there are none."""
    principal = call.context.principal
    name = principal.name if principal is not None else ""
    found = re.fullmatch(r"([a-z0-9-]{1,50})/([a-z0-9.-]{1,50})", name)
    if found is None:
        raise ToolError("Expected a token whose name is TENANT/USER; ask for a new one")
    call.context.state["path"] = FOLDER / f"{found[1]}.sqlite"
    call.context.state["user"] = found[2]
    return await proceed(call)


@contextmanager
def opened(ctx: Context) -> Iterator[sqlite3.Connection]:
    """Open the tenant's notes, and commit what is done to them."""
    connection = sqlite3.connect(ctx.state["path"], timeout=MOST_SECONDS)
    with closing(connection), connection:
        connection.execute(SCHEMA)
        yield connection


@server.tool
def list_notes(ctx: Context) -> list[Note]:
    """List the notes of your company."""
    with opened(ctx) as notes:
        rows = notes.execute("SELECT id, author, text FROM notes ORDER BY id")
        return [Note(*row) for row in rows]


@server.tool(scopes={"write"})
def add_note(
    ctx: Context, text: Annotated[str, Meta(min_length=1, max_length=10_000)]
) -> Note:
    """Add a note.

    Args:
        text: What to note
    """
    with opened(ctx) as notes:
        insert = "INSERT INTO notes (author, text) VALUES (?, ?) RETURNING id"
        (id,) = notes.execute(insert, (ctx.state["user"], text)).fetchone()
    return Note(id, ctx.state["user"], text)


@server.tool(scopes={"write"})
async def delete_note(ctx: Context, id: int) -> str:
    """Delete a note, if the user agrees.

    Args:
        id: The note's id
    """
    answer = await ctx.elicit(f"Delete the note {id}?", Consent)
    if answer.content is None or not answer.content.delete:
        raise ToolError("The user does not want it")
    with opened(ctx) as notes:
        deleted = notes.execute("DELETE FROM notes WHERE id = ?", (id,)).rowcount
    if not deleted:
        raise ToolError(f"There is no note {id}; list_notes has the ids")
    return f"Deleted the note {id}"


if __name__ == "__main__":
    server.run()
