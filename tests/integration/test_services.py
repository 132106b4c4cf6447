"""The servers in examples/services, with PostgreSQL, nginx and several processes."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import trio

from mcp_trio.client.errors import RemoteError
from mcp_trio.client.target import connect
from tests.support.deployment import (
    nginx_of,
    running_nginx,
    running_server,
    wait_for_port,
)
from tests.support.paths import PROJECT
from tests.support.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SERVICES = PROJECT / "examples" / "services"
SECONDS = 60


# Orders: PostgreSQL


class Postgres:
    """A PostgreSQL that can be stopped and started."""

    def __init__(self, programs: Path, folder: Path, user: str | None) -> None:
        self.port = free_port()
        self.url = f"postgresql://shop@127.0.0.1:{self.port}/postgres"
        self._programs = programs
        self._folder = folder
        self._user = user

    def create(self) -> None:
        options = ["-D", str(self._folder / "data"), "-U", "shop", "-A", "trust"]
        subprocess.run(
            [str(self._programs / "initdb"), *options, "--no-sync", "-E", "UTF8"],
            user=self._user,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )

    def _wait_until_ready(self) -> None:
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1"]
        until = time.monotonic() + SECONDS
        while subprocess.run([*command, "-p", str(self.port)], check=False).returncode:
            assert time.monotonic() < until, "PostgreSQL does not start"
            time.sleep(0.05)

    @contextmanager
    def running(self) -> Iterator[None]:
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        where = ["-D", str(self._folder / "data"), "-p", str(self.port)]
        process = subprocess.Popen(
            [str(self._programs / "postgres"), *where, "-k", "", *settings],
            user=self._user,
            cwd=self._folder,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        with process:
            try:
                wait_for_port(self.port, process)
                self._wait_until_ready()
                yield
            finally:
                # SIGINT: do not wait until its clients have left.
                process.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg_pool")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed")
    # It refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        database = Postgres(found[-1].parent, Path(folder), user)
        database.create()
        yield database


@contextmanager
def orders(postgres: Postgres) -> Iterator[str]:
    """Yield the URL of the server."""
    import psycopg

    with psycopg.connect(postgres.url) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute((SERVICES / "orders.sql").read_text("utf-8"))
    environment = {"DATABASE": postgres.url}
    with running_server(str(SERVICES / "orders.py"), environment=environment) as port:
        yield f"http://127.0.0.1:{port}/mcp"


async def test_orders_are_added_and_found(postgres: Postgres) -> None:
    with postgres.running(), orders(postgres) as url:
        async with connect(url, timeout=SECONDS) as client:
            for customer in ("Ada", "Bob", "'; DROP TABLE orders; --"):
                order = {"customer": customer, "product": "Hat", "quantity": 2}
                added = await client.call_tool("add_order", order)
                assert added.data["customer"] == customer
            found = await client.call_tool("find_orders", {"customer": "ADA"})
            assert found.data == [
                {"id": 1, "customer": "Ada", "product": "Hat", "quantity": 2}
            ]
            assert len((await client.call_tool("find_orders")).data) == 3
            refused = await client.call_tool("add_order", {**order, "quantity": 0})
            assert refused.is_error


async def test_more_calls_at_once_than_connections_are_all_answered(
    postgres: Postgres,
) -> None:
    with postgres.running(), orders(postgres) as url:
        async with connect(url, timeout=SECONDS) as client:
            async with trio.open_nursery() as nursery:
                for number in range(40):
                    order = {"customer": f"c{number}", "product": "Hat"}
                    nursery.start_soon(client.call_tool, "add_order", order)
            found = await client.call_tool("find_orders", {"limit": 100})
            assert len(found.data) == 40


async def test_calls_fail_while_the_database_is_away_and_succeed_when_it_is_back(
    postgres: Postgres,
) -> None:
    with ExitStack() as stack:
        with postgres.running():
            url = stack.enter_context(orders(postgres))
            async with connect(url, timeout=SECONDS) as client:
                assert not (await client.call_tool("find_orders")).is_error
        async with connect(url, timeout=SECONDS) as client:
            away = await client.call_tool("find_orders")
            assert away.text == "The database is busy or away; try again later"
            with postgres.running():
                with trio.fail_after(SECONDS):
                    while (await client.call_tool("find_orders")).is_error:
                        await trio.sleep(0.1)


# Tenants: tokens, nginx, two processes


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Return the tokens by name, which are in `tokens.txt` in the folder."""
    found = {}
    lines = ""
    for name, *scopes in (
        ("acme/ada", "write"),
        ("acme/eve",),
        ("globex/bob", "write"),
    ):
        options = [word for scope in scopes for word in ("--scope", scope)]
        done = subprocess.run(
            [sys.executable, "-m", "mcp_trio", "token", name, *options],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        )
        found[name] = done.stdout.strip()
        lines += done.stderr
    file = tmp_path / "tokens.txt"
    file.write_text(lines, encoding="utf-8")
    file.chmod(0o600)
    return found


@contextmanager
def tenants(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the URL of an nginx that uses two processes in turn, and their ports."""
    (folder / "notes").mkdir()
    environment = {
        "FOLDER": str(folder / "notes"),
        "MCP_TRIO_SECRET": "the same secret for all processes",
    }
    port = free_port()
    public = f"http://localhost:{port}/mcp"
    options = ["--token-file", str(folder / "tokens.txt"), "--public-url", public]
    with ExitStack() as stack:
        behind = [
            stack.enter_context(
                running_server(
                    str(SERVICES / "tenants.py"), *options, environment=environment
                )
            )
            for _ in range(2)
        ]
        config = nginx_of("deployment.md", "balanced.conf", behind)
        config = re.sub(r"(?m)^ *(hash|ssl_certificate|server_name).*\n", "", config)
        config = config.replace("443 ssl", f"127.0.0.1:{port}")
        stack.enter_context(running_nginx(folder, config, port))
        yield f"http://127.0.0.1:{port}/mcp", behind


async def agree(message: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"delete": True}


async def test_each_tenant_has_its_own_notes_at_every_process(
    tmp_path: Path, tokens: dict[str, str]
) -> None:
    with tenants(tmp_path) as (url, ports):
        async with connect(url, token=tokens["acme/ada"], elicitation=agree) as ada:
            for text in ("one", "two"):
                assert not (await ada.call_tool("add_note", {"text": text})).is_error
        async with connect(url, token=tokens["globex/bob"]) as bob:
            assert (await bob.call_tool("list_notes")).data == []
            assert (await bob.call_tool("add_note", {"text": "ours"})).data["id"] == 1
        async with connect(url, token=tokens["acme/eve"]) as eve:
            notes = (await eve.call_tool("list_notes")).data
            assert [note["text"] for note in notes] == ["one", "two"]
            assert [tool["name"] for tool in await eve.list_tools()] == ["list_notes"]
            with pytest.raises(RemoteError, match="add_note"):
                await eve.call_tool("add_note", {"text": "mine"})
        async with connect(url, token=tokens["acme/ada"], elicitation=agree) as ada:
            deleted = await ada.call_tool("delete_note", {"id": 1})
            assert deleted.text == "Deleted the note 1"
        for port in ports:
            page = metrics_of(port, tokens["acme/ada"])
            assert 'mcp_requests_total{method="tools/call"' in page


def metrics_of(port: int, token: str) -> str:
    headers = {"Authorization": f"Bearer {token}"}
    request = Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urlopen(request, timeout=SECONDS) as page:
        return str(page.read().decode())
