"""The cache: bytes of objects near their reader.

Objects that this process has just put are in memory. Others are read in aligned chunks, which are kept in a folder of
the local disk, or in the same memory where there is no folder; a reader that goes on from chunk to chunk finds the next
ones on their way. A chunk that several threads want is fetched once. Objects never change, so a copy is never out of
date; a copy that turns out to be wrong is forgotten by :meth:`ObjectCache.drop`, and the next read fetches it again.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.errors import StoreClosed
from penstock.plog._bucket_use import CacheCounts
from penstock.plog.objects._chunk_files import CHUNK_SIZE, ChunkFiles

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.ports import Bytes, Objects

__all__ = ["ObjectCache"]

_logger: Final = logging.getLogger("penstock.plog")

_FETCHES_MAX: Final = 8  # requests under way
_AHEAD: Final = 3  # chunks that are fetched before a sequential reader asks for them
_SEEN_MAX: Final = 1024  # objects whose last read is remembered
_NEVER: Final = -2
_ENDLESS: Final = 1 << 40
_Chunk: TypeAlias = tuple[str, int]  # the object, and the number of the chunk
_WHOLE: Final = -1  # the number of a whole object in memory


class _Seen:
    """The chunk of an object that was read last, and the one with which it ends, once it is known."""

    __slots__ = ("end", "last")

    def __init__(self) -> None:
        self.last, self.end = _NEVER, _ENDLESS


class ObjectCache:
    """A bounded cache over objects. Any thread may call; a full or broken disk only makes it slower."""

    def __init__(self, objects: Objects, *, folder: Path | None, memory_max: int, disk_max: int) -> None:
        self._objects, self._memory_max = objects, memory_max
        self._lock = threading.Lock()
        self._memory: OrderedDict[_Chunk, memoryview] = OrderedDict()
        self._memory_size = 0
        self._fetching: dict[_Chunk, Future[memoryview]] = {}
        self._seen: OrderedDict[str, _Seen] = OrderedDict()  # objects that were read lately
        self._hits = self._fetches = 0
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self._files: ChunkFiles | None = None
        if folder is not None:
            try:
                self._files = ChunkFiles(folder, size_max=disk_max)
            except OSError as error:
                _logger.warning("no cache in %s: %s; reads go to %s", folder, error.strerror, objects.where())

    def read(self, name: str, start: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``start`` on, fewer where the object ends; ``NoSuchObject`` if there is none."""
        whole = self._remembered((name, _WHOLE))
        if whole is not None:
            self._hits += 1
            return whole[start : start + size]
        first, last = start // CHUNK_SIZE, max(start, start + size - 1) // CHUNK_SIZE
        data = self._stored(name, start, size)
        if data is None:
            chunks = self._chunks(name, first, last)
            joined = chunks[0] if len(chunks) == 1 else memoryview(b"".join(chunks))
            data = joined[start - first * CHUNK_SIZE :][:size]
        else:
            self._hits += 1
        if len(data) == size:
            self._read_ahead(name, first, last)
        return data

    def add(self, name: str, data: Bytes) -> None:
        """Have an object that was just put in memory, if it is not too large."""
        if len(data) <= self._memory_max // 2:
            self._remember((name, _WHOLE), memoryview(data))

    def prefetch(self, name: str, start: int, size: int) -> None:
        """Fetch bytes in the background that a reader will want next."""
        with self._lock:
            if (name, _WHOLE) in self._memory:
                return
        if size and self._stored(name, start, size) is None:
            for number in range(start // CHUNK_SIZE, (start + size - 1) // CHUNK_SIZE + 1):
                self._begin(name, number)

    def drop(self, name: str) -> None:
        """Forget an object: it was deleted, or what is known of it is wrong."""
        with self._lock:
            for chunk in [chunk for chunk in self._memory if chunk[0] == name]:
                self._memory_size -= len(self._memory.pop(chunk))
            self._seen.pop(name, None)
        if self._files is not None:
            self._files.drop(self._objects.where(name))

    def counts(self) -> CacheCounts:
        """Return what the cache holds and has saved."""
        return CacheCounts(self._hits, self._fetches, self._memory_size, self._files.size if self._files else 0)

    def close(self) -> None:
        """Forget what is in memory; the folder stays for the next process."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        with self._lock:
            self._memory.clear()
            self._memory_size = 0
        if self._files is not None:
            self._files.close()
            self._files = None

    def _remembered(self, chunk: _Chunk) -> memoryview | None:
        with self._lock:
            data = self._memory.get(chunk)
            if data is not None:
                self._memory.move_to_end(chunk)
            return data

    def _remember(self, chunk: _Chunk, data: memoryview) -> None:
        with self._lock:
            if self._closed or chunk in self._memory:
                return
            self._memory[chunk] = data
            self._memory_size += len(data)
            while self._memory_size > self._memory_max:
                _, oldest = self._memory.popitem(last=False)
                self._memory_size -= len(oldest)

    def _stored(self, name: str, start: int, size: int) -> memoryview | None:
        """Return bytes that are in the folder or, in one chunk, in memory."""
        if self._files is not None and size:
            data = self._files.read(self._objects.where(name), start, size)
            if data is not None:
                return data
        number = start // CHUNK_SIZE
        chunk = self._remembered((name, number))
        if chunk is None:
            return None
        place = start - number * CHUNK_SIZE
        return chunk[place : place + size] if place + size <= CHUNK_SIZE or len(chunk) < CHUNK_SIZE else None

    def _chunks(self, name: str, first: int, last: int) -> list[memoryview]:
        """Return chunks, fetched at the same time where they are not stored, up to the object's end."""
        ahead = [self._begin(name, number) for number in range(first + 1, last + 1)]
        chunks = [self._fetched(name, first)]
        for number, future in enumerate(ahead, first + 1):
            if len(chunks[-1]) < CHUNK_SIZE:
                break
            chunks.append(self._fetched(name, number) if future is None else future.result())
        return chunks

    def _fetched(self, name: str, number: int) -> memoryview:
        """Return a chunk: a stored one, or one that this thread or another one fetches."""
        data = self._stored(name, number * CHUNK_SIZE, CHUNK_SIZE)
        if data is not None:
            return data
        future, is_ours = self._claim((name, number))
        if is_ours:
            self._fetch((name, number), future)
        return future.result()

    def _begin(self, name: str, number: int) -> Future[memoryview] | None:
        """Begin to fetch a chunk in the background; None if it is stored."""
        if self._stored(name, number * CHUNK_SIZE, CHUNK_SIZE) is not None:
            return None
        future, is_ours = self._claim((name, number))
        if is_ours:
            with self._lock:
                if not self._closed:
                    self._threads = self._threads or ThreadPoolExecutor(_FETCHES_MAX, "penstock-cache")
                    self._threads.submit(self._fetch_ahead, (name, number), future)
                    return future
            self._fetch((name, number), future)
        return future

    def _claim(self, chunk: _Chunk) -> tuple[Future[memoryview], bool]:
        """Return the fetch of a chunk, and whether the caller has to carry it out."""
        with self._lock:
            future = self._fetching.get(chunk)
            if future is not None:
                return future, False
            future = self._fetching[chunk] = Future()
            self._fetches += 1
            return future, True

    def _fetch_ahead(self, chunk: _Chunk, future: Future[memoryview]) -> None:
        """Fetch a chunk, unless the cache was closed before its turn came."""
        if not self._closed:
            self._fetch(chunk, future)
            return
        with self._lock:
            del self._fetching[chunk]
        future.set_exception(StoreClosed(f"the cache of {self._objects.where()}"))

    def _fetch(self, chunk: _Chunk, future: Future[memoryview]) -> None:
        name, number = chunk
        try:
            data = self._objects.get_range(name, number * CHUNK_SIZE, CHUNK_SIZE)
            if len(data) < CHUNK_SIZE:
                with self._lock:
                    seen = self._see(name)
                    seen.end = min(seen.end, number)
            self._store(name, number, data)
            future.set_result(data)
        except BaseException as error:  # noqa: BLE001 - the threads that wait get it
            future.set_exception(error)
        finally:
            with self._lock:
                del self._fetching[chunk]

    def _store(self, name: str, number: int, data: memoryview) -> None:
        files = self._files
        if not data:  # behind the end
            return
        if files is None:
            self._remember((name, number), data)
            return
        try:
            files.store(self._objects.where(name), number, data)
        except OSError as error:
            self._give_up(files, error)
            self._remember((name, number), data)

    def _give_up(self, files: ChunkFiles, error: OSError) -> None:
        with self._lock:
            is_first, self._files = self._files is files, None
        if is_first:
            files.close()
            _logger.warning("the cache is given up: %s; reads go to %s", error.strerror, self._objects.where())

    def _see(self, name: str) -> _Seen:
        seen = self._seen.setdefault(name, _Seen())
        self._seen.move_to_end(name)
        if len(self._seen) > _SEEN_MAX:
            self._seen.popitem(last=False)
        return seen

    def _read_ahead(self, name: str, first: int, last: int) -> None:
        """Fetch the next chunks of an object that is read from chunk to chunk."""
        with self._lock:
            seen = self._see(name)
            goes_on = seen.last < last and first - seen.last <= 1
            seen.last = last
        if not goes_on:
            return
        end = self._files.last_chunk(self._objects.where(name)) if self._files is not None else None
        count = min(_AHEAD, (seen.end if end is None else end) - last)
        if count > 0:
            self.prefetch(name, (last + 1) * CHUNK_SIZE, count * CHUNK_SIZE)
