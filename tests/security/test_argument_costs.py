"""Messages and arguments that do not fit cost no more than decoding them."""

import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pydantic
import pytest

from mcp_trio import Server
from mcp_trio.protocol.errors import InvalidArguments
from mcp_trio.protocol.jsonrpc import BadMessage, decode
from mcp_trio.protocol.session import Refusal, Session
from mcp_trio.server.schema.signature import Parameters

SIZE = 4 * 2**20


def _list_of(item: bytes) -> bytes:
    count = SIZE // (len(item) + 1)
    return b'{"numbers":[' + b",".join([item] * count) + b"]}"


def _integers(numbers: list[int]) -> None: ...


def _nothing(other: int) -> None: ...


def _free(numbers: list[Any], number: int) -> None: ...


def _time(action: Callable[[], object]) -> float:
    """Return the processor time of this thread for an action, including freeing."""
    began = time.thread_time()
    action()
    return time.thread_time() - began


@pytest.mark.slow
@pytest.mark.parametrize("function", [_integers, _nothing, _free])
@pytest.mark.parametrize("item", [b"1.0", b"1.5", b"1", b"1e2", b"{}", b'{"a":1.0}'])
def test_large_arguments_that_do_not_fit_are_not_decoded_again_by_slower_means(
    function: Callable[..., None], item: bytes
) -> None:
    raw = _list_of(item)
    if function is _integers:
        # Only the last one does not fit, so all others are decoded first.
        raw = raw.replace(b"]}", b",1.5]}") if item == b"1" else raw
    parameters = Parameters(function)

    def refuse() -> None:
        try:
            parameters.decode(raw)
        except InvalidArguments:
            return
        raise AssertionError("the arguments fit")

    # In turns, as the processor's speed changes, and more often if it is busy.
    plain, refused = [], []
    for number in range(30):
        plain.append(_time(lambda: msgspec.json.decode(raw)))
        refused.append(_time(refuse))
        if number >= 3 and min(refused) <= 1.5 * min(plain):
            break
    assert min(refused) <= 1.5 * min(plain)


@pytest.mark.parametrize("where", ["in a list", "beside a long text"])
def test_whole_numbers_are_integers_in_arguments_of_a_usual_size(where: str) -> None:
    def function(text: str, numbers: list[int]) -> None: ...

    numbers = [1.0] * (500 if where == "in a list" else 1)
    text = "" if where == "in a list" else "a long text " * 50_000
    raw = msgspec.json.encode({"text": text, "numbers": numbers})
    decoded = Parameters(function).decode(raw)
    assert decoded["numbers"] == numbers
    assert all(type(number) is int for number in decoded["numbers"])


def test_whole_numbers_in_arguments_of_an_unusual_size_are_refused() -> None:
    with pytest.raises(InvalidArguments, match="expected integer, got number"):
        Parameters(_integers).decode(_list_of(b"1.0"))


def test_arguments_that_do_not_fit_are_freed_without_the_garbage_collector() -> None:
    def add(a: int) -> int:
        return a

    parameters = Parameters(add, of="tool add")
    gc.collect()
    gc.disable()
    try:
        with suppress(InvalidArguments):
            parameters.decode(b'{"a": "x"}')
        kept = [
            one for one in gc.get_objects() if isinstance(one, msgspec.MsgspecError)
        ]
    finally:
        gc.enable()
    assert kept == []


def test_no_objects_are_made_of_an_invalid_message() -> None:
    message = b'{"jsonrpc":"2.0","id":{},"more":[' + b"{}," * 100_000 + b"{}]}"
    tracemalloc.start()
    with pytest.raises(BadMessage) as refused:
        decode(message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.id is msgspec.UNSET
    assert peak < len(message)


def test_a_long_value_is_shortened_in_the_explanation_of_its_problem() -> None:
    revisions = Server("x").revisions
    session = Session(revisions, revisions.newest_opening)
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "logging/setLevel",
        "params": {"level": "x" * 100_000},
    }
    event = session.receive(json.dumps(message).encode())
    assert isinstance(event, Refusal)
    text = json.loads(event.data)["error"]["message"]
    assert text.startswith("Invalid params: $.params.level: invalid enum value 'xxx")
    assert text.endswith("xxx...")
    assert len(text) < 1100


class Point(pydantic.BaseModel):
    x: int


def _points(points: list[Point]) -> None: ...


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1000, "; and 995 more"),
        (1001, "$.points: 1,001 problems, which are too many to list"),
    ],
)
def test_very_many_problems_of_a_pydantic_argument_are_only_counted(
    count: int, expected: str
) -> None:
    raw = json.dumps({"points": [{"x": "a"}] * count}).encode()
    with pytest.raises(InvalidArguments) as refused:
        Parameters(_points).decode(raw)
    assert refused.value.reason.endswith(expected)
