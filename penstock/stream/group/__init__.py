"""Reader groups: the coordinator that shares out segments, its members, checkpoints, positions and lag."""

from penstock.stream.group._coordinator import Claim
from penstock.stream.group._group import LocalReaderGroup
from penstock.stream.group._groups import GROUP_PLACES, Groups, is_time
from penstock.stream.group._membership import LocalMembership

__all__ = [
    "GROUP_PLACES",
    "Claim",
    "Groups",
    "LocalMembership",
    "LocalReaderGroup",
    "is_time",
]
