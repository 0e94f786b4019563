"""Events for people to read: a page of them at a time, and one of them in detail. All that is shown is bounded.

A page that follows the tail keeps up with any rate: what it would have to skip is counted, and said. The page holds its
position itself, a cut that comes with every answer, so a server that was restarted goes on where the page was.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.console._positions import PAGE_BYTES, bytes_between, find_position, latest_cut
from penstock.errors import BadArgument, DataTruncated
from penstock.model import EventPointer
from penstock.stream import READ_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.console._ports import ConsoleStore
    from penstock.model import StreamCut

__all__ = ["ShownEvents", "as_shown", "event_page", "one_event"]

_ROWS_MAX: Final = 200
_SCANNED_MAX: Final = 20_000  # events of a page that is filtered
_PREVIEW_BYTES: Final = 2 << 10
_DETAIL_BYTES: Final = 64 << 10
_HEX_PREVIEW_BYTES: Final = 64
_HEX_DETAIL_BYTES: Final = 4 << 10
_KEY_BYTES: Final = 256
_HEADERS_MAX: Final = 64
_FILTER_SIZE_MAX: Final = 256
_CONTROLS: Final = frozenset(chr(code) for code in range(32)) - frozenset("\t\n\r") | {"\x7f"}


class ShownEvents(msgspec.Struct, kw_only=True):
    """Some events in the order of their times, and the cut where the next page begins.

    ``skipped_bytes`` and ``skipped_events`` lie before them, and are not shown because the page follows the tail.
    """

    events: list[dict[str, Any]]
    start: str
    next: str
    at_tail: bool
    skipped_bytes: int
    skipped_events: int
    scanned: int
    truncated: bool


def event_page(store: ConsoleStore, name: str, *, start: str, key: str = "", follow: bool = False) -> ShownEvents:
    """Return the events from a position on; with ``key``, those whose keys contain it."""
    if len(key) > _FILTER_SIZE_MAX:
        raise BadArgument(f"invalid key filter of {len(key)} characters: use at most {_FILTER_SIZE_MAX}")
    cut = find_position(store, name, start)
    try:
        return _page(store, name, cut, key=key, follow=follow, truncated=False)
    except DataTruncated:
        return _page(store, name, store.head(name), key=key, follow=follow, truncated=True)


def _page(store: ConsoleStore, name: str, cut: StreamCut, *, key: str, follow: bool, truncated: bool) -> ShownEvents:
    tail, skipped_bytes = store.tail(name), 0
    if follow and (behind := bytes_between(store, name, cut, tail)) > PAGE_BYTES:
        latest = latest_cut(store, name)
        skipped_bytes = max(0, behind - bytes_between(store, name, latest, tail))
        cut = latest if skipped_bytes else cut  # it may be behind already: a large event is larger than a page
    found, read, reached = _scan(store, name, cut, tail, key=key, most=None if follow else _ROWS_MAX)
    found = found.take(np.argsort(found["timestamp"].to_numpy(), kind="stable"))
    skipped = max(0, len(found) - _ROWS_MAX)  # only where it follows
    return ShownEvents(
        events=[_row(store, name, row) for row in _rows(found.slice(skipped))],
        start=str(cut),
        next=str(reached),
        at_tail=reached == tail,
        skipped_bytes=skipped_bytes,
        skipped_events=skipped,
        scanned=len(read),
        truncated=truncated,
    )


def _scan(
    store: ConsoleStore, name: str, cut: StreamCut, tail: StreamCut, *, key: str, most: int | None
) -> tuple[pa.Table, pa.Table, StreamCut]:
    """Return the events of a page that match, all that were read for it, and where it ends.

    With ``most``, no more than that match: many are scanned first, and fewer if too many of them do.
    """
    scanned_max = _SCANNED_MAX if key and most is not None else most
    while True:
        reached = store.next_cut(name, cut, tail, max_bytes=PAGE_BYTES, max_events=scanned_max).cut
        read = _read(store, name, cut, reached)
        if not len(read) and cut != reached != tail:  # it ends at a large event, between its extent and its chunks
            cut = reached
            continue
        found = _matching(read, key)
        if most is None or scanned_max == most or len(found) <= most:
            return found, read, reached
        scanned_max = most


def _read(store: ConsoleStore, name: str, start: StreamCut, end: StreamCut) -> pa.Table:
    """Return the events between two cuts; large ones as null, because each may be larger than the memory."""
    batches = [
        batch for part in store.segment_ranges(name, start, end) for batch in store.read_range(part, max_event_size=1)
    ]
    return pa.Table.from_batches(batches, READ_SCHEMA)


def _matching(events: pa.Table, key: str) -> pa.Table:
    """Return the events whose keys contain a text."""
    if not key:
        return events
    return events.filter(pc.match_substring(events["key"].cast(pa.binary()), key.encode(errors="replace")))


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    events = table["event"]
    columns = {
        "data": pc.binary_slice(events, 0, _PREVIEW_BYTES),
        "size": pc.binary_length(events),
        "key": pc.binary_slice(table["key"].cast(pa.binary()), 0, _KEY_BYTES),
        "time_ms": table["timestamp"].cast(pa.int64()),
        "segment": table["segment_id"],
        "offset": table["offset"],
    }
    yield from pa.table(columns).to_pylist()


def _row(store: ConsoleStore, name: str, row: dict[str, Any]) -> dict[str, Any]:
    pointer = EventPointer(name, row["segment"], row["offset"])
    data, size = row["data"], row["size"]
    if data is None:
        with store.fetch_event_as_stream(pointer) as event:
            data, size = event.read(_PREVIEW_BYTES), event.size
    return {
        "pointer": str(pointer),
        "segment": row["segment"],
        "time_ms": row["time_ms"],
        "key": None if row["key"] is None else as_text(row["key"]),
        "size": size,
        **as_shown(data, size, hex_bytes=_HEX_PREVIEW_BYTES),
    }


def one_event(store: ConsoleStore, pointer: EventPointer) -> dict[str, Any]:
    """Return an event in detail: its beginning, if it is large."""
    with store.fetch_event_as_stream(pointer) as event:
        data = event.read(_DETAIL_BYTES)
        return {
            "pointer": str(pointer),
            "segment": pointer.segment_id,
            "time_ms": event.timestamp,
            "key": None if event.key is None else as_text(event.key[:_KEY_BYTES]),
            "headers": [[name, as_text(value[:_KEY_BYTES])] for name, value in event.header_pairs[:_HEADERS_MAX]],
            "size": event.size,
            **as_shown(data, event.size, hex_bytes=_HEX_DETAIL_BYTES),
        }


def as_shown(data: bytes, size: int, *, hex_bytes: int) -> dict[str, Any]:
    """Return the beginning of an event as text or, where it is none, as hexadecimal digits, and how much it is."""
    text = _text_of(data, is_all=len(data) == size)
    if text is not None:
        return {"text": text, "shown": len(data)}
    return {"hex": data[:hex_bytes].hex(), "shown": min(len(data), hex_bytes)}


def as_text(data: bytes | str) -> str:
    """Return a key or a header for people to read."""
    if isinstance(data, str):
        return data
    text = _text_of(data, is_all=False)
    return f"0x{data.hex()}" if text is None else text


def _text_of(data: bytes, *, is_all: bool) -> str | None:
    """Return the text that the bytes are; None if they are none. The last character may be cut off unless it is all."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=is_all)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.intersection(text) else text
