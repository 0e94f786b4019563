"""What is special about the disk in memory; what it shares with a real one is in test_disks_agree.py."""

from __future__ import annotations

import errno
import threading

import pytest

from penstock.errors import StoreLocked
from penstock.testing import MemoryDisk


def test_disk_is_locked_by_one_user_at_a_time() -> None:
    """Two stores on one memory disk would overwrite each other as two processes in one folder would."""
    disk = MemoryDisk()
    disk.lock()
    with pytest.raises(StoreLocked, match="memory:"):
        disk.lock()


def test_close_lets_the_next_user_find_the_files() -> None:
    """Reopening a store in memory is how most tests of recovery start."""
    disk = MemoryDisk()
    disk.lock()
    disk.create("journal-0").pwritev([b"kept"], 0)
    disk.close()
    disk.lock()
    assert bytes(disk.open("journal-0").view(0, 9)) == b"kept"


def test_view_outlives_the_buffer_it_was_taken_of() -> None:
    """A reader may hold a view while appends make the file grow many times over."""
    file = MemoryDisk().create("plog")
    file.pwritev([b"first"], 0)
    view = file.view(0, 5)
    file.pwritev([bytes(1 << 20)], 5)
    file.pwritev([b"other"], 0)
    assert bytes(view) == b"first"
    assert bytes(file.view(0, 5)) == b"other"


def test_view_is_not_a_copy() -> None:
    """Reads of a store in memory are as quick as those of a mapped file only if nothing is copied."""
    file = MemoryDisk().create("plog")
    file.pwritev([bytes(1 << 20)], 0)
    assert file.view(0, 1 << 20).obj is file.view(99, 1).obj


def test_small_writes_seldom_move_the_file() -> None:
    """Copying the whole file on each append would make a store in memory quadratic."""
    file = MemoryDisk().create("plog")
    buffers: dict[int, object] = {}
    for offset in range(0, 1 << 16, 64):
        file.pwritev([bytes(64)], offset)
        buffer = file.view(0, 1).obj
        buffers[id(buffer)] = buffer
    assert len(buffers) <= 11


def test_reserved_room_is_not_moved_by_writes_into_it() -> None:
    """A plog reserves its room once, so that its appends never copy it."""
    file = MemoryDisk().create("plog")
    file.reserve(1 << 24)
    view = file.view(0, 1 << 24)
    file.pwritev([b"x"], (1 << 24) - 1)
    assert view[-1] == ord("x")


def test_closed_file_is_not_usable() -> None:
    """A real descriptor that was closed may belong to another file by now; here the mistake shows at once."""
    file = MemoryDisk().create("plog")
    file.close()
    for use in (lambda: file.pwritev([b"x"], 0), lambda: file.view(0, 1), file.datasync, file.size):
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_concurrent_writers_lose_nothing_while_the_file_grows() -> None:
    """A write into the old buffer while another thread moves the file would be gone."""
    file = MemoryDisk().create("plog")
    writer_count, write_count = 8, 400

    def write(writer: int) -> None:
        for index in range(write_count):
            file.pwritev([bytes([writer + 1]) * 16], (index * writer_count + writer) * 16)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(writer_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = b"".join(bytes([writer + 1]) * 16 for writer in range(writer_count)) * write_count
    assert bytes(file.view(0, file.size())) == expected
