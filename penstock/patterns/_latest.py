"""The compacted view: a table with the latest event of each key, kept up to date by an :class:`SqlConsumer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from penstock.errors import BadArgument
from penstock.model import check_kind
from penstock.patterns._checks import check_store
from penstock.patterns._positions import POSITIONS, check_columns, check_table_name, forget_position, streams_of
from penstock.patterns._sql_consumer import SqlConsumer

if TYPE_CHECKING:
    import threading

    from penstock.store import Store

__all__ = ["LatestByKey", "latest_rows"]

_KEY_SIZE_MAX: Final = 64 << 10  # of a stream


class LatestByKey:
    """Keeps a table with one row for each key of a stream: its latest event, when that was appended, and its pointer.

    An empty event deletes the row of its key. Events without a key are left out. An event above 1 MiB is NULL in the
    table; its pointer says where it is. Several processes may keep one table, but it has one stream: ``BadArgument``
    for the table of another one, or with other columns. Drop the table to build it anew.
    """

    def __init__(self, engine: sa.Engine, store: Store, stream: str, *, table: str) -> None:
        check_kind("engine", engine, sa.Engine)
        check_store(store)
        if not store.stream(stream).config.keep_keys:
            raise BadArgument(f"stream {stream!r} does not store the keys of its events: set keep_keys in its config")
        if table == POSITIONS:
            raise BadArgument(f"the table {table} is that of positions: use another name")
        self.table: Final = sa.Table(
            check_table_name(table),
            sa.MetaData(),
            sa.Column("key", sa.LargeBinary(_KEY_SIZE_MAX), primary_key=True),
            sa.Column("event", sa.LargeBinary()),
            sa.Column("timestamp", sa.BigInteger(), nullable=False),
            sa.Column("pointer", sa.Text(), nullable=False),
        )
        name = f"latest.{table}"
        with engine.begin() as connection:
            if not sa.inspect(connection).has_table(table):
                forget_position(connection, consumer=name)  # first: SQLite begins a transaction with it
                self.table.create(connection)
            check_columns(connection, self.table)
            others = streams_of(connection, consumer=name) - {stream}
        if others:
            raise BadArgument(f"the table {table} is that of stream {min(others)}: use another name, or drop the table")
        self._consumer = SqlConsumer(engine, store, stream, name=name)

    def update(self) -> int:
        """Apply all events that are there, in transactions of up to 8 MiB, and return how many there were."""
        return sum(iter(lambda: self._consumer.step(self._apply), 0))

    def run(self, stop: threading.Event) -> None:
        """Apply events as they come, until ``stop`` is set."""
        self._consumer.run(self._apply, stop)

    def _apply(self, connection: sa.Connection, batch: pa.RecordBatch) -> None:
        rows = latest_rows(batch, self._consumer.stream)
        if not rows:
            return
        match = self.table.c.key == sa.bindparam("old_key")
        connection.execute(sa.delete(self.table).where(match), [{"old_key": row["key"]} for row in rows])
        kept = [row for row in rows if row["event"] != b""]
        if kept:
            connection.execute(sa.insert(self.table), kept)


def latest_rows(batch: pa.RecordBatch, stream: str) -> list[dict[str, object]]:
    """Return the last row of each key in a batch, as rows of the table.

    The events of a key are in one segment at a time, and batches come in the order of segments, so the last row of a
    key is its latest event.
    """
    keyed = pa.table({"key": batch["key"], "row": np.arange(len(batch))}).filter(pc.field("key").is_valid())
    last = batch.take(keyed.group_by("key").aggregate([("row", "max")])["row_max"].combine_chunks())
    places = zip(last["segment_id"].to_pylist(), last["offset"].to_pylist(), strict=True)
    columns = {
        "key": last["key"],
        "event": last["event"],
        "timestamp": last["timestamp"].cast(pa.int64()),
        "pointer": [f"{stream}:{segment_id}@{offset}" for segment_id, offset in places],
    }
    rows: list[dict[str, object]] = pa.table(columns).to_pylist()
    return rows
