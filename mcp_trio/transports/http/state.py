"""The states of a connection, and the transitions between them."""

from enum import Enum


class State(Enum):
    """What a connection is doing."""

    # The reader waits for the client's next bytes; the connection has no task. Requests
    # that do not wait are answered in the reader's turn, without leaving this state.
    WATCHED = "watched"
    # The connection's task waits for the client's next bytes.
    READING = "reading"
    # The wait for the client is over. The connection is closed, unless a request has
    # begun to arrive in the meantime.
    LAST_LOOK = "last look"
    # The connection's task answers requests that have arrived.
    ANSWERING = "answering"
    # The connection's task waits until the client reads what is written.
    WRITING = "writing"
    # A request is running, and another task watches for a disconnect.
    RESPONDING = "responding"
    # The same for a response that only the client ends: an event stream or a WebSocket.
    LISTENING = "listening"
    # A new task is about to take over.
    MOVING = "moving"
    CLOSED = "closed"


# These are several times faster to look up than the members of the enum.
WATCHED = State.WATCHED
READING = State.READING
LAST_LOOK = State.LAST_LOOK
ANSWERING = State.ANSWERING
WRITING = State.WRITING
RESPONDING = State.RESPONDING
LISTENING = State.LISTENING
MOVING = State.MOVING
CLOSED = State.CLOSED

# The states in which the client has to do something before a deadline.
WAITS_FOR_CLIENT = frozenset({WATCHED, READING, WRITING})

# State -> the states that may follow it.
TRANSITIONS: dict[State, frozenset[State]] = {
    WATCHED: frozenset(
        {LAST_LOOK, ANSWERING, WRITING, RESPONDING, LISTENING, MOVING, CLOSED}
    ),
    READING: frozenset({LAST_LOOK, ANSWERING, WRITING, CLOSED}),
    LAST_LOOK: frozenset({WATCHED, READING, ANSWERING, WRITING, CLOSED}),
    ANSWERING: frozenset(
        {
            *(WATCHED, READING, LAST_LOOK, WRITING),
            *(RESPONDING, LISTENING, MOVING, CLOSED),
        }
    ),
    WRITING: frozenset({ANSWERING, RESPONDING, LISTENING, CLOSED}),
    RESPONDING: frozenset({ANSWERING, WRITING, CLOSED}),
    LISTENING: frozenset({ANSWERING, WRITING, CLOSED}),
    MOVING: frozenset({ANSWERING, RESPONDING, CLOSED}),
    CLOSED: frozenset(),
}


def check_transition(old: State, new: State) -> None:
    """Raise RuntimeError if there is no such transition."""
    if new not in TRANSITIONS[old]:
        raise RuntimeError(
            f"connection: no transition from state {old.value!r} to {new.value!r}"
        )
