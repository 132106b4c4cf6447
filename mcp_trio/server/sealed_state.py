"""The signed state that a client carries from one round of a request to the next."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from msgspec import Raw, Struct

# Seconds within which a client has to come back with its answers.
STATE_LIFETIME = 3600

_SIGNATURE_LENGTH = 32  # of SHA-256, in bytes


class RequestState(Struct):
    """What is known so far about a request that asks its client questions."""

    digest: str  # of the request that it belongs to
    expires: float  # in seconds since 1970
    answers: dict[str, Raw] = {}  # by the questions' keys
    done: dict[str, Raw] = {}  # results of the steps done with `once`


def seal(secret: bytes, content: bytes) -> str:
    """Sign the content. A client can read it, but cannot change it."""
    signature = hmac.digest(secret, content, "sha256")
    return urlsafe_b64encode(signature + content).decode()


def unseal(secret: bytes, sealed: str) -> bytes:
    """Return the content that was signed. Raises ValueError for anything else."""
    content = urlsafe_b64decode(sealed.encode())[_SIGNATURE_LENGTH:]
    # The text is compared as a whole, because the base64 decoder ignores unknown
    # characters and whatever follows the end.
    expected = seal(secret, content)
    if not hmac.compare_digest(sealed.encode(), expected.encode()):
        raise ValueError("the sealed text was changed")
    return content
