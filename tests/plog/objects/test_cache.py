"""The cache of objects: what it saves, what it bounds, and what it does not believe."""

from __future__ import annotations

import logging
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import NoSuchObject, StorageUnavailable
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.plog.objects._cache import ObjectCache
from penstock.plog.objects._chunk_files import CHUNK_SIZE
from penstock.testing import FaultyObjects, MemoryObjects, ObjectFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model import PlogId

MIB: Final = 1 << 20
BIG: Final = random.Random(1).randbytes(64 << 10) * 144  # 9 MiB: two chunks, and a quarter


@pytest.fixture
def objects() -> FaultyObjects:
    """A bucket with an object of three chunks, which counts its calls."""
    memory = MemoryObjects()
    memory.put_new("big", BIG)
    memory.put_new("small", b"0123456789")
    return FaultyObjects(memory)


def cache_of(objects: FaultyObjects, folder: Path | None, *, disk_max: int = 64 * MIB) -> ObjectCache:
    return ObjectCache(objects, folder=folder, memory_max=16 * MIB, disk_max=disk_max)


@pytest.fixture(params=["disk", "memory"])
def cache(request: pytest.FixtureRequest, objects: FaultyObjects, tmp_path: Path) -> Iterator[ObjectCache]:
    """A cache with a folder, or without."""
    with closing(cache_of(objects, tmp_path / "cache" if request.param == "disk" else None)) as cache:
        yield cache


def wait_for_fetches(cache: ObjectCache) -> None:
    for future in list(cache._fetching.values()):
        future.exception()


def test_reads_return_the_bytes_of_the_object(cache: ObjectCache) -> None:
    """Within a chunk, across chunks, at and behind the end, in any order, the first time and again."""
    ranges = [(0, 10), (5, MIB), (CHUNK_SIZE - 5, 10), (0, len(BIG)), (8 * MIB, 2 * MIB), (len(BIG), 5), (3, 0)]
    for start, size in [*ranges, *reversed(ranges)]:
        assert cache.read("big", start, size) == BIG[start : start + size]
    assert bytes(cache.read("small", 2, 3)) == b"234"
    with pytest.raises(NoSuchObject):
        cache.read("nothing", 0, 1)


def test_a_chunk_is_fetched_once(cache: ObjectCache, objects: FaultyObjects) -> None:
    """Small reads of neighbours share a request, and reading again costs none."""
    for start in range(0, MIB, MIB // 16):
        cache.read("big", start, MIB // 16)
    assert objects.calls["get_range"] == 1
    cache.read("big", 0, len(BIG))
    cache.read("big", 0, len(BIG))
    assert objects.calls["get_range"] == 3


def test_threads_that_want_the_same_chunk_share_its_fetch(tmp_path: Path) -> None:
    """A hundred readers that begin at the same place must not cost a hundred requests."""
    begun, gate = threading.Event(), threading.Event()

    def delay(call: str, _: str) -> None:
        if call == "get_range":
            begun.set()
            gate.wait()

    memory = MemoryObjects()
    memory.put_new("big", BIG)
    objects = FaultyObjects(memory, delay=delay)
    with closing(cache_of(objects, tmp_path)) as cache, ThreadPoolExecutor(8) as threads:
        reads = [threads.submit(cache.read, "big", number, 100) for number in range(8)]
        begun.wait()
        gate.set()
        assert [bytes(read.result()) for read in reads] == [BIG[number : number + 100] for number in range(8)]
    assert objects.calls["get_range"] == 1


def test_a_sequential_reader_finds_the_next_chunks_fetched(cache: ObjectCache, objects: FaultyObjects) -> None:
    """The latency of a request is waited for once, not for every chunk; and nothing behind the end is asked for."""
    cache.read("big", 0, MIB)
    assert objects.calls["get_range"] == 1
    cache.read("big", CHUNK_SIZE, MIB)  # goes on, so chunk 2 is fetched now, and two more: the end is not known yet
    wait_for_fetches(cache)
    assert objects.calls["get_range"] == 5
    cache.read("big", 2 * CHUNK_SIZE, MIB)
    wait_for_fetches(cache)
    assert objects.calls["get_range"] == 5


def test_prefetched_bytes_are_there(cache: ObjectCache, objects: FaultyObjects) -> None:
    """A reader that knows what it reads next has it fetched meanwhile, from other objects too."""
    cache.prefetch("small", 0, 10)
    wait_for_fetches(cache)
    objects.fail(ObjectFault.LOST, on="get_range", call=None)
    assert bytes(cache.read("small", 0, 10)) == b"0123456789"
    with pytest.raises(StorageUnavailable):
        cache.read("big", 0, 10)
    objects.heal()
    assert cache.read("big", 0, 10) == BIG[:10]


def test_objects_just_put_are_in_memory_up_to_a_limit(cache: ObjectCache, objects: FaultyObjects) -> None:
    """Readers at the tail of a stream need no request, and a writer does not fill the memory."""
    for number in range(40):
        cache.add(f"journal/{number}", bytes([number]) * MIB)
    assert bytes(cache.read("journal/39", 5, 3)) == bytes([39]) * 3
    assert objects.calls["get_range"] == 0
    assert cache.counts().memory_size <= 16 * MIB
    with pytest.raises(NoSuchObject):  # it is not in this bucket
        cache.read("journal/0", 0, 1)
    cache.drop("journal/39")
    with pytest.raises(NoSuchObject):
        cache.read("journal/39", 0, 1)


def test_the_folder_survives_a_restart(objects: FaultyObjects, tmp_path: Path) -> None:
    """A server that starts again does not read its whole working set from the bucket."""
    with closing(cache_of(objects, tmp_path)) as cache:
        view = cache.read("big", 0, len(BIG))
    assert view == BIG  # views outlive the cache
    objects.calls.clear()
    with closing(cache_of(objects, tmp_path)) as cache:
        assert cache.read("big", 0, len(BIG)) == BIG
        assert objects.calls["get_range"] == 0
        cache.drop("big")
        assert cache.read("big", 0, 5) == BIG[:5]
        assert objects.calls["get_range"] == 1


@pytest.mark.parametrize("damage", ["truncate", "record", "foreign", "empty", "folder"])
def test_a_damaged_file_is_noticed_and_fetched_again(objects: FaultyObjects, tmp_path: Path, damage: str) -> None:
    """Nothing in the folder is synced, so a crash leaves anything; damage within chunks fails the blocks' checksums."""
    with closing(cache_of(objects, tmp_path)) as cache:
        cache.read("big", 0, len(BIG))
        cache.read("small", 0, 10)
    file = max(tmp_path.glob("*.chunks"), key=lambda path: path.stat().st_size)
    if damage == "truncate":
        os.truncate(file, 65536 + CHUNK_SIZE + 5)
    elif damage == "record":
        with file.open("r+b") as opened:
            opened.seek(4096 + 12 + 5)
            opened.write(b"\xff")
    elif damage == "foreign":
        other = min(tmp_path.glob("*.chunks"), key=lambda path: path.stat().st_size)
        file.write_bytes(other.read_bytes())
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
        file.mkdir()
    with closing(cache_of(objects, tmp_path)) as cache:
        for _ in range(2):
            assert cache.read("big", 0, len(BIG)) == BIG
            assert cache.read("big", CHUNK_SIZE, 200) == BIG[CHUNK_SIZE : CHUNK_SIZE + 200]
        assert bytes(cache.read("small", 0, 10)) == b"0123456789"


def test_the_same_name_in_another_bucket_is_another_object(tmp_path: Path) -> None:
    """A folder may be given to a second store."""
    for bucket, content in (("one", b"1"), ("two", b"2")):
        memory = MemoryObjects()
        memory.where = lambda name="", bucket=bucket: f"{bucket}:{name}"  # type: ignore[method-assign, misc]
        memory.put_new("a", content)
        with closing(ObjectCache(memory, folder=tmp_path, memory_max=0, disk_max=MIB)) as cache:
            assert bytes(cache.read("a", 0, 1)) == content


def test_the_folder_stays_below_its_limit(tmp_path: Path) -> None:
    """What was not read for the longest time goes; the limit holds for what an earlier process has left, too."""
    memory = MemoryObjects()
    for number in range(8):
        memory.put_new(f"{number}", bytes([number]) * MIB)
    objects = FaultyObjects(memory)
    with closing(cache_of(objects, tmp_path, disk_max=5 * MIB)) as cache:
        for number in range(8):
            cache.read(f"{number}", 0, 10)
            cache.read("0", 0, 10)
        assert cache.counts().disk_size <= 5 * MIB
        assert objects.calls["get_range"] == 8
    with closing(cache_of(objects, tmp_path, disk_max=2 * MIB)) as cache:
        assert sum(path.stat().st_blocks * 512 for path in tmp_path.glob("*.chunks")) <= 2 * MIB
        assert bytes(cache.read("0", 0, 1)) == b"\0"
        assert objects.calls["get_range"] == 8
    with closing(cache_of(objects, tmp_path, disk_max=0)) as cache:
        assert bytes(cache.read("0", 0, 1)) == b"\0"
        assert not list(tmp_path.glob("*.chunks"))


def test_without_a_usable_folder_reads_go_on(
    objects: FaultyObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cache is never worth an outage: a full disk, a folder of another user or another process."""
    caplog.set_level(logging.WARNING, "penstock.plog")
    (tmp_path / "file").write_text("")
    with closing(cache_of(objects, tmp_path / "file")) as cache:
        assert cache.read("big", 0, 10) == BIG[:10]
    with closing(cache_of(objects, tmp_path / "a")), closing(cache_of(objects, tmp_path / "a")) as second:
        assert second.read("big", 0, 10) == BIG[:10]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"no cache in {tmp_path / 'file'}",
        f"no cache in {tmp_path / 'a'}",
    ]
    caplog.clear()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with closing(cache_of(objects, tmp_path / "b")) as cache:
        monkeypatch.setattr(os, "pwrite", full)
        for _ in range(2):
            assert cache.read("big", 0, len(BIG)) == BIG
    assert [record.getMessage() for record in caplog.records] == [
        "the cache is given up: No space left on device; reads go to memory:"
    ]


def test_a_compacted_plog_is_read_from_the_cache_alone(tmp_path: Path) -> None:
    """Its object says where its blocks are; a request for that took a quarter of the time of a cached read."""
    objects = FaultyObjects(MemoryObjects())
    settings = ObjectSettings(group_wait_s=0, compact_size_min=1)

    def read(plog_id: PlogId) -> tuple[bytes, int]:
        with ObjectPlogs(objects, settings=settings, cache=cache_of(objects, tmp_path)) as plogs:
            objects.calls.clear()
            return bytes(plogs.read(plog_id, 0, 12)), objects.calls["get_range"]

    with ObjectPlogs(objects, settings=settings) as plogs:
        plog_id = plogs.create(size=100)
        plogs.append(plog_id, 0, b"some ")
        plogs.append(plog_id, 5, b"bytes..")
        plogs.seal(plog_id, 12)
        while not any(name.endswith(".plog") for name in objects.names("plogs/")):
            plogs.check_running()  # it is compacted in the background
    assert read(plog_id) == (b"some bytes..", 1)
    assert read(plog_id) == (b"some bytes..", 0)
    (file,) = tmp_path.glob("*.chunks")
    damaged = bytearray(file.read_bytes())
    damaged[65536 + 30] ^= 1  # in the state of the plog
    file.write_bytes(damaged)
    assert read(plog_id) == (b"some bytes..", 2)
    assert read(plog_id) == (b"some bytes..", 0)
