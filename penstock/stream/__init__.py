"""Streams: segments, writers, readers, groups, scaling, retention.

:class:`Engine` is all of them over one partition of logs. What decides is pure: the states of streams and groups
take records in (`catalog`), where to cut, when to scale and what time it is are functions (`maintenance`, `time`);
segments, writers and readers do the work.
"""

from penstock.stream.engine import Engine
from penstock.stream.format import READ_SCHEMA
from penstock.stream.group import LocalReaderGroup
from penstock.stream.maintenance import MAINTENANCE_INTERVAL_S
from penstock.stream.read import EventInputStream, EventRead, Reader
from penstock.stream.transaction import LocalTransaction, LocalTransactionalWriter, PreparedTransaction
from penstock.stream.write import EVENT_SIZE_MAX, Ack, BatchAck, DoneAck, EventOutputStream, EventPointers, StreamWriter

__all__ = [
    "EVENT_SIZE_MAX",
    "MAINTENANCE_INTERVAL_S",
    "READ_SCHEMA",
    "Ack",
    "BatchAck",
    "DoneAck",
    "Engine",
    "EventInputStream",
    "EventOutputStream",
    "EventPointers",
    "EventRead",
    "LocalReaderGroup",
    "LocalTransaction",
    "LocalTransactionalWriter",
    "PreparedTransaction",
    "Reader",
    "StreamWriter",
]
