"""Streams: segments, writers, readers, groups, scaling, retention.

:class:`StreamStore` is all of them over one partition of logs. What decides is pure: the states of streams and groups
take records in (`_stream_state`, `_group_state`), where to cut, when to scale and what time it is are functions
(`_retention`, `_scaling`, `_marks`); segments, writers and readers do the work.
"""

from penstock.stream._acks import Ack, BatchAck, DoneAck, EventPointers
from penstock.stream._arrow import READ_SCHEMA
from penstock.stream._group import ReaderGroup
from penstock.stream._large_write import EventOutputStream
from penstock.stream._marks import MarkStatus
from penstock.stream._prepared import PreparedTransaction
from penstock.stream._reader import EventRead, Reader
from penstock.stream._store import StreamStore
from penstock.stream._transaction import Transaction, TransactionalWriter
from penstock.stream._upkeep import PASS_S
from penstock.stream._writer import EVENT_SIZE_MAX, StreamWriter

__all__ = [
    "EVENT_SIZE_MAX",
    "PASS_S",
    "READ_SCHEMA",
    "Ack",
    "BatchAck",
    "DoneAck",
    "EventOutputStream",
    "EventPointers",
    "EventRead",
    "MarkStatus",
    "PreparedTransaction",
    "Reader",
    "ReaderGroup",
    "StreamStore",
    "StreamWriter",
    "Transaction",
    "TransactionalWriter",
]
