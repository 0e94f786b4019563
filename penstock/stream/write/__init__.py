"""Writing: events and batches go into lanes, one for each segment, and are flushed as blocks.

An acknowledgement is done when its event is durable. A writer asks the store for what it needs through ``WriterHost``,
so the same writer works where another process owns the store.
"""

from penstock.stream.write._acks import Ack, BatchAck, DoneAck, EventPointers
from penstock.stream.write._batch import (
    EventRows,
    around_large,
    array_lengths,
    array_of,
    as_rows,
    check_events,
    concat_rows,
    split,
)
from penstock.stream.write._flush import Pump
from penstock.stream.write._host import KnownWriter, OpenLane, WritableSegment, Writers
from penstock.stream.write._large_write import CHUNK_SIZE, EventOutputStream, LargeWrite, place_at
from penstock.stream.write._managed_writer import ManagedWriter
from penstock.stream.write._ready_writer import ReadyWriter, WouldWait
from penstock.stream.write._writer import BUFFER_SIZE, EVENT_SIZE_MAX, StreamWriter, check_writer

__all__ = [
    "BUFFER_SIZE",
    "CHUNK_SIZE",
    "EVENT_SIZE_MAX",
    "Ack",
    "BatchAck",
    "DoneAck",
    "EventOutputStream",
    "EventPointers",
    "EventRows",
    "KnownWriter",
    "LargeWrite",
    "ManagedWriter",
    "OpenLane",
    "Pump",
    "ReadyWriter",
    "StreamWriter",
    "WouldWait",
    "WritableSegment",
    "Writers",
    "around_large",
    "array_lengths",
    "array_of",
    "as_rows",
    "check_events",
    "check_writer",
    "concat_rows",
    "place_at",
    "split",
]
