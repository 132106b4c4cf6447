"""The order of the requests of a client that has used up its turn."""

import trio
import trio.testing

from mcp_trio.server.accounts import Account
from mcp_trio.server.turns import Turns

BUSY = Account("address", "192.0.2.1")
OTHER = Account("address", "192.0.2.2")


async def run_in_turns(
    turns: Turns, account: Account, number: int, run: list[int]
) -> None:
    await turns.wait(account)
    run.append(number)


async def test_nothing_is_kept_for_clients_that_are_quick() -> None:
    turns = Turns()
    assert not turns.must_wait(BUSY)
    await turns.wait(BUSY)
    assert not turns.lines


async def test_a_slow_client_waits_for_some_passes_and_others_do_not() -> None:
    turns = Turns()
    turns.end(BUSY)
    assert turns.must_wait(BUSY)
    assert not turns.must_wait(OTHER)
    await turns.wait(BUSY)
    await trio.testing.wait_all_tasks_blocked()
    assert not turns.must_wait(BUSY)
    assert not turns.lines


async def test_requests_go_on_in_their_order() -> None:
    turns = Turns()
    run: list[int] = []
    turns.end(BUSY)
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(run_in_turns, turns, BUSY, number, run)
            while len(turns.lines[BUSY].waiting) <= number:
                await trio.lowlevel.checkpoint()
                turns.end(BUSY)
    # Two and three may go on in the same pass, in which trio chooses the order.
    assert run[0] == 0
    assert sorted(run) == [0, 1, 2, 3]


async def test_of_slow_requests_only_one_runs_in_a_pass() -> None:
    turns = Turns()
    passes: list[int] = []
    now = 0

    async def be_slow() -> None:
        await turns.wait(BUSY)
        passes.append(now)
        turns.end(BUSY)

    turns.end(BUSY)
    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(be_slow)
        while len(passes) < 10:
            now += 1
            await trio.lowlevel.checkpoint()
    assert len(set(passes)) == len(passes)


async def test_a_request_that_is_cancelled_while_it_waits_holds_up_no_other() -> None:
    turns = Turns()
    run: list[int] = []
    turns.end(BUSY)
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as cancelled:
            cancelled.cancel()
            await turns.wait(BUSY)
        nursery.start_soon(run_in_turns, turns, BUSY, 1, run)
    assert run == [1]
    await trio.testing.wait_all_tasks_blocked()
    assert not turns.lines


async def test_the_only_client_of_a_process_never_waits() -> None:
    turns = Turns()
    turns.end(Account("connection", "stdio", is_only_client=True))
    assert not turns.lines
