"""The signed state that a client sends back with its answers to questions."""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from msgspec import Raw, Struct

# Seconds that a client has to answer.
STATE_LIFETIME = 3600

_SIGNATURE_LENGTH = 32  # of SHA-256, in bytes


class RequestState(Struct):
    """The state of a request that has asked its client questions."""

    digest: str  # identifies the request: see `_digest` in client_requests.py
    expires: float  # in seconds since 1970
    answers: dict[str, Raw] = {}  # by the questions' keys
    done: dict[str, Raw] = {}  # results of the steps done with `once`


def seal(secret: bytes, content: bytes) -> str:
    """Sign the content. A client can read it, but cannot change it."""
    signature = hmac.digest(secret, content, "sha256")
    return urlsafe_b64encode(signature + content).decode()


def unseal(secret: bytes, sealed: str) -> bytes:
    """Return the signed content. Raises ValueError if the signature is invalid."""
    content = urlsafe_b64decode(sealed.encode())[_SIGNATURE_LENGTH:]
    # The whole text is compared, because the base64 decoder ignores unknown characters
    # and any data after the padding.
    expected = seal(secret, content)
    if not hmac.compare_digest(sealed.encode(), expected.encode()):
        raise ValueError("the signature does not match")
    return content
