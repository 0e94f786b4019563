"""Filters that are pushed down to the source: on the position of events, and on the type of FutoIn events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql.datasource import Filter

    from penstock.model import SegmentRange

__all__ = ["is_wanted", "kept", "taken_over"]

_COMPARE: Final[Mapping[type, Callable[[Any, Any], Any]]] = {
    EqualTo: pc.equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    In: lambda column, values: pc.is_in(column, pa.array(_known(values), column.type)),
}


def _known(values: Iterable[Any]) -> list[Any]:
    """Return the values without NULL, which equals nothing in SQL."""
    return [value for value in values if value is not None]


def taken_over(filters: Iterable[Filter], columns: Sequence[str]) -> list[Filter]:
    """Return the filters that the source applies: comparisons of these columns with values."""
    return [one for one in filters if type(one) in _COMPARE and list(one.attribute) in [[name] for name in columns]]  # type: ignore[attr-defined]


def is_wanted(part: SegmentRange, filters: Iterable[Filter]) -> bool:
    """Return whether a part may contain an event that passes all filters."""
    return all(_may_hold(part, one) for one in filters)


def _may_hold(part: SegmentRange, one: Any) -> bool:  # noqa: ANN401 - filters share no type that has a value
    [column] = one.attribute
    if column == "segment_id":
        return bool(pc.any(_COMPARE[type(one)](pa.array([part.segment_id]), one.value)).as_py())
    if column != "offset":
        return True
    match one:
        case EqualTo() | In():
            values = one.value if isinstance(one, In) else [one.value]
            return any(part.start <= value < part.end for value in _known(values))
        case GreaterThan() | GreaterThanOrEqual():
            return bool(_COMPARE[type(one)](part.end - 1, one.value).as_py())
        case _:
            return bool(_COMPARE[type(one)](part.start, one.value).as_py())


def kept(batch: pa.RecordBatch, filters: Iterable[Any]) -> pa.RecordBatch:
    """Return the rows that pass all filters."""
    for one in filters:
        batch = batch.filter(_COMPARE[type(one)](batch.column(one.attribute[0]), one.value))
    return batch
