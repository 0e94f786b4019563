"""Repositories as the server streams them: it searches, and sends what it finds, block by block."""

from __future__ import annotations

import threading
from collections import OrderedDict
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


class Repositories:
    """The repositories that were asked for last, open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: OrderedDict[tuple[str, int], Repository] = OrderedDict()
        self._lock = threading.Lock()

    def batches(self, call: GetRepositoryStream, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Return the blocks of a stream; ``check`` is called before each, since what was granted may be revoked."""
        try:
            from penstock.repo import blocks_of, requested_search  # noqa: PLC0415 - an extra that not every server has
        except ModuleNotFoundError as error:
            raise BadArgument(f"the server has no {error.name}: install penstock-stream[repo] there") from None
        search = requested_search(call.search, call.ids, call.known)
        stream = self._repository(call.stream).get_repository_stream(search, call.ordering, call.complete_inventory)
        for block in blocks_of(stream):
            check()
            yield pa.record_batch([pa.array([block], pa.binary())], schema=REPOSITORY_BLOCKS)

    def _repository(self, stream: str) -> Repository:
        from penstock.repo import Repository  # noqa: PLC0415

        key = stream, self._store.stream(stream).uid
        with self._lock:
            repository = self._open.get(key)
        if repository is None:  # which may take long, while others are asked for
            repository = Repository.open(self._store, stream)
        with self._lock:
            repository = self._open.setdefault(key, repository)
            self._open.move_to_end(key)
            while len(self._open) > _OPEN_MAX:
                self._open.popitem(last=False)
        return repository
