"""The table of a connection's states."""

import pytest

from mcp_trio.transports.http.state import (
    CLOSED,
    READING,
    RESPONDING,
    TRANSITIONS,
    WATCHED,
    State,
    check_transition,
)


def test_every_state_has_its_successors() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_state_can_be_closed_and_nothing_follows_that() -> None:
    for state in set(State) - {CLOSED}:
        check_transition(state, CLOSED)
        with pytest.raises(RuntimeError, match="from state 'closed'"):
            check_transition(CLOSED, state)


def test_a_transition_that_is_not_in_the_table_is_an_error() -> None:
    for old, new in ((READING, RESPONDING), (RESPONDING, WATCHED)):
        with pytest.raises(
            RuntimeError, match=f"from state '{old.value}' to '{new.value}'"
        ):
            check_transition(old, new)
