"""How the server sends messages back to a client, whatever the transport."""

from typing import Protocol


class Channel(Protocol):
    """The way back to a client: a whole connection, or one HTTP response."""

    def send(self, message: bytes) -> None:
        """Queue one message. Never waits."""

    async def drained(self) -> None:
        """Wait while the client is too far behind to be sent more."""


class Wire(Channel, Protocol):
    """One client's messages in both directions."""

    async def receive(self) -> list[bytes | None]:
        """Wait for messages and return every complete one.

        None takes the place of a message that was too large. An empty list means that
        the client sends no more.
        """

    def flush(self) -> None:
        """End the turn that `receive` began, and write its messages if possible."""
