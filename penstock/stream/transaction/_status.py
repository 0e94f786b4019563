"""What all kinds of transactions share: status, leases, timestamps."""

from __future__ import annotations

from typing import Final, Literal

from penstock.errors import BadArgument
from penstock.model import check_time

__all__ = ["LEASE_MAX_S", "Parts", "Status", "check_lease", "check_timestamp"]

LEASE_MAX_S: Final = 24 * 3600.0
Status = Literal["open", "prepared", "committed", "aborted"]
Parts = list[tuple[int, int]]
"""Segment and offset of each part of what was committed."""


def check_timestamp(timestamp: object, writer_id: str | None) -> None:
    """Refuse an invalid timestamp, or one without a writer id to keep it under."""
    if timestamp is None:
        return
    check_time("timestamp", timestamp)
    if writer_id is None:
        raise BadArgument("time is kept under the writer's id: open the transactional writer with one")


def check_lease(lease: object) -> None:
    """Refuse an invalid lease."""
    if not isinstance(lease, int | float) or not 0 < lease <= LEASE_MAX_S:
        raise BadArgument(f"invalid lease {lease!r}: use a number of seconds above 0, up to {LEASE_MAX_S:g}")
