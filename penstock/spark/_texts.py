"""Bytes as text: Spark accepts any bytes as UTF-8, and fails only when a query uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["readable", "texts_of"]


def texts_of(events: pa.Array) -> pa.Array:
    """Return events as texts; null where an event is not UTF-8."""
    return _as_texts(events, _decoded)


def readable(events: pa.Array) -> pa.Array:
    """Return events as readable texts, in which bytes that are not UTF-8 are replaced."""
    return _as_texts(events, lambda event: event.decode(errors="replace"))


def _as_texts(events: pa.Array, decode: Callable[[bytes], str | None]) -> pa.Array:
    try:
        return events.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if one is None else decode(one) for one in events.to_pylist()], pa.string())


def _decoded(event: bytes) -> str | None:
    try:
        return event.decode()
    except UnicodeDecodeError:
        return None
