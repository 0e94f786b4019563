"""The protocols of logs and their actions, for a program that runs them by itself, as the simulator does."""

from penstock.log._actions import (
    Action,
    Append,
    Create,
    CreateAll,
    Delete,
    Drain,
    FindMetadata,
    Inspect,
    NewId,
    Publish,
    ReadAll,
    Seal,
    Steps,
    Where,
)
from penstock.log._partition import Partition, append_records, open_partition
from penstock.log._protocols import LogTail, create_log, ensure_next, record_switch, recover_tail
from penstock.log._records import Truncate

__all__ = [
    "Action",
    "Append",
    "Create",
    "CreateAll",
    "Delete",
    "Drain",
    "FindMetadata",
    "Inspect",
    "LogTail",
    "NewId",
    "Partition",
    "Publish",
    "ReadAll",
    "Seal",
    "Steps",
    "Truncate",
    "Where",
    "append_records",
    "create_log",
    "ensure_next",
    "open_partition",
    "record_switch",
    "recover_tail",
]
