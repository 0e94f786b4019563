"""The threads of an owner: some put groups, and one compacts.

Those that put take turns: the leader waits until there is a group and puts it, and another thread is the leader then.
So the thread that knows of a group puts it, without waking another one first.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from penstock.plog.objects._commit import PutGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog.objects._journal import ObjectJournal
    from penstock.plog.objects._maintenance import StoreMaintenance

__all__ = ["Sender"]

_STOPPED_S: Final = 0.2  # for each thread of a store that has stopped; one that waits for a lost answer is left behind


class Sender:
    """Puts the groups of a journal, and maintains it, until it is closed; threads begin with the first change."""

    def __init__(self, journal: ObjectJournal, maintenance: StoreMaintenance, trim: Callable[[], None]) -> None:
        self._journal = journal
        self._trim = trim  # called when plogs have been compacted
        self._maintenance = maintenance
        self._threads: list[threading.Thread] = []
        self._running = 0  # how many of them have not ended
        self._turn = threading.Lock()  # held by the leader
        self.is_closing = False

    def begin(self) -> None:
        """Start the threads, if they do not run."""
        if self._threads:
            return
        with self._journal.changed:
            if self._threads or self.is_closing:
                return
            threads = [(self._send, "penstock-put")] * self._journal.settings.puts_in_flight_max
            threads.append((self._maintain, "penstock-compaction"))
            self._threads = [
                threading.Thread(target=self._run, args=(target,), name=name, daemon=True) for target, name in threads
            ]
            self._running = len(self._threads)
            for thread in self._threads:
                thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._journal.changed:
                self._running -= 1
                self._journal.changed.notify_all()

    def _send(self) -> None:
        while (group := self._next_group()) is not None:
            self._journal.put(group)

    def _next_group(self) -> PutGroup | None:
        """Wait as the leader until there is a group to put; None if there will be no more."""
        journal = self._journal
        with self._turn, journal.changed:
            while not isinstance(group := journal.take(), PutGroup):
                if self.is_closing or journal.is_stopped:
                    return None
                journal.changed.wait(group)
            return group

    def _maintain(self) -> None:
        journal = self._journal
        while True:
            with journal.changed:
                journal.changed.wait_for(lambda: self.is_closing or journal.is_stopped or self._maintenance.is_due)
                if self.is_closing or journal.is_stopped:
                    break
            journal.run(self._maintenance.run)
            self._trim()
        if not journal.is_stopped and journal.objects_since:
            journal.run(self._maintenance.checkpoint)

    def close(self) -> None:
        """Put what waits, end the threads, and replace the checkpoint if anything has changed."""
        journal = self._journal
        journal.drain()
        with journal.changed:
            self.is_closing = True
            journal.changed.notify_all()
            journal.changed.wait_for(lambda: journal.is_stopped or not self._running)
        for thread in self._threads:
            thread.join(_STOPPED_S if journal.is_stopped else None)
