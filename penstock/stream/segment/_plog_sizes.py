"""How large the plogs of a segment are, so that a stream that is kept by size can be cut finely."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.model import BySize

if TYPE_CHECKING:
    from penstock.log import PlogSizes
    from penstock.stream.catalog import StreamState

__all__ = ["PLOGS_KEPT", "plog_sizes"]

PLOGS_KEPT: Final = 8  # what is kept by size or time lies in about so many plogs, so that it can be cut that finely
_PLOG_SIZE_MIN: Final = 16 << 10  # smaller ones would be mostly heads


def plog_sizes(state: StreamState, sizes: PlogSizes) -> PlogSizes:
    """Return the sizes that the plogs of a stream's segments have, where those of others have ``sizes``."""
    retention = state.config.retention
    if not isinstance(retention, BySize):
        return sizes
    share = retention.size_bytes // (PLOGS_KEPT * len(state.current))
    largest = min(max(share, _PLOG_SIZE_MIN), sizes.largest)
    return replace(sizes, first=min(sizes.first, largest), largest=largest)
