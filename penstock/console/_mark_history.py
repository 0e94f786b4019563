"""Where the marks of writers were in the last minutes, so that a page that is opened can draw them.

The store keeps only the latest mark of each writer. The server of the console samples them every ``SAMPLE_EVERY_S``; a
store without a server has no history, and costs nothing. The history is in memory and bounded: so many samples, of the
slowest writers, of so many streams. A sample ends early when it has looked at very many marks.
"""

from __future__ import annotations

import threading
from collections import deque
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from penstock.console._ports import ConsoleStore

__all__ = ["SAMPLE_EVERY_S", "MarkHistory", "slowest_first"]

SAMPLE_EVERY_S: Final = 5.0
_SAMPLES_MAX: Final = 120  # ten minutes: as far back as watermarks are drawn
_STREAMS_MAX: Final = 64  # that have writers that note time; the oldest of them
_WRITERS_MAX: Final = 8  # as many as the page draws
_MARKS_MAX: Final = 5_000  # looked at for one sample


class _Mark(Protocol):
    """The latest mark of a writer."""

    @property
    def time(self) -> int: ...
    @property
    def is_open(self) -> bool: ...


_Sample = tuple[int, dict[str, int]]  # when, in milliseconds since 1970, and the time of each writer


class MarkHistory:
    """The samples of the streams of one store, by their uids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: dict[int, deque[_Sample]] = {}

    def sample(self, store: ConsoleStore) -> None:
        """Note where the slowest writers are now; forget streams that are gone."""
        now_ms = int(store.clock.now() * 1000)
        with store.catalog.lock:
            uids = [state.uid for state in store.catalog.streams.values()]
        found: dict[int, dict[str, int]] = {}
        looked_at = 0
        for uid in islice(filter(store.marks.has_marks, uids), _STREAMS_MAX):
            marks = store.marks.of(uid)
            looked_at += len(marks)
            if looked_at > _MARKS_MAX:
                break
            found[uid] = {writer: mark.time for writer, mark in nsmallest(_WRITERS_MAX, marks.items(), slowest_first)}
        with self._lock:
            self._samples = {uid: self._samples.get(uid, deque(maxlen=_SAMPLES_MAX)) for uid in found}
            for uid, times in found.items():
                self._samples[uid].append((now_ms, times))

    def of(self, uid: int, writer: str) -> list[tuple[int, int]]:
        """Return the samples of a writer, each with when it was taken, the oldest first."""
        with self._lock:
            return [(at_ms, times[writer]) for at_ms, times in self._samples.get(uid, ()) if writer in times]


def slowest_first(entry: tuple[str, _Mark]) -> tuple[bool, int, str]:
    """Return what writers are sorted by: those that hold back the watermark come first, closed ones last."""
    writer, mark = entry
    return not mark.is_open, mark.time, writer
