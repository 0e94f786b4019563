"""Streams: segments, writers, readers, groups, scaling, retention.

:class:`Engine` is all of them over one partition of logs. What decides is pure: the states of streams and groups
take records in (`catalog`), where to cut, when to scale and what time it is are functions (`maintenance`, `time`);
segments, writers and readers do the work. Names are imported at first use: a client needs no engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.stream.engine import Engine
    from penstock.stream.format import READ_SCHEMA
    from penstock.stream.group import LocalReaderGroup
    from penstock.stream.maintenance import MAINTENANCE_INTERVAL_S
    from penstock.stream.read import EventInputStream, EventRead, Reader
    from penstock.stream.transaction import LocalTransaction, LocalTransactionalWriter, PreparedTransaction
    from penstock.stream.write import (
        EVENT_SIZE_MAX,
        Ack,
        BatchAck,
        DoneAck,
        EventOutputStream,
        EventPointers,
        StreamWriter,
    )

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

_PACKAGES: Final = {
    "Engine": "engine",
    "READ_SCHEMA": "format",
    "LocalReaderGroup": "group",
    "MAINTENANCE_INTERVAL_S": "maintenance",
    "EventInputStream": "read",
    "EventRead": "read",
    "Reader": "read",
    "LocalTransaction": "transaction",
    "LocalTransactionalWriter": "transaction",
    "PreparedTransaction": "transaction",
    "EVENT_SIZE_MAX": "write",
    "Ack": "write",
    "BatchAck": "write",
    "DoneAck": "write",
    "EventOutputStream": "write",
    "EventPointers": "write",
    "StreamWriter": "write",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name at first use."""
        if name not in _PACKAGES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_PACKAGES[name]}"), name)
        return found
