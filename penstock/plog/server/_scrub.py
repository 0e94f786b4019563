"""The scrub: sealed replicas are read slowly in the background, so that damage is found before the last good copy goes.

A run goes through the replicas of a partition in the order of their uids, at most at ``ScrubSettings.rate``, and the
next one begins ``ScrubSettings.period_s`` after it began. How far it is outlives a restart of the server. Damage is
looked at twice before it counts. The owner asks for damaged replicas (``ListDamaged``) and replaces each by a copy of a
good one, as it does with damage that a read has found. Until then the server refuses to read the damaged blocks, and
those alone: where all three replicas are damaged, each block may be good in another one.

A file that cannot be read (``OSError``) does not count as damaged: that may be the disk of the whole server. It is
counted, and the next run tries again.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument, NoSuchPlog, PenstockError, PlogCorrupt
from penstock.plog.server._verify import check_stored
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog.server._folder import HostedPartition, ServerFolder
    from penstock.ports import Clock

__all__ = ["ScrubFigures", "ScrubSettings", "Scrubber"]

_LOOK_S: Final = 1.0  # how soon a run begins that is due, or whose partition was opened
_SAVE_S: Final = 10.0  # how often the progress of a run is written
_END_S: Final = 5.0
_logger: Final = logging.getLogger("penstock.plog_server")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubSettings:
    """How often all sealed replicas are read, and how fast: the disk is there for clients."""

    period_s: float = 7 * 86400.0
    rate: int = 8 << 20  # bytes a second

    def __post_init__(self) -> None:
        if not (self.period_s > 0 and self.rate > 0):
            raise BadArgument(f"invalid scrub every {self.period_s:g} s at {self.rate} B/s: both have to be above 0")


@dataclass(slots=True)
class ScrubFigures:
    """What the scrub has done since the server has started, and how far its present run is."""

    plogs: int = 0
    size: int = 0
    runs: int = 0
    found: int = 0
    unreadable: int = 0
    progress: float = 1.0  # of the present run, 1 between two runs


class _StoredRun(msgspec.Struct, forbid_unknown_fields=True):
    """A run, as it is stored: when it began, the uid up to which it is done, and the damage that is not mended."""

    begun: float = 0.0
    after: str = ""
    is_done: bool = True
    damaged: list[str] = []


class Scrubber:
    """The thread that checks the replicas of a server, until it is closed."""

    def __init__(self, folder: ServerFolder, settings: ScrubSettings, *, clock: Clock | None = None) -> None:
        self._folder, self._settings, self._clock = folder, settings, clock or SystemClock()
        self._runs: dict[str, tuple[HostedPartition, _StoredRun]] = {}
        self._saved_at = 0.0
        self._over = threading.Event()
        self.figures: Final = ScrubFigures()
        self._thread = threading.Thread(target=self._work, name="penstock-scrub", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def damaged(self) -> int:
        """Return how many replicas are damaged and not replaced yet."""
        return sum(len(partition.replicas.damaged) for partition in self._folder.partitions().values())

    def close(self) -> None:
        """End after the read that is under way."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(_END_S)

    def _work(self) -> None:
        while not self._over.wait(_LOOK_S):
            for name, partition in sorted(self._folder.partitions().items()):
                try:
                    self._scrub_if_due(name, partition)
                except (PenstockError, OSError) as error:
                    _logger.warning("the scrub of partition %s is interrupted: %s", name, error)
                except Exception:
                    _logger.exception("the scrub of partition %s has failed", name)

    def _scrub_if_due(self, name: str, partition: HostedPartition) -> None:
        run = self._run_of(name, partition)
        now = self._clock.now()
        if run.is_done:
            if run.begun <= now < run.begun + self._settings.period_s:  # a clock that was set back makes it due
                return
            run.begun, run.after, run.is_done = now, "", False
        self._scrub(name, partition, run)

    def _run_of(self, name: str, partition: HostedPartition) -> _StoredRun:
        """Return the last run of a partition: as it is known, or as it is stored."""
        known = self._runs.get(name)
        if known is not None and known[0] is partition:
            return known[1]
        run = _StoredRun()
        with suppress(OSError, msgspec.MsgspecError, ValueError):  # a file that is lost costs one run
            run = msgspec.json.decode(self._folder.stored(_file_of(name)), type=_StoredRun)
            partition.replicas.damaged.update(map(bytes.fromhex, run.damaged))
        self._runs[name] = partition, run
        return run

    def _scrub(self, name: str, partition: HostedPartition, run: _StoredRun) -> None:
        """Check the replicas that are left of a run."""
        replicas = partition.replicas
        uids = replicas.uids()
        sizes = [replicas.stored_size(uid) for uid in uids]
        total, done = max(sum(sizes), 1), 0
        self.figures.progress = 0.0
        for uid, size in zip(uids, sizes, strict=True):
            if uid > run.after:
                self._check(partition, replicas.plog_id(uid))
                if self._over.is_set():
                    self._save(name, partition, run)
                    return
                run.after = uid
                if self._clock.elapsed() - self._saved_at >= _SAVE_S:
                    self._save(name, partition, run)
            done += size
            self.figures.progress = done / total
        run.is_done, self.figures.progress = True, 1.0
        self.figures.runs += 1
        self._save(name, partition, run)

    def _check(self, partition: HostedPartition, plog_id: PlogId) -> None:
        """Check one replica, and note what is wrong with it."""
        for tries_left in (1, 0):  # it may have been replaced meanwhile
            try:
                self._check_once(partition, plog_id)
                partition.replicas.damaged.discard(plog_id.uid_bytes)
            except (NoSuchPlog, FileNotFoundError):
                return
            except PlogCorrupt as error:
                if tries_left or self._over.is_set():
                    continue
                self._note_damaged(partition, plog_id, error.reason)
            except (PenstockError, OSError) as error:
                if not self._over.is_set():
                    self.figures.unreadable += 1
                    _logger.warning("the scrub cannot read a replica of plog %s: %s", plog_id, error)
            return

    def _note_damaged(self, partition: HostedPartition, plog_id: PlogId, reason: str) -> None:
        damaged, where = partition.replicas.damaged, partition.replicas.where(plog_id)
        if plog_id.uid_bytes not in damaged:
            damaged.add(plog_id.uid_bytes)
            with suppress(PenstockError):  # one that cannot be loaded is not read, either
                partition.replicas.verify_again(plog_id)
            self.figures.found += 1
            self._saved_at = -math.inf  # a finding is written at once
            _logger.error("the scrub has found a damaged replica; its owner replaces it: %s: %s", where, reason)

    def _check_once(self, partition: HostedPartition, plog_id: PlogId) -> None:
        replicas = partition.replicas
        info = replicas.info(plog_id)
        if info.sealed:
            replicas.write_buffered(plog_id)
            check_stored(replicas.where(plog_id), plog_id, length=info.length, pace=self._pace)
            self.figures.plogs += 1

    def _pace(self, size: int) -> None:
        self.figures.size += size
        if self._over.wait(size / self._settings.rate):
            raise InterruptedError("the server is being closed")

    def _save(self, name: str, partition: HostedPartition, run: _StoredRun) -> None:
        """Write the progress; where that fails, a restart repeats a part of the run."""
        self._saved_at = self._clock.elapsed()
        run.damaged = sorted(uid.hex() for uid in partition.replicas.damaged)
        try:
            self._folder.store(_file_of(name), msgspec.json.encode(run) + b"\n")
        except OSError as error:
            _logger.warning("the progress of the scrub cannot be written: %s", os.strerror(error.errno or 0))


def _file_of(partition: str) -> str:
    return f"scrub-{partition}"
