"""One segment over one log: append blocks, scan them, find places by time and count, wake waiting readers.

A segment also knows the numbers that each writer has used in it. ``ReadableSegment`` is what readers need; a segment of
another process implements it, too.
"""

from penstock.stream.segment._large_event import FRAME_SIZE, LargeBlock, LargeEvent, carried_by
from penstock.stream.segment._logs import CATALOG_LOG, PLOGS_KEPT, Logs, watermark_log
from penstock.stream.segment._readable import (
    READ_SIZE,
    ReadableSegment,
    Times,
    WakeUp,
    block_at,
    is_border,
    is_reader_place,
    large_event,
    scan,
)
from penstock.stream.segment._segment import PendingBlock, Segment
from penstock.stream.segment._segment_writers import TABLE_EVERY_BLOCKS, NumbersTaken, SegmentEnded, SentBlock
from penstock.stream.segment._segments import Cuts, Segments
from penstock.stream.segment._writer_table import (
    ENTRIES_MAX,
    WriterTable,
    anonymous_hash,
    check_exact,
    durable_number,
    highest_number,
    writer_hash,
)

__all__ = [
    "CATALOG_LOG",
    "ENTRIES_MAX",
    "FRAME_SIZE",
    "PLOGS_KEPT",
    "READ_SIZE",
    "TABLE_EVERY_BLOCKS",
    "Cuts",
    "LargeBlock",
    "LargeEvent",
    "Logs",
    "NumbersTaken",
    "PendingBlock",
    "ReadableSegment",
    "Segment",
    "SegmentEnded",
    "Segments",
    "SentBlock",
    "Times",
    "WakeUp",
    "WriterTable",
    "anonymous_hash",
    "block_at",
    "carried_by",
    "check_exact",
    "durable_number",
    "highest_number",
    "is_border",
    "is_reader_place",
    "large_event",
    "scan",
    "watermark_log",
    "writer_hash",
]
