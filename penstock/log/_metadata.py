"""The metadata of a partition: the state that its records add up to.

The same function applies a record when it is written and when it is replayed, so a recovered partition has the state
of the partition that wrote the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.log._chain import LogChain, PackedPlogs
from penstock.log._records import (
    Chain,
    Doomed,
    Drop,
    Full,
    Incremental,
    Init,
    Lineage,
    Next,
    Packed,
    Replace,
    Spares,
    Splice,
    Truncate,
    encode_records,
)
from penstock.model import PlogId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.log._records import Record

__all__ = ["Metadata", "snapshot_parts"]

_SNAPSHOT_PART_SIZE: Final = 1 << 20
_PACKED_MIN: Final = 32  # the plogs of shorter logs are read as quickly one by one
_PLOGS_IN_RECORD_MAX: Final = 2048  # about 60 bytes each, 560 where cluster and group have the longest names


class Metadata:
    """The logs of a partition, and the metadata log's own state."""

    def __init__(self) -> None:
        self.logs: dict[str, LogChain] = {}
        self.doomed: dict[PlogId, None] = {}  # to be deleted; a dict, because its order makes a run repeatable
        self.previous: list[tuple[PlogId, int]] = []
        self.next: PlogId | None = None
        self.spare: PlogId | None = None
        self.spares: list[PlogId] = []  # for logs that are created together
        self.lineage: list[str] = []  # the metadata plogs before this one, the oldest first

    def apply(self, record: Record) -> None:
        """Apply a record; ``KeyError`` if it does not fit the records before it."""
        match record:
            case Chain() | Lineage():
                self._apply_own(record)
            case Init():
                self.logs[record.log] = LogChain(active=PlogId.parse(record.plog), next_id=PlogId.parse(record.next))
                self.spare = PlogId.parse(record.spare)
            case Incremental():
                chain = self.logs[record.log]
                if str(chain.active) != record.sealed:
                    raise KeyError(record.sealed)
                active, next_id = PlogId.parse(record.plog), PlogId.parse(record.next)
                chain.switch(record.sealed_offset, active=active, next_id=next_id)
            case Full() | Packed():
                self._apply_full(record)
            case Next():
                chain = self.logs[record.log]
                self.doom([chain.next])
                chain.next = PlogId.parse(record.next)
            case Truncate():
                self.doom(self.logs[record.log].truncate(PlogId.parse(record.first)))
            case Splice():
                self._apply_splice(record)
            case Replace():
                chain, source = self.logs[record.log], self.logs.pop(record.source)
                first, length = PlogId.parse(record.first), record.source_sealed_offset
                self.doom([*chain.replace(first, record.count, source.active, length), source.next])
            case Drop():
                chain = self.logs.pop(record.log)
                self.doom([*(plog_id for plog_id, _ in chain.sealed), chain.active, chain.next])
            case Doomed() | Spares():
                self._apply_plogs(record)

    def _apply_plogs(self, record: Doomed | Spares) -> None:
        if isinstance(record, Doomed):
            self.doom(map(PlogId.parse, record.plogs))
        else:
            self.spares = list(map(PlogId.parse, record.plogs))

    def _apply_own(self, record: Chain | Lineage) -> None:
        if isinstance(record, Lineage):
            self.lineage = list(record.plogs)
            return
        self.previous = [(PlogId.parse(plog), length) for plog, length in record.previous]
        self.next, self.spare = PlogId.parse(record.next), PlogId.parse(record.spare)

    def doom(self, plogs: Iterable[PlogId]) -> None:
        """Note plogs that no log needs, to be deleted."""
        self.doomed.update(dict.fromkeys(plogs))

    def known_among(self, plogs: Collection[PlogId]) -> set[PlogId]:
        """Return those of some plogs that are part of a log, announced, or to be deleted."""
        own = {*self.doomed, *self.spares, *(plog_id for plog_id, _ in self.previous), self.next, self.spare}
        return {plog_id for plog_id in plogs if plog_id in own}.union(
            *(chain.among(plogs) for chain in self.logs.values())
        )

    def _apply_full(self, record: Full | Packed) -> None:
        if isinstance(record, Packed):
            packed = PackedPlogs(record.groups, record.group_of, record.uids, record.lengths, record.labels)
            self.logs[record.log].add_packed(packed)
            return
        if not record.continues:
            active, next_id = PlogId.parse(record.plog), PlogId.parse(record.next)
            self.logs[record.log] = LogChain(active=active, next_id=next_id, start=record.start)
        for place, (plog, length) in enumerate(record.sealed):
            self.logs[record.log].add_sealed(PlogId.parse(plog), length, record.labels.get(place, b""))

    def _apply_splice(self, record: Splice) -> None:
        chain, source = self.logs[record.log], self.logs.pop(record.source)
        if record.sealed_offset is not None:
            chain.add_sealed(chain.active, record.sealed_offset)
        for plog_id, length in source.sealed:
            chain.add_sealed(plog_id, length, record.label)
        if record.source_sealed_offset:
            chain.add_sealed(source.active, record.source_sealed_offset, record.label)
        else:
            self.doom([source.active])
        self.doom([source.next])
        chain.active, chain.next = PlogId.parse(record.plog), PlogId.parse(record.next)


def snapshot_parts(metadata: Metadata, chain: Chain) -> list[bytes]:
    """Return the first appends of a new metadata plog: the complete metadata, in parts below the append limit."""
    parts: list[bytes] = []
    batch: list[Record] = []
    batch_size = 0
    for record in _snapshot(metadata, chain):
        size = len(encode_records([record]))
        if batch and batch_size + size > _SNAPSHOT_PART_SIZE:
            parts.append(encode_records(batch))
            batch, batch_size = [], 0
        batch.append(record)
        batch_size += size
    return [*parts, encode_records(batch)]


def _snapshot(metadata: Metadata, chain: Chain) -> Iterator[Record]:
    yield chain
    if metadata.spares:
        yield Spares(list(map(str, metadata.spares)))
    for name, log in metadata.logs.items():
        is_short = len(log.numbers) <= _PACKED_MIN
        sealed = [(str(plog_id), length) for plog_id, length in log.sealed] if is_short else []
        labels = log.labels if is_short else {}
        yield Full(name, False, log.start, sealed, str(log.active), str(log.next), labels)
        if not is_short:
            yield from (Packed(name, *part) for part in log.packed(most=_PLOGS_IN_RECORD_MAX))
    doomed = [str(plog_id) for plog_id in list(metadata.doomed)]  # a copy: a background task removes some meanwhile
    for start in range(0, len(doomed), _PLOGS_IN_RECORD_MAX):
        yield Doomed(doomed[start : start + _PLOGS_IN_RECORD_MAX])
