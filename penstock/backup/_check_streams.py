"""Checking what is in the logs: blocks of events, large events, tables of writers, watermarks, groups, repositories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import DataTruncated, PenstockError, RepositoryError, StreamCorrupt
from penstock.stream.format import Block
from penstock.stream.segment import LargeBlock, scan

if TYPE_CHECKING:
    from penstock.backup._findings import Findings
    from penstock.stream import Engine
    from penstock.stream.catalog import StreamState

__all__ = ["REPOSITORY_TAG", "check_streams"]

_READ_SIZE: Final = 8 << 20
REPOSITORY_TAG: Final = "penstock-repository"  # as in penstock.repo, which is an extra
_FAULTS_MAX: Final = 100  # of one repository: its whole history may build on one damaged block
_REPOSITORY_ADVICE: Final = (
    "get the revisions from another copy of the repository (penstock repo pull), or restore the store from a backup"
)


def check_streams(store: Engine, findings: Findings) -> None:
    """Read all streams, groups and consumers of a store."""
    for name, state in sorted(store.catalog.streams.items()):
        findings.count("streams")
        for segment_id in sorted(state.segments):
            findings.count("segments")
            subject = f"stream {name}, segment {segment_id}"
            findings.attempt(subject, lambda: _check_segment(store, state, name, segment_id, findings))  # noqa: B023
        findings.attempt(f"the watermarks of stream {name}", lambda: _check_watermarks(store, name, findings))  # noqa: B023
        findings.attempt(f"the consumers of stream {name}", lambda: _check_consumers(store, state, name))  # noqa: B023
        findings.attempt(f"repository {name}", lambda: _check_repository(store, state, name, findings))  # noqa: B023
    for group in store.reader_groups():
        findings.count("groups")
        findings.attempt(f"reader group {group}", lambda: store.reader_group(group).lag())  # noqa: B023
    for transaction, prepared in store.catalog.prepared.items():
        for log in (log for part in prepared.parts for log in part.logs):
            if not store.manager.has_log(log):
                findings.note(f"prepared transaction {transaction}", f"its log {log} is missing")


def _check_segment(store: Engine, state: StreamState, name: str, segment_id: int, findings: Findings) -> None:
    segment = store.segments.get(name, segment_id)
    start = max(state.head.get(segment_id, 0), segment.start)
    offset, tail, events = start, segment.tail, 0
    end = state.segments[segment_id].end
    if end is not None and tail < end:
        raise StreamCorrupt(segment.where, offset=tail, reason=f"it ends here and not at {end}")
    counted = segment.count_before(start) if start < tail else 0
    while offset < tail:
        for block in scan(segment, name, segment_id, offset, end=tail, size=_READ_SIZE):
            if block.start > offset and offset != start:
                reason = f"no block begins here; the next one begins at {block.start}"
                raise StreamCorrupt(segment.where, offset=offset, reason=reason)
            events += _check_block(block, start)
            offset = block.end
    if start < tail and segment.count_before(tail) != counted + events:
        reason = f"it has {events} events, and says that it has {segment.count_before(tail) - counted}"
        raise StreamCorrupt(segment.where, offset=tail, reason=reason)
    segment.writers()
    findings.count("events", events)


def _check_block(block: object, start: int) -> int:
    """Decode a block; return how many events begin in it, behind the head of the stream."""
    if isinstance(block, LargeBlock):
        done = 0
        while done < block.large.size:
            done += sum(len(chunk.data) for chunk in block.large.chunks_at(done))
        block.columns  # noqa: B018 - decodes them
        return 1
    if not isinstance(block, Block):
        return 0
    block.columns  # noqa: B018 - decodes them
    block.bounds  # noqa: B018
    first = block.index_at(start) if block.start < start else 0
    return block.count - (first or 0)


def _check_watermarks(store: Engine, name: str, findings: Findings) -> None:
    marks = store.watermarks(name)
    findings.count("watermarks", len(marks))
    lower = None
    for mark in marks:
        if mark.upper < mark.lower or (lower is not None and mark.lower < lower):
            raise StreamCorrupt(f"the watermarks of {name}", offset=None, reason=f"time goes back at {mark.lower}")
        lower = mark.lower


def _check_consumers(store: Engine, state: StreamState, name: str) -> None:
    for consumer, cut in store.consumers(name).items():
        try:
            state.check_cut(cut)
        except DataTruncated:
            continue  # it was behind when the stream was truncated, and goes on at the head
        except PenstockError as error:
            raise StreamCorrupt(f"consumer {consumer} of {name}", offset=None, reason=str(error)) from error


def _check_repository(store: Engine, state: StreamState, name: str, findings: Findings) -> None:
    """Reconstruct all that is in a repository, and compare it with its index, as ``penstock repo check`` does."""
    if REPOSITORY_TAG not in state.config.tags:
        return
    try:
        from penstock.repo import Repository, key_name  # noqa: PLC0415 - an extra that not every process has
    except ModuleNotFoundError as error:
        findings.unchecked.append(f"repository {name}: it needs {error.name}, which is part of the extra repo")
        return
    try:
        found = Repository.open(store, name).check()
    except RepositoryError as error:
        raise StreamCorrupt(f"repository {name}", offset=None, reason=str(error)) from error
    findings.count("items", found.items)
    faults = [*map(str, found.errors), *(f"{key_name(key)} is missing" for key in found.missing)]
    for fault in faults[:_FAULTS_MAX]:
        findings.note(f"repository {name}", fault, advice=_REPOSITORY_ADVICE)
    if len(faults) > _FAULTS_MAX:
        more = f"{len(faults) - _FAULTS_MAX} more problems, which penstock repo check {name} lists"
        findings.note(f"repository {name}", more, advice=_REPOSITORY_ADVICE)
