"""Reader groups: the coordinator that shares out segments, its members, checkpoints, positions and lag."""

from penstock.stream.group._coordinator import Claim
from penstock.stream.group._group import LocalReaderGroup
from penstock.stream.group._groups import Groups
from penstock.stream.group._membership import LocalMembership

__all__ = [
    "Claim",
    "Groups",
    "LocalMembership",
    "LocalReaderGroup",
]
