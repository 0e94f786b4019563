"""Penstock: a stream store for Python and Spark.

>>> import penstock
>>> store = penstock.connect("memory:")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._version import __version__
from penstock.model import (
    ByConsumption,
    ByDataRate,
    ByEventRate,
    BySize,
    ByTime,
    EventPointer,
    Fixed,
    Position,
    SegmentRange,
    StreamConfig,
    StreamCut,
    StreamInfo,
    TimeWindow,
    Watermark,
)

if TYPE_CHECKING:
    import os

    from penstock.stream import StreamStore

__all__ = [
    "ByConsumption",
    "ByDataRate",
    "ByEventRate",
    "BySize",
    "ByTime",
    "EventPointer",
    "Fixed",
    "Position",
    "SegmentRange",
    "StreamConfig",
    "StreamCut",
    "StreamInfo",
    "TimeWindow",
    "Watermark",
    "__version__",
    "connect",
]


def connect(address: str | os.PathLike[str], *, exclusive: bool = False, pass_s: float = 1.0) -> StreamStore:
    """Open the store in a folder, which is made if it is not there, or one in memory, at ``memory:``.

    A folder has one owner: ``StoreLocked`` names it. With ``exclusive`` that stays so when folders can be shared. Every
    ``pass_s`` seconds the store scales streams, truncates them and writes watermarks.
    """
    del exclusive  # until there is a server to share a folder through, every owner is alone
    from penstock.embedded import open_store  # noqa: PLC0415 - importing penstock stays quick

    return open_store(address, pass_s=pass_s)
