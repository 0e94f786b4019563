"""Repositories as the server streams them: it searches, and sends what it finds, block by block."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.repo import Repository
    from penstock.store import Store
    from penstock.wire.operations.repositories import GetRepositoryStream

__all__ = ["REPOSITORY_BLOCKS", "Repositories"]

REPOSITORY_BLOCKS: Final = pa.schema([("block", pa.binary())])
_OPEN_MAX: Final = 4  # each may hold some blocks in memory
_ITEMS_MAX: Final = 1 << 24  # of one repository: half a gigabyte of index


class Repositories:
    """The repositories that were asked for last, open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: OrderedDict[tuple[str, int], Repository] = OrderedDict()
        self._opening: dict[tuple[str, int], threading.Lock] = {}
        self._lock = threading.Lock()
        self._turns = threading.Lock()  # one inventory at a time is made whole, whatever the number of streams

    def batches(self, call: GetRepositoryStream, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Return the blocks of a stream; ``check`` is called before each, since what was granted may be revoked."""
        try:
            from penstock.repo import blocks_of, requested_search  # noqa: PLC0415 - an extra that not every server has
        except ModuleNotFoundError as error:
            raise BadArgument(f"the server has no {error.name}: install penstock-stream[repo] there") from None
        search = requested_search(call.search, call.ids, call.known)
        stream = self._repository(call.stream).get_repository_stream(search, call.ordering, call.complete_inventory)
        blocks = blocks_of(stream)
        turns = self._turns if call.complete_inventory else nullcontext()
        while True:
            with turns:
                block = next(blocks, None)
            if block is None:
                return
            check()
            yield pa.record_batch([pa.array([block], pa.binary())], schema=REPOSITORY_BLOCKS)

    def _repository(self, stream: str) -> Repository:
        from penstock.repo import Repository  # noqa: PLC0415

        key = stream, self._store.stream(stream).uid
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:  # which may take long, and as much memory as the repository has items: once for all calls
            try:
                repository = self._open.get(key) or Repository.open(self._store, stream, items_max=_ITEMS_MAX)
            finally:
                with self._lock:
                    self._opening.pop(key, None)
        with self._lock:
            self._open[key] = repository
            self._open.move_to_end(key)
            while len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)
        return repository
