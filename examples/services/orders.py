"""A PostgreSQL database as tools, with a pool of connections.

    pip install 'psycopg[binary]' psycopg_pool
    DATABASE=postgresql://reader@localhost/shop python -m mcp_trio run examples/services/orders.py --http 8000

The tools are plain functions, which run in threads of their own, so that psycopg may block. Create the table with
examples/services/orders.sql.
"""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any

import psycopg
import trio
from msgspec import Meta, Struct
from psycopg.rows import class_row
from psycopg_pool import ConnectionPool

from mcp_trio import Context, Limits, Server, ToolAnnotations, ToolError

DATABASE = os.environ.get("DATABASE", "")
CONNECTIONS = 8
# A query that takes longer is ended by the database.
MOST_SECONDS = 5
MOST_ROWS = 100

if not DATABASE:
    sys.exit("DATABASE: expected a URL such as postgresql://reader@localhost/shop")

Pool = ConnectionPool[psycopg.Connection[Any]]


class Order(Struct):
    """An order."""

    id: int
    customer: str
    product: str
    quantity: int


@asynccontextmanager
async def open_pool() -> AsyncIterator[Pool]:
    """Connect to the database while the server runs."""
    pool: Pool = ConnectionPool(
        DATABASE,
        min_size=1,
        max_size=CONNECTIONS,
        open=False,
        timeout=MOST_SECONDS,
        kwargs={"options": f"-c statement_timeout={MOST_SECONDS}s"},
        check=ConnectionPool.check_connection,
    )
    try:
        await trio.to_thread.run_sync(lambda: pool.open(wait=True, timeout=10))
        yield pool
    finally:
        await trio.to_thread.run_sync(pool.close)


server: Server[Pool] = Server(
    "orders", lifespan=open_pool, limits=Limits(threads=CONNECTIONS)
)


@contextmanager
def order_cursor(pool: Pool) -> Iterator[psycopg.Cursor[Order]]:
    """Run queries in a transaction, and tell the model of failures.

    Others are ours, and are logged: the model is told only that something failed.
    """
    try:
        with (
            pool.connection() as connection,
            connection.cursor(row_factory=class_row(Order)) as cursor,
        ):
            yield cursor
    except psycopg.errors.QueryCanceled:
        raise ToolError(f"That took longer than {MOST_SECONDS} s") from None
    except psycopg.OperationalError:
        # The pool raises it, too, if no connection becomes free in time.
        raise ToolError("The database is busy or away; try again later") from None


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_orders(
    ctx: Context[Pool],
    customer: str = "",
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 20,
) -> list[Order]:
    """Find orders, the newest first.

    Args:
        customer: A part of the customer's name
        limit: The most orders to return
    """
    query = (
        "SELECT id, customer, product, quantity FROM orders "
        "WHERE strpos(lower(customer), lower(%s)) > 0 ORDER BY id DESC LIMIT %s"
    )
    with order_cursor(ctx.lifespan) as cursor:
        return cursor.execute(query, (customer, limit)).fetchall()


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def add_order(
    ctx: Context[Pool],
    customer: Annotated[str, Meta(min_length=1, max_length=200)],
    product: Annotated[str, Meta(min_length=1, max_length=200)],
    quantity: Annotated[int, Meta(ge=1, le=10_000)] = 1,
) -> Order:
    """Add an order.

    Args:
        customer: Who orders
        product: What is ordered
        quantity: How many
    """
    query = (
        "INSERT INTO orders (customer, product, quantity) VALUES (%s, %s, %s) "
        "RETURNING id, customer, product, quantity"
    )
    with order_cursor(ctx.lifespan) as cursor:
        cursor.execute(query, (customer, product, quantity))
        added = cursor.fetchone()
    if added is None:
        raise RuntimeError("INSERT has returned no row")
    return added


if __name__ == "__main__":
    server.run()
