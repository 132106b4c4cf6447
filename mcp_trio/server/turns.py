"""Turns: a client whose requests take long lets those of other clients run in between.

trio runs all tasks that are ready before it looks for others: this is a pass. If one
client has slow requests on many connections, all of them may be ready in one pass, and
would run before anything that another client has sent in the meantime. So when a
request has taken longer than a turn, the next ones of its client wait for some passes.
Then they go on in the order in which they came: first one of them, and twice as many in
each pass in which none of them was slow.

Clients whose requests are quick never wait, and nothing is kept for them.
"""

from collections import deque

import trio

from .accounts import Account

# Passes that the requests of a client wait when one of them was slow. The first may be
# over already, and other clients need one whole pass.
PASSES = 3


class WaitingLine:
    """The requests of one client that wait for their turn."""

    def __init__(self) -> None:
        self.waiting: deque[trio.Event] = deque()
        self.passes = 0  # until the next one may go on
        self.at_once = 1  # how many go on then

    @property
    def is_closed(self) -> bool:
        """Whether a request has been slow in one of the last passes."""
        return self.passes > 0

    def close(self) -> None:
        """Let no request go on for some passes."""
        self.passes = PASSES
        self.at_once = 1

    def begin_pass(self) -> None:
        """Let requests go on, unless it is too early for that."""
        if self.passes > 0:
            self.passes -= 1
        if self.passes > 0:
            return
        for _ in range(min(self.at_once, len(self.waiting))):
            self.waiting.popleft().set()
        self.at_once *= 2


class Turns:
    """Says which requests have to wait for others of the same client."""

    def __init__(self) -> None:
        # Empty unless a client has just been slow.
        self.lines: dict[Account, WaitingLine] = {}

    def must_wait(self, account: Account) -> bool:
        """Return whether a request of this client has to wait for its turn."""
        line = self.lines.get(account)
        return line is not None and (line.is_closed or bool(line.waiting))

    async def wait(self, account: Account) -> None:
        """Wait until a request of this client may run, if it must wait."""
        if not self.must_wait(account):
            return
        event = trio.Event()
        self.lines[account].waiting.append(event)
        await event.wait()
        # A request that could go on in the same pass may have been slow.
        while self._is_closed(account):
            event = trio.Event()
            self.lines[account].waiting.appendleft(event)
            await event.wait()

    def _is_closed(self, account: Account) -> bool:
        line = self.lines.get(account)
        return line is not None and line.is_closed

    def end(self, account: Account) -> None:
        """Note that a client has used up its turn: others go first."""
        if account.is_only_client:
            return
        if not self.lines:
            trio.lowlevel.spawn_system_task(self._count_passes)
        line = self.lines.get(account)
        if line is None:
            line = self.lines[account] = WaitingLine()
        line.close()

    async def _count_passes(self) -> None:
        """Let requests go on, pass by pass, until none waits."""
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
