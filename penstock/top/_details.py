"""What there is to know of one stream, as lines of text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock.top import _text as text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.top._figures import GroupRow, StreamFigures, StreamReaders, StreamTime

__all__ = ["detail_lines"]

_ROWS_MAX: Final = 50  # of each kind: a terminal is no place for more


def detail_lines(figures: StreamFigures) -> list[str]:
    """Return the lines; each says in its first word what it is about."""
    return [text.printable(line) for line in _lines(figures)]


def _lines(figures: StreamFigures) -> Iterator[str]:
    stream, now_ms = figures.stream, figures.stream.now_ms
    yield f"{stream.name} ({stream.state})"
    yield ""
    yield f"segments      {stream.segments}, scaling: {stream.scaling}"
    yield f"events        {stream.events:,}, {text.size(stream.size_bytes)}, retention: {stream.retention}"
    if stream.rate is not None:
        yield f"rate          {text.count(stream.rate.events)} events/s, {text.size(stream.rate.bytes)}/s"
    yield ""
    yield from _time(figures.time, now_ms)
    yield ""
    yield from _readers(figures.readers, now_ms)


def _time(time: StreamTime, now_ms: int) -> Iterator[str]:
    if time.last is None:
        yield "watermark     none: no writer has noted a time"
    else:
        yield f"watermark     {_moment(time.last.lower)}, {_behind(now_ms, time.last.lower)} behind"
    for row in time.writers[:_ROWS_MAX]:
        silent = "" if row.silent_s is None else f", silent for {text.age(row.silent_s)}"
        holds = ", HOLDS THE WATERMARK BACK" if row.holds_back else "" if row.open else ", closed"
        yield f"  writer      {row.writer}: {_behind(now_ms, row.time)} behind{silent}{holds}"
    yield from _more(time.writers_total, "writers")


def _readers(readers: StreamReaders, now_ms: int) -> Iterator[str]:
    yield f"groups        {readers.groups_total}"
    for group in readers.groups[:_ROWS_MAX]:
        yield from _group(group)
    yield from _more(readers.groups_total, "groups")
    yield f"consumers     {readers.consumers_total}"
    for consumer in readers.consumers[:_ROWS_MAX]:
        behind = "" if consumer.behind_bytes is None else f": {text.size(consumer.behind_bytes)} behind"
        moved = "" if consumer.moved_ms is None else f", moved {_behind(now_ms, consumer.moved_ms)} ago"
        yield f"  consumer    {consumer.name}{behind}{moved}"
    yield from _more(readers.consumers_total, "consumers")
    yield f"transactions  {readers.transactions_total}"
    for row in readers.transactions[:_ROWS_MAX]:
        writer = "" if row.writer is None else f" of writer {row.writer}"
        yield f"  {row.status:<11} {row.id}{writer}: {text.age(row.lease_left_s)} left"
    yield from _more(readers.transactions_total, "transactions")
    if readers.large_events:
        yield f"large events  {len(readers.large_events)} being written, {text.size(sum(readers.large_events))} so far"


def _group(group: GroupRow) -> Iterator[str]:
    lag = group.lag
    yield f"  group       {group.name}: {lag.events:,} events, {text.size(lag.bytes)}, {text.age(lag.seconds)} behind"
    for reader in group.readers[:_ROWS_MAX]:
        segments = ", ".join(map(str, reader.segments)) or "none"
        yield f"    reader    {reader.name}: {text.size(reader.behind_bytes)} behind; segments: {segments}"
    yield from _more(group.readers_total, "readers")


def _more(total: int, things: str) -> Iterator[str]:
    if total > _ROWS_MAX:
        yield f"  ...         {total - _ROWS_MAX} more {things}"


def _behind(now_ms: int, time_ms: int) -> str:
    return text.age(max(0, now_ms - time_ms) / 1000)


def _moment(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError):  # a writer's time need not be one of this calendar
        return str(time_ms)
