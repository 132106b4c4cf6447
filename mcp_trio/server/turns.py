"""Turns: a client with slow requests lets requests of other clients run in between.

trio runs all tasks that are ready before it checks for new ones: this is a pass. If one
client has slow requests on many connections, all of them may be ready in the same pass,
and would run before any request that another client has sent in the meantime. So after
a request that took longer than a turn, the next requests of its client wait for some
passes. Then they continue in order of arrival: one at first, and twice as many in each
pass without a slow request.

Clients with fast requests never wait, and no state is kept for them.
"""

from collections import deque

import trio

from .accounts import Account

# How many passes the requests of a client wait after a slow one. The first may be over
# already, and other clients need a full pass.
PASSES = 3


class WaitingLine:
    """The requests of one client that wait for their turn."""

    def __init__(self) -> None:
        self.waiting: deque[trio.Event] = deque()
        self.passes = 0  # passes until the next one may continue
        self.at_once = 1  # how many continue then

    @property
    def is_closed(self) -> bool:
        """Whether a request has been slow in one of the last passes."""
        return self.passes > 0

    def close(self) -> None:
        """Make all requests wait for some passes."""
        self.passes = PASSES
        self.at_once = 1

    def begin_pass(self) -> None:
        """Count a pass, and let requests continue if it is their turn."""
        if self.passes > 0:
            self.passes -= 1
        if self.passes > 0:
            return
        for _ in range(min(self.at_once, len(self.waiting))):
            self.waiting.popleft().set()
        self.at_once *= 2


class Turns:
    """Decides which requests have to wait because their client has slow ones."""

    def __init__(self) -> None:
        # Empty unless a client has recently been slow.
        self.lines: dict[Account, WaitingLine] = {}

    def must_wait(self, account: Account) -> bool:
        """Return whether a request of this client must wait for its turn."""
        line = self.lines.get(account)
        return line is not None and (line.is_closed or bool(line.waiting))

    async def wait(self, account: Account) -> None:
        """Wait until a request of this client may run."""
        if not self.must_wait(account):
            return
        event = trio.Event()
        self.lines[account].waiting.append(event)
        await event.wait()
        # Another request that continued in the same pass may have been slow.
        while self._is_closed(account):
            event = trio.Event()
            self.lines[account].waiting.appendleft(event)
            await event.wait()

    def _is_closed(self, account: Account) -> bool:
        line = self.lines.get(account)
        return line is not None and line.is_closed

    def end(self, account: Account) -> None:
        """Note that a client has used up its turn, so that others go first."""
        if account.is_only_client:
            return
        if not self.lines:
            trio.lowlevel.spawn_system_task(self._count_passes)
        line = self.lines.get(account)
        if line is None:
            line = self.lines[account] = WaitingLine()
        line.close()

    async def _count_passes(self) -> None:
        """Let requests continue, pass by pass, until none waits."""
        try:
            while self.lines:
                await trio.lowlevel.checkpoint()
                for account, line in list(self.lines.items()):
                    if not line.is_closed and not line.waiting:
                        del self.lines[account]
                    else:
                        line.begin_pass()
        finally:
            self.lines.clear()
