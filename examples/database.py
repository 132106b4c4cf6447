"""Questions to an SQLite file, which cannot be changed by them.

    DATABASE=my.sqlite python -m mcp_trio run examples/database.py

Without DATABASE it is the sample beside this file. Four locks stand one behind another: the file is opened read-only,
query_only is on, an authorizer lets nothing but reading pass, and a query has bounds of time, rows, columns and bytes.
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated

from msgspec import Meta

from mcp_trio import ResourceNotFound, Server, ToolAnnotations, ToolError

DATABASE = Path(
    os.environ.get("DATABASE") or Path(__file__).with_name("data") / "shop.sqlite"
).resolve()
MOST_SECONDS = 2.0
MOST_ROWS = 100
MOST_COLUMNS = 100
MOST_BYTES = 500_000
# In bytes. Some functions of SQLite take time in proportion to the square of a value's
# length, and nothing interrupts them.
LONGEST_VALUE = 10_000
LONGEST_PATTERN = 100
LONGEST_QUERY = 10_000
# How many steps a query takes between two looks at the clock.
STEPS = 20
READING = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
TABLES = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"


Value = str | int | float | None


@dataclass
class Rows:
    """What a query has found."""

    columns: list[str]
    rows: list[list[Value]]
    truncated: Annotated[
        bool,
        Meta(description=f"Whether there are more than the {MOST_ROWS} rows given"),
    ]


@contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """The database, for reading, and for a short time."""
    with closing(
        sqlite3.connect(f"{DATABASE.as_uri()}?mode=ro", uri=True)
    ) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, LONGEST_QUERY)
        connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MOST_COLUMNS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, LONGEST_PATTERN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(
            lambda action, *_: (
                sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY
            )
        )
        ends = monotonic() + MOST_SECONDS
        connection.set_progress_handler(lambda: monotonic() > ends, STEPS)
        yield connection


def names() -> list[str]:
    """The tables and views."""
    with opened() as connection:
        return [name for (name,) in connection.execute(TABLES)]


try:
    tables = ", ".join(names())
except sqlite3.Error as problem:
    sys.exit(f"DATABASE={DATABASE}: this is no SQLite file that can be read: {problem}")
server = Server(
    "database",
    instructions=f"One SQLite database, for reading. Its tables and views: {tables}",
)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def query(sql: str) -> Rows:
    """Run one SELECT on the database. The resource schema://{table} tells a table's columns.

    Args:
        sql: One SELECT statement
    """
    with opened() as connection:
        try:
            cursor = connection.execute(sql)
            rows, truncated = first_rows(cursor)
        except (sqlite3.Error, ValueError) as problem:
            why = (
                f"it took more than {MOST_SECONDS:g} s"
                if str(problem) == "interrupted"
                else problem
            )
            raise ToolError(
                f"The query failed: {why}; one SELECT is wanted, from {tables}"
            ) from None
        if cursor.description is None:
            raise ToolError("The query is empty; one SELECT is wanted")
    return Rows([column[0] for column in cursor.description], rows, truncated)


def first_rows(cursor: sqlite3.Cursor) -> tuple[list[list[Value]], bool]:
    """The rows within the bounds, and whether there are more. Rows are fetched one by one."""
    rows: list[list[Value]] = []
    size = 0
    for row in cursor:
        values = [value.hex() if isinstance(value, bytes) else value for value in row]
        size += sum(len(str(value)) for value in values)
        if len(rows) == MOST_ROWS or size > MOST_BYTES:
            return rows, True
        rows.append(values)
    return rows, False


@server.resource("schema://{table}", mime_type="application/sql")
def schema(table: str) -> str:
    """How a table or view is made."""
    with opened() as connection:
        found = connection.execute(
            "SELECT sql FROM sqlite_schema WHERE name = ?", [table]
        ).fetchone()
    if found is None:
        raise ResourceNotFound(f"schema://{table}")
    return str(found[0])


@server.complete("schema://{table}", "table")
def complete_table(value: str) -> list[str]:
    """The tables whose names begin so."""
    return [name for name in names() if name.startswith(value)]


if __name__ == "__main__":
    server.run()
