"""The scrub: sealed replicas are read slowly in the background, so that damage is found before the last good copy goes.

A run goes through the replicas of a partition in the order of their uids, at most at ``ScrubSettings.rate``, and the
next one begins ``ScrubSettings.period_s`` after it began. How far it is outlives a restart of the server. Damage is
looked at twice before it counts, and once more after a restart. The owner asks for damaged replicas (``ListDamaged``)
and replaces each by a copy of a good one, as it does with damage that a read has found. Until then the server refuses
to read the damaged blocks, and those alone: where all three replicas are damaged, each block may be good in another.

A file that the disk cannot read is looked at again at the end of the run. If another file can be read at that moment,
it has a bad sector and counts as damaged; all of it is refused then. Otherwise that may be the disk of the whole
server: it is counted, and the next run tries again.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument, NoSuchPlog, PenstockError, PlogCorrupt
from penstock.plog.server._verify import check_readable, check_stored
from penstock.ports import SystemClock

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog.server._folder import HostedPartition, ServerFolder
    from penstock.ports import Clock

__all__ = ["ScrubFigures", "ScrubSettings", "Scrubber"]

_LOOK_S: Final = 1.0  # how soon a run begins that is due, or whose partition was opened
_SAVE_S: Final = 10.0  # how often the progress of a run is written
_END_S: Final = 5.0
_BAD_SECTOR: Final = {errno.EIO, errno.ENODATA, errno.EUCLEAN, errno.EBADMSG, errno.EILSEQ}
_OTHERS_MAX: Final = 3  # files that are tried to see whether the disk reads at all
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
        if run is None:
            return
        now = self._clock.now()
        if run.is_done:
            if run.begun <= now < run.begun + self._settings.period_s:  # a clock that was set back makes it due
                if run.damaged != _damaged_in(partition):  # an owner has replaced some
                    self._save(name, partition, run)
                return
            run.begun, run.after, run.is_done = now, "", False
        self._scrub(name, partition, run)

    def _run_of(self, name: str, partition: HostedPartition) -> _StoredRun | None:
        """Return the last run of a partition: as it is known, or as it is stored; None if the server is closed.

        What is stored as damaged is checked again: it may have been replaced or deleted before the server ended.
        """
        known = self._runs.get(name)
        if known is not None and known[0] is partition:
            return known[1]
        run = _StoredRun()
        with suppress(OSError, msgspec.MsgspecError, ValueError):  # a file that is lost costs one run
            run = msgspec.json.decode(self._folder.stored(_file_of(name)), type=_StoredRun)
        replicas = partition.replicas
        stored = map(replicas.plog_id, sorted({*run.damaged} & {*replicas.uids()}))
        self._confirm_unreadable(partition, [plog_id for plog_id in stored if not self._check(partition, plog_id)])
        if self._over.is_set():
            return None
        self._runs[name] = partition, run
        return run

    def _scrub(self, name: str, partition: HostedPartition, run: _StoredRun) -> None:
        """Check the replicas that are left of a run."""
        replicas = partition.replicas
        uids = replicas.uids()
        sizes = [replicas.stored_size(uid) for uid in uids]
        total, done = max(sum(sizes), 1), 0
        unreadable: list[str] = []
        self.figures.progress = 0.0
        for uid, size in zip(uids, sizes, strict=True):
            if uid > run.after:
                if not self._check(partition, replicas.plog_id(uid)):
                    unreadable.append(uid)
                if self._over.is_set():
                    self._save(name, partition, run)
                    return
                run.after = uid
                if self._clock.elapsed() - self._saved_at >= _SAVE_S:
                    self._save(name, partition, run)
            done += size
            self.figures.progress = done / total
        self._confirm_unreadable(partition, list(map(replicas.plog_id, unreadable)))
        run.is_done, self.figures.progress = True, 1.0
        self.figures.runs += 1
        self._save(name, partition, run)

    def _check(self, partition: HostedPartition, plog_id: PlogId) -> bool:
        """Check one replica, and note what is wrong with it; return False if the disk cannot read it."""
        for tries_left in (1, 0):  # it may have been replaced meanwhile
            try:
                self._check_once(partition, plog_id)
                partition.replicas.note_checked(plog_id, is_damaged=False)
            except (NoSuchPlog, FileNotFoundError):
                partition.replicas.note_checked(plog_id, is_damaged=False)
            except PlogCorrupt as error:
                if tries_left or self._over.is_set():
                    continue
                self._note_damaged(partition, plog_id, error.reason)
            except (PenstockError, OSError) as error:
                if not self._over.is_set():
                    self.figures.unreadable += 1
                    _logger.warning("the scrub cannot read a replica of plog %s: %s", plog_id, error)
                    return not _is_bad_sector(error)
            return True
        return True

    def _confirm_unreadable(self, partition: HostedPartition, plogs: list[PlogId]) -> None:
        """Count files as damaged that stay unreadable while another one can be read."""
        for plog_id in plogs:
            try:
                self._check_once(partition, plog_id)
            except OSError as error:
                if _is_bad_sector(error) and self._reads_another(partition, {plog.uid for plog in plogs}):
                    self._note_damaged(partition, plog_id, error.strerror or str(error), is_unreadable=True)
            except PenstockError:
                continue  # it was deleted, or can be read again, and is damaged: the next run finds it

    def _reads_another(self, partition: HostedPartition, unreadable: set[str]) -> bool:
        others = [uid for uid in partition.replicas.uids() if uid not in unreadable]
        for uid in others[:_OTHERS_MAX]:
            with suppress(PenstockError, OSError):
                if check_readable(partition.replicas.where(partition.replicas.plog_id(uid)), pace=self._pace):
                    return True
        return False

    def _note_damaged(
        self, partition: HostedPartition, plog_id: PlogId, reason: str, *, is_unreadable: bool = False
    ) -> None:
        where = partition.replicas.where(plog_id)
        if partition.replicas.note_checked(plog_id, is_damaged=True, is_unreadable=is_unreadable):
            self.figures.found += 1
            self._saved_at = -math.inf  # a finding is written at once
            _logger.error("the scrub has found a damaged replica; its owner replaces it: %s: %s", where, reason)

    def _check_once(self, partition: HostedPartition, plog_id: PlogId) -> None:
        replicas = partition.replicas
        replicas.begin_check(plog_id)
        info = replicas.known_info(plog_id)
        if info.sealed:
            replicas.write_buffered(plog_id)
            check_stored(replicas.where(plog_id), plog_id, length=info.length, pace=self._pace)
            self.figures.plogs += 1
        elif plog_id.uid_bytes in replicas.damaged:
            replicas.info(plog_id)  # which reads its blocks

    def _pace(self, size: int) -> None:
        self.figures.size += size
        if self._over.wait(size / self._settings.rate):
            raise InterruptedError("the server is being closed")

    def _save(self, name: str, partition: HostedPartition, run: _StoredRun) -> None:
        """Write the progress; where that fails, a restart repeats a part of the run."""
        self._saved_at = self._clock.elapsed()
        run.damaged = _damaged_in(partition)
        try:
            self._folder.store(_file_of(name), msgspec.json.encode(run) + b"\n")
        except OSError as error:
            _logger.warning("the progress of the scrub cannot be written: %s", os.strerror(error.errno or 0))


def _damaged_in(partition: HostedPartition) -> list[str]:
    return sorted(uid.hex() for uid in partition.replicas.damaged)


def _is_bad_sector(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _BAD_SECTOR


def _file_of(partition: str) -> str:
    return f"scrub-{partition}"
