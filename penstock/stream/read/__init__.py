"""Readers: cursors, Arrow batches, bounded reads, large events on their way out."""

from penstock.stream.read._bounded_read import part_marks, read_part
from penstock.stream.read._cursor import first_with_events
from penstock.stream.read._large_read import EventInputStream, event_at, event_ends, file_at
from penstock.stream.read._membership import Look, Seat, Seated
from penstock.stream.read._next_cut import Room, step_through
from penstock.stream.read._reader import EVENT_SIZE_DEFAULT, READER_LEASE_S, EventRead, Reader
from penstock.stream.read._stream_reads import StreamReads

__all__ = [
    "EVENT_SIZE_DEFAULT",
    "READER_LEASE_S",
    "EventInputStream",
    "EventRead",
    "Look",
    "Reader",
    "Room",
    "Seat",
    "Seated",
    "StreamReads",
    "event_at",
    "event_ends",
    "file_at",
    "first_with_events",
    "part_marks",
    "read_part",
    "step_through",
]
