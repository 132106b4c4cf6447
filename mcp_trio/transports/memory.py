"""Two ends in one process. Messages pass whole, without framing and without a copy."""

from mcp_trio.transports.outbox import HIGH_WATER, Outbox


class MemoryWire:
    """One end. What is sent before the other end next looks, it receives together."""

    def __init__(self, incoming: Outbox, outgoing: Outbox) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    async def receive(self) -> list[bytes | None]:
        """Every message that has come; waits for one, without a checkpoint if it is there. Empty: an end was closed."""
        await self._incoming.wait()
        messages = self._incoming.take()
        self._incoming.gone(self._incoming.size)
        return [*messages]

    def send(self, message: bytes) -> None:
        """Gives one message to the other end."""
        self._outgoing.put(message)
        self._outgoing.wake()

    def flush(self) -> None:
        """Nothing to do: what is sent is there."""

    async def drained(self) -> None:
        """Returns when the other end has not much left to receive."""
        await self._outgoing.drained()

    async def aclose(self) -> None:
        """The other end receives what was sent, and then the end. What it sent and sends is forgotten."""
        self._outgoing.close()
        self._incoming.close(discard=True)


def memory_pair(high_water: int = HIGH_WATER) -> tuple[MemoryWire, MemoryWire]:
    """Two wires: what is sent on one is received on the other."""
    there, back = Outbox(high_water), Outbox(high_water)
    return MemoryWire(back, there), MemoryWire(there, back)
