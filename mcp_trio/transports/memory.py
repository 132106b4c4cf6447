"""A transport within one process: messages pass whole, without framing or copies."""

from .send_queue import HIGH_WATER, QueuedWire, SendQueue


class MemoryWire(QueuedWire):
    """One end of a conversation in memory.

    Everything that is sent before the other end looks is received together.
    """

    outgoing: SendQueue

    async def aclose(self) -> None:
        """Close this end.

        The other end receives what was sent, and then the end. What it has sent, or
        sends later, is dropped.
        """
        self.outgoing.close()
        self.incoming.close(discard=True)


def memory_pair(high_water: int = HIGH_WATER) -> tuple[MemoryWire, MemoryWire]:
    """Return two wires. A message sent on one is received on the other."""
    there = SendQueue(high_water)
    back = SendQueue(high_water)
    return MemoryWire(back, there), MemoryWire(there, back)
