"""The table of streams as lines of text: the columns that fit, and a row for each stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.top import _text as text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.top._figures import Overview, StreamRow
    from penstock.top._source import Order

__all__ = ["Column", "heading", "row_cells", "summary", "table_columns", "table_row"]

_NAME_WIDTH_MIN: Final = 18
_NAME_WIDTH_MAX: Final = 60


class Column(NamedTuple):
    """A column; ``order`` is what its values are sorted by, and ``rank`` says which columns are left out first."""

    title: str
    width: int
    rank: int
    cell: Callable[[StreamRow], str]
    order: Order | None = None
    is_right: bool = True


def _held_back_by(row: StreamRow) -> str:
    if row.held_back_by is not None:
        return f"writer {row.held_back_by.writer}"
    if row.group is not None and row.lag is not None and row.lag.bytes:
        return f"group {row.group}"
    return ""


_NAME: Final = Column("stream", _NAME_WIDTH_MIN, 0, lambda row: row.name, "name", is_right=False)
_COLUMNS: Final = (
    _NAME,
    Column("segments", 8, 9, lambda row: str(row.segments)),
    Column("events", 7, 8, lambda row: text.count(row.events)),
    Column("size", 7, 7, lambda row: text.size(row.size_bytes)),
    Column("events/s", 9, 1, lambda row: text.NONE if row.rate is None else text.count(row.rate.events), "events"),
    Column("bytes/s", 8, 4, lambda row: text.NONE if row.rate is None else text.size(row.rate.bytes), "bytes"),
    Column("time", 7, 2, lambda row: text.NONE if row.time_behind_s is None else text.age(row.time_behind_s), "time"),
    Column("lag", 7, 3, lambda row: text.NONE if row.lag is None else text.age(row.lag.seconds), "lag"),
    Column("txn", 4, 5, lambda row: str(row.transactions) if row.transactions else text.NONE, "transactions"),
    Column("held back by", 16, 6, _held_back_by, is_right=False),
)


def table_columns(width: int) -> list[Column]:
    """Return the columns that fit into a width; the names of streams get what the others leave."""
    chosen = list(_COLUMNS)
    while len(chosen) > 1 and _width(chosen) > width:
        chosen.remove(max(chosen, key=lambda column: column.rank))
    spare = max(0, width - _width(chosen))
    name_width = min(_NAME_WIDTH_MIN + spare, _NAME_WIDTH_MAX, max(width, 1))
    return [column._replace(width=name_width) if column.rank == 0 else column for column in chosen]


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width + 1 for column in columns) - 1


def heading(columns: Sequence[Column], order: Order) -> str:
    """Return the titles; the one that the rows are sorted by is marked."""
    titles = (f"{column.title}*" if column.order == order else column.title for column in columns)
    fitted = (
        text.fitted(title, column.width, right=column.is_right) for title, column in zip(titles, columns, strict=True)
    )
    return " ".join(fitted)


def table_row(columns: Sequence[Column], row: StreamRow) -> str:
    """Return the line of a stream."""
    return " ".join(text.fitted(column.cell(row), column.width, right=column.is_right) for column in columns)


def row_cells(row: StreamRow) -> list[str]:
    """Return the values of all columns, as they are."""
    return [text.printable(column.cell(row)) for column in _COLUMNS]


def summary(overview: Overview) -> str:
    """Return the figures of all streams in a line."""
    found = "" if overview.found == overview.total else f"{overview.found:,} of "
    parts = [f"{found}{_counted(overview.total, 'stream')}"]
    if overview.rate is not None:
        parts += [f"{text.count(overview.rate.events)} events/s", f"{text.size(overview.rate.bytes)}/s"]
    parts.append(_counted(overview.transactions, "transaction"))
    return ", ".join(parts)


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
