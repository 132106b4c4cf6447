"""Makes the C library return free memory to the system early.

At first, glibc returns large blocks to the system. Once a large block has been freed,
it allocates further ones on its heap, where small blocks that are still in use keep
them from being returned. The heap fragments, and the process does not shrink again.

Measured with sixty clients that do not read results of 7 MiB, 249 MiB in total: the
process uses 290 MiB with `return_large_blocks`, and 332 MiB without. After the clients
have disconnected it uses 75 MiB, and 37 MiB after `return_free_memory`.
"""

import sys
from functools import cache
from typing import Any

# The minimum size of a large block, such as a table of ten thousand sessions.
LARGE = 256 * 1024
# Parameters of mallopt(3): the minimum size of blocks outside the heap, and the maximum
# number of free bytes at the end of the heap.
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1


class Allocator:
    """The allocator of the C library. Does nothing unless that is glibc."""

    def return_large_blocks(self) -> None:
        """Allocate large blocks outside the heap from now on."""
        mallopt = _function("mallopt")
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, LARGE)
            mallopt(_M_TRIM_THRESHOLD, LARGE)

    def return_free_memory(self) -> None:
        """Return the free parts of the heap to the system.

        This takes about a millisecond per ten megabytes.
        """
        malloc_trim = _function("malloc_trim")
        if malloc_trim is not None:
            malloc_trim(0)


@cache
def _function(name: str) -> Any:  # noqa: ANN401
    """Return a function of the C library, or None if it does not have it."""
    if sys.platform != "linux":
        return None
    # Deferred, because few processes ever need it.
    import ctypes

    return getattr(ctypes.CDLL(None), name, None)
