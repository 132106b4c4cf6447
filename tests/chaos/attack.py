"""Attack a server: `python -m tests.chaos.attack NAME PORT ADDRESS`.

The attacker is a process of its own, which connects from its own address of this
machine. It prints `ready`, and goes on until it is killed. So its connections end as
those of a client do that crashes.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import trio

from . import attackers, known_attacks
from .victim import Victim

ATTACKS: dict[str, Callable[[Victim], Awaitable[None]]] = {
    function.__name__: function
    for function in (
        attackers.flood,
        attackers.take_descriptors,
        attackers.take_threads,
        attackers.take_memory,
        attackers.never_read,
        attackers.open_everything,
        attackers.go_half_open,
        attackers.vanish,
        known_attacks.subscribe_to_long_uris,
        known_attacks.listen_with_large_meta,
        known_attacks.ping_with_long_ids,
        known_attacks.do_not_read,
        known_attacks.listen_on_many_connections,
        known_attacks.wait_on_many_connections,
        known_attacks.open_sessions,
        known_attacks.fill_histories,
        known_attacks.send_undecodable_arguments,
        known_attacks.hang_in_threads,
        known_attacks.abandon_threads,
    )
}


async def main(name: str, port: int, address: str) -> None:
    """Run one attack until this process is killed."""
    await ATTACKS[name](Victim(port, address))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
