"""Checks that enough memory is available before msgspec encodes or decodes a value.

If the system limits the memory of the process, msgspec 0.22 crashes the process when an
allocation fails.
"""

# Values with at least this many characters or bytes of JSON are checked.
LARGE = 64 * 1024
# The maximum size of a decoded value, relative to its JSON. The worst is `[{},{}]`.
DECODED = 24


def require_memory(size: int) -> None:
    """Raise MemoryError unless this many bytes can be allocated now.

    Reserving memory without writing to it takes microseconds.
    """
    # Deferred, because few processes ever need it.
    import mmap

    try:
        mmap.mmap(-1, size).close()
    except OSError:
        raise MemoryError(f"cannot allocate {size:,} bytes") from None
