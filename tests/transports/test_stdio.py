import os
import pty
import signal
import socket
import stat
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

import mcp_trio
from mcp_trio.transports import busy_wait
from mcp_trio.transports.stdio import open_wire

ROOT = Path(mcp_trio.__file__).parents[1]


def pipes():
    (from_client, to_server), (from_server, to_client) = os.pipe(), os.pipe()
    return from_client, to_client, to_server, from_server


def sockets():
    server, client = socket.socketpair()
    server, client = server.detach(), client.detach()
    return server, os.dup(server), client, os.dup(client)


FLAVOURS = {
    "pipes": (pipes, False),
    "sockets": (sockets, False),
    "threads": (pipes, True),
}


def is_socket(descriptor):
    return stat.S_ISSOCK(os.fstat(descriptor).st_mode)


class Far:
    """The other side of a wire."""

    def __init__(self, to_server, from_server):
        self.to_server = trio.lowlevel.FdStream(to_server)
        self.from_server = trio.lowlevel.FdStream(from_server)
        self.heard = bytearray()

    async def write(self, data):
        await self.to_server.send_all(data)

    async def write_no_more(self):
        if is_socket(self.to_server.fileno()):
            with socket.socket(fileno=os.dup(self.to_server.fileno())) as both_ways:
                both_ways.shutdown(socket.SHUT_WR)
        await self.to_server.aclose()

    async def hear(self, size):
        while len(self.heard) < size:
            self.heard += (await self.from_server.receive_some()) or pytest.fail(
                f"ended after {self.heard[-100:]!r}"
            )
        return self.heard


@asynccontextmanager
async def connected(make, threads=False):
    reading, writing, to_server, from_server = make()
    far = Far(to_server, from_server)
    try:
        with trio.fail_after(30):
            async with open_wire(reading, writing, threads=threads) as wire:
                yield wire, far
                await far.to_server.aclose()
    finally:
        with trio.CancelScope(shield=True):
            await far.to_server.aclose()
            await far.from_server.aclose()
        os.close(reading)
        os.close(writing)


@pytest.fixture(params=FLAVOURS)
async def pair(request):
    async with connected(*FLAVOURS[request.param]) as both:
        yield both


async def test_messages_arrive_in_batches(pair):
    wire, far = pair
    await far.write(b'{"a":1}\r\n\n{"b":2}\n{"c"')
    assert await wire.receive() == [b'{"a":1}', b'{"b":2}']
    await far.write(b":3}\n")
    assert await wire.receive() == [b'{"c":3}']


async def test_a_message_over_the_limit_is_passed_over_and_the_next_is_served(
    pair, nursery
):
    wire, far = pair
    nursery.start_soon(far.write, b"x" * (4 * 2**20 + 1) + b"\n{}\n")
    received = await wire.receive()
    while len(received) < 2:
        received += await wire.receive()
    assert received == [None, b"{}"]


async def test_the_largest_message_passes(pair, nursery):
    wire, far = pair
    message = b"x" * (4 * 2**20)
    nursery.start_soon(far.write, message + b"\n")
    assert await wire.receive() == [message]


async def test_the_end_of_input_completes_the_last_message(pair):
    wire, far = pair
    await far.write(b"{}\n[]")
    assert await wire.receive() == [b"{}"]
    await far.write_no_more()
    assert await wire.receive() == [b"[]"]
    assert await wire.receive() == []
    wire.send(b"late")
    wire.flush()
    assert await far.hear(5) == b"late\n"


async def test_messages_of_one_turn_leave_in_one_write(pair):
    wire, far = pair
    for message in (b"1", b"2", b"3"):
        wire.send(message)
    wire.flush()
    assert await far.from_server.receive_some(100) == b"1\n2\n3\n"


async def test_a_flush_writes_at_once():
    async with connected(pipes) as (wire, far):
        wire.send(b"1")
        with trio.testing.assert_no_checkpoints():
            wire.flush()
            await wire.drained()
        assert os.read(far.from_server.fileno(), 100) == b"1\n"


async def test_messages_sent_outside_a_turn_leave_by_themselves_and_together(pair):
    wire, far = pair
    await trio.testing.wait_all_tasks_blocked()
    wire.send(b"1")
    wire.send(b"2")
    assert await far.from_server.receive_some(100) == b"1\n2\n"


async def test_what_was_sent_in_a_turn_leaves_before_the_next_wait(pair, nursery):
    wire, far = pair
    await far.write(b"{}\n")
    await wire.receive()
    wire.send(b"1")
    nursery.start_soon(wire.receive)
    assert await far.hear(2) == b"1\n"
    await far.write(b"{}\n")


async def test_input_is_read_while_a_large_reply_waits_for_a_slow_reader(pair):
    wire, far = pair
    reply = b"x" * 2**20
    wire.send(reply)
    wire.flush()
    for number in range(3):
        await far.write(b"%d\n" % number)
        assert await wire.receive() == [b"%d" % number]
        wire.send(b"reply %d" % number)
        wire.flush()
    everything = reply + b"\nreply 0\nreply 1\nreply 2\n"
    assert await far.hear(len(everything)) == everything


async def test_senders_wait_above_the_high_water_mark(pair, nursery):
    wire, far = pair
    with trio.testing.assert_no_checkpoints():
        await wire.drained()
    for _ in range(17):
        wire.send(b"x" * 2**20)
    drained = trio.Event()

    async def wait():
        await wire.drained()
        drained.set()

    nursery.start_soon(wait)
    await far.from_server.receive_some(1)
    assert not drained.is_set()
    await far.hear(17 * (2**20 + 1) - 1)
    await drained.wait()


async def test_a_client_that_reads_no_more_ends_the_input(pair, nursery):
    wire, far = pair
    batches = []

    async def receive():
        while batch := await wire.receive():
            batches.append(batch)
        batches.append([])

    async with trio.open_nursery() as receiving:
        receiving.start_soon(receive)
        await trio.testing.wait_all_tasks_blocked()
        await far.from_server.aclose()
        if is_socket(far.to_server.fileno()):
            await far.to_server.aclose()
        wire.send(b"nobody hears")
    assert batches == [[]]
    wire.send(b"nobody hears")
    wire.flush()
    await wire.drained()
    assert await wire.receive() == []


async def test_a_client_that_goes_lets_waiting_senders_go(pair):
    wire, far = pair
    wire.send(b"x" * (17 * 2**20))
    async with trio.open_nursery() as waiting:
        waiting.start_soon(wire.drained)
        await trio.testing.wait_all_tasks_blocked()
        await far.from_server.aclose()
        await far.to_server.aclose()


async def test_leaving_writes_out_what_is_queued(pair, nursery):
    wire, far = pair
    wire.send(b"x" * 2**20)
    nursery.start_soon(wire.aclose)
    assert await far.hear(2**20 + 1) == b"x" * 2**20 + b"\n"
    assert await wire.receive() == []
    await wire.aclose()


async def test_leaving_can_be_cut_short_when_the_client_does_not_read(pair):
    wire, far = pair
    wire.send(b"x" * 2**20)
    await trio.testing.wait_all_tasks_blocked()
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.aclose()
    assert scope.cancelled_caught
    assert await wire.receive() == []
    await far.from_server.receive_some()  # lets the write go on that waits
    await trio.testing.wait_all_tasks_blocked()
    await wire.aclose()


@pytest.mark.parametrize("make", [pipes, sockets])
@pytest.mark.parametrize("blocking", [True, False])
async def test_blocking_mode_is_put_back(make, blocking):
    reading, writing, to_server, from_server = make()
    for descriptor in (reading, writing):
        os.set_blocking(descriptor, blocking)
    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError)):
        async with open_wire(reading, writing):
            assert not os.get_blocking(reading)
            raise ZeroDivisionError
    assert [os.get_blocking(descriptor) for descriptor in (reading, writing)] == [
        blocking,
        blocking,
    ]
    for descriptor in (reading, writing, to_server, from_server):
        os.close(descriptor)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one size")
@pytest.mark.parametrize("size", [100, 100_000])
async def test_only_a_pipe_that_was_full_is_made_larger(size):
    from fcntl import F_GETPIPE_SZ, fcntl

    reading, writing, to_server, from_server = pipes()
    before = fcntl(reading, F_GETPIPE_SZ)
    message = b"x" * size
    async with (
        open_wire(reading, writing) as wire,
        trio.lowlevel.FdStream(to_server) as sending,
        trio.lowlevel.FdStream(from_server) as receiving,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(sending.send_all, message + b"\n")
        assert await wire.receive() == [message]
        wire.send(message)
        wire.flush()
        received = b""
        while len(received) <= size:
            received += await receiving.receive_some()
        sizes = {fcntl(fd, F_GETPIPE_SZ) for fd in (reading, writing)}
    if size < before:
        assert sizes == {before}
    else:
        assert min(sizes) > before
    os.close(reading)
    os.close(writing)


async def test_files_are_read_and_written(tmp_path):
    (tmp_path / "in").write_bytes(b"{}\n" * 100_000 + b"[]")
    reading, writing = (
        os.open(tmp_path / "in", os.O_RDONLY),
        os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY),
    )
    received = []
    async with open_wire(reading, writing) as wire:
        while batch := await wire.receive():
            received += batch
            for message in batch:
                wire.send(message)
    assert len(received) == 100_001
    assert received[-1] == b"[]"
    assert (tmp_path / "out").read_bytes() == b"{}\n" * 100_000 + b"[]\n"
    os.close(reading)
    os.close(writing)


async def test_endless_input_leaves_other_tasks_their_turn():
    reading, writing = (
        os.open("/dev/zero", os.O_RDONLY),
        os.open(os.devnull, os.O_WRONLY),
    )
    async with open_wire(reading, writing) as wire:
        assert await wire.receive() == [None]
        with trio.move_on_after(0.01) as scope:
            await wire.receive()
        assert scope.cancelled_caught
    os.close(reading)
    os.close(writing)


async def test_a_client_that_always_has_more_leaves_other_tasks_their_turn(nursery):
    async with connected(pipes) as (wire, far):
        turns = []

        async def other():
            while True:
                await trio.lowlevel.checkpoint()
                turns.append(1)

        nursery.start_soon(other)
        for _ in range(100):
            os.write(far.to_server.fileno(), b"{}\n")
            assert await wire.receive() == [b"{}"]
        assert len(turns) >= 10
        nursery.cancel_scope.cancel()


async def test_a_terminal_is_served_and_its_mode_is_unchanged():
    master, slave = pty.openpty()
    async with open_wire(slave, slave) as wire:
        assert os.get_blocking(slave)
        os.write(master, b"{}\n")
        assert await wire.receive() == [b"{}"]
        wire.send(b"[]")
        wire.flush()
        heard = b""
        while len(heard) < len(b"{}\r\n[]\r\n"):  # the terminal's echo, then the reply
            heard += os.read(master, 100)
        assert heard == b"{}\r\n[]\r\n"
    os.close(master)
    os.close(slave)


# The whole program, as its user starts it.

ECHO = """
import os, subprocess, sys, trio
from mcp_trio.transports.stdio import claim, open_wire
async def main(threads=False):
    with claim() as (reading, writing):
        async with open_wire(reading, writing, threads=threads) as wire:
            while batch := await wire.receive():
                for message in batch:
                    exec(message)
                    wire.send(b"done")
                wire.flush()
"""
RUN = ECHO + "trio.run(main)\n"
RUN_THREADS = ECHO + "trio.run(main, True)\n"


LEAVE = """
import trio
from mcp_trio.transports.stdio import claim, open_wire
async def main():
    with claim() as (reading, writing):
        async with open_wire(reading, writing, threads=True) as wire:
            with trio.move_on_after(0.01):
                await wire.receive()
            wire.send(b"bye")
trio.run(main)
"""
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"
} | {"PYTHONPATH": str(ROOT)}


def run(code, messages=b"", redirect=""):
    command = ["sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, code]
    return subprocess.run(
        command, input=messages, capture_output=True, timeout=20, env=ENVIRONMENT
    )


@pytest.mark.parametrize("code", [RUN, RUN_THREADS], ids=["loop", "threads"])
def test_nothing_but_messages_gets_on_the_wire(code):
    ended = run(
        "print('before')" + code + "print('after')",
        b"print('printed')\n"
        b"os.write(1, b'written\\n')\n"
        b"subprocess.run(['echo', 'child'])\n"
        b"subprocess.run('echo descriptors >&3; echo descriptors >&4', shell=True)\n"
        b"print(repr(sys.stdin.read()), repr(os.read(0, 10)), subprocess.run('cat', capture_output=True).stdout)\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == b"done\n" * 5 + b"after\n"
    for line in (b"before\n", b"printed\n", b"written\n", b"child\n", b"'' b'' b''\n"):
        assert line in ended.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("redirect", "stdout"),
    [("2>&-", b"done\n"), ("</dev/null", b""), (">/dev/null", b"")],
)
def test_stderr_may_be_closed_and_the_others_null(redirect, stdout):
    ended = run(RUN, b"os.write(1, b'x')\n", redirect)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == stdout


@pytest.mark.thorough
@pytest.mark.parametrize("redirect", ["<&-", ">&-"])
def test_closed_standard_input_or_output_is_an_error_that_says_so(redirect):
    ended = run(RUN, redirect=redirect)
    assert ended.returncode == 1
    assert b"expected standard input and output to be open" in ended.stderr


def test_files_serve_as_standard_input_and_output(tmp_path):
    (tmp_path / "in").write_bytes(b"print(1)\nprint(2)\nprint(3)")
    ended = run(RUN, redirect=f"<{tmp_path}/in >{tmp_path}/out")
    assert ended.stderr == b"1\n2\n3\n"
    assert (tmp_path / "out").read_bytes() == b"done\n" * 3


def start(code, stdin=subprocess.PIPE):
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin,
        stdout=pipe,
        stderr=pipe,
        bufsize=0,
        env=ENVIRONMENT,
    )


@pytest.mark.parametrize("code", [RUN, RUN_THREADS], ids=["loop", "threads"])
def test_what_reads_standard_input_takes_no_message_from_the_wire(code):
    with start(code) as server:
        server.stdin.write(b"print('begun', flush=True); print(repr(os.read(0, 10)))\n")
        assert server.stderr.readline() == b"begun\n"
        replies, printed = server.communicate(b"print('second')\n", timeout=20)
    assert replies == b"done\n" * 2
    assert printed == b"b''\nsecond\n"


@pytest.mark.thorough
@pytest.mark.parametrize("code", [RUN, RUN_THREADS], ids=["loop", "threads"])
def test_a_client_that_is_gone_ends_the_program_without_a_traceback(code):
    with start(code) as server:
        server.stdin.write(b"1\n")
        assert server.stdout.read(5) == b"done\n"
        server.stdout.close()
        server.stdin.write(b"1\n")
        assert server.wait(5) == 0
        assert server.stderr.read() == b""


def test_a_blocked_read_does_not_hold_up_the_exit():
    with start(LEAVE) as server:
        assert server.wait(5) == 0
        assert server.stdout.read() == b"bye\n"
        assert server.stderr.read() == b""


def test_an_interrupt_leaves_the_pipe_blocking():
    reading, writing = os.pipe()
    with start(RUN, stdin=reading) as server:
        os.write(writing, b"1\n")
        assert server.stdout.read(5) == b"done\n"
        assert not os.get_blocking(reading)
        server.send_signal(signal.SIGINT)
        server.wait(5)
    assert os.get_blocking(reading)
    os.close(reading)
    os.close(writing)


async def test_the_input_can_be_ended_while_its_reader_polls(monkeypatch):
    monkeypatch.setattr(busy_wait, "DURATION", 10)
    async with connected(pipes) as (wire, far):
        await far.write(b"1\n")
        await wire.receive()
        wire.send(b"reply")  # so that the next wait polls first
        received = []

        async def receive():
            received.append(await wire.receive())

        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                for _ in range(20):
                    await trio.lowlevel.checkpoint()
                assert received == []
                wire.end_input()
        assert received == [[]]


async def answer_and_read_on(wire):
    wire.send(b"{}")
    wire.flush()
    await wire.receive()


async def test_the_reader_polls_only_for_a_client_that_was_quick_last_time(monkeypatch):
    async with connected(pipes) as (wire, far):
        monkeypatch.setattr(busy_wait, "DURATION", 1000)
        await far.write(b"1\n")
        await wire.receive()  # it had arrived already
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_and_read_on, wire)
            with trio.move_on_after(0.05) as patience:
                await trio.testing.wait_all_tasks_blocked()
            assert patience.cancelled_caught  # the reader polls
            await far.write(b"2\n")
        monkeypatch.setattr(busy_wait, "DURATION", 0)  # nobody is as quick as that
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_and_read_on, wire)
            await trio.testing.wait_all_tasks_blocked()
            await far.write(b"3\n")
        monkeypatch.setattr(busy_wait, "DURATION", 1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_and_read_on, wire)
            await trio.testing.wait_all_tasks_blocked()  # the reader sleeps
            await far.write(b"4\n")
