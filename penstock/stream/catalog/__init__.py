"""Which streams, segments, groups, consumers and transactions exist, and the log that remembers them.

The states of streams and groups are pure: records go in, and each state says what they add up to.
"""

from penstock.stream.catalog._catalog import Catalog
from penstock.stream.catalog._group_state import GroupState, Key, flat, lost_segments, nested
from penstock.stream.catalog._stream_state import (
    OWNED_IDS_MAX,
    SegmentState,
    StreamState,
    Succession,
    advance,
    even_ranges,
)

__all__ = [
    "OWNED_IDS_MAX",
    "Catalog",
    "GroupState",
    "Key",
    "SegmentState",
    "StreamState",
    "Succession",
    "advance",
    "even_ranges",
    "flat",
    "lost_segments",
    "nested",
]
