"""Two ends in one process. Messages pass whole, without framing and without a copy."""

from .send_queue import HIGH_WATER, QueuedWire, SendQueue


class MemoryWire(QueuedWire):
    """One end. What is sent before the other end next looks, it receives together."""

    outgoing: SendQueue

    async def aclose(self) -> None:
        """The other end receives what was sent, and then the end. What it sent and sends is forgotten."""
        self.outgoing.close()
        self.incoming.close(discard=True)


def memory_pair(high_water: int = HIGH_WATER) -> tuple[MemoryWire, MemoryWire]:
    """Two wires: what is sent on one is received on the other."""
    there, back = SendQueue(high_water), SendQueue(high_water)
    return MemoryWire(back, there), MemoryWire(there, back)
