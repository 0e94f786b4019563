"""Lines of text: they fit into any terminal, and nothing in them moves its cursor."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from penstock.top import StreamRow, row_cells, table_columns
from penstock.top._figures import Hold, LagRow, Overview, RateRow
from penstock.top._table import heading, summary, table_row
from penstock.top._text import age, count, fitted, printable, size


def row(**changes: object) -> StreamRow:
    values: dict[str, object] = {
        "name": "plant/readings",
        "state": "active",
        "segments": 4,
        "events": 1_234_567,
        "size_bytes": 98_765_432,
        "rate": RateRow(1234.5, 98_765.0),
        "time_behind_s": 12.3,
        "held_back_by": None,
        "group": "dashboard",
        "lag": LagRow(7, 700, 61.0),
        "transactions": 0,
    }
    return StreamRow(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [1, 10, 20, 40, 60, 78, 80, 120, 200])
def test_a_row_is_as_wide_as_the_terminal_at_most(width: int) -> None:
    """A line that is folded makes two of one row, and pushes others off the screen."""
    columns = table_columns(width)
    long = row(
        name="scope/" + "ü漢字" * 80, held_back_by=Hold("w" * 300, 9.0), rate=RateRow(9e20, 9e20), transactions=10**9
    )
    lines = [table_row(columns, row()), table_row(columns, long), heading(columns, "events")]
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}
    assert cell_len(lines[0]) <= width


def test_eighty_columns_have_what_an_operator_looks_for() -> None:
    """Most terminals are 80 columns wide."""
    titles = [column.title for column in table_columns(78)]
    assert titles == ["stream", "events/s", "bytes/s", "time", "lag", "txn", "held back by"]
    line = table_row(table_columns(78), row(held_back_by=Hold("plant-3", 9.0), transactions=2))
    assert line.split() == ["plant/readings", "1.23k", "98.8", "kB", "12", "s", "1.0", "min", "2", "writer", "plant-3"]
    assert heading(table_columns(78), "lag").split()[4] == "lag*"


def test_all_columns_are_in_a_wide_terminal_and_in_a_list() -> None:
    """Scripts get everything, whatever the width."""
    assert len(table_columns(200)) == len(row_cells(row()))
    assert row_cells(row(rate=None, time_behind_s=None, lag=None, group=None))[-1] == ""
    assert row_cells(row())[-1] == "group dashboard"
    assert row_cells(row(lag=LagRow(0, 0, 0.0)))[-1] == "", "it has read everything"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (59, "59 s"),
        (60, "1.0 min"),
        (3_600, "1.0 h"),
        (90_000, "1.0 d"),
    ],
)
def test_ages_are_short(seconds: float, shown: str) -> None:
    """A column of them is compared by eye."""
    assert age(seconds) == shown


def test_figures_are_short() -> None:
    """A column of them is compared by eye."""
    assert [count(number) for number in (0, 0.25, 999, 1000, 1_234_567)] == ["0", "0.25", "999", "1k", "1.23M"]
    assert [size(number) for number in (0, 999.4, 999.6, 5e15, 5e20)] == ["0 B", "999 B", "1 kB", "5 PB", "5e+05 PB"]


def test_names_cannot_change_the_terminal() -> None:
    """The id of a writer is any text; an escape sequence in it would be the writer's to use on our screen."""
    evil = "\x1b]0;owned\x07\r\nname\u202e"
    assert printable(evil) == "?]0;owned???name?"
    assert "\x1b" not in "".join(row_cells(row(held_back_by=Hold(evil, 9.0))))
    assert fitted("abc", 0) == ""
    assert fitted("abcdef", 4) == "abc…"


def test_the_summary_counts_what_matches() -> None:
    """A filter must not make an operator think that the other streams are gone."""
    overview = Overview(now_ms=0, total=10_000, found=1, first=0, rate=RateRow(5.0, 2e6), transactions=1, streams=[])
    assert summary(overview) == "1 of 10,000 streams, 5 events/s, 2 MB/s, 1 transaction"
    overview.found, overview.total, overview.rate = 1, 1, None
    assert summary(overview) == "1 stream, 1 transaction"
