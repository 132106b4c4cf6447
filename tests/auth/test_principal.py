"""Which principals are the same, and which may act for another."""

import pytest

from mcp_trio.auth.principal import (
    Principal,
    can_stand_in_for,
    has_scopes,
    is_same_principal,
)

READER = Principal("ada", frozenset({"read"}))
WRITER = Principal("ada", frozenset({"read", "write"}))
STRANGER = Principal("bob", frozenset({"read", "write"}))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (None, None, True),
        (READER, READER, True),
        (READER, WRITER, True),
        (READER, STRANGER, False),
        (READER, None, False),
        (None, READER, False),
    ],
)
def test_principals_are_the_same_if_their_names_are(
    one: Principal | None, other: Principal | None, is_same: bool
) -> None:
    assert is_same_principal(one, other) is is_same


@pytest.mark.parametrize(
    ("one", "other", "can"),
    [
        (None, None, True),
        (WRITER, READER, True),
        (READER, WRITER, False),
        (STRANGER, READER, False),
        (READER, None, False),
        (None, READER, False),
    ],
)
def test_a_principal_stands_in_for_itself_with_no_more_scopes(
    one: Principal | None, other: Principal | None, can: bool
) -> None:
    assert can_stand_in_for(one, other) is can


@pytest.mark.parametrize(
    ("principal", "scopes", "has"),
    [
        (None, set(), True),
        (None, {"read"}, False),
        (READER, set(), True),
        (READER, {"read"}, True),
        (READER, {"read", "write"}, False),
    ],
)
def test_nobody_needs_a_principal_for_no_scopes(
    principal: Principal | None, scopes: set[str], has: bool
) -> None:
    assert has_scopes(principal, frozenset(scopes)) is has
