"""The table of positions: how far each consumer has come in each stream."""

from __future__ import annotations

import re
from typing import Final

import sqlalchemy as sa

from penstock.errors import BadArgument
from penstock.model import check_kind

__all__ = [
    "POSITIONS",
    "TEXT_SIZE_MAX",
    "check_columns",
    "check_table_name",
    "forget_position",
    "positions_table",
    "streams_of",
]

POSITIONS: Final = "penstock_positions"
TEXT_SIZE_MAX: Final = 255
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def positions_table(name: str) -> sa.Table:
    """Return the table of positions, one row for each consumer and stream."""
    return sa.Table(
        check_table_name(name),
        sa.MetaData(),
        sa.Column("consumer", sa.String(TEXT_SIZE_MAX), primary_key=True),
        sa.Column("stream", sa.String(2 * TEXT_SIZE_MAX + 1), primary_key=True),
        sa.Column("uid", sa.String(20), nullable=False),  # of the stream: one with the same name may follow it
        sa.Column("cut", sa.Text(), nullable=False),
    )


def forget_position(connection: sa.Connection, *, consumer: str, table: str = POSITIONS) -> None:
    """Delete the positions of a consumer within the caller's transaction."""
    positions = positions_table(table)
    if sa.inspect(connection).has_table(table):
        connection.execute(sa.delete(positions).where(positions.c.consumer == consumer))


def streams_of(connection: sa.Connection, *, consumer: str, table: str = POSITIONS) -> set[str]:
    """Return the streams that a consumer has a position in."""
    positions = positions_table(table)
    if not sa.inspect(connection).has_table(table):
        return set()
    return set(connection.execute(sa.select(positions.c.stream).where(positions.c.consumer == consumer)).scalars())


def check_columns(connection: sa.Connection, table: sa.Table) -> None:
    """Refuse a table of somebody else's that happens to have the same name."""
    inspector = sa.inspect(connection)
    there = {column["name"] for column in inspector.get_columns(table.name)}
    if not there >= set(table.columns.keys()) or set(
        inspector.get_pk_constraint(table.name)["constrained_columns"]
    ) != set(table.primary_key.columns.keys()):
        raise BadArgument(f"the table {table.name} is there already, with other columns: use another name")


def check_table_name(name: str) -> str:
    """Return a name that every database takes unquoted."""
    check_kind("table", name, str)
    if not _NAME.fullmatch(name):
        raise BadArgument(f"invalid table name {name!r}: use letters, digits and '_', at most 63")
    return name
