"""The check that enough memory is available for a large value."""

import pytest

from mcp_trio.protocol.memory import LARGE, require_memory


def test_memory_that_is_available_can_be_required() -> None:
    require_memory(LARGE)


def test_memory_that_no_system_has_is_an_error() -> None:
    with pytest.raises(MemoryError, match="cannot allocate 1,152,921,504,606,846,976"):
        require_memory(2**60)
