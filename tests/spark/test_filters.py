"""Filters that the source takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock import SegmentRange
from penstock.spark._reader import is_wanted, kept, taken_over

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.datasource import Filter

COLUMNS = ["segment_id", "offset", "type"]
COMPARED: dict[Any, Callable[[Any, Any], bool]] = {
    EqualTo: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
    In: lambda one, others: one in [other for other in others if other is not None],
}


def batch_of(segment: int, offsets: list[int], types: list[str | None] | None = None) -> pa.RecordBatch:
    columns = [pa.array([segment] * len(offsets), pa.int64()), pa.array(offsets, pa.int64())]
    return pa.record_batch([*columns, pa.array(types or ["A"] * len(offsets), pa.string())], COLUMNS)


def test_comparisons_of_places_and_types_are_taken_over() -> None:
    """They spare reading, or at least handing rows to Spark."""
    ours: list[Filter] = [EqualTo(("segment_id",), 1), In(("type",), ("A", "B")), LessThan(("offset",), 9)]
    others: list[Filter] = [
        EqualTo(("size",), 1),
        EqualTo(("segment_id", "x"), 1),
        Not(EqualTo(("segment_id",), 1)),
        IsNotNull(("segment_id",)),
        EqualNullSafe(("segment_id",), 1),
        StringStartsWith(("type",), "A"),
    ]
    assert taken_over([*others, *ours], COLUMNS) == ours
    assert taken_over(ours, ["offset"]) == ours[2:]


def test_nothing_is_equal_to_null() -> None:
    """An event that is corrupt has no type; that is not among ('A', NULL), says SQL."""
    batch = batch_of(0, [0, 1, 2], ["A", None, "B"])
    assert kept(batch, [In(("type",), ("A", None))]).column("type").to_pylist() == ["A"]
    assert kept(batch, [EqualTo(("type",), "B")]).column("type").to_pylist() == ["B"]
    assert is_wanted(SegmentRange("a/b", 0, 0, 9), [In(("offset",), (None, 5))])
    assert not is_wanted(SegmentRange("a/b", 0, 0, 9), [In(("offset",), (None,)), In(("segment_id",), (None,))])


def test_without_filters_all_is_wanted() -> None:
    """Which is what most queries do."""
    batch = batch_of(0, [0, 1])
    assert kept(batch, []) == batch
    assert is_wanted(SegmentRange("a/b", 0, 0, 9), [])


@pytest.mark.parametrize("kind", COMPARED)
def test_a_part_is_left_out_only_if_none_of_its_events_is_let_through(kind: Any) -> None:  # noqa: ANN401
    """Rows that are lost to a filter are not missed until it is too late."""
    part = SegmentRange("a/b", 3, 10, 20)
    for value in range(8, 23):
        given_value: Any = (value,) if kind is In else value
        wanted = is_wanted(part, [kind(("offset",), given_value)])
        assert wanted == any(COMPARED[kind](offset, given_value) for offset in range(10, 20))
    for value in (2, 3, 4):
        given_value = (value,) if kind is In else value
        assert is_wanted(part, [kind(("segment_id",), given_value)]) == COMPARED[kind](3, given_value)


FILTERS = st.one_of(
    st.builds(
        lambda kind, name, value: kind((name,), value),
        st.sampled_from([kind for kind in COMPARED if kind is not In]),
        st.sampled_from(COLUMNS[:2]),
        st.integers(0, 12),
    ),
    st.builds(
        lambda name, values: In((name,), tuple(values)),
        st.sampled_from(COLUMNS[:2]),
        st.lists(st.none() | st.integers(0, 12)),
    ),
)


@given(st.integers(0, 3), st.sets(st.integers(0, 10)), st.lists(FILTERS, max_size=4))
def test_rows_are_kept_as_python_compares(segment: int, offsets: set[int], filters: list[Any]) -> None:
    """All filters hold for what is kept, and one does not for the rest; a part that has such a row is read."""
    batch = batch_of(segment, sorted(offsets))
    row = {"segment_id": segment}
    wanted = [
        offset
        for offset in sorted(offsets)
        if all(COMPARED[type(one)]((row | {"offset": offset})[one.attribute[0]], one.value) for one in filters)
    ]
    assert kept(batch, filters).column("offset").to_pylist() == wanted
    assert is_wanted(SegmentRange("a/b", segment, 0, 11), filters) >= bool(wanted)
