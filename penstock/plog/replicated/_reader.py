"""Who reads the answers of the servers: a caller that waits for one, else a thread of the reader's own.

A thread that waits and reads by itself gets its answer without being woken by another thread, which takes longer than
all else that an owner does for a small append. So one of the waiting threads leads: it reads what comes on any
connection and hands each message to the link of that connection, until its own answer is there. The others sleep; when
the leader leaves, one of them becomes the leader.

The thread of the reader leads while no caller does: it notices a lost connection, and takes answers that no thread
waits for. It gives way as soon as callers come, and comes back when none has been there for a while (``_IDLE_S``).

Invariants: one thread at a time reads, the leader. A follower is woken exactly once, by the thread that removes it from
the followers. A connection is closed only after the leader has removed it from the poll set, because it is lost.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument
from penstock.frames import FrameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.frames import FrameConnection, ReceivedFrame

__all__ = ["AnswerReader", "AnswerWaiter"]

_IDLE_S: Final = 0.05
_LEAVE_S: Final = 0.001  # for a leader to notice that the reader is closed
_logger: Final = logging.getLogger("penstock.plogs")


class AnswerWaiter(msgspec.Struct, eq=False):
    """A thread that waits for answers; ``done`` says that they are there, or that there will be none."""

    end: int = 0  # of the append that it waits for
    done: bool = False
    gate: threading.Lock | None = None  # of a follower


class _Source:
    """A connection, and what to do with its messages, and when it is lost."""

    __slots__ = ("connection", "on_frame", "on_lost")

    def __init__(
        self, connection: FrameConnection, on_frame: Callable[[ReceivedFrame], None], on_lost: Callable[[], None]
    ) -> None:
        self.connection, self.on_frame, self.on_lost = connection, on_frame, on_lost


class AnswerReader:
    """Reads the connections of an owner; see the module."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._wake_up = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll.register(self._wake_up, select.EPOLLIN)
        self._sources: dict[int, _Source] = {}  # by descriptor
        self._mutex = threading.Lock()
        self._leader: AnswerWaiter | None = None
        self._leader_thread = 0
        self._followers: dict[AnswerWaiter, None] = {}  # in the order in which they came
        self._uses = 0  # by callers
        self._changed = threading.Event()  # for the thread of the reader
        self._is_urgent = self._is_over = False
        self._thread = threading.Thread(target=self._work, name="penstock-plogs-answers", daemon=True)

    def add(
        self, connection: FrameConnection, on_frame: Callable[[ReceivedFrame], None], on_lost: Callable[[], None]
    ) -> None:
        """Read a connection from now on; ``on_lost`` is called once, when it is read no more, and may be closed."""
        with self._mutex:
            if self._thread.ident is None:
                self._thread.start()
            self._sources[connection.fileno()] = _Source(connection, on_frame, on_lost)
            self._poll.register(connection.fileno(), select.EPOLLIN)
        self._changed.set()

    # Callers

    def wait(self, waiter: AnswerWaiter, deadline: float) -> bool:
        """Return when the waiter is done, True, or when the time is over, or the reader is closed, False."""
        with self._mutex:
            self._uses += 1
            if waiter.done or self._is_over:
                return waiter.done
            leads = self._leader is None
            if leads:
                self._leader, self._leader_thread = waiter, threading.get_ident()
            else:
                waiter.gate = waiter.gate or _shut()
                self._followers[waiter] = None
        if not leads:
            if not self._follow(waiter, deadline):
                return waiter.done
            self._leader_thread = threading.get_ident()
        return self._lead(waiter, deadline)

    def _lead(self, waiter: AnswerWaiter, deadline: float) -> bool:
        try:
            while not (waiter.done or self._is_over) and (left := deadline - time.monotonic()) > 0:
                self._read(left)
        finally:
            self._hand_on()
        return waiter.done

    def _follow(self, waiter: AnswerWaiter, deadline: float) -> bool:
        """Sleep until the waiter is done, or leads, or the time is over; return whether it leads."""
        gate = waiter.gate
        assert gate is not None
        if not gate.acquire(timeout=max(0.0, deadline - time.monotonic())):
            with self._mutex:
                if waiter in self._followers:
                    del self._followers[waiter]
                    return False
            gate.acquire()  # it was woken at the last moment
        return self._leader is waiter

    def notify(self, waiter: AnswerWaiter) -> None:
        """Wake a thread, whose waiter is done."""
        waiter.done = True
        if self._leader is waiter and self._leader_thread == threading.get_ident():
            return  # it is the thread that reads, and looks next
        with self._mutex:
            if waiter in self._followers:
                del self._followers[waiter]
                assert waiter.gate is not None
                waiter.gate.release()
            elif self._leader is waiter:
                os.eventfd_write(self._wake_up, 1)

    def _hand_on(self) -> None:
        """Let the next follower lead, if there is one."""
        with self._mutex:
            self._appoint()

    def _appoint(self) -> None:
        self._leader, self._leader_thread = None, 0
        for follower in self._followers:
            del self._followers[follower]
            self._leader = follower
            assert follower.gate is not None
            follower.gate.release()
            return

    # Reading

    def _read(self, timeout_s: float | None) -> None:
        """Wait until something comes, and take it."""
        for descriptor, _ in self._poll.poll(timeout_s):
            source = self._sources.get(descriptor)
            if source is None:
                os.eventfd_read(self._wake_up)
            else:
                self._take(descriptor, source)

    def _take(self, descriptor: int, source: _Source) -> None:
        try:
            while (frame := source.connection.receive()) is not None:
                source.on_frame(frame)
        except (EOFError, OSError, ValueError, FrameError, BadArgument):
            pass  # it is lost, or the server does not keep to the protocol
        except Exception:
            _logger.exception("an answer of a plog server could not be taken")
        else:
            return
        with self._mutex:
            self._poll.unregister(descriptor)
            del self._sources[descriptor]
        source.on_lost()

    # The thread of the reader

    def _work(self) -> None:
        me, seen = AnswerWaiter(), -1
        while not self._is_over:
            self._changed.clear()
            with self._mutex:
                is_empty, is_idle = not self._sources, self._uses == seen
                may_lead = self._leader is None and not is_empty and not self._is_over
                leads = may_lead and (is_idle or self._is_urgent)
                if leads:
                    self._is_urgent = False
                    self._leader, self._leader_thread = me, threading.get_ident()
                seen = self._uses
            if leads:
                self._read_while_idle(seen)
            elif not self._is_over:
                self._changed.wait(None if is_empty else _IDLE_S)

    def _read_while_idle(self, uses: int) -> None:
        """Read until a caller has come; what it waits for is still read here, unless that takes several messages."""
        while self._uses == uses and self._sources and not self._is_over:
            self._read(None)
        self._hand_on()

    def hurry(self) -> None:
        """Look at the connections now, because one of them was ended."""
        self._is_urgent = True
        self._changed.set()

    def close(self) -> None:
        """End the thread, and all waits; all connections are lost by then. Closing again does nothing."""
        with self._mutex:
            if self._is_over:
                return
            self._is_over = True
        self._changed.set()
        pause = threading.Event()  # never set: it only measures the time
        while not self._close_if_unused():
            pause.wait(_LEAVE_S)
        if self._thread.ident is not None:
            self._thread.join()

    def _close_if_unused(self) -> bool:
        with self._mutex:
            if self._leader is not None or self._followers:
                os.eventfd_write(self._wake_up, 1)  # the leader leaves, and appoints the next one
                return False
            self._poll.close()
            os.close(self._wake_up)
            return True


def _shut() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate
