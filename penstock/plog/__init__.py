"""The plog: an append-only store of fixed size, in which every acknowledged append is durable.

Theory of operation: a plog is created with a size, appended to at an offset that is checked, sealed, read and
deleted; its bytes never change. :func:`open_plogs` opens the storage: a folder (``file:``) or the memory of this
process (``memory:``), both with the same code on another disk.
"""

from penstock.model import PlogId
from penstock.plog._block import LocatedBlocks, copy_located, folder_place, read_extents, read_located
from penstock.plog._bucket_use import BucketUse
from penstock.plog._files import FilePlogs
from penstock.plog._folder import FORMAT_NAME, plog_file
from penstock.plog._folder import refusal as disk_refusal
from penstock.plog._head import BIRTH_SIZE
from penstock.plog._interface import OrderedPlogs, PendingAppend, Plogs, open_plogs
from penstock.plog._journal import SyncTimes
from penstock.plog._raw import RawBlocks, bodies_of, check_raw, plog_head, raw_from
from penstock.plog._replica import APPEND_SIZE_MAX, PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX, PlogInfo
from penstock.plog._replication_use import ReplicationUse

__all__ = [
    "APPEND_SIZE_MAX",
    "BIRTH_SIZE",
    "FORMAT_NAME",
    "PLOG_SIZE_DEFAULT",
    "PLOG_SIZE_MAX",
    "BucketUse",
    "FilePlogs",
    "LocatedBlocks",
    "OrderedPlogs",
    "PendingAppend",
    "PlogId",
    "PlogInfo",
    "Plogs",
    "RawBlocks",
    "ReplicationUse",
    "SyncTimes",
    "bodies_of",
    "check_raw",
    "copy_located",
    "disk_refusal",
    "folder_place",
    "open_plogs",
    "plog_file",
    "plog_head",
    "raw_from",
    "read_extents",
    "read_located",
]
