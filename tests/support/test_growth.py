"""The check that time grows in proportion to the size."""

import pytest

from tests.support.growth import assert_linear


def count_to(size: int) -> None:
    sum(range(size))


def count_pairs(size: int) -> None:
    for _ in range(size):
        sum(range(size))


def test_linear_time_passes() -> None:
    assert_linear(count_to, int, 400_000)


def test_quadratic_time_fails() -> None:
    with pytest.raises(AssertionError):
        assert_linear(count_pairs, int, 1_600)
