"""A client that disappears without a word is noticed."""

import re
import sys
from pathlib import Path

import pytest

from tests.support.http_wire import HOSTS, make_server, request, site_on

KEEP_ALIVE = "02"  # the timer that runs on a connection, in /proc/net/tcp


def timers(port: int) -> list[str]:
    """Return the timers of the connections that a port has accepted."""
    table = Path("/proc/net/tcp").read_text(encoding="ascii")
    row = rf"^ *\d+: \w+:{port:04X} \w+:\w+ 01 \w+:\w+ (\d\d):"
    return re.findall(row, table, re.MULTILINE)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/net/tcp")
@pytest.mark.parametrize("host", HOSTS)
async def test_the_system_asks_silent_clients_whether_they_are_still_there(
    host: str,
) -> None:
    async with site_on(host, make_server()) as there, there.wire() as wire:
        assert (await wire.request("GET", "/healthz", {})).status == 200
        await wire.send(request("GET", "/mcp")[:20])
        while "01" in timers(there.port):  # something is being sent
            pass
        assert timers(there.port) == [KEEP_ALIVE]
