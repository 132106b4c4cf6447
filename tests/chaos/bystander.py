"""Does a well-behaved client notice that another client attacks?

It calls a tool ten times a second, from an address of its own, while each of the known
attacks goes on: directly, and with both clients behind nginx. Every call must be
answered in time, and its session must live. To add an attack, write it in
`known_attacks.py` and put it into ATTACKS.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct

from mcp_trio.client import Client, connect
from tests.support.deployment import nginx_of, running_nginx
from tests.support.ports import free_port

from .faults import attacked
from .process import ServerProcess, serving

# Seconds within which every call has to be answered.
IN_TIME = 0.150
# Seconds between two calls.
INTERVAL = 0.1
# Seconds of calls before and during the attack.
ALONE = 1.0
ATTACKED = 6.0
# Seconds without a reply after which it is lost.
LOST = 30.0
PROXY = "127.0.0.1"


class Attack(Struct, frozen=True):
    """A known attack, by the name of its function, and the tool that the other client
    calls.
    """

    title: str
    name: str
    tool: str = "add"
    # The server's limit of descriptors; 0 means no limit.
    descriptors: int = 0


ATTACKS = [
    Attack("subscriptions to 4 MiB URIs", "subscribe_to_long_uris"),
    Attack("listens with 4 MiB of metadata", "listen_with_large_meta"),
    Attack("pings with 4 MiB ids", "ping_with_long_ids"),
    Attack("results that nobody reads", "do_not_read"),
    Attack("130 listens", "listen_on_many_connections", descriptors=128),
    Attack("130 waiting calls", "wait_on_many_connections", descriptors=128),
    Attack("10,000 sessions", "open_sessions"),
    Attack("full event histories", "fill_histories"),
    Attack("4 MiB of wrong arguments", "send_undecodable_arguments"),
    Attack("64 hanging threads", "hang_in_threads", tool="block"),
    Attack("64 abandoned threads", "abandon_threads", tool="block"),
]
ARGUMENTS = {"add": {"a": 1, "b": 2}, "block": {"seconds": 0}}
TEXTS = {"add": "3", "block": "blocked"}


class Observed(Struct):
    """What the client saw, in seconds for each call, and what went wrong.

    On a machine that is busy with other things a call takes longer. Therefore `used`
    has the time that the server itself used while each call waited.
    """

    calls: list[float]
    used: list[float]
    problems: list[str]


def missing_programs() -> list[str]:
    """Return the needed programs that are not installed."""
    return [] if shutil.which("nginx") else ["nginx"]


async def observe_all(folder: Path, chosen: Sequence[Attack]) -> bool:
    """Run the attacks, print a table, and return whether all is well."""
    print("slowest call of another client, and the most that the server itself used")
    print(f"{'':<32}{'directly':>22}{'behind nginx':>22}")
    problems = []
    for attack in chosen:
        cells = []
        for behind_nginx in (False, True):
            place = folder / f"{attack.name}-{behind_nginx}"
            place.mkdir(mode=0o755)
            observed = await observe(attack, place, behind_nginx=behind_nginx)
            slowest = 1000 * max(observed.calls, default=0)
            used = 1000 * max(observed.used, default=0)
            cells.append(f"{slowest:.0f} ms ({used:.0f} ms)")
            way = "behind nginx" if behind_nginx else "directly"
            problems += [f"{attack.title}, {way}: {it}" for it in observed.problems]
        print(f"{attack.title:<32}{cells[0]:>22}{cells[1]:>22}", flush=True)
    for problem in problems:
        print(problem)
    return not problems


async def observe(attack: Attack, folder: Path, *, behind_nginx: bool) -> Observed:
    """Run one attack against a new server."""
    options = ["--trusted-proxy", PROXY] if behind_nginx else []
    async with serving(folder, *options) as server:
        with ExitStack() as stack:
            port = server.port
            if behind_nginx:
                port = stack.enter_context(nginx_before(server, folder))
            if attack.descriptors:
                stack.enter_context(server.limited("nofile", attack.descriptors))
            return await _observe_at(port, attack, server)


@contextmanager
def nginx_before(server: ServerProcess, folder: Path) -> Iterator[int]:
    """Run nginx with the documentation's settings, without TLS. Yields its port."""
    port = free_port()
    config = nginx_of("deployment.md", "mcp.conf", [server.port])
    lines = [
        line
        for line in config.splitlines()
        if not line.strip().startswith(("server_name", "ssl_"))
    ]
    config = "\n".join(lines)
    config = config.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    with running_nginx(folder, config, port):
        yield port


async def _observe_at(port: int, attack: Attack, server: ServerProcess) -> Observed:
    observed = Observed([], [], [])
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        async with connect(url, "2025-11-25", timeout=LOST) as client:
            regularly = partial(_call_regularly, client, attack.tool, server)
            await regularly(ALONE, Observed([], [], []))
            async with attacked(port, attack.name):
                await regularly(ATTACKED, observed)
            await client.ping()
    except Exception as problem:
        observed.problems.append(f"the session has ended: {problem!r}"[:300])
    slowest = max(observed.calls, default=0.0)
    if slowest > IN_TIME:
        observed.problems.append(f"a call took {1000 * slowest:.0f} ms")
    return observed


async def _call_regularly(
    client: Client,
    tool: str,
    server: ServerProcess,
    seconds: float,
    observed: Observed,
) -> None:
    """Call the tool at regular intervals, and record how long each call takes."""
    start = trio.current_time()
    for number in range(round(seconds / INTERVAL)):
        await trio.sleep_until(start + number * INTERVAL)
        begun = trio.current_time()
        used = server.time_used()
        result = await client.call_tool(tool, ARGUMENTS[tool])
        observed.calls.append(trio.current_time() - begun)
        observed.used.append(server.time_used() - used)
        if result.is_error or result.text != TEXTS[tool]:
            raise RuntimeError(f"expected {TEXTS[tool]}, got {result.text}")
