"""What a request is charged that begins to wait."""

import json

import pytest

from mcp_trio import Server
from mcp_trio.protocol.session import Call, Session
from mcp_trio.server.charges import (
    FREE_PARAMS,
    FREE_REQUESTS,
    VALUE_SIZE,
    charge_request,
    params_size,
)
from mcp_trio.server.conversation import Conversation
from mcp_trio.server.ledger import Ledger
from mcp_trio.server.request import Request
from tests.support.checked import Json, modern


class Nowhere:
    """A channel on which nothing is heard."""

    def send(self, message: bytes) -> None:
        pass

    async def drained(self) -> None:
        pass


def request_for(message: Json) -> Request:
    """Return a client's request, as it is when it begins to wait."""
    server = Server("charging")
    session = Session(server.revisions)
    call = session.receive(json.dumps(message).encode())
    assert isinstance(call, Call)
    channel = Nowhere()
    conversation = Conversation(session, channel, address="192.0.2.1")
    return Request(call, conversation, channel, server.environment, None)


def calling(text: str) -> Request:
    params = {"name": "echo", "arguments": {"text": text}}
    return request_for(modern(1, "tools/call", params))


def calling_with(size: int) -> Request:
    """Return a call whose params have so many bytes."""
    least = len(bytes(calling("").call.raw))
    assert least <= size
    return calling("x" * (size - least))


@pytest.mark.parametrize(
    ("size", "total", "is_free"),
    [
        (FREE_PARAMS, FREE_REQUESTS, True),
        (FREE_PARAMS + 1, FREE_REQUESTS, False),
        (FREE_PARAMS, FREE_REQUESTS + 1, False),
    ],
)
def test_some_requests_with_few_params_are_free(
    size: int, total: int, is_free: bool
) -> None:
    ledger = Ledger(2**20)
    charge_request(ledger, calling_with(size), total)
    assert (ledger.held == 0) is is_free


def test_a_subscription_is_charged_even_if_it_is_the_only_one() -> None:
    ledger = Ledger(2**20)
    listen = modern(1, "subscriptions/listen", {"notifications": {}})
    charge_request(ledger, request_for(listen), 1)
    assert ledger.by_kind["listens"] == ledger.held > 0


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("plain", 1),
        ("caf\u00e9", 2),
        ("caf\\u00e9", 2),
        ("\N{GRINNING FACE}", 4),
        ("\\ud83d\\ude00", 4),
        ("\\uD83D\\uDE00", 4),
    ],
    ids=["ASCII", "two bytes", "an escape", "an emoji", "its escape", "in capitals"],
)
def test_a_text_is_charged_for_its_widest_character(text: str, width: int) -> None:
    raw = f'"{text}"'.encode()
    # Each quotation mark counts as a value, too.
    assert params_size(raw) == len(raw) * (1 + width) + 2 * VALUE_SIZE
