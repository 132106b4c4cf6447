"""The largest account pays when the budget is exceeded, in a fixed order."""

import sys

import pytest
from trio.testing import MockClock

from mcp_trio.server import ledger as ledger_module
from mcp_trio.server.accounts import Account
from mcp_trio.server.allocator import Allocator
from mcp_trio.server.ledger import (
    LOG_INTERVAL,
    MUCH,
    MUCH_TO_RETURN,
    STEP,
    AccountEntry,
    Holding,
    Ledger,
    Meter,
    Priority,
)
from tests.support.reachable import reachable

ALICE = Account("principal", "alice")
BOB = Account("principal", "bob")
CAROL = Account("principal", "carol")


class Given:
    """Holdings by name, and the names of those that were given up."""

    def __init__(self, budget: int) -> None:
        self.ledger = Ledger(budget)
        self.ledger.rank("sessions", "streams")
        self.up: list[str] = []
        self.holdings: dict[str, Holding] = {}
        self.refusing: set[str] = set()

    def hold(
        self,
        name: str,
        account: Account,
        size: int,
        priority: Priority = Priority.IDLE,
        kind: str = "sessions",
    ) -> Holding:
        def give_up() -> bool:
            if name in self.refusing:
                return False
            self.up.append(name)
            return True

        holding = self.ledger.hold(account, kind, size, priority, give_up)
        self.holdings[name] = holding
        return holding


def test_nothing_is_given_up_within_the_budget() -> None:
    given = Given(100)
    given.hold("a", ALICE, 50)
    given.hold("b", BOB, 50)
    assert given.up == []
    assert given.ledger.held == 100
    assert given.ledger.by_kind["sessions"] == 100


def test_a_holding_may_grow_to_the_whole_budget() -> None:
    given = Given(100)
    given.hold("a", ALICE, 50)
    given.hold("b", BOB, 40).resize(50)
    assert given.up == []


def test_no_more_is_given_up_than_makes_room_for_a_while() -> None:
    given = Given(160)
    given.hold("a1", ALICE, 30)
    given.hold("a2", ALICE, 60)
    given.hold("b", BOB, 60)
    # Without a1, 150 bytes are held. That leaves a sixteenth of the budget free.
    given.hold("c", CAROL, 30)
    assert given.up == ["a1"]
    assert given.ledger.held == 150


def test_the_largest_account_pays_for_a_small_newcomer() -> None:
    given = Given(100)
    given.hold("a1", ALICE, 30)
    given.hold("a2", ALICE, 50)
    given.hold("b", BOB, 15)
    given.hold("c", CAROL, 10)
    assert given.up == ["a1"]
    assert given.ledger.held_by(BOB) == 15
    assert given.ledger.held_by(CAROL) == 10


def test_idle_holdings_go_first_then_streams_then_the_newest_requests() -> None:
    given = Given(100)
    given.hold("old request", ALICE, 20, Priority.REQUEST)
    given.hold("new request", ALICE, 20, Priority.REQUEST)
    given.hold("stream", ALICE, 20, Priority.STREAM)
    given.hold("old idle", ALICE, 20, Priority.IDLE)
    given.hold("new idle", ALICE, 20, Priority.IDLE)
    big = given.hold("b", BOB, 10)
    assert given.up == ["old idle"]
    for size, gone in [(30, "new idle"), (50, "stream")]:
        big.resize(size)
        assert given.up[-1] == gone
    assert "old request" not in given.up


def test_the_newest_request_is_given_up_before_older_ones() -> None:
    given = Given(100)
    given.hold("first", ALICE, 40, Priority.REQUEST)
    given.hold("second", ALICE, 40, Priority.REQUEST)
    given.hold("b", BOB, 30)
    assert given.up == ["second"]


def test_a_holding_that_was_used_is_not_the_oldest() -> None:
    given = Given(100)
    given.hold("first", ALICE, 40)
    given.hold("second", ALICE, 40)
    given.holdings["first"].touch()
    given.hold("b", BOB, 30)
    assert given.up == ["second"]


def test_two_large_accounts_pay_in_turn() -> None:
    given = Given(100)
    for number in range(5):
        given.hold(f"a{number}", ALICE, 10)
        given.hold(f"b{number}", BOB, 10)
    given.hold("c", CAROL, 20)
    # Both are equal, so both lose something, until there is room for a while.
    assert sorted(given.up) == ["a0", "b0", "b1"]
    assert given.ledger.held == 90


def test_what_cannot_be_given_up_now_is_skipped() -> None:
    given = Given(100)
    given.refusing.add("busy")
    given.hold("busy", ALICE, 60)
    given.hold("idle", ALICE, 20)
    given.hold("b", BOB, 30)
    assert given.up == ["idle"]


def test_the_next_account_pays_if_the_largest_cannot(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = Given(100)
    given.refusing.add("busy")
    given.hold("busy", ALICE, 60)
    given.hold("b", BOB, 30)
    given.hold("c", CAROL, 20)
    assert given.up == ["b"]
    given.refusing.add("c")
    given.hold("more", ALICE, 100)
    assert given.up == ["b", "more"]
    assert "more is held than 100 bytes" in caplog.text


def test_releasing_is_idempotent_and_forgets_the_account() -> None:
    given = Given(100)
    holding = given.hold("a", ALICE, 60)
    holding.release()
    holding.release()
    holding.resize(50)
    holding.touch()
    assert given.ledger.held == 0
    assert given.ledger.count_of(ALICE, "sessions") == 0
    assert given.ledger.most_of("sessions") is None


def test_a_holding_that_shrinks_makes_room() -> None:
    given = Given(100)
    holding = given.hold("a", ALICE, 90)
    holding.resize(10)
    given.hold("b", BOB, 90)
    assert given.up == []


def test_a_holding_can_change_its_priority() -> None:
    given = Given(100)
    given.hold("first", ALICE, 40, Priority.IDLE)
    given.hold("second", ALICE, 40, Priority.IDLE)
    given.holdings["first"].reprioritize(Priority.REQUEST)
    given.hold("b", BOB, 30)
    assert given.up == ["second"]
    assert given.holdings["first"].size == 40


def test_the_account_with_the_most_of_a_kind_is_known() -> None:
    given = Given(100)
    given.hold("a", ALICE, 1)
    given.hold("b1", BOB, 1)
    given.hold("b2", BOB, 1)
    given.hold("c1", CAROL, 1, kind="streams")
    given.hold("c2", CAROL, 1, kind="streams")
    given.hold("c3", CAROL, 1, kind="streams")
    assert given.ledger.most_of("sessions") == BOB
    assert given.ledger.most_of("streams") == CAROL
    assert given.ledger.count_of(BOB, "sessions") == 2


def test_what_is_charged_while_room_is_made_does_not_recurse() -> None:
    ledger = Ledger(100)

    def give_up() -> bool:
        ledger.hold(BOB, "replies", 10, Priority.STREAM, lambda: True)
        return True

    ledger.hold(ALICE, "requests", 60, Priority.REQUEST, give_up)
    ledger.hold(ALICE, "requests", 60, Priority.REQUEST, give_up)
    assert ledger.held_by(BOB) == 10
    assert ledger.held <= 100


def test_a_thousand_accounts_are_cheap_within_the_budget() -> None:
    given = Given(10**9)
    for number in range(1000):
        account = Account("address", str(number))
        given.hold(str(number), account, 1000)
    assert given.ledger.held == 10**6
    for holding in given.holdings.values():
        holding.release()
    assert given.ledger.held == 0
    assert reachable(given.ledger, AccountEntry) == []


def test_an_account_gives_up_its_oldest_of_one_kind() -> None:
    given = Given(10**6)
    given.hold("old stream", ALICE, 1, kind="streams")
    given.hold("old session", ALICE, 1)
    given.hold("new session", ALICE, 1)
    given.holdings["old session"].touch()
    assert given.ledger.give_up_one(ALICE, "sessions")
    assert given.up == ["new session"]
    assert given.ledger.give_up_one(ALICE, "sessions")
    assert not given.ledger.give_up_one(ALICE, "sessions")
    assert given.ledger.most_of("streams") == ALICE


def test_an_account_that_holds_nothing_has_nothing_to_give_up() -> None:
    given = Given(100)
    assert not given.ledger.give_up_one(ALICE, "sessions")


class Body:
    """Something whose size changes."""

    def __init__(self, ledger: Ledger, free: int = STEP) -> None:
        self.given_up = 0
        self.meter = Meter(
            ledger, ALICE, "bodies", Priority.REQUEST, self.give_up, free=free
        )

    def give_up(self) -> bool:
        self.given_up += 1
        return True


def test_a_meter_does_not_charge_what_is_small() -> None:
    ledger = Ledger(10**6)
    body = Body(ledger)
    meter = body.meter
    meter.set(STEP)
    assert ledger.held == 0
    meter.set(STEP + 1)
    assert ledger.held == 2 * STEP
    meter.set(0)
    assert ledger.held == 0


def test_a_meter_charges_in_steps_up_and_down() -> None:
    ledger = Ledger(10**6)
    body = Body(ledger, free=0)
    meter = body.meter
    for size in (1, STEP, STEP + 1, 10 * STEP, 9 * STEP + 1, 9 * STEP, 100, 0):
        meter.set(size)
        assert ledger.held == -(-size // STEP) * STEP
    assert reachable(ledger, AccountEntry) == []


def test_what_a_meter_charges_can_be_given_up_as_it_grows() -> None:
    ledger = Ledger(10 * STEP)
    body = Body(ledger)
    meter = body.meter
    meter.set(9 * STEP)
    assert not body.given_up
    meter.set(11 * STEP)
    assert body.given_up
    assert ledger.held == 0
    # A holding that continues to grow is charged again.
    meter.set(5 * STEP)
    assert ledger.held == 5 * STEP


def test_what_a_meter_charges_can_change_its_priority() -> None:
    given = Given(10 * STEP)
    body = Body(given.ledger)
    body.meter.set(4 * STEP)
    given.hold("session", ALICE, 4 * STEP, Priority.STREAM)
    body.meter.reprioritize(Priority.IDLE)
    given.hold("b", BOB, 3 * STEP)
    assert body.given_up == 1
    assert given.up == []


def test_a_closed_meter_charges_nothing() -> None:
    ledger = Ledger(10**6)
    body = Body(ledger)
    meter = body.meter
    meter.set(10 * STEP)
    meter.close()
    meter.set(20 * STEP)
    assert ledger.held == 0


def test_a_new_holding_can_be_the_one_that_is_given_up() -> None:
    given = Given(100)
    given.hold("b", BOB, 10, Priority.REQUEST)
    holding = given.hold("a", ALICE, 200, Priority.REQUEST)
    assert given.up == ["a"]
    assert holding.is_released


def test_what_is_gone_is_not_charged_even_if_nobody_has_said_so() -> None:
    ledger = Ledger(10**6)
    body = Body(ledger)
    body.meter.set(10 * STEP)
    assert ledger.held == 10 * STEP
    del body
    assert ledger.held == 0


def test_the_largest_accounts_give_up_a_quarter_when_the_system_has_no_memory() -> None:
    given = Given(1000)
    given.hold("a1", ALICE, 50)
    given.hold("a2", ALICE, 40)
    given.hold("b", BOB, 30)
    assert given.ledger.relieve()
    assert given.up == ["a1"]


def test_relief_says_that_there_is_nothing_to_give_up() -> None:
    given = Given(1000)
    given.refusing.add("a")
    given.hold("a", ALICE, 50)
    assert not given.ledger.relieve()
    assert given.ledger.held == 50


# What is logged


async def test_the_log_has_one_line_about_the_budget_in_ten_seconds(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    given = Given(100)
    given.hold("a", ALICE, 150)
    mock_clock.jump(LOG_INTERVAL - 1)
    given.hold("b", ALICE, 150)
    assert len(caplog.records) == 1
    mock_clock.jump(1)
    given.hold("c", ALICE, 150)
    assert len(caplog.records) == 2


# Memory that goes back to the system


class NotingAllocator(Allocator):
    """Notes what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def return_large_blocks(self) -> None:
        self.told.append("large blocks")
        super().return_large_blocks()

    def return_free_memory(self) -> None:
        self.told.append("free memory")
        super().return_free_memory()


def noting_ledger() -> tuple[Ledger, list[str]]:
    allocator = NotingAllocator()
    return Ledger(2**40, allocator), allocator.told


def hold(ledger: Ledger, size: int) -> Holding:
    return ledger.hold(ALICE, "bodies", size, Priority.REQUEST, lambda: True)


def test_the_allocator_is_told_once_that_much_is_held() -> None:
    ledger, told = noting_ledger()
    hold(ledger, MUCH)
    assert told == []
    hold(ledger, 1)
    hold(ledger, 1)
    assert told == ["large blocks"]


def test_free_memory_goes_back_when_more_than_half_of_much_was_released() -> None:
    ledger, told = noting_ledger()
    holding = hold(ledger, MUCH_TO_RETURN + 2)
    holding.resize(MUCH_TO_RETURN // 2 + 1)
    assert told == ["large blocks"]
    holding.resize(MUCH_TO_RETURN // 2)
    assert told == ["large blocks", "free memory"]


def test_no_memory_goes_back_if_little_was_held() -> None:
    ledger, told = noting_ledger()
    hold(ledger, MUCH_TO_RETURN).release()
    assert told == ["large blocks"]


@pytest.mark.parametrize(("interval", "times"), [(0.0, 3), (3600.0, 1)])
def test_free_memory_does_not_go_back_again_and_again(
    interval: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "RETURN_INTERVAL", interval)
    ledger, told = noting_ledger()
    for _ in range(3):
        hold(ledger, 2 * MUCH_TO_RETURN).release()
    assert told.count("free memory") == times


def test_what_is_released_soon_after_memory_went_back_goes_back_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "RETURN_INTERVAL", 3600.0)
    ledger, told = noting_ledger()
    holding = hold(ledger, 8 * MUCH_TO_RETURN)
    holding.resize(3 * MUCH_TO_RETURN)
    holding.release()
    assert told.count("free memory") == 1
    ledger.return_memory()
    assert told.count("free memory") == 1
    monkeypatch.setattr(ledger_module, "RETURN_INTERVAL", 0.0)
    ledger.return_memory()
    ledger.return_memory()
    assert told.count("free memory") == 2


def test_the_dicts_of_an_account_shrink_when_many_holdings_are_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "RETURN_INTERVAL", 0.0)
    ledger = Ledger(2**40)
    kept = hold(ledger, 1)
    holdings = [hold(ledger, MUCH_TO_RETURN // 500) for _ in range(5_000)]

    def largest_dict() -> int:
        return max(map(sys.getsizeof, reachable(ledger, dict)))

    with_many = largest_dict()
    for holding in holdings:
        holding.release()
    assert largest_dict() < with_many / 4
    assert not kept.is_released
