"""The use that plogs make of their bucket, for metrics: requests cost time and money."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.ports import RequestCount, RequestKind

__all__ = ["BucketUse", "CacheCounts"]


class CacheCounts(NamedTuple):
    """What a cache has saved and holds: reads that it answered, chunks that it fetched, bytes."""

    hits: int
    fetches: int
    memory_size: int
    disk_size: int


class BucketUse(NamedTuple):
    """The requests since the store was opened, by kind, what its cache has saved, and the seconds without an answer."""

    requests: Mapping[RequestKind, RequestCount]
    cache: CacheCounts
    silent_s: float  # 0.0 while no request waits
