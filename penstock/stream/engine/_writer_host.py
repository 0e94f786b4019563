"""What a writer asks of the store, in the process that owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from penstock.errors import StreamSealed
from penstock.stream.segment import Segment, check_exact, durable_number, highest_number
from penstock.stream.transaction import TransactionLogs
from penstock.stream.write import OpenLane, Pump

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from penstock.ports import Clock, Random
    from penstock.stream.catalog import Catalog
    from penstock.stream.segment import Segments, WriterTable
    from penstock.stream.time import WriterMarks
    from penstock.stream.transaction import Transactions
    from penstock.stream.write import KnownWriter, WritableSegment, Writers

__all__ = ["LocalWriterHost"]


class LocalWriterHost:
    """The store, as its writers see it; see :class:`penstock.stream.write.WriterHost`."""

    is_remote: Final = False

    def __init__(
        self,
        *,
        catalog: Catalog,
        segments: Segments,
        marks: WriterMarks,
        writers: Writers,
        transactions: Transactions,
        clock: Clock,
        random: Random,
    ) -> None:
        self._catalog, self._segments, self._marks = catalog, segments, marks
        self._writers, self._transactions, self._random = writers, transactions, random
        self.clock: Final = clock
        self.pump: Final = Pump()
        self.note_activity: Final = marks.note_activity
        self._large = WeakSet[TransactionLogs]()  # of large events that may be under way

    @property
    def steady(self) -> AbstractContextManager[object]:
        """A lock under which no segment ends."""
        return self._catalog.lock

    def lanes(self, stream: str) -> tuple[int, list[OpenLane], bool]:
        """Return the uid of a stream, the segments that take events now, by key range, and whether it keeps keys."""
        with self._catalog.lock:
            state = self._catalog.open_stream(stream)
            if state.sealed:
                raise StreamSealed(stream)
            found = [
                OpenLane(segment.segment_id, segment.low, self._segments.opened(state, segment))
                for segment in state.current
            ]
            return state.uid, found, state.config.keep_keys

    def prepare(self, segments: Iterable[WritableSegment]) -> None:
        """Create the logs of segments that are written to for the first time, all of them together."""
        self._segments.create_logs(segment for segment in segments if isinstance(segment, Segment))

    def keeps_keys(self, stream: str) -> bool:
        """Return whether a stream stores keys."""
        return self._catalog.keeps_keys(stream)

    def numbers_of(self, stream: str, writer: bytes) -> tuple[int, int]:
        """Return the number up to which all events of a writer are durable, and the highest it has used.

        ``WriterForgotten`` if it is not known exactly which of its events are there.
        """
        tables = self._writer_tables(stream)
        check_exact(writer, tables)
        return durable_number(writer, tables), highest_number(writer, tables)

    def _writer_tables(self, name: str) -> list[WriterTable]:
        """Return the tables of writers that say what any writer has written: of the segments now and just before."""
        with self._catalog.lock:
            self._transactions.commits.finish(name)  # or a large event that is on record would be written again
            state = self._catalog.open_stream(name)
            wanted = {segment.segment_id for segment in state.current}
            wanted |= {before for segment in wanted for before in state.segments[segment].predecessors}
            segments = [self._segments.get(name, segment) for segment in sorted(wanted & state.segments.keys())]
        return [segment.writers() for segment in segments]

    def mark_behind(self, writer: KnownWriter, time: int) -> None:
        """Mark a time behind all that a writer has written."""
        assert writer.writer_id is not None, "only writers with an id note time"
        self._marks.note_behind(writer.stream, writer.stream_uid, writer.writer_id, time)

    def large_logs(self, stream: str, uid: int) -> TransactionLogs:
        """Return where a large event goes."""
        logs = TransactionLogs(self._transactions, stream, uid)
        with self._catalog.lock:
            self._large.add(logs)
        return logs

    def large_events(self, uid: int) -> list[int]:
        """Return how many bytes are stored of each large event of a stream that is being written by itself."""
        with self._catalog.lock:
            under_way = [logs for logs in self._large if logs.uid == uid]
        return sorted(size for logs in under_way if (size := logs.size_under_way()))

    def random_position(self) -> float:
        """Return any place in the key space, for an event without a key."""
        return int.from_bytes(self._random.token(4), "big") / (1 << 32)

    def forget_writer(self, writer: KnownWriter, *, for_good: bool) -> None:
        """Note that a writer writes no more."""
        self._writers.forget(writer, for_good=for_good)
