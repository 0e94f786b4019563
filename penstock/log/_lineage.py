"""The lineage of a metadata log, as its newest plog has it: which metadata plogs came before it, and which is next.

The id of the next metadata plog is random, and each process that opens a partition announces another one. So if a
metadata plog that an earlier state has announced is part of a lineage, the earlier state is in the past of the later
one, and not of a copy that went on by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.log._records import Chain, Lineage, decode_records
from penstock.plog import bodies_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.plog import RawBlocks

__all__ = ["MetadataLineage", "lineage_of"]


@dataclass(frozen=True, slots=True)
class MetadataLineage:
    """The metadata plogs ``before``, as many as are remembered, and the one that was announced last."""

    before: frozenset[str]
    next: str | None


def lineage_of(metadata: Iterable[RawBlocks]) -> MetadataLineage:
    """Return the lineage that is recorded in the blocks of a metadata plog, which were checked; empty if in none."""
    before: list[str] = []
    announced = None
    try:
        for body in (body for raw in metadata for body in bodies_of(raw)):
            for record in decode_records(body):
                if isinstance(record, Chain):
                    announced = record.next
                elif isinstance(record, Lineage):
                    before = record.plogs
    except msgspec.MsgspecError:
        return MetadataLineage(frozenset(), None)
    return MetadataLineage(frozenset(before), announced)
