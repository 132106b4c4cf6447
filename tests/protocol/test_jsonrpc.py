"""Decoding messages: which are refused, with and without a reply, and the errors."""

import sys

import pytest
from msgspec import UNSET

from mcp_trio.protocol.jsonrpc import (
    MAX_BATCH,
    MAX_ID,
    MOST_PADDING,
    BadMessage,
    decode,
    decode_batch,
    explain,
)


def test_a_batch_of_the_largest_size_is_split() -> None:
    batch = b"[" + b",".join([b"{}"] * MAX_BATCH) + b"]"
    assert decode_batch(batch) == [b"{}"] * MAX_BATCH


def test_a_batch_with_one_message_more_is_refused() -> None:
    batch = b"[" + b",".join([b"{}"] * (MAX_BATCH + 1)) + b"]"
    with pytest.raises(BadMessage) as refused:
        decode_batch(batch)
    assert str(refused.value.error.message).startswith("Invalid request: a batch of")


@pytest.mark.parametrize("padding", [10, 100_000])
def test_params_do_not_keep_a_message_with_much_else_in_memory(padding: int) -> None:
    data = b'{"jsonrpc":"2.0","more":"%b","params":{"a":1}}' % (b"x" * padding)
    references = sys.getrefcount(data)
    params = decode(data).params
    assert bytes(params) == b'{"a":1}'
    assert (sys.getrefcount(data) == references) is (padding > MOST_PADDING)


@pytest.mark.parametrize(
    ("data", "is_silent"),
    [
        (b'{"jsonrpc":"1.0","method":"x"}', False),
        (b'{"method":"x"}', False),
        (b'{"jsonrpc":"2.0","method":5}', False),
        (b'{"jsonrpc":"1.0","method":"x","id":1}', False),
        # The last of two equal keys counts, so this is a notification.
        (b'{"jsonrpc":"1.0","jsonrpc":"2.0","method":"x"}', True),
        (b'{"jsonrpc":"1.0","error":{}}', True),
    ],
)
def test_an_invalid_notification_of_json_rpc_2_is_not_answered(
    data: bytes, is_silent: bool
) -> None:
    with pytest.raises(BadMessage) as refused:
        decode(data)
    assert refused.value.silent is is_silent


@pytest.mark.parametrize(
    ("written", "id"),
    [
        ("7", 7),
        ('"a"', "a"),
        (f'"{"x" * MAX_ID}"', "x" * MAX_ID),
        (f'"{"x" * (MAX_ID + 1)}"', UNSET),
        ("true", UNSET),
        ("1.5", UNSET),
    ],
)
def test_the_id_of_an_invalid_message_is_read_if_it_is_valid(
    written: str, id: object
) -> None:
    data = f'{{"jsonrpc":"2.0","method":5,"id":{written}}}'
    with pytest.raises(BadMessage) as refused:
        decode(data.encode())
    assert refused.value.id == id
    assert type(refused.value.id) is type(id)


def test_nesting_that_is_too_deep_is_explained() -> None:
    assert explain(RecursionError(), "$.a") == "$.a: nested too deep"
