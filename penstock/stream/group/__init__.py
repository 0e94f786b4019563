"""Reader groups: the coordinator that shares out segments, its members, checkpoints, positions and lag."""

from penstock.stream.group._coordinator import Claim, Coordinator
from penstock.stream.group._group import LocalReaderGroup
from penstock.stream.group._groups import GROUP_PLACES, POSITIONS_EVERY_S, Groups, Positions, is_time
from penstock.stream.group._membership import LocalMembership

__all__ = [
    "GROUP_PLACES",
    "POSITIONS_EVERY_S",
    "Claim",
    "Coordinator",
    "Groups",
    "LocalMembership",
    "LocalReaderGroup",
    "Positions",
    "is_time",
]
