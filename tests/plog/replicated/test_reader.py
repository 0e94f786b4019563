"""Who reads the answers of plog servers, over real sockets and with real threads."""

from __future__ import annotations

import os
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.frames import FrameConnection, pack_frame
from penstock.plog.replicated._reader import AnswerReader, AnswerWaiter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.frames import ReceivedFrame

SOON_S = 20.0


class Server:
    """The far end of a connection of a reader; the waiter that a message names is done with it."""

    def __init__(self, reader: AnswerReader) -> None:
        self._far, near = socket.socketpair()
        self._reader, self._connection = reader, FrameConnection(near)
        self.waiters: dict[bytes, AnswerWaiter] = {}
        self.threads: list[threading.Thread] = []  # that have taken a message
        self.lost = threading.Event()
        reader.add(self._connection, self._take, self.lost.set)

    def _take(self, frame: ReceivedFrame) -> None:
        self.threads.append(threading.current_thread())
        if frame.header == b"mistake":
            raise KeyError(frame.header)
        if frame.header in self.waiters:
            self._reader.notify(self.waiters[frame.header])

    def waits_for(self, name: bytes) -> AnswerWaiter:
        """Return a waiter for a message."""
        waiter = self.waiters[name] = AnswerWaiter()
        return waiter

    def answer(self, name: bytes) -> None:
        """Send a message."""
        self._far.sendall(b"".join(pack_frame(name)))

    def end(self) -> None:
        """Close the connection."""
        self._far.close()
        assert self.lost.wait(SOON_S)
        self._connection.close()


@pytest.fixture
def reader() -> Iterator[AnswerReader]:
    """Give a reader whose connections the test ends."""
    reader = AnswerReader()
    yield reader
    reader.close()


def soon() -> float:
    return time.monotonic() + SOON_S


def led_by_this_thread(reader: AnswerReader) -> Server:
    """Return a server whose answers this thread reads, because it has just done so."""
    server = Server(reader)
    while not server.threads or server.threads[-1] is not threading.current_thread():
        waiter = server.waits_for(b"%d" % len(server.threads))
        server.answer(b"%d" % len(server.threads))
        assert reader.wait(waiter, soon())
    return server


def test_a_caller_that_waits_again_and_again_reads_its_answers_itself(reader: AnswerReader) -> None:
    """To be woken by another thread takes longer than all else that a small append costs."""
    server = led_by_this_thread(reader)
    assert len(server.threads) < 1000, "it takes the lead after a few answers"
    server.end()


def test_threads_that_wait_at_the_same_time_all_get_their_answers(reader: AnswerReader) -> None:
    """The thread that leads has to hand on what is not its own, and the lead when it leaves; else others sleep on."""
    servers = [Server(reader) for _ in range(3)]
    missed: list[int] = []

    def work(number: int) -> None:
        for turn in range(200):
            name = b"%d.%d" % (number, turn)
            server = servers[(number + turn) % 3]
            waiter = server.waits_for(name)
            server.answer(name)
            if not reader.wait(waiter, soon()):
                missed.append(number)
                return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == []
    for server in servers:
        server.end()


def test_a_thread_that_follows_reads_by_itself_once_the_leader_has_its_answer(reader: AnswerReader) -> None:
    """Otherwise it would sleep until the thread of the reader notices that nobody reads."""
    server, answered = led_by_this_thread(reader), []
    first, second = server.waits_for(b"first"), server.waits_for(b"second")
    follower = threading.Thread(target=lambda: answered.append(reader.wait(second, soon())))

    def answer_when_both_wait() -> None:
        while reader._leader is not first and first not in reader._followers:
            os.sched_yield()
        follower.start()
        while second not in reader._followers:
            os.sched_yield()
        server.answer(b"first")

    helper = threading.Thread(target=answer_when_both_wait)
    helper.start()
    assert reader.wait(first, soon())
    helper.join()
    server.answer(b"second")
    follower.join()
    assert answered == [True]
    assert server.threads[-1] is follower
    server.end()


def test_messages_that_nobody_waits_for_and_lost_connections_are_noticed(reader: AnswerReader) -> None:
    """An owner without anything to write learns, too, that a server is away, and forgets what it has asked."""
    server = Server(reader)
    waiter = server.waits_for(b"led")
    server.answer(b"led")
    assert reader.wait(waiter, soon())  # from now on the thread of the reader stands back
    server.answer(b"nobody waits for this")
    server.end()
    assert len(server.threads) == 2


def test_a_leader_that_another_thread_has_decided_for_stops_waiting(reader: AnswerReader) -> None:
    """A plog fails when a link gives its server up: the append that waits for that server must not wait on."""
    for _ in range(3):  # the thread of the reader may be the one that leads at first
        server, waiter = led_by_this_thread(reader), AnswerWaiter()
        other = threading.Timer(0.05, reader.notify, (waiter,))
        other.start()
        started = time.monotonic()
        assert reader.wait(waiter, soon())
        assert time.monotonic() - started < SOON_S / 2
        other.join()
        server.end()


def test_a_wait_ends_in_time_for_leaders_and_followers(reader: AnswerReader) -> None:
    """A server that does not answer is given up after a time, whichever thread waits for it."""
    server, results = Server(reader), []
    threads = [
        threading.Thread(target=lambda: results.append(reader.wait(AnswerWaiter(), time.monotonic() + 0.1)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert results == [False] * 3
    waiter = server.waits_for(b"after")
    server.answer(b"after")
    assert reader.wait(waiter, soon()), "one that has given up does not lead any more"
    server.end()


def test_closing_ends_all_waits_and_closing_again_does_nothing(reader: AnswerReader) -> None:
    """A descriptor that is closed twice may be another file's by then; one that is polled while closed is an error."""
    server, results = Server(reader), []
    threads = [threading.Thread(target=lambda: results.append(reader.wait(AnswerWaiter(), soon()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(reader._followers) < 2:
        os.sched_yield()
    server.end()
    reader.close()
    for thread in threads:
        thread.join(SOON_S)
    assert results == [False] * 3
    assert not reader.wait(AnswerWaiter(), soon())
    reader.close()


def test_a_mistake_in_taking_a_message_ends_that_connection_alone(
    reader: AnswerReader, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread that leads is a caller's, which has nothing to do with an answer to another."""
    server, broken = Server(reader), Server(reader)
    broken.answer(b"mistake")
    assert broken.lost.wait(SOON_S)
    assert "could not be taken" in caplog.text
    waiter = server.waits_for(b"fine")
    server.answer(b"fine")
    assert reader.wait(waiter, soon())
    server.end()
    broken.end()
