"""How fast a store is backed up and checked, next to copying and reading its files in the same run.

Run it on an otherwise idle machine: ``python -m bench.backup [FOLDER]``; the folder is made, filled and removed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench._measure import Figure, compare, rate, report
from penstock.backup import backup_store, check_folder, restore_store
from penstock.embedded import open_store

MIB = 1 << 20
ROUNDS = 4
_numbers = count()


def fill(folder: Path, *, size: int, total: int) -> None:
    """Write events of one size, in batches."""
    with open_store(folder) as store:
        store.create_stream("bench/events", segments=4, exist_ok=True)
        events = total // size
        batch = min(events, MIB // size)
        data, bounds = os.urandom(batch * size), np.arange(batch + 1, dtype=np.int32) * size
        array = pa.Array.from_buffers(pa.binary(), batch, [None, pa.py_buffer(bounds), pa.py_buffer(data)])
        keys = pa.array([f"key-{number % 1000}" for number in range(batch)])
        with store.writer("bench/events") as writer:
            for _ in range(events // batch):
                writer.write_batch(array, keys)


def size_of(folder: Path) -> int:
    """Return how many bytes the plogs of a store have."""
    return sum(path.stat().st_size for path in folder.glob("plogs/*.plog"))


def copy_files(source: Path, folder: Path) -> int:
    """Copy a store's folder with ``cp -r``'s calls, and sync every file, as a copy that is a backup has to."""
    target = folder / f"cp-{next(_numbers)}"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock", "journal-*"))
    for path in target.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
    size = size_of(target)
    shutil.rmtree(target)
    return size


def back_up(source: Path, folder: Path) -> int:
    """Back a store up into a new folder, verified."""
    target = folder / f"backup-{next(_numbers)}"
    with open_store(source) as store:
        size = backup_store(store, target).size_bytes
    shutil.rmtree(target)
    return size


def restore(target: Path, folder: Path) -> int:
    """Restore a backup into a new folder."""
    restored = folder / f"restored-{next(_numbers)}"
    size = restore_store(target, restored).size_bytes
    shutil.rmtree(restored)
    return size


def read_files(source: Path) -> int:
    """Read all files of plogs."""
    return sum(len(path.read_bytes()) for path in source.glob("plogs/*.plog"))


def check(source: Path) -> int:
    """Check a store."""
    report = check_folder(source)
    assert report.is_good
    return report.size_bytes


def incremental(source: Path, folder: Path, *, size: int, total: int) -> Figure:
    """Compare a backup of everything with one after a hundredth was added."""
    target = folder / "points"
    with open_store(source) as store:
        full_s = 1 / rate(lambda: bool(backup_store(store, target)))
    fill(source, size=size, total=total // 100)
    with open_store(source) as store:
        part_s = 1 / rate(lambda: bool(backup_store(store, target)))
    return Figure(
        f"time of a full backup, to one of 1 % new ({size:,} bytes)", full_s / part_s,
        detail={"full, s": full_s, "1 % new, s": part_s},
    )  # fmt: skip


def figures_of(folder: Path, *, size: int, total: int) -> list[Figure]:
    """Measure a store with events of one size."""
    source = folder / f"store-{size}"
    fill(source, size=size, total=total)
    figures = []
    works = {
        "full backup, to cp -r and sync": (partial(back_up, source, folder), partial(copy_files, source, folder)),
        "check, to reading the files": (partial(check, source), partial(read_files, source)),
    }
    for name, (ours, theirs) in works.items():
        ratio, mine, other, spread = compare(partial(rate, ours), partial(rate, theirs), rounds=ROUNDS)
        detail = {"ours, MB/s": mine / 1e6, "theirs, MB/s": other / 1e6}
        figures.append(Figure(f"{name} (events of {size:,} bytes)", ratio, detail=detail, spread=spread))
    figures.append(incremental(source, folder, size=size, total=total))
    works_of_restore = partial(restore, folder / "points", folder), partial(copy_files, source, folder)
    ratio, mine, other, spread = compare(*(partial(rate, work) for work in works_of_restore), rounds=ROUNDS)
    detail = {"ours, MB/s": mine / 1e6, "theirs, MB/s": other / 1e6}
    name = f"restore, to cp -r and sync (events of {size:,} bytes)"
    figures.append(Figure(name, ratio, detail=detail, spread=spread))
    shutil.rmtree(folder / "points")
    shutil.rmtree(source)
    return figures


def main() -> None:
    """Measure, and print what was measured."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        folder.mkdir(exist_ok=True)
        report("backups", [
            *figures_of(folder, size=100, total=96 * MIB),
            *figures_of(folder, size=10_000, total=192 * MIB),
        ])  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
