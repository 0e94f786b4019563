"""Handlers, stores and tables that the patterns cannot work with: nothing is taken, and nothing counts as handled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from penstock import aio
from penstock.errors import BadArgument
from penstock.patterns import LatestByKey, SqlConsumer, WorkQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from penstock import Store

STREAM = "office/letters"


@pytest.fixture
def store(empty_store: Store) -> Store:
    empty_store.create_stream(STREAM)
    with empty_store.writer(STREAM) as writer:
        writer.write_event(b"a", key="k")
    return empty_store


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[sa.Engine]:
    """An empty database."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")
    yield engine
    engine.dispose()


async def coroutine(*_: object) -> None:
    """Nothing."""


def generator(*_: object) -> Iterator[None]:
    yield


async def async_generator(*_: object) -> AsyncIterator[None]:
    yield


class Later:
    async def __call__(self, *_: object) -> None:
        """Nothing."""


NO_HANDLERS: list[Any] = [None, "nothing", 5, coroutine, generator, async_generator, Later()]
DEFERRED: list[Any] = [lambda *_: coroutine(), lambda *_: generator(), lambda *_: async_generator()]
NO_EVENTS: list[Any] = [None, 0, True, "x", threading.Event, asyncio.Event()]


@pytest.mark.parametrize("handle", NO_HANDLERS)
def test_no_job_is_taken_for_a_handler_that_does_not_run(store: Store, handle: Any) -> None:  # noqa: ANN401
    """Every job would be done, or dead, without anybody having looked at it."""
    queue = WorkQueue(store, STREAM, group="mail", attempts=1)
    with queue.worker("w") as worker:
        with pytest.raises(BadArgument, match="handle"):
            worker.step(handle, timeout=0)
        with pytest.raises(BadArgument, match="handle"):
            worker.run(handle, threading.Event())
        assert (worker.step(lambda _: None, timeout=0), worker.step(lambda _: None, timeout=0)) == ("done", None)


@pytest.mark.parametrize("handle", DEFERRED)
def test_a_job_whose_handler_returns_what_is_to_be_awaited_is_not_done(
    store: Store,
    handle: Any,  # noqa: ANN401
) -> None:
    """The job is the next one again, for a handler that runs; and it has not failed, either."""
    queue = WorkQueue(store, STREAM, group="mail", attempts=1)
    with queue.worker("w") as worker:
        for _ in range(2):
            with pytest.raises(BadArgument, match="did not run"):
                worker.step(handle, timeout=0)
        assert (worker.step(lambda _: None, timeout=0), worker.step(lambda _: None, timeout=0)) == ("done", None)


@pytest.mark.parametrize("handle", NO_HANDLERS + DEFERRED)
def test_a_consumer_stays_where_it_is_for_a_handler_that_does_not_run(
    store: Store,
    engine: sa.Engine,
    handle: Any,  # noqa: ANN401
) -> None:
    """Its position would be behind events that nobody has handled."""
    consumer = SqlConsumer(engine, store, STREAM, name="c")
    with pytest.raises(BadArgument, match="handle"):
        consumer.step(handle)
    with pytest.raises(BadArgument, match="handle"):
        consumer.run(handle, threading.Event())
    assert consumer.step(lambda *_: None) == 1


@pytest.mark.parametrize("stop", NO_EVENTS)
def test_a_run_that_nothing_could_stop_does_not_begin(store: Store, engine: sa.Engine, stop: Any) -> None:  # noqa: ANN401
    """It would fail in the middle, or never look whether it has to end."""
    handled: list[object] = []
    with WorkQueue(store, STREAM, group="mail").worker("w") as worker, pytest.raises(BadArgument, match="stop"):
        worker.run(handled.append, stop)
    with pytest.raises(BadArgument, match="stop"):
        SqlConsumer(engine, store, STREAM, name="c").run(lambda *found: handled.append(found), stop)
    with pytest.raises(BadArgument, match="stop"):
        LatestByKey(engine, store, STREAM, table="t").run(stop)
    assert handled == []


@pytest.mark.parametrize("wrong", [None, 0, "plant/readings", object(), [], aio.AsyncStore])
def test_a_store_or_an_engine_of_another_kind_is_refused(store: Store, engine: sa.Engine, wrong: Any) -> None:  # noqa: ANN401
    """The address of a store is not a store yet."""
    for call in (
        lambda: WorkQueue(wrong, STREAM, group="mail"),
        lambda: SqlConsumer(engine, wrong, STREAM, name="c"),
        lambda: LatestByKey(engine, wrong, STREAM, table="t"),
    ):
        with pytest.raises(BadArgument, match="invalid store"):
            call()
    with pytest.raises(BadArgument, match="invalid engine"):
        LatestByKey(wrong, store, STREAM, table="t")
    assert sa.inspect(engine).get_table_names() == []


def test_a_store_of_asyncio_is_refused(engine: sa.Engine) -> None:
    """Nobody awaits its calls: a queue would be created without its streams."""

    async def main() -> None:
        async with aio.connect("memory:") as store:
            wrong: Any = store
            with pytest.raises(BadArgument, match=r"penstock\.connect"):
                WorkQueue(wrong, STREAM, group="mail")
            with pytest.raises(BadArgument, match=r"penstock\.connect"):
                SqlConsumer(engine, wrong, STREAM, name="c")

    asyncio.run(main())


@pytest.mark.parametrize("start", [[], (), {}, b"head", 1.5])
def test_a_queue_that_begins_nowhere_leaves_no_streams_behind(store: Store, start: Any) -> None:  # noqa: ANN401
    """An empty list of cuts was taken for the head."""
    with pytest.raises(BadArgument, match="invalid start"):
        WorkQueue(store, STREAM, group="mail", start=start)
    assert ([info.name for info in store.streams()], store.reader_groups()) == ([STREAM], [])


def test_a_table_has_the_keys_of_one_stream(store: Store, engine: sa.Engine) -> None:
    """With two, the same key of both would be one row, and nobody could say whose."""
    store.create_stream("office/parcels")
    view = LatestByKey(engine, store, STREAM, table="latest")
    assert view.update() == 1
    with pytest.raises(BadArgument, match=f"that of stream {STREAM}"):
        LatestByKey(engine, store, "office/parcels", table="latest")
    assert store.consumers("office/parcels") == {}
    assert LatestByKey(engine, store, STREAM, table="latest").update() == 0
    view.table.drop(engine)
    assert LatestByKey(engine, store, "office/parcels", table="latest").update() == 0


def test_a_table_with_other_columns_is_left_alone(store: Store, engine: sa.Engine) -> None:
    """It is somebody else's, and has its name by chance."""
    tables = sa.MetaData()
    sa.Table("users", tables, sa.Column("name", sa.Text))
    columns = (sa.Column(name, sa.Text) for name in ("key", "event", "timestamp", "pointer"))
    sa.Table("log", tables, *columns)  # whose key may be there twice
    tables.create_all(engine)
    for table in ("users", "log"):
        with pytest.raises(BadArgument, match=f"the table {table} is there already"):
            LatestByKey(engine, store, STREAM, table=table)
        with pytest.raises(BadArgument, match=f"the table {table} is there already"):
            SqlConsumer(engine, store, STREAM, name="c", table=table)
    assert sorted(sa.inspect(engine).get_table_names()) == ["log", "users"]
    assert store.consumers(STREAM) == {}
