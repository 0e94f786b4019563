"""Chunks of objects on the local disk, one sparse file an object, so that neighbours are one piece of memory.

The folder is a cache, and nothing in it is synced. A file that is cut off or of another object is noticed here, and
removed. Damage within a chunk is not: its reader has the checksums of blocks, and drops the object if one fails. One
process at a time uses a folder.

::

    0       8  magic
    8       2  size of the address
    10         address of the object, which also says which bucket it is from
    4096   12  for each chunk: its number, its size, crc32c of both and the address as text
    65536      chunks of 4 MiB, each at its place; the last one of an object may be shorter
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import struct
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from penstock.checksums import crc32c
from penstock.ports import map_file

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.ports import Bytes

__all__ = ["CHUNK_SIZE", "ChunkFiles"]

CHUNK_SIZE: Final = 4 << 20
_MAGIC: Final = b"PSCHUNK1"
_ADDRESS_SIZE: Final = struct.Struct(">H")
_RECORD: Final = struct.Struct(">III")
assert _RECORD.size == 12, "on disk since format 1: a new size needs a new magic"
_RECORDS_AT: Final = 4096
_DATA_AT: Final = 65536
_CHUNKS_MAX: Final = (_DATA_AT - _RECORDS_AT) // _RECORD.size
_SUFFIX: Final = ".chunks"
_FILE_COST: Final = 8192  # of the address and the records
_OPEN_MAX: Final = 1024  # files that are mapped


class _ChunkFile:
    """The chunks of one object that are on disk, as far as this process knows."""

    __slots__ = ("chunks", "view")

    def __init__(self) -> None:
        self.chunks: dict[int, int] = {}  # their sizes, by number
        self.view = memoryview(b"")  # of the file from its beginning, as far as it is mapped


class ChunkFiles:
    """A folder of chunks, bounded in size; the objects that were not read for the longest time go first.

    Any thread may call. ``OSError`` comes out of the constructor where the folder cannot be used, or is used by another
    process, and out of :meth:`store` where the disk is full or broken.
    """

    def __init__(self, folder: Path, *, size_max: int) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._size_max = folder, size_max
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, _ChunkFile] = OrderedDict()  # by the name of the file, least used first
        self._sizes: OrderedDict[str, int] = OrderedDict()  # of all files, least used first
        self._size = 0
        self._owner = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._scan()
        except OSError:
            os.close(self._owner)
            raise

    def _scan(self) -> None:
        with os.scandir(self._folder) as entries:
            files = [(entry.stat(), entry.name) for entry in entries if entry.name.endswith(_SUFFIX)]
        for status, name in sorted(files, key=lambda file: file[0].st_mtime_ns):
            self._sizes[name] = status.st_blocks * 512
            self._size += status.st_blocks * 512
        self._make_room(0)

    @property
    def size(self) -> int:
        """The bytes in the folder."""
        return self._size

    def read(self, address: str, start: int, size: int) -> memoryview | None:
        """Return bytes of an object, fewer where it ends; None if any of their chunks is not there."""
        end = start + size
        with self._lock:
            name, file = self._open(address)
            for number in range(start // CHUNK_SIZE, (end - 1) // CHUNK_SIZE + 1):
                chunk_size = file.chunks.get(number)
                if chunk_size is None:
                    return None
                if chunk_size < CHUNK_SIZE:  # the object ends here
                    end = max(start, min(end, number * CHUNK_SIZE + chunk_size))
                    break
            if not self._map(name, file, end):
                self._remove(name)
                return None
            return file.view[_DATA_AT + start : _DATA_AT + end]

    def last_chunk(self, address: str) -> int | None:
        """Return the number of the chunk with which the object ends, if that chunk is there."""
        with self._lock:
            _, file = self._open(address)
            return next((number for number, size in file.chunks.items() if size < CHUNK_SIZE), None)

    def store(self, address: str, number: int, data: Bytes) -> None:
        """Keep a chunk; do nothing if there is no space for it."""
        if number >= _CHUNKS_MAX or len(address) > _RECORDS_AT // 4:
            return
        with self._lock:
            name, file = self._open(address)
            cost = len(data) + (0 if name in self._sizes else _FILE_COST)
            if number in file.chunks or not self._make_room(cost, besides=name):
                return
            fd = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._sizes[name] = self._sizes.get(name, 0) + cost
            self._size += cost
        try:  # a file that is removed meanwhile is gone when it is closed
            _write(fd, _pack_head(address), 0)
            _write(fd, data, _DATA_AT + number * CHUNK_SIZE)
            _write(fd, _pack_record(address, number, len(data)), _RECORDS_AT + number * _RECORD.size)
        finally:
            os.close(fd)
        with self._lock:
            file.chunks[number] = len(data)

    def drop(self, address: str) -> None:
        """Forget an object; views of it stay valid."""
        with self._lock:
            self._remove(_name_of(address))

    def close(self) -> None:
        """Let another process use the folder."""
        with self._lock:
            for name in self._opened:
                with suppress(OSError):
                    os.utime(self._folder / name)  # the order of use, for the next process
            self._opened.clear()
            os.close(self._owner)

    def _open(self, address: str) -> tuple[str, _ChunkFile]:
        """Return what is known of an object, read from its file at first use."""
        name = _name_of(address)
        if name in self._sizes:
            self._sizes.move_to_end(name)
        file = self._opened.get(name)
        if file is None:
            file = _ChunkFile()
            if name in self._sizes and not self._load(name, address, file):
                self._remove(name)
            self._opened[name] = file
            if len(self._opened) > _OPEN_MAX:
                self._opened.popitem(last=False)
        self._opened.move_to_end(name)
        return name, file

    def _load(self, name: str, address: str, file: _ChunkFile) -> bool:
        """Map a file and read its records; return whether it is one of this object."""
        head = _pack_head(address)
        if not self._map(name, file, 0) or file.view[: len(head)] != head:
            return False
        count = -(-(len(file.view) - _DATA_AT) // CHUNK_SIZE)
        records = file.view[_RECORDS_AT : _RECORDS_AT + min(count, _CHUNKS_MAX) * _RECORD.size]
        for place, (number, size, crc) in enumerate(_RECORD.iter_unpack(records)):
            if number == place and size <= CHUNK_SIZE and crc == _crc_of(address, number, size):
                file.chunks[number] = size
        return True

    def _map(self, name: str, file: _ChunkFile, end: int) -> bool:
        """Map the file up to ``end`` of the object; return whether it is that long."""
        if len(file.view) >= _DATA_AT + end:
            return True
        try:
            fd = os.open(f"{self._folder}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                if size < _DATA_AT + end:
                    return False
                file.view = map_file(fd, size)
            finally:
                os.close(fd)
        except OSError:
            return False
        return True

    def _make_room(self, cost: int, *, besides: str = "") -> bool:
        """Remove the objects that were not used for the longest time; return whether there is space now."""
        while self._size + cost > self._size_max:
            name = next((name for name in self._sizes if name != besides), None)
            if name is None:
                return False
            self._remove(name)
        return True

    def _remove(self, name: str) -> None:
        self._opened.pop(name, None)
        self._size -= self._sizes.pop(name, 0)
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)


@lru_cache(_OPEN_MAX)
def _name_of(address: str) -> str:
    return hashlib.blake2b(address.encode(), digest_size=16).hexdigest() + _SUFFIX


def _pack_head(address: str) -> bytes:
    encoded = address.encode()
    return _MAGIC + _ADDRESS_SIZE.pack(len(encoded)) + encoded


def _pack_record(address: str, number: int, size: int) -> bytes:
    return _RECORD.pack(number, size, _crc_of(address, number, size))


def _crc_of(address: str, number: int, size: int) -> int:
    return crc32c(0, f"{number} {size} {address}".encode())


def _write(fd: int, data: Bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written
