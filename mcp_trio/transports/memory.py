"""A transport within one process: messages pass whole, without framing or copies."""

from .send_queue import HIGH_WATER, QueuedWire, SendQueue


class MemoryWire(QueuedWire):
    """One end of a conversation in memory.

    A call of `receive` returns everything that was sent until then.
    """

    outgoing: SendQueue

    async def aclose(self) -> None:
        """Close this end.

        The other end still receives what was sent. What it has sent, or sends later,
        is dropped.
        """
        self.outgoing.close()
        self.incoming.close(discard=True)


def memory_pair(high_water: int = HIGH_WATER) -> tuple[MemoryWire, MemoryWire]:
    """Return two connected wires: a message sent on one is received on the other."""
    one_way = SendQueue(high_water)
    other_way = SendQueue(high_water)
    return MemoryWire(other_way, one_way), MemoryWire(one_way, other_way)
