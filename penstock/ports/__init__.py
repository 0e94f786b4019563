"""Ports: the few ways in which Penstock touches the world.

The code that makes decisions is written against these protocols. The classes here do the real thing; those in
``penstock.testing`` simulate it, record it, or fail. :func:`uninterrupted` and its relatives decide when a signal may
interrupt the main thread.
"""

from penstock.ports._bucket import Bucket
from penstock.ports._bucket_address import BucketAddress
from penstock.ports._clock import Clock, Random, SystemClock, SystemRandom
from penstock.ports._disk import Bytes, Disk, File, OsDisk, OsFile, check_no_file, map_file, owner_name, write_all
from penstock.ports._interruption import interruptible, interruption_point, opened, uninterrupted
from penstock.ports._memory import keep_freed_memory
from penstock.ports._objects import Objects, StoredObject
from penstock.ports._request_counts import RequestCount, RequestKind
from penstock.ports._sockets import copied_socket, speaks_tls

__all__ = [
    "Bucket",
    "BucketAddress",
    "Bytes",
    "Clock",
    "Disk",
    "File",
    "Objects",
    "OsDisk",
    "OsFile",
    "Random",
    "RequestCount",
    "RequestKind",
    "StoredObject",
    "SystemClock",
    "SystemRandom",
    "check_no_file",
    "copied_socket",
    "interruptible",
    "interruption_point",
    "keep_freed_memory",
    "map_file",
    "opened",
    "owner_name",
    "speaks_tls",
    "uninterrupted",
    "write_all",
]
