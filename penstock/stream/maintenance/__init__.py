"""What runs by the clock: scaling, retention, leases, watermarks, merging small plogs."""

from penstock.stream.maintenance._maintenance import MAINTENANCE_INTERVAL_S, Maintenance

__all__ = ["MAINTENANCE_INTERVAL_S", "Maintenance"]
