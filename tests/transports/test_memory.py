import pytest
import trio
import trio.testing

from mcp_trio.transports.memory import memory_pair


async def test_what_is_sent_is_received_together_and_uncopied():
    client, server = memory_pair()
    first = b"first"
    client.send(first)
    client.send(b"second")
    client.flush()
    batch = await server.receive()
    assert batch == [b"first", b"second"]
    assert batch[0] is first


async def test_both_directions_are_separate():
    client, server = memory_pair()
    client.send(b"question")
    server.send(b"answer")
    assert await client.receive() == [b"answer"]
    assert await server.receive() == [b"question"]


async def test_receive_waits_for_a_message(nursery):
    client, server = memory_pair()
    received = []

    async def receive():
        received.extend(await server.receive())

    nursery.start_soon(receive)
    await trio.testing.wait_all_tasks_blocked()
    assert received == []
    client.send(b"now")
    await trio.testing.wait_all_tasks_blocked()
    assert received == [b"now"]


async def test_a_cancelled_receive_loses_nothing(autojump_clock):
    client, server = memory_pair()
    with trio.move_on_after(1):
        await server.receive()
    client.send(b"kept")
    assert await server.receive() == [b"kept"]


async def test_closing_an_end_gives_what_was_sent_and_then_the_end():
    client, server = memory_pair()
    client.send(b"last")
    await client.aclose()
    assert await server.receive() == [b"last"]
    assert await server.receive() == []
    assert await client.receive() == []


async def test_closing_an_end_wakes_a_receive_on_either_side(nursery):
    client, server = memory_pair()
    ended = []

    async def receive(wire):
        ended.append(await wire.receive())

    nursery.start_soon(receive, client)
    nursery.start_soon(receive, server)
    await trio.testing.wait_all_tasks_blocked()
    await client.aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert ended == [[], []]


async def test_sending_to_a_closed_end_is_harmless():
    client, server = memory_pair()
    await client.aclose()
    server.send(b"nobody hears")
    await server.drained()
    assert await client.receive() == []


async def test_a_sender_waits_above_the_high_water_mark(nursery):
    client, server = memory_pair(high_water=100)
    client.send(b"x" * 99)
    with trio.testing.assert_no_checkpoints():
        await client.drained()
    client.send(b"y")
    drained = trio.Event()

    async def wait():
        await client.drained()
        drained.set()

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert not drained.is_set()
    assert len(await server.receive()) == 2
    await trio.testing.wait_all_tasks_blocked()
    assert drained.is_set()


@pytest.mark.parametrize("closer", [0, 1])
async def test_closing_lets_a_waiting_sender_go(nursery, closer):
    wires = memory_pair(high_water=10)
    wires[0].send(b"x" * 11)
    with trio.fail_after(30):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(wires[0].drained)
            await trio.testing.wait_all_tasks_blocked()
            await wires[closer].aclose()
            if closer == 0:  # the other end can still receive sent messages
                await wires[1].receive()
