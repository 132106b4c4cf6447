"""Checks that there is memory for a large value before msgspec encodes or decodes it.

Where the system limits the memory of the process, msgspec 0.22 crashes the process if
it gets no memory in the middle of its work.
"""

# Characters or bytes of JSON from which this is checked.
LARGE = 64 * 1024
# How many times as large as its JSON a value can be: `[{},{}]` has the largest ones.
DECODED = 24


def require_memory(size: int) -> None:
    """Raise MemoryError if the system has no memory of this size now.

    To reserve memory and give it back takes microseconds, because nobody writes there.
    """
    # Deferred, because few processes ever need it.
    import mmap

    try:
        mmap.mmap(-1, size).close()
    except OSError:
        raise MemoryError(f"the system has no memory of {size:,} bytes") from None
