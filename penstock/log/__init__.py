"""Log streams over plogs, and the metadata manager that records them.

Theory of operation: a log stream is a chain of plogs, of which the last takes the appends. One metadata log for each
partition records which plogs each of its logs has; the oracle records the newest plog of the metadata log. Protocols
that know no disk make the decisions (``_partition``, ``_protocols``). :class:`MetadataManager` runs them against real
plogs, and users append to and read from a :class:`LogStream`.
"""

from penstock.log._appends import PendingLogAppend
from penstock.log._chain import RUN_MIN, PlogSizes, PlogStarts
from penstock.log._lineage import lineage_of
from penstock.log._manager import MetadataManager
from penstock.log._protocols import LogPosition
from penstock.log._snapshot import READ_LIMIT, PartitionSnapshot, PlogCut
from penstock.log._stream import LogStream

__all__ = [
    "READ_LIMIT",
    "RUN_MIN",
    "LogPosition",
    "LogStream",
    "MetadataManager",
    "PartitionSnapshot",
    "PendingLogAppend",
    "PlogCut",
    "PlogSizes",
    "PlogStarts",
    "lineage_of",
]
