"""Operations about snapshots: the plogs of the whole store at one moment."""

from penstock.wire.operations._arguments import Name, Number
from penstock.wire.operations._operation import Operation, declare


@declare("take_snapshot", "admin", "store")
class TakeSnapshot(Operation):
    """Take a snapshot, which the session has open; its plogs are listed by the next operation."""


@declare("snapshot_plogs", "admin", "store", repeats=True)
class ListPlogs(Operation):
    """List some of the plogs of a snapshot, from one of them on."""

    snapshot: Number
    first: Number


@declare("read_snapshot", "admin", "store", repeats=True)
class ReadSnapshot(Operation):
    """Read blocks of a plog of a snapshot, as they are stored."""

    snapshot: Number
    plog: Name
    offset: Number
    end: Number


@declare("close_snapshot", "admin", "store", repeats=True)
class CloseSnapshot(Operation):
    """Let go of the plogs of a snapshot."""

    snapshot: Number
