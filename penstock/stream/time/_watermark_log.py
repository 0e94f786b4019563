"""The watermark log: the special segment of a stream that holds its watermarks, one an append, in the order of time.

Both their times and their cuts only grow, so the last watermark with some property is found by halving: reading a few
of them, however many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.errors import StreamCorrupt
from penstock.log import PlogSizes
from penstock.model import UNDECODABLE, StreamCut, Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.log import LogStream, PendingLogAppend

__all__ = ["WATERMARK_LOG_SIZES", "Border", "WatermarkLog", "pack_watermark", "unpack_watermark"]

_PLOG_SIZE: Final = 64 << 10  # small: to look into a plog is to read all its headers
WATERMARK_LOG_SIZES: Final = PlogSizes(first=_PLOG_SIZE, largest=_PLOG_SIZE)


class _StoredWatermark(msgspec.Struct, array_like=True, frozen=True):
    """A watermark as it is stored, a MessagePack array: lower and upper time, and the offset by segment."""

    lower: int
    upper: int
    cut: dict[int, int]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_StoredWatermark)


def pack_watermark(watermark: Watermark) -> bytes:
    """Return the bytes of one append."""
    return _encoder.encode(_StoredWatermark(watermark.lower, watermark.upper, watermark.cut.offsets))


def unpack_watermark(data: memoryview, *, stream: str, offset: int) -> Watermark:
    """Read what :func:`pack_watermark` wrote."""
    try:
        stored = _decoder.decode(data)
        return Watermark(stored.lower, stored.upper, StreamCut.of(stream, stored.cut))
    except UNDECODABLE as error:
        raise StreamCorrupt(f"the watermarks of stream {stream}", offset=offset, reason=str(error)) from error


class Border(NamedTuple):
    """Where something that holds of watermarks ends: the last of which it holds, the first of which it does not.

    ``offset`` is where the latter begins in the log, or the log's end.
    """

    last: Watermark | None
    first: Watermark | None
    offset: int


class WatermarkLog:
    """The watermarks of a stream; one thread at a time appends or truncates."""

    def __init__(self, log: LogStream, stream: str) -> None:
        self._log, self._stream = log, stream
        self._tail, self.end = log.tail, log.length
        self._firsts: dict[int, Watermark] = {}  # of plogs, by where they start
        self.last: Watermark | None = None
        if self.start < self.end:
            _, self.last, _ = self.at(self.end - 1)

    @property
    def start(self) -> int:
        """Where the first watermark that is left begins."""
        return self._log.start

    def append(self, watermark: Watermark) -> None:
        """Append a watermark durably, unless another process did so meanwhile."""
        self.take(watermark, self.submit(watermark))

    def append_all(self, watermarks: Iterable[Watermark]) -> None:
        """Append watermarks durably, with one sync for all."""
        pending: list[tuple[Watermark, PendingLogAppend]] = []
        tail = self._tail
        for watermark in watermarks:
            append = self._log.submit(pack_watermark(watermark), expected=tail)
            pending.append((watermark, append))
            tail = append.position
        for watermark, append in pending:
            self.take(watermark, append)

    def submit(self, watermark: Watermark) -> PendingLogAppend:
        """Append a watermark without waiting; it counts once it was taken."""
        assert self.last is None or watermark.lower > self.last.lower, "time does not go back"
        return self._log.submit(pack_watermark(watermark), expected=self._tail)

    def take(self, watermark: Watermark, pending: PendingLogAppend) -> None:
        """Let a watermark count, once it is durable."""
        self.end = pending.result()
        self._tail, self.last = pending.position, watermark

    def border(self, holds: Callable[[Watermark], bool]) -> Border:
        """Return where something ends that holds of the first watermarks, and of none behind the first without it."""
        low, high, first = self._plog_with_border(holds)
        last = None
        while low < high:
            begin, watermark, end = self.at((low + high) // 2)
            if holds(watermark):
                low, last = end, watermark
            else:
                high, first = begin, watermark
        return Border(last, first, low)

    def _plog_with_border(self, holds: Callable[[Watermark], bool]) -> tuple[int, int, Watermark | None]:
        """Return from where up to where a border lies, in one plog, and the watermark that the next plog begins with.

        The first one of each plog is remembered once it was looked at, so that few plogs have to be opened.
        """
        starts, first = self._log.plog_starts(), None
        low, high = 0, len(starts)
        while low < high:
            middle = (low + high) // 2
            watermark = self._first_at(starts[middle])
            if watermark is not None and holds(watermark):
                low = middle + 1
            else:
                high, first = middle, watermark
        end = starts[low] if low < len(starts) else self.end
        return max(starts[low - 1], self.start) if low else self.start, min(end, self.end), first

    def _first_at(self, start: int) -> Watermark | None:
        """Return the watermark that a plog begins with; None if it has none yet."""
        if start not in self._firsts and start < self.end:
            self._firsts[start] = self.at(start)[1]
        return self._firsts.get(start)

    def after(self, offset: int) -> Iterator[tuple[int, Watermark]]:
        """Return the watermarks from an offset of the log on, each with where the next begins."""
        for begin, view in self._log.blocks(offset, self.end):
            yield begin + len(view), self._unpack(begin, view)

    def truncate(self, holds: Callable[[Watermark], bool]) -> None:
        """Free the watermarks of which something holds, but the last one, as far as they fill whole plogs."""
        offset = self.border(holds).offset
        if offset > self.start:
            self._log.truncate(self._log.plog_at(offset - 1))
            self._firsts = {start: first for start, first in self._firsts.items() if start >= self.start}

    def at(self, offset: int) -> tuple[int, Watermark, int]:
        """Return the watermark that has the byte at an offset, with where it begins and ends."""
        begin, view = next(self._log.blocks(offset, offset + 1))
        return begin, self._unpack(begin, view), begin + len(view)

    def _unpack(self, offset: int, view: memoryview) -> Watermark:
        return unpack_watermark(view, stream=self._stream, offset=offset)
