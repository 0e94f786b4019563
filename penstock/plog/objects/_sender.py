"""The threads of an owner: one decides when a group is put, some put groups, and one compacts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.plog.objects._commit import PutGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog.objects._journal import ObjectJournal
    from penstock.plog.objects._maintenance import StoreMaintenance

__all__ = ["Sender"]


class Sender:
    """Puts the groups of a journal, and maintains it, until it is closed; threads begin with the first change."""

    def __init__(self, journal: ObjectJournal, maintenance: StoreMaintenance, trim: Callable[[], None]) -> None:
        self._journal = journal
        self._trim = trim  # called when plogs have been compacted
        self._maintenance = maintenance
        self._threads: list[threading.Thread] = []
        self._pool: ThreadPoolExecutor | None = None
        self._closing = False

    def begin(self) -> None:
        """Start the threads, if they do not run."""
        if self._threads:
            return
        with self._journal.changed:
            if self._threads or self._closing:
                return
            workers = self._journal.settings.puts_in_flight_max
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix="penstock-put")
            self._threads = [
                threading.Thread(target=target, args=args, name=name, daemon=True)
                for target, args, name in (
                    (self._send, (self._pool,), "penstock-sender"),
                    (self._maintain, (), "penstock-compaction"),
                )
            ]
            for thread in self._threads:
                thread.start()

    def _send(self, pool: ThreadPoolExecutor) -> None:
        journal = self._journal
        while True:
            with journal.changed:
                group = journal.take()
                if not isinstance(group, PutGroup):
                    if self._closing or journal.is_stopped:
                        return
                    journal.changed.wait(group)
                    continue
            pool.submit(journal.put, group)

    def _maintain(self) -> None:
        journal = self._journal
        while True:
            with journal.changed:
                journal.changed.wait_for(lambda: self._closing or journal.is_stopped or self._maintenance.is_due)
                if self._closing or journal.is_stopped:
                    return
            self._journal.run(self._maintenance.run)
            self._trim()

    def close(self) -> None:
        """Put what waits, end the threads, and replace the checkpoint if anything has changed."""
        journal = self._journal
        journal.drain()
        with journal.changed:
            self._closing = True
            journal.changed.notify_all()
        for thread in self._threads:
            thread.join()
        if self._pool is not None:
            self._pool.shutdown()
        if not journal.is_stopped and journal.objects_since:
            self._journal.run(self._maintenance.checkpoint)
