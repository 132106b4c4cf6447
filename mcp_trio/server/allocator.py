"""Has the C library give large blocks back to the system as soon as they are freed.

glibc begins that way. But once a large block was freed, it keeps the next ones in its
heap, where small blocks that are still in use stand between them. Then a process takes
more memory than it uses, and keeps it.

Measured while sixty clients do not read results of 7 MiB, so that 249 MiB are held: the
process takes 290 MiB, and 332 MiB without this device.
"""

import sys

# From so many bytes on, a block is large. The tables of ten thousand sessions are.
LARGE = 256 * 1024
# Parameters of mallopt(3): from which size on a block is not in the heap, and how many
# free bytes the heap may have at its end.
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1


def return_large_blocks() -> None:
    """Do so from now on, if the C library is glibc."""
    if sys.platform != "linux":
        return
    # Deferred, because few processes ever need it.
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE)
        mallopt(_M_TRIM_THRESHOLD, LARGE)
