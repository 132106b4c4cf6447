"""Creates stores from URLs."""

from .base import Store
from .memory import MemoryStore

_PARENT = "parent"
EXPECTED = "expected memory: or redis://[USER:PASSWORD@]HOST[:PORT][/DB][?prefix=NAME]"


def create_store(url: str) -> Store:
    """Return the store at a URL.

    `memory:` is the memory of this process, and `redis://` or `rediss://` is a Redis
    server. `parent:PATH` is the store of the parent process. Raises ValueError for
    other URLs, and ImportError if coredis is not installed.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory" and not rest:
        return MemoryStore()
    if scheme in ("redis", "rediss"):
        from .redis import RedisStore  # loads coredis

        return RedisStore(url)
    if scheme == _PARENT:
        from .parent import ParentStore

        return ParentStore(rest)
    raise ValueError(f"{EXPECTED}, got {url!r}")


def parent_url(path: str) -> str:
    """Return the URL of the store that this process serves at a path."""
    return f"{_PARENT}:{path}"
