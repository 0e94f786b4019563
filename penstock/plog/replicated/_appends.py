"""The appends of an owner to its open plogs, sent to three servers by the thread of the caller.

The lock of a plog guards its window, and is never held while something is sent: the thread that reads answers needs it.
Another lock keeps the appends of a plog in order on their way.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.checksums import crc32c
from penstock.errors import PenstockError
from penstock.plog.replicated._messages import AppendReplica
from penstock.plog.replicated._reader import AnswerWaiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.plog._journal import SyncTimes
    from penstock.plog.replicated._actions import ServerAnswer
    from penstock.plog.replicated._disks import RefusingDisks
    from penstock.plog.replicated._link import ServerLink
    from penstock.plog.replicated._reader import AnswerReader
    from penstock.plog.replicated._window import AppendWindow, SentAppend
    from penstock.ports import Bytes

__all__ = ["OpenReplicatedPlog", "ReplicatedAppend", "committed_offsets"]


def committed_offsets(plogs: Iterable[OpenReplicatedPlog]) -> list[int]:
    """Return the committed offset of each plog, all at one moment.

    An append is acknowledged after it was committed, under the lock of its plog. So while all locks are held, none is
    acknowledged; and whatever is behind an offset that is returned was submitted when nothing behind the others was
    acknowledged yet. No other function holds two of these locks, and the order of the ids is the same for all callers.
    """
    chosen = list(plogs)
    with ExitStack() as locks:
        for plog in sorted(chosen, key=lambda plog: plog.window.plog_id.uid):
            locks.enter_context(plog.lock)
        return [plog.window.committed for plog in chosen]


class ReplicatedAppend(msgspec.Struct, eq=False):
    """An append under way."""

    _plog: OpenReplicatedPlog
    _end: int

    def result(self) -> int:
        """Wait until all servers have made it durable; return the plog's new offset."""
        self._plog.wait(self._end)
        return self._end


class OpenReplicatedPlog:
    """A plog that this owner has created and not sealed."""

    def __init__(
        self,
        window: AppendWindow,
        links: tuple[ServerLink, ...],
        reader: AnswerReader,
        disks: RefusingDisks,
        *,
        times: SyncTimes,
        on_failure: Callable[[OpenReplicatedPlog], None],
    ) -> None:
        self.window, self.links, self._reader, self._disks = window, links, reader, disks
        self._times, self._on_failure = times, on_failure
        self.lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._waiters: list[AnswerWaiter] = []
        self._answers = [partial(self._answered, place) for place in range(len(links))]
        self._reported = False
        self._uid = window.plog_id.uid_bytes

    def submit(self, offset: int, data: tuple[Bytes, ...]) -> ReplicatedAppend:
        """Send an append to all servers."""
        with self._send_lock:
            with self.lock:
                append = self.window.submit(offset, *data, now=time.monotonic())
            if append.end > append.offset:
                self._send(append, crc32c(0, *data), range(len(self.links)))
        return ReplicatedAppend(self, append.end)

    def _send(self, append: SentAppend, crc: int, places: Iterable[int]) -> None:
        request = AppendReplica(self._uid, append.offset, append.end - append.offset)
        for place in places:
            link = self.links[place]
            if not link.send(request, append.data, self._answers[place], payload_crc=crc) and link.state == "down":
                self.lose(place, link.trouble or "the connection is lost")

    def repeat(self, place: int) -> None:
        """Send again, on a new session, what a server has not acknowledged."""
        with self._send_lock:
            with self.lock:
                appends = self.window.unacknowledged(place)
            for append in appends:
                self._send(append, crc32c(0, *append.data), (place,))

    def _answered(self, place: int, answer: ServerAnswer | None) -> None:
        if answer is None:
            return  # the connection is lost: the next session repeats the append, or the server is given up
        self._disks.note(self.window.plog_id.group, place, answer.message)
        with self.lock:
            window = self.window
            before = window.committed
            has_changed = window.answered(place, answer.message) != before or window.failure is not None
        if has_changed:
            self._wake()

    def lose(self, place: int, reason: str, *, is_needed: bool = False) -> None:
        """Note that a server is away; a plog without appends under way does not need it, unless told otherwise."""
        with self.lock:
            if is_needed or not self.window.is_quiet:
                self.window.lose(place, reason)
        self._wake()

    def fail(self, error: PenstockError) -> None:
        """End all appends with an error."""
        with self.lock:
            self.window.fail(error)
        self._wake()

    def _wake(self) -> None:
        """Wake the threads whose appends are decided."""
        with self.lock:
            window = self.window
            failed = window.failure is not None
            ready = [waiter for waiter in self._waiters if failed or waiter.end <= window.committed]
            is_last = len(ready) == len(self._waiters)
            self._waiters = [] if is_last else [waiter for waiter in self._waiters if waiter.end > window.committed]
            reports = failed and not self._reported
            self._reported = failed
        for waiter in ready:
            self._reader.notify(waiter)
        if reports:
            self._on_failure(self)

    def wait(self, end: int) -> None:
        """Return when everything up to ``end`` is committed; raise the error of a plog that has failed before."""
        start, waiter = time.perf_counter(), AnswerWaiter(end)
        while True:
            with self.lock:
                if end <= self.window.committed:
                    break
                if self.window.failure is not None:
                    raise self.window.failure
                if waiter not in self._waiters:
                    self._waiters.append(waiter)
                deadline = self.window.deadline
            assert deadline is not None, "an append that is not committed is under way"
            if not self._reader.wait(waiter, deadline):
                self._expire()
        self._times.note(time.perf_counter() - start)

    def _expire(self) -> None:
        with self.lock:
            place = self.window.expire(time.monotonic())
        if place is not None:
            self.links[place].drop("no acknowledgement in time")
        self._wake()

    def quiesce(self) -> None:
        """Wait until no append is under way, whatever becomes of them."""
        with suppress(PenstockError):  # the error of the plog, which each append has got
            self.wait(self.window.written)
