"""Appends that arrived too early at a replica, kept until the appends before them are there.

Appends that follow each other are kept as one run, so that a gap that closes needs one look-up. They stay separate
appends within it: a reader of the plog gets the bytes append by append. What is kept is bounded in bytes, in number and
in time, for all plogs of a partition together; an append that does not fit is refused, and the owner repeats it. The
host calls ``expire`` with every request, so that they go although no other early append arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.ports import Bytes

__all__ = ["EarlyAppends"]

KEPT_SIZE_MAX: Final = 8 << 20
KEPT_COUNT_MAX: Final = 1024
KEPT_S_MAX: Final = 10.0


@dataclass(slots=True)
class _EarlyRun:
    """Appends without a gap between them; the oldest arrived at ``since``."""

    start: int
    end: int
    since: float
    appends: list[Bytes] = field(default_factory=list)


class EarlyAppends:
    """The early appends of all plogs of a partition."""

    def __init__(self) -> None:
        self._runs: dict[bytes, list[_EarlyRun]] = {}  # by uid, sorted by start
        self._size = self._count = 0

    def add(self, uid: bytes, offset: int, data: Bytes, *, now: float) -> bool:
        """Keep an append, and merge it with its neighbours; return False if it overlaps others or does not fit."""
        self.expire(now)
        if not len(data):
            return False
        if self._size + len(data) > KEPT_SIZE_MAX or self._count >= KEPT_COUNT_MAX:
            return False
        end = offset + len(data)
        runs = self._runs.setdefault(uid, [])
        before = next((run for run in runs if run.end == offset), None)
        after = next((run for run in runs if run.start == end), None)
        if any(run.start < end and offset < run.end for run in runs):
            return self._holds(runs, offset, data)
        if before is not None:
            before.appends.append(data)
            before.end = end
            if after is not None:
                before.appends += after.appends
                before.end, before.since = after.end, min(before.since, after.since)
                runs.remove(after)
        elif after is not None:
            after.appends.insert(0, data)
            after.start = offset
        else:
            runs.append(_EarlyRun(offset, end, now, [data]))
            runs.sort(key=lambda run: run.start)
        self._size += len(data)
        self._count += 1
        return True

    @staticmethod
    def _holds(runs: list[_EarlyRun], offset: int, data: Bytes) -> bool:
        """Return whether this very append is kept already: it arrived twice."""
        for run in runs:
            start = run.start
            for kept in run.appends:
                if start == offset:
                    return kept == data
                start += len(kept)
        return False

    def take(self, uid: bytes, offset: int) -> list[Bytes]:
        """Return and forget the appends that follow ``offset`` without a gap; forget those that it has passed."""
        taken: list[Bytes] = []
        for run in list(self._runs.get(uid, ())):
            if run.start == offset:
                taken = run.appends
                self._remove(uid, run)
            elif run.start < offset:
                self._remove(uid, run)
        return taken

    def forget(self, uid: bytes) -> None:
        """Forget the appends of a plog."""
        for run in list(self._runs.get(uid, ())):
            self._remove(uid, run)

    def clear(self) -> None:
        """Forget everything."""
        self._runs.clear()
        self._size = self._count = 0

    def expire(self, now: float) -> None:
        """Forget what was kept for too long: its owner has given it up."""
        for uid, runs in list(self._runs.items()):
            for run in [run for run in runs if run.since < now - KEPT_S_MAX]:
                self._remove(uid, run)

    def _remove(self, uid: bytes, run: _EarlyRun) -> None:
        self._runs[uid].remove(run)
        if not self._runs[uid]:
            del self._runs[uid]
        self._size -= run.end - run.start
        self._count -= len(run.appends)
