"""What an object keeps is found wherever it is kept."""

from tests.support.reachable import reachable


class Keeper:
    def __init__(self) -> None:
        self.records = {"key": [b"value"], 5: {b"inner": ("deep",)}}


def test_values_and_keys_are_found_at_any_depth() -> None:
    keeper = Keeper()
    assert sorted(reachable(keeper, bytes)) == [b"inner", b"value"]
    assert {"key", "deep"} <= set(reachable(keeper, str))


def test_what_was_let_go_is_not_found() -> None:
    keeper = Keeper()
    keeper.records.clear()
    assert reachable(keeper, bytes) == []


def test_an_object_that_refers_to_itself_is_looked_at_once() -> None:
    loop: list[object] = [b"once"]
    loop.append(loop)
    assert reachable(loop, bytes) == [b"once"]
