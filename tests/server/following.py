"""Clients that read as one group, and what all of them have seen."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

import penstock

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_MAX: Final = 60


class Seen:
    """Events that somebody has seen."""

    def __init__(self) -> None:
        self.counts: Counter[bytes] = Counter()
        self._change = threading.Condition()

    def add(self, event: bytes) -> None:
        """Note one."""
        with self._change:
            self.counts[event] += 1
            self._change.notify_all()

    def wait_for(self, number: int) -> None:
        """Return when there are so many."""
        with self._change:
            assert self._change.wait_for(lambda: len(self.counts) >= number, SECONDS_MAX)


class Following(threading.Thread):
    """A client with a reader of the group ``group``, until so many events were seen by whomever."""

    def __init__(self, address: str | Path, name: str, seen: Seen, number: int) -> None:
        super().__init__(name=name, daemon=True)
        self._address, self._seen, self._number = address, seen, number
        self.start()

    def run(self) -> None:
        """Read."""
        with penstock.connect(self._address) as store, store.reader_group("group").reader(self.name) as reader:
            while len(self._seen.counts) < self._number:
                read = reader.read_next_event(timeout=0.5)
                if read is not None:
                    self._seen.add(read.event)
