"""Consumers whose position is in a database, and the table of the latest events."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import penstock
from penstock.errors import BadArgument, NoSuchStream
from penstock.patterns import LatestByKey, SqlConsumer
from tests.events.test_outbox import emptied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from penstock import Store
    from tests.postgres import Postgres

STREAM = "plant/readings"
SEEN = sa.Table("seen", sa.MetaData(), sa.Column("event", sa.LargeBinary()))


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database, with a table for what was handled."""
    url = f"sqlite:///{tmp_path}/results.db"
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        emptied(postgres)
        url = postgres.url
    engine = sa.create_engine(url)
    SEEN.create(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def store(empty_store: Store) -> Store:
    empty_store.create_stream(STREAM, segments=2)
    return empty_store


def write(store: Store, *events: bytes, keys: list[str] | None = None) -> None:
    with store.writer(STREAM) as writer:
        writer.write_batch(events, keys)


def record(connection: sa.Connection, batch: pa.RecordBatch) -> None:
    connection.execute(sa.insert(SEEN), [{"event": event} for event in batch["event"].to_pylist()])


def seen(engine: sa.Engine) -> list[bytes]:
    with engine.connect() as connection:
        return sorted(connection.execute(sa.select(SEEN.c.event)).scalars())


def test_a_failed_step_leaves_neither_results_nor_a_position(engine: sa.Engine, store: Store) -> None:
    """The next step begins with the same events, so whatever the first one wrote must be gone."""
    write(store, b"a", b"b")
    consumer = SqlConsumer(engine, store, STREAM, name="c")

    def fail(connection: sa.Connection, batch: pa.RecordBatch) -> None:
        record(connection, batch)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        consumer.step(fail)
    assert (seen(engine), consumer.position) == ([], store.head(STREAM))
    assert (consumer.step(record), consumer.step(record)) == (2, 0)
    assert (seen(engine), consumer.position) == ([b"a", b"b"], store.tail(STREAM))


def test_two_consumers_with_one_name_share_the_events(engine: sa.Engine, store: Store) -> None:
    """A second process that was started by accident, or to stand by, must not add a reading twice."""
    write(store, *(b"%d" % n for n in range(9)))
    first, second = (SqlConsumer(engine, store, STREAM, name="c", max_bytes=1) for _ in range(2))
    raced = False

    def overtaken(batches: Any) -> Any:  # noqa: ANN401 - the read of one step, before its transaction
        nonlocal raced
        if not raced:
            raced = True
            second.step(record)
        return batches

    read = store.read
    store.read = lambda *args: overtaken(read(*args))  # type: ignore[method-assign]
    while first.step(record) or second.step(record):
        pass
    assert raced
    assert seen(engine) == sorted(b"%d" % n for n in range(9))


def test_a_consumer_holds_back_retention_and_begins_where_it_is_told(engine: sa.Engine, store: Store) -> None:
    """Events that it has not handled must not be removed; a new consumer may not want the past."""
    write(store, b"old")
    tail = store.tail(STREAM)
    consumer = SqlConsumer(engine, store, STREAM, name="c", start=tail)
    assert store.consumers(STREAM) == {"c": tail}
    write(store, b"new")
    SqlConsumer(engine, store, STREAM, name="c").step(record)
    assert seen(engine) == [b"new"]
    assert store.consumers(STREAM) == {"c": consumer.position}


def test_a_stream_of_the_same_name_is_not_taken_for_the_old_one(engine: sa.Engine, store: Store) -> None:
    """Its offsets begin anew: events would be left out in silence."""
    SqlConsumer(engine, store, STREAM, name="c")
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    store.create_stream(STREAM)
    with pytest.raises(BadArgument, match="was deleted: use another name"):
        SqlConsumer(engine, store, STREAM, name="c")


def test_wrong_arguments_are_refused_before_anything_is_created(tmp_path: Path, store: Store) -> None:
    """A table or a consumer that is left behind by a typing error is found years later."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")
    for arguments in ({"name": ""}, {"name": "c" * 256}, {"name": "c", "table": "a b"}, {"name": "c", "max_bytes": 0}):
        with pytest.raises(BadArgument):
            SqlConsumer(engine, store, STREAM, **arguments)
    with pytest.raises(NoSuchStream):
        SqlConsumer(engine, store, "plant/none", name="c")
    with pytest.raises(BadArgument, match="engine"):
        SqlConsumer("sqlite://", store, STREAM, name="c")  # type: ignore[arg-type]
    store.create_stream("plant/keyless", config=penstock.StreamConfig(keep_keys=False))
    with pytest.raises(BadArgument, match="keep_keys"):
        LatestByKey(engine, store, "plant/keyless", table="t")
    assert (sa.inspect(engine).get_table_names(), store.consumers(STREAM)) == ([], {})
    engine.dispose()


def table_of(engine: sa.Engine, view: LatestByKey) -> dict[bytes, bytes | None]:
    with engine.connect() as connection:
        return dict(connection.execute(sa.select(view.table.c.key, view.table.c.event)).all())


def test_the_view_follows_keys_through_splits_and_deletes_them(engine: sa.Engine, store: Store) -> None:
    """A key moves to other segments when a stream is scaled, and its latest event is there."""
    view = LatestByKey(engine, store, STREAM, table="latest")
    write(store, b"1", b"2", b"3", b"", keys=["a", "b", "a", "c"])
    with store.writer(STREAM) as writer:
        writer.write_event(b"without a key")
    assert view.update() == 5
    assert table_of(engine, view) == {b"a": b"3", b"b": b"2"}
    segments = [segment.segment_id for segment in store.stream(STREAM).segments]
    write(store, b"4", b"5", keys=["a", "c"])
    store.scale_stream(STREAM, segments, [(0.0, 0.1), (0.1, 1.0)])
    write(store, b"6", b"", keys=["a", "b"])
    assert view.update() == 4
    assert table_of(engine, view) == {b"a": b"6", b"c": b"5"}
    with engine.connect() as connection:
        rows = connection.execute(sa.select(view.table)).all()
    for row in rows:
        assert store.fetch_event(penstock.EventPointer.parse(row.pointer)) == row.event
    times = {row["timestamp"].timestamp() for batch in store.read(STREAM) for row in batch.to_pylist()}
    assert {row.timestamp for row in rows} <= {round(time * 1000) for time in times}


def test_a_view_whose_table_was_dropped_is_built_anew(engine: sa.Engine, store: Store) -> None:
    """With the old position, the new table would have only the keys that come later."""
    write(store, b"1", keys=["a"])
    view = LatestByKey(engine, store, STREAM, table="latest")
    view.update()
    view.table.drop(engine)
    write(store, b"2", keys=["b"])
    again = LatestByKey(engine, store, STREAM, table="latest")
    assert again.update() == 2
    assert table_of(engine, again) == {b"a": b"1", b"b": b"2"}


def test_a_large_event_is_null_in_the_view_with_its_pointer(tmp_path: Path, store: Store) -> None:
    """A view of videos must not put them into a table, nor into memory."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")
    with store.writer(STREAM) as writer, writer.begin_write_event("cam") as output:
        output.write(bytes(2 << 20))
    view = LatestByKey(engine, store, STREAM, table="latest")
    view.update()
    assert table_of(engine, view) == {b"cam": None}
    with engine.connect() as connection:
        pointer = connection.execute(sa.select(view.table.c.pointer)).scalar_one()
    assert len(store.fetch_event(penstock.EventPointer.parse(pointer))) == 2 << 20
    engine.dispose()


def test_a_stream_that_was_created_again_is_refused_by_an_open_consumer(engine: sa.Engine, store: Store) -> None:
    """Its position would be one of the old stream: the first events of the new one would be passed over."""
    write(store, *(b"old%d" % number for number in range(10)))
    consumer = SqlConsumer(engine, store, STREAM, name="seen")
    assert consumer.step(record) == 10
    store.seal_stream(STREAM)
    store.delete_stream(STREAM)
    store.create_stream(STREAM, segments=2)
    for events in (0, 20, 100):
        write(store, *(b"new%d" % number for number in range(events)))
        with pytest.raises(BadArgument, match="a stream plant/readings that was deleted"):
            consumer.step(record)
    assert all(event.startswith(b"old") for event in seen(engine))


def test_an_engine_without_transactions_is_refused(engine: sa.Engine, store: Store) -> None:
    """The position would move although the handler fails."""
    with pytest.raises(BadArgument, match="AUTOCOMMIT"):
        SqlConsumer(engine.execution_options(isolation_level="AUTOCOMMIT"), store, STREAM, name="seen")


def test_the_table_of_positions_is_no_view(engine: sa.Engine, store: Store) -> None:
    """It has other columns, and others need it."""
    with pytest.raises(BadArgument, match="that of positions"):
        LatestByKey(engine, store, STREAM, table="penstock_positions")


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "rollback after an error"])
def test_a_handler_that_ends_the_transaction_loses_no_event(engine: sa.Engine, store: Store, end: str) -> None:
    """The events behind what it committed, or all that it rolled back, would count as handled."""
    write(store, *(b"%d" % number for number in range(100)), keys=[str(number) for number in range(100)])
    consumer, start = SqlConsumer(engine, store, STREAM, name="c"), store.head(STREAM)

    def handle(connection: sa.Connection, batch: pa.RecordBatch) -> None:
        record(connection, batch)
        if end == "rollback after an error":
            with suppress(sa.exc.DBAPIError):
                connection.execute(sa.text("SELECT * FROM missing"))
            connection.rollback()
        else:
            getattr(connection, end)()

    for _ in range(2):
        with pytest.raises(BadArgument, match="it ended the transaction"):
            consumer.step(handle)
        assert (consumer.position, store.consumers(STREAM)) == (start, {"c": start})
    with engine.begin() as connection:
        connection.execute(sa.delete(SEEN))
    assert consumer.step(record) == 100
    assert seen(engine) == sorted(b"%d" % number for number in range(100))


def test_what_a_database_has_not_committed_is_not_handled(engine: sa.Engine, store: Store) -> None:
    """PostgreSQL ends a transaction in which a statement failed without an error, even if it is told to commit."""
    write(store, b"a", b"b")
    consumer = SqlConsumer(engine, store, STREAM, name="c")

    def handle(connection: sa.Connection, batch: pa.RecordBatch) -> None:
        record(connection, batch)
        with suppress(sa.exc.DBAPIError):
            connection.execute(sa.text("SELECT * FROM missing"))

    with suppress(sa.exc.DBAPIError):
        consumer.step(handle)
    assert consumer.position == (store.tail(STREAM) if seen(engine) else store.head(STREAM))
    assert store.consumers(STREAM) == {"c": consumer.position}


def test_a_handler_may_have_savepoints(engine: sa.Engine, store: Store) -> None:
    """A part that fails can be rolled back by itself: that is how to skip a row that is there already."""
    write(store, b"a", b"b")

    def handle(connection: sa.Connection, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            with suppress(KeyError), connection.begin_nested():
                connection.execute(sa.insert(SEEN), {"event": row["event"]})
                if row["event"] == b"b":
                    raise KeyError

    assert SqlConsumer(engine, store, STREAM, name="c").step(handle) == 2
    assert seen(engine) == [b"a"]
