"""Checking a store, in use or not, or a point of a backup.

A check has three steps. It reads every plog and compares all blocks with their checksums. It opens the store on a disk
that keeps all changes in memory, so that the recovery after a crash is tried, too, and nothing is changed. Then it
reads what the logs hold: the catalog, the events of all segments, watermarks, groups, repositories.

A store in use is checked by a snapshot that its owner takes. It has what was acknowledged at that moment, read from the
disk as the owner reads it: its journal and its oracle are checked when the store is opened.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.backup._check_streams import check_streams
from penstock.backup._findings import Findings, LogNames
from penstock.backup._layered_disk import FolderFiles, LayeredDisk, SnapshotFiles
from penstock.backup._point_snapshot import PointSnapshot
from penstock.backup._restore import find_point_name
from penstock.backup._snapshots import blocks_of, take_snapshot
from penstock.backup._target import BackupTarget, open_target
from penstock.backup._verify import verify_backup
from penstock.cpo import open_cpo
from penstock.embedded import PARTITION
from penstock.errors import (
    BackupCorrupt,
    BadArgument,
    CorruptData,
    FolderUnusable,
    NoSuchPlog,
    PenstockError,
    PlogCorrupt,
)
from penstock.log import READ_LIMIT, MetadataManager
from penstock.model import PLOGS_FOLDER, PlogId, has_store
from penstock.plog import FORMAT_NAME, FilePlogs, check_raw, plog_file
from penstock.ports import OsDisk
from penstock.stream import Engine
from penstock.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from penstock.backup._findings import CheckReport
    from penstock.backup._layered_disk import ReadFiles
    from penstock.backup._snapshots import StoreSnapshot
    from penstock.cpo import Cpo
    from penstock.log import PlogCut
    from penstock.store import Store

__all__ = ["check_backup", "check_folder", "check_store"]

_JOURNAL_SIZE: Final = 1 << 20
_OPEN_FILES_MAX: Final = 8  # of a snapshot: each is in memory while it is open
_ADDRESS: Final = "the checked store"
_SUFFIX: Final = ".plog"
_UNUSED_ADVICE: Final = (
    "no log needs the file: nothing is lost; a store that is opened deletes it, or delete it yourself"
)


def check_store(
    store: Store, *, on_progress: Callable[[str, int, int], object] = lambda act, done, total: None
) -> CheckReport:
    """Check a store that is open, here or in another process; it is used meanwhile."""
    with take_snapshot(store) as snapshot:
        return _check_snapshot(snapshot, on_progress)


def check_backup(
    target: BackupTarget | str | PathLike[str],
    *,
    at: str | None = None,
    on_progress: Callable[[str, int, int], object] = lambda act, done, total: None,
) -> CheckReport:
    """Check a point of a backup, by default the newest, as if it was restored.

    If it is damaged, all of the backup is read, and findings say which points can be restored.
    """
    if not isinstance(target, BackupTarget):
        target = open_target(target)
    target.check_format()
    name = find_point_name(target, at)
    try:
        report = _check_snapshot(PointSnapshot(target, target.point(name)), on_progress)
    except BackupCorrupt as error:
        findings = Findings()
        findings.note(f"the point {name}", error)
        report = findings.report()
    if report.is_good:
        return report
    advice = verify_backup(target, on_progress=on_progress).advice
    advised = tuple(replace(finding, advice=advice) for finding in report.findings)
    return replace(report, findings=advised)


def _check_snapshot(snapshot: StoreSnapshot, on_progress: Callable[[str, int, int], object]) -> CheckReport:
    findings = Findings()
    bad = _damaged_plogs(snapshot, findings, on_progress)
    disk = LayeredDisk(SnapshotFiles(snapshot), _empty_plogs())
    with ExitStack() as resources:
        cpo = resources.enter_context(open_cpo("memory:"))
        cpo.set_metadata_plog(PARTITION, snapshot.metadata_plog, expected=0)
        store = _open(disk, cpo, findings, resources, open_files_max=_OPEN_FILES_MAX)
        names = LogNames() if store is None else _names(store)
        for cut, error in bad:
            findings.note(names.of(cut.log), error)
        if store is not None:
            check_streams(store, findings)
    return findings.report()


def _damaged_plogs(
    snapshot: StoreSnapshot, findings: Findings, on_progress: Callable[[str, int, int], object]
) -> list[tuple[PlogCut, PenstockError]]:
    """Compare every block of a snapshot with its checksum; return the plogs that are damaged."""
    total, done = sum(cut.length for cut in snapshot.plogs), 0
    bad: list[tuple[PlogCut, PenstockError]] = []
    for cut in snapshot.plogs:
        findings.count("plogs")
        try:
            for raw in blocks_of(snapshot, cut):
                findings.count("blocks", check_raw(raw, where=snapshot.where(cut.plog_id)))
                findings.count("size_bytes", len(raw.data))
                done += raw.end - raw.offset
                on_progress("checking", done, total)
        except CorruptData as error:
            bad.append((cut, error))
    return bad


def _empty_plogs() -> MemoryDisk:
    """Return a disk with the journal of a store without plogs."""
    disk = MemoryDisk()
    FilePlogs(disk, journal_size=_JOURNAL_SIZE).close()
    return disk


def _open(
    disk: LayeredDisk, cpo: Cpo, findings: Findings, resources: ExitStack, *, open_files_max: int
) -> Engine | None:
    """Open a store on a disk of which nothing is kept; None if that is impossible, which is noted."""
    try:
        plogs = resources.enter_context(FilePlogs(disk, journal_size=_JOURNAL_SIZE, open_files_max=open_files_max))
    except PenstockError as error:
        findings.note("the folder of plogs", error)
        return None
    try:
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, PARTITION))
    except PenstockError as error:
        findings.note("the metadata log", error)
        return None
    try:
        store = Engine(manager, address=_ADDRESS, maintains=False, resources=ExitStack())
    except PenstockError as error:
        findings.note("the catalog of streams", error)
        return None
    resources.callback(_close, store)
    return store


def _close(store: Engine) -> None:
    """Close a store of which nothing is kept: what fails then has been found before."""
    try:
        store.close()
    except PenstockError:
        return


def _names(store: Engine) -> LogNames:
    return LogNames({state.uid: name for name, state in store.catalog.streams.items()})


# Folders that no process uses


def check_folder(
    folder: str | PathLike[str], *, on_progress: Callable[[str, int, int], object] = lambda act, done, total: None
) -> CheckReport:
    """Check the store in a folder that no process has open: all of its files. Nothing is changed.

    ``StoreLocked`` if a process has it open: then check it by :func:`check_store`.
    """
    path = Path(folder).absolute()
    if not has_store(path):
        raise FolderUnusable(str(folder), reason="there is no store in it")
    findings, lock = Findings(), OsDisk(path / PLOGS_FOLDER)
    try:
        lock.lock_unchanged()
        with ExitStack() as resources:
            _check_files(path, findings, on_progress, resources)
    finally:
        lock.close()
    return findings.report()


def _check_files(
    path: Path, findings: Findings, on_progress: Callable[[str, int, int], object], resources: ExitStack
) -> None:
    files = FolderFiles(path / PLOGS_FOLDER)
    for name in sorted(files.others()):
        if name.endswith(_SUFFIX) and _plog_id(name) is not None:
            findings.note("the folder of plogs", PlogCorrupt(files.where(name), offset=None, reason="it is not a file"))
    if FORMAT_NAME not in files.names():
        findings.note("the folder of plogs", PlogCorrupt(files.where(FORMAT_NAME), offset=None, reason="it is missing"))
    disk = LayeredDisk(files)
    cpo = _copied_cpo(path, findings, resources)
    store = None if cpo is None else _open(disk, cpo, findings, resources, open_files_max=256)
    used: dict[str, str] = {}
    if store is not None:
        names = _names(store)
        with store.snapshot() as snapshot:
            used = {plog_file(cut.plog_id): cut.log for cut in snapshot.plogs}
            for cut, error in _damaged_plogs(snapshot, findings, on_progress):
                findings.note(names.of(cut.log), error)
        check_streams(store, findings)
    _check_other_files(files, used, findings, is_open=store is not None)


def _copied_cpo(path: Path, findings: Findings, resources: ExitStack) -> Cpo | None:
    """Open a copy of the oracle, because opening it may change its file."""
    scratch = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="penstock-check-")))
    try:
        for name in ("cpo.db", "cpo.db-journal"):
            if (path / name).exists():
                shutil.copyfile(path / name, scratch / name)
    except OSError as error:  # also if it is a folder or a pipe
        findings.note(f"the oracle ({path / 'cpo.db'})", f"it cannot be read: {error.strerror or error}")
        return None
    try:
        cpo = resources.enter_context(open_cpo(f"sqlite:{scratch / 'cpo.db'}", create=False))
        if cpo.metadata_plog(PARTITION) is None:
            findings.note(f"the oracle ({path / 'cpo.db'})", "it does not know the store")
            return None
    except PenstockError as error:
        reason = str(error).replace(str(scratch), str(path))
        findings.note(f"the oracle ({path / 'cpo.db'})", f"it is damaged or missing: {reason}")
        return None
    return cpo


def _check_other_files(files: ReadFiles, used: dict[str, str], findings: Findings, *, is_open: bool) -> None:
    """Read the plogs that the open store does not need, or all of them if it could not be opened."""
    disk = LayeredDisk(files)
    with _plogs_without_journal(disk) as plogs:
        for name in sorted(files.names()):
            if not name.endswith(_SUFFIX) or name in used:
                continue
            plog_id = _plog_id(name)
            if plog_id is None:  # a copy that somebody made, for example: a store takes no notice of it
                findings.unused_files.append(files.where(name))
                continue
            try:
                _read_plog(plogs, plog_id, files.where(name))
            except NoSuchPlog:
                pass  # never completely created
            except PenstockError as error:
                if is_open:
                    findings.note("a file that no log needs", error, advice=_UNUSED_ADVICE)
                else:
                    findings.note("a plog of an unknown log", error)
            if is_open:
                findings.unused_files.append(files.where(name))


def _plog_id(name: str) -> PlogId | None:
    """Return the plog whose file has this name; None if it is not the name of a plog's file."""
    try:
        return PlogId("local", "main", name.removesuffix(_SUFFIX))
    except BadArgument:
        return None


@contextmanager
def _plogs_without_journal(disk: LayeredDisk) -> Iterator[FilePlogs]:
    """Open plogs as they are in their files, because the journal may be damaged."""
    fresh = _empty_plogs()
    for name in fresh.names():
        file = fresh.open(name)
        disk.above.create(name).pwritev([file.view(0, file.size())], 0)
    with FilePlogs(disk, journal_size=_JOURNAL_SIZE) as plogs:
        yield plogs


def _read_plog(plogs: FilePlogs, plog_id: PlogId, where: str) -> None:
    length, offset = plogs.info(plog_id).length, 0
    while offset < length:
        raw = plogs.raw(plog_id, offset, length, limit=READ_LIMIT)
        check_raw(raw, where=where)
        offset = raw.end
