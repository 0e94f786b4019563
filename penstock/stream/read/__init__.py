"""Reading: readers of a group, one event or one Arrow batch at a time; bounded reads by place; events as files.

A reader asks its group for what it needs through ``Membership``, and reads any ``ReadableSegment``, so the same reader
works where another process owns the store.
"""

from penstock.stream.read._event_files import EventInputStream, event_at, event_ends, file_at
from penstock.stream.read._event_read import EventRead
from penstock.stream.read._held_segments import first_with_events
from penstock.stream.read._membership import Assignment, Member, Membership
from penstock.stream.read._polled_reader import BLOCKS_AHEAD, PolledReader
from penstock.stream.read._reader import BATCH_SIZE_DEFAULT, Reader
from penstock.stream.read._reader_member import READER_LEASE_S, ReaderMember
from penstock.stream.read._stream_reads import StreamReads, as_reader, read_part

__all__ = [
    "BATCH_SIZE_DEFAULT",
    "BLOCKS_AHEAD",
    "READER_LEASE_S",
    "Assignment",
    "EventInputStream",
    "EventRead",
    "Member",
    "Membership",
    "PolledReader",
    "Reader",
    "ReaderMember",
    "StreamReads",
    "as_reader",
    "event_at",
    "event_ends",
    "file_at",
    "first_with_events",
    "read_part",
]
