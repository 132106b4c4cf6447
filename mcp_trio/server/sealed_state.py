"""TODO"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from msgspec import Raw, Struct

# Seconds within which a client has to come back with its answers.
STATE_LIFETIME = 3600


def seal(secret: bytes, content: bytes) -> str:
    """The content with its signature: no client can change it, but each can read it."""
    return urlsafe_b64encode(hmac.digest(secret, content, "sha256") + content).decode()


def unseal(secret: bytes, sealed: str) -> bytes:
    """What was sealed. Raises ValueError for anything else."""
    content = urlsafe_b64decode(sealed.encode())[32:]
    # Compared as a whole: reading base64 passes over what it does not know and what comes after its end.
    if not hmac.compare_digest(sealed.encode(), seal(secret, content).encode()):
        raise ValueError("this is not what was sealed")
    return content


class State(Struct):
    """What a client brings back sealed: which request it is of, until when, and what is known so far."""

    digest: str
    expires: float
    answers: dict[str, Raw] = {}
    done: dict[str, Raw] = {}
