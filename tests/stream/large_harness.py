"""What the tests of transactions and large events share: limits so small that little is large, and looking inside."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from penstock.log import MetadataManager, PlogSizes
from penstock.model import EventPointer
from penstock.plog import FilePlogs
from penstock.stream import Engine
from penstock.stream.format._block import BLOCK_HEADER_SIZE, EXTENT, Chunk, StreamBlockHeader, pack_chunk, pack_extent
from penstock.stream.transaction import TransactionLogs, _transaction, _transaction_logs
from penstock.stream.write import _writer
from penstock.stream.write._large_write import LargeWrite
from penstock.testing import ManualClock
from tests.log.harness import SECONDS_MAX
from tests.stream.harness import STREAM, inside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from penstock.cpo import Cpo
    from penstock.log import LogStream
    from penstock.model import StreamCut
    from penstock.ports import Clock, Disk
    from penstock.stream.format._block import AnyBlock

SMALL_CHUNK: Final = 64
SMALL_COPY: Final = 620
SIZES: Final = PlogSizes(first=4096, largest=64 << 10)
NO_LIMIT: Final = 1 << 40


def pattern(size: int, seed: int = 0) -> bytes:
    """Return bytes of which no part looks like another."""
    step = b"".join(((seed << 24) + place).to_bytes(4, "big") for place in range(-(-min(size, 4 << 20) // 4)))
    return (step * (-(-size // max(len(step), 1)) or 1))[:size]


def make_limits_small(patch: pytest.MonkeyPatch) -> None:
    """Let events above 64 bytes be large, and transactions above 620."""
    defaults = LargeWrite.__init__.__kwdefaults__
    assert defaults is not None
    patch.setitem(defaults, "chunk_size", SMALL_CHUNK)
    patch.setattr(_transaction, "CHUNK_SIZE", SMALL_CHUNK)
    patch.setattr(_transaction, "_COPY_SIZE_MAX", SMALL_COPY)
    patch.setattr(_transaction_logs, "_LARGE_PLOGS", PlogSizes(first=256, largest=512))
    patch.setattr(_writer, "EVENT_SIZE_MAX", SMALL_CHUNK)


@contextmanager
def store_and_manager(
    disk: Disk, cpo: Cpo, *, clock: Clock | None = None, sizes: PlogSizes = SIZES, partition: str = "main"
) -> Iterator[tuple[Engine, MetadataManager]]:
    """Open a store, and the manager of the logs below it."""
    with ExitStack() as resources:
        plogs = resources.enter_context(FilePlogs(disk))
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, partition, sizes=sizes))
        with Engine(manager, clock=clock or ManualClock(), resources=resources) as store:
            yield store, manager


def settle(manager: MetadataManager) -> None:
    """Return when nothing is under way in the background any more."""
    is_idle = threading.Event()
    manager.spawn(is_idle.set)
    assert is_idle.wait(SECONDS_MAX), "the background never came to rest"


def transaction_logs(manager: MetadataManager) -> list[str]:
    """Return the logs that belong to a transaction or to a large event, and to no segment yet."""
    return [name for name in manager.logs() if name.startswith("t")]


def events_of(store: Engine, start: StreamCut | None = None, end: StreamCut | None = None) -> list[bytes]:
    """Return all events, large ones in full, predecessors before their successors."""
    batches = store.read(STREAM, start, end, max_event_size=NO_LIMIT)
    events = [event for batch in batches for event in batch["event"].to_pylist()]
    known = inside(store)
    is_settled = hasattr(known, "catalog") and not known.catalog.commits  # which are counted, but not shown yet
    if start is None is end and is_settled:
        assert store.stream(STREAM).events == len(events), "a count that no crash may spoil"
    return events


def pointers_of(store: Engine) -> list[tuple[int, int]]:
    """Return segment and offset of all events."""
    rows = (batch.to_pydict() for batch in store.read(STREAM))
    return [place for row in rows for place in zip(row["segment_id"], row["offset"], strict=True)]


def blocks_of(store: Engine, segment_id: int = 0) -> list[AnyBlock]:
    """Return all blocks of a segment."""
    segment = inside(store).segments.get(STREAM, segment_id)
    return list(segment.blocks(segment.start, size=NO_LIMIT))


class _Chunks(LargeWrite):
    """A large event as its chunks say, whatever that is."""

    def __init__(self, log: LogStream, *, size: int, span: int) -> None:
        self.log, self.size, self.span = log, size, span


def commit_chunks(
    store: Engine, chunks: Sequence[tuple[bytes, bool]], *, size: int | None = None, span: int | None = None
) -> EventPointer:
    """Put a large event of these chunks into the stream, each with its partial flag; the extent may say otherwise."""
    logs = TransactionLogs(inside(store).transactions, STREAM, inside(store).stream(STREAM).uid)
    log, back = logs.new_large_log(), 0
    for number, (data, partial) in enumerate(chunks):
        head = pack_chunk(len(data), number=number, back=back, partial=partial, time_ms=0)
        log.append(head, data)
        back += len(head) + len(data)
    write = _Chunks(log, size=sum(len(data) for data, _ in chunks), span=back)
    extent = pack_extent(write.size if size is None else size, write.span if span is None else span)
    with patch.object(_transaction_logs, "pack_extent", lambda *_: extent):
        logs.commit_large(write, StreamBlockHeader(kind=EXTENT, count=0, flush_segments=0, time_ms=0), b"", 0.5)
    [first] = [block for block in blocks_of(store) if isinstance(block, Chunk) and block.number == 0]
    return EventPointer(STREAM, 0, first.start + BLOCK_HEADER_SIZE)
