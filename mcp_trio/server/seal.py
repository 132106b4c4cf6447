"""The seal on what a client carries for the server."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode


class Seal:
    """Keeps what goes out to a client from being changed there. It can be read there: put no secret under it."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def close(self, content: bytes) -> str:
        """The content with its signature."""
        return urlsafe_b64encode(hmac.digest(self._secret, content, "sha256") + content).decode()

    def open(self, sealed: str) -> bytes:
        """What was closed. Raises ValueError for anything else."""
        given = sealed.encode()
        content = urlsafe_b64decode(given)[32:]
        # Compared as a whole: reading base64 passes over what it does not know and what comes after its end.
        if not hmac.compare_digest(given, self.close(content).encode()):
            raise ValueError("this is not what was closed")
        return content
