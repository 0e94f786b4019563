"""What runs by the clock: scaling, retention, leases, merging small plogs."""

from penstock.stream.maintenance._maintenance import PASS_S, Upkeep

__all__ = [
    "PASS_S",
    "Upkeep",
]
