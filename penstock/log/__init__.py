"""Log streams over plogs, and the metadata manager that remembers them.

Theory of operation: a log stream is a chain of plogs of which the last takes appends. Which plogs it has is
written, for all logs of a partition, into one metadata log; the newest plog of that one is known to the oracle.
What must be decided is in protocols that know no disk (``_partition``, ``_protocols``); :class:`MetadataManager`
runs them, :class:`LogStream` is what users append to and read from.
"""

from penstock.log._manager import MetadataManager
from penstock.log._merging import RUN_MIN
from penstock.log._protocols import LogPosition
from penstock.log._sizes import PlogSizes
from penstock.log._stream import LogStream, PendingLogAppend, PlogStarts

__all__ = ["RUN_MIN", "LogPosition", "LogStream", "MetadataManager", "PendingLogAppend", "PlogSizes", "PlogStarts"]
