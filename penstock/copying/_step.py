"""One step of a copy: events of some segments, which become part of the copy in one transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.copying._digest import EventDigest
from penstock.copying._records import CopiedMark
from penstock.model import EventPointer, SegmentRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from penstock.copying._records import Span
    from penstock.model import Watermark
    from penstock.store import OpenTransaction, Store, TransactionalWriter

__all__ = ["CHUNK_SIZE", "ReadPiece", "Step", "chunks_of", "is_large"]

CHUNK_SIZE: Final = 1 << 20
_SIZE_MAX: Final = 64 << 20  # of the events of a step
_LARGE_MAX: Final = 200  # a transaction has at most 1,024 logs, and a large event takes up to three
_PIECES_MAX: Final = 200
_MARKS_MAX: Final = 20_000  # numbers in the record of a step, which is an event of at most 1 MiB
_LEASE_S: Final = 600.0  # a source may be slow; what a killed copy leaves is dropped with its next commit, or then


@dataclass(slots=True)
class ReadPiece:
    """The events of a segment between two offsets, which were read and written."""

    segment: int
    start: int
    end: int
    digest: EventDigest


class Step:
    """Reads events and writes them into a transaction, up to what a transaction may hold."""

    def __init__(
        self, source: Store, stream: str, writer: TransactionalWriter, on_bytes: Callable[[int], object]
    ) -> None:
        self._source, self._stream, self._writer, self._on_bytes = source, stream, writer, on_bytes
        self._transaction: OpenTransaction | None = None
        self._size = self._large = 0
        self._pieces: dict[int, ReadPiece] = {}
        self._marks: list[tuple[Watermark, list[int]]] = []

    @property
    def pieces(self) -> list[ReadPiece]:
        """What was read of each segment."""
        return list(self._pieces.values())

    @property
    def marks(self) -> list[CopiedMark]:
        """The watermarks, with how many events of each piece lie before them; later pieces had none then."""
        count = len(self._pieces)
        return [
            CopiedMark(mark.lower, mark.upper, events + [0] * (count - len(events))) for mark, events in self._marks
        ]

    @property
    def is_full(self) -> bool:
        """Whether more events belong into the next step."""
        return (
            self._size >= _SIZE_MAX
            or self._large >= _LARGE_MAX
            or len(self._pieces) >= _PIECES_MAX
            or len(self._marks) * (len(self._pieces) + 1) >= _MARKS_MAX
        )

    @property
    def ends(self) -> dict[int, int]:
        """Up to where the segments are read of which the step has a piece."""
        return {piece.segment: piece.end for piece in self._pieces.values()}

    def note(self, mark: Watermark) -> None:
        """Note that a watermark lies behind all that was added so far, and before all that comes."""
        self._marks.append((mark, [piece.digest.events for piece in self._pieces.values()]))

    def take(self, span: Span, start: int, end: int, *, whole: bool = False) -> int:
        """Add the events of a segment from ``start`` up to ``end``, or until the step is full; return up to where."""
        piece = self._pieces.setdefault(span.segment, ReadPiece(span.segment, start, start, EventDigest()))
        position, reached = (span.low + span.high) / 2, end
        for batch in self._source.read_range(SegmentRange(self._stream, span.segment, start, end)):
            if self.is_full and not whole:
                reached = batch["offset"][0].as_py()
                break
            self._write(batch, piece.digest, position)
        piece.end = reached
        return reached

    def _write(self, batch: pa.RecordBatch, digest: EventDigest, position: float) -> None:
        if self._transaction is None:
            self._transaction = self._writer.begin(_LEASE_S)
        before = digest.size
        if is_large(batch):
            self._write_large(self._transaction, batch, digest, position)
        else:
            digest.add(batch)
            keys, headers = (
                None if batch[name].null_count == len(batch) else batch[name] for name in ("key", "headers")
            )
            self._transaction.write_batch(batch["event"], keys, headers, position=position)
            self._on_bytes(digest.size - before)
        self._size += digest.size - before

    def _write_large(
        self, transaction: OpenTransaction, batch: pa.RecordBatch, digest: EventDigest, position: float
    ) -> None:
        self._large += 1
        key, headers = batch["key"][0].as_py(), batch["headers"][0].as_py()
        size = 0
        with transaction.begin_write_event(key, headers=headers, position=position) as output:
            for chunk in chunks_of(self._source, self._stream, batch):
                output.write(chunk)
                digest.add_chunk(chunk)
                size += len(chunk)
                self._on_bytes(len(chunk))
        digest.add_large(batch, size)

    def prepare(self) -> str | None:
        """Make the transaction outlive this process; return its id, None if the step has no events."""
        if self._transaction is None:
            return None
        self._transaction.prepare()
        return self._transaction.id

    def abort(self) -> None:
        """Drop all of it."""
        if self._transaction is not None:
            self._transaction.abort()


def is_large(batch: pa.RecordBatch) -> bool:
    """Whether a batch stands for a large event, which is to be read as a file."""
    return len(batch) == 1 and bool(batch["event"].null_count)


def chunks_of(store: Store, stream: str, batch: pa.RecordBatch) -> Iterator[bytes]:
    """Return the bytes of the large event that a batch stands for."""
    pointer = EventPointer(stream, batch["segment_id"][0].as_py(), batch["offset"][0].as_py())
    with store.fetch_event_as_stream(pointer) as file:
        while chunk := file.read(CHUNK_SIZE):
            yield chunk
