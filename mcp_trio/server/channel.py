"""The interfaces that transports implement to exchange messages with a client."""

from typing import Protocol


class Channel(Protocol):
    """Sends messages to a client: over a connection, or in one HTTP response."""

    def send(self, message: bytes) -> None:
        """Queue one message. Never waits."""

    async def drained(self) -> None:
        """Wait while too many messages are queued, because the client reads slowly."""


class Wire(Channel, Protocol):
    """Exchanges messages with one client."""

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return all that are complete.

        None replaces a message that was too large. An empty list means that the client
        sends nothing more.
        """

    def flush(self) -> None:
        """Write the messages that were queued since `receive`, if possible."""
