"""The revision of a request, when the transport names one and the request does not."""

import msgspec
import pytest

from mcp_trio.protocol.revisions import Revisions
from mcp_trio.protocol.session import Call, Refusal, Session
from mcp_trio.protocol.types import Implementation

REVISIONS = Revisions(Implementation("x", "1"))
STATELESS = next(iter(REVISIONS.stateless.values()))


def error_of(session: Session, method: str) -> tuple[int, str]:
    """Return the code and the message of the refusal of a request without `_meta`."""
    data = b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % method.encode()
    refusal = session.receive(data)
    assert isinstance(refusal, Refusal)
    error = msgspec.json.decode(refusal.data)["error"]
    return error["code"], error["message"]


@pytest.mark.parametrize("stated", [None, STATELESS])
def test_a_method_of_a_stateless_revision_needs_the_version_in_its_meta(stated) -> None:
    session = Session(REVISIONS, stated=stated)
    code, message = error_of(session, "server/discover")
    assert code == -32602
    assert "protocolVersion" in message


def test_a_method_that_the_stated_revision_does_not_have_is_not_found() -> None:
    session = Session(REVISIONS, stated=STATELESS)
    assert error_of(session, "resources/subscribe") == (
        -32601,
        "Method not found: resources/subscribe",
    )


def test_ping_is_answered_in_a_session_that_is_new() -> None:
    event = Session(REVISIONS).receive(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    assert isinstance(event, Call)
    assert event.revision is REVISIONS.newest_opening
