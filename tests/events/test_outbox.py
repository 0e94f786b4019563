"""Events of database transactions reach their stream exactly once, in the order of the commits."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import penstock
from penstock.errors import BadArgument, WriterFenced
from penstock.events import _outage, outbox
from penstock.events.outbox import OutboxRelay, add_xfer_event, create_outbox
from penstock.model import Fixed, StreamConfig
from tests.sampling import EXPLORES
from tests.server.apart import free_port, server_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

    from penstock import Store
    from penstock.server import Server
    from tests.postgres import Postgres

STREAM = "shop/orders"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    postgres: Postgres = request.getfixturevalue("postgres")
    emptied(postgres)
    return postgres.url


def emptied(postgres: Postgres) -> None:
    engine = sa.create_engine(postgres.url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    """The application's database, with an outbox."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        create_outbox(connection)
        create_outbox(connection)
    yield engine
    engine.dispose()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a stream."""
    with penstock.connect(tmp_path / "store") as store:
        store.create_stream(STREAM, config=StreamConfig(scaling=Fixed(1)))
        yield store


def add(engine: sa.Engine, *numbers: int) -> None:
    with engine.begin() as connection:
        for number in numbers:
            add_xfer_event(connection, "ORDER", {"n": number})


def events_of(store: Store) -> list[dict[str, Any]]:
    return [json.loads(event) for batch in store.read(STREAM) for event in batch["event"].to_pylist()]


def numbers_in(store: Store) -> list[int]:
    return [event["data"]["n"] for event in events_of(store)]


def rows_of(engine: sa.Engine, table: str = outbox.TABLE) -> int:
    with engine.connect() as connection:
        return connection.exec_driver_sql(f'SELECT count(*) FROM "{table}"').scalar_one()  # type: ignore[no-any-return]


def test_committed_events_are_moved_and_others_never(engine: sa.Engine, store: Store) -> None:
    """An event of an order that was rolled back would be an order that was never placed."""
    add(engine, 1, 2)
    with engine.connect() as connection:
        add_xfer_event(connection, "ORDER", {"n": 3})
        connection.rollback()
    add(engine, 4)
    with OutboxRelay(engine, store, STREAM) as relay:
        assert relay.move() == 3
        assert relay.move() == 0
    first = events_of(store)[0]
    assert first.keys() == {"type", "ts", "data"}
    assert first["type"] == "ORDER"
    assert numbers_in(store) == [1, 2, 4]
    assert rows_of(engine) == 0


def test_order_is_that_of_the_commits_on_postgresql(postgres: Postgres, store: Store) -> None:
    """A transaction that inserts first may commit last; what a relay has seen by then must not pass it."""
    emptied(postgres)
    engine = sa.create_engine(postgres.url)
    with engine.begin() as connection:
        create_outbox(connection)
    with OutboxRelay(engine, store, STREAM) as relay, engine.connect() as slow:
        add_xfer_event(slow, "ORDER", {"n": 2})
        add(engine, 1)
        assert relay.move() == 1
        slow.commit()
        add(engine, 3)
        assert relay.move() == 2
    engine.dispose()
    assert numbers_in(store) == [1, 2, 3]


def test_many_transactions_at_once_lose_nothing_on_postgresql(postgres: Postgres, store: Store) -> None:
    """Positions that became visible out of order would leave rows behind that no relay looks at again."""
    emptied(postgres)
    engine = sa.create_engine(postgres.url)
    with engine.begin() as connection:
        create_outbox(connection)
    with OutboxRelay(engine, store, STREAM) as relay, running(relay) as wait_for, ThreadPoolExecutor(4) as threads:
        for worker in [threads.submit(_add_many, engine, first) for first in range(0, 400, 100)]:
            worker.result()
        wait_for(lambda: relay.moved == 400)
    engine.dispose()
    found = numbers_in(store)
    assert sorted(found) == list(range(400))
    for first in range(0, 400, 100):
        assert [n for n in found if first <= n < first + 100] == list(range(first, first + 100))


def _add_many(engine: sa.Engine, first: int) -> None:
    for number in range(first, first + 100):
        add(engine, number)


@contextmanager
def running(relay: OutboxRelay) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Run a relay in a thread; yield how to wait until something holds, which fails with the relay."""
    stop, pause = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(relay.run, stop)

        def wait_for(condition: Callable[[], object]) -> None:
            while not condition():
                if done.done():
                    done.result()
                pause.wait(0.01)

        try:
            yield wait_for
        finally:
            stop.set()
        done.result()


def _relay_until(step: int, url: str, folder: str) -> None:
    """Move all rows, in a process of its own; be killed before a line of ``move``, the first time it is run."""
    lines = set[int]()

    def traced(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename != outbox.__file__:
            return None
        if event == "line":
            lines.add(frame.f_lineno)
            if len(lines) == step:
                os.kill(os.getpid(), signal.SIGKILL)
        return traced

    engine = sa.create_engine(url)
    with penstock.connect(folder) as store, OutboxRelay(engine, store, STREAM) as relay:
        sys.settrace(traced)  # type: ignore[arg-type]
        relay.move()
        sys.settrace(None)


def test_relay_that_is_killed_anywhere_moves_each_event_once(
    engine: sa.Engine, url: str, store: Store, tmp_path: Path
) -> None:
    """Between the write to the stream and the delete in the database there is always a moment."""
    store.close()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__, "penstock.embedded"])
    wanted: list[int] = []
    for step in count(1, 1 if EXPLORES else 3):
        wanted += [2 * step, 2 * step + 1]
        add(engine, *wanted[-2:])
        process = processes.Process(target=_relay_until, args=(step, url, str(tmp_path / "store")))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert step > 8
    with penstock.connect(tmp_path / "store") as again:
        assert numbers_in(again) == wanted
    assert rows_of(engine) == 0


def test_newest_of_two_relays_moves(engine: sa.Engine, store: Store) -> None:
    """The one before it may only have been slow: it ends without having moved an event twice."""
    with OutboxRelay(engine, store, STREAM) as old:
        add(engine, 1)
        assert old.move() == 1
        add(engine, 2)
        with OutboxRelay(engine, store, STREAM) as new:
            with pytest.raises(WriterFenced):
                old.run(threading.Event())
            assert new.move() == 1
    assert numbers_in(store) == [1, 2]


def test_postgresql_wakes_the_relay(postgres: Postgres, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event should not wait for the next look: here that would never come."""
    monkeypatch.setattr(outbox, "_LONGEST_S", 1e6)
    emptied(postgres)
    engine = sa.create_engine(postgres.url)
    with engine.begin() as connection:
        create_outbox(connection, "Order_Events")
    add_xfer = partial(add_xfer_event, table="Order_Events")
    with engine.begin() as connection:
        add_xfer(connection, "ORDER", {"n": 0})
    with OutboxRelay(engine, store, STREAM, "Order_Events") as relay, running(relay) as wait_for:
        wait_for(lambda: relay.moved == 1)
        with engine.begin() as connection:
            add_xfer(connection, "ORDER", {"n": 1})
        wait_for(lambda: relay.moved == 2)
    engine.dispose()
    assert numbers_in(store) == [0, 1]


def test_relay_goes_on_when_the_database_is_back_on_postgresql(postgres: Postgres, store: Store) -> None:
    """Databases are restarted; the relays must not need a restart for that, too."""
    emptied(postgres)
    engine = sa.create_engine(postgres.url, pool_pre_ping=True)
    with engine.begin() as connection:
        create_outbox(connection)
    with OutboxRelay(engine, store, STREAM) as relay, running(relay) as wait_for:
        add(engine, 1)
        wait_for(lambda: relay.moved == 1)
        postgres.stop()
        postgres.start()
        add(engine, 2)
        wait_for(lambda: relay.moved == 2)
    engine.dispose()
    assert numbers_in(store) == [1, 2]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("order", 1),
        ("ORDER\n", 1),
        ("", 1),
        ("ORDER", float("nan")),
        ("ORDER", "\ud800"),
        ("ORDER", b"bytes"),
        ("ORDER", {1, 2}),
        ("ORDER", "x" * 70_000),
    ],
    ids=["lower case", "newline", "empty", "nan", "surrogate", "bytes", "set", "large"],
)
def test_event_that_no_reader_could_get_is_refused_in_the_transaction(
    engine: sa.Engine, kind: str, data: object
) -> None:
    """The caller can still roll back; later it would be too late."""
    with engine.begin() as connection:
        with pytest.raises(BadArgument, match="invalid event"):
            add_xfer_event(connection, kind, data)
        add_xfer_event(connection, "ORDER", None)
    assert rows_of(engine) == 1


@pytest.mark.parametrize("table", ['a"b', "a;b", "", "1a", "x" * 49, "a\n", "ä"])
def test_name_that_is_not_a_plain_one_is_refused(table: str) -> None:
    """It becomes part of SQL statements."""
    with sa.create_engine("sqlite://").connect() as connection:
        for call in (create_outbox, lambda c, t: add_xfer_event(c, "A", 1, t)):
            with pytest.raises(BadArgument, match="invalid table name"):
                call(connection, table)


def test_missing_table_is_named(store: Store, tmp_path: Path) -> None:
    """A relay that waits for a table that does not exist would look as if there were no events."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/empty.db")
    with pytest.raises(BadArgument, match="there is no database"):
        OutboxRelay(engine, store, STREAM)
    tmp_path.joinpath("empty.db").touch(exist_ok=False)
    with pytest.raises(BadArgument, match="no table evt_outbox: create it"):
        OutboxRelay(engine, store, STREAM)
    engine.dispose()


def test_table_that_is_made_again_has_new_positions(engine: sa.Engine, store: Store) -> None:
    """The stream would take positions that begin at 1 again for events that it has, and they would be lost."""
    for number in (1, 2):
        add(engine, number)
        with OutboxRelay(engine, store, STREAM) as relay:
            assert relay.move() == 1
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE evt_outbox")
            if engine.dialect.name == "postgresql":
                connection.exec_driver_sql("DROP SEQUENCE evt_outbox_positions")
                connection.exec_driver_sql("DROP FUNCTION evt_outbox_commit")
            create_outbox(connection)
    assert numbers_in(store) == [1, 2]


def test_relay_writes_to_a_server(server: Server, tmp_path: Path) -> None:
    """Most relays run beside the application, far from the store."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        create_outbox(connection)
    add(engine, *range(1_500))
    with penstock.connect(f"penstock://127.0.0.1:{server.port}") as store:
        store.create_stream(STREAM, config=StreamConfig(scaling=Fixed(1)))
        with OutboxRelay(engine, store, STREAM) as relay:
            assert relay.move() == 1_000
            assert relay.move() == 500
        assert numbers_in(store) == list(range(1_500))
    engine.dispose()


def test_relay_goes_on_when_its_server_was_killed(tmp_path: Path) -> None:
    """A server that dies under the relay takes no event with it, and gets none twice."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        create_outbox(connection)
    serve = partial(server_apart, tmp_path / "store", anonymous=True, port=free_port())
    with ExitStack() as stack, ThreadPoolExecutor(1) as threads:
        with serve() as (port, _):
            store = stack.enter_context(penstock.connect(f"penstock://127.0.0.1:{port}"))
            store.create_stream(STREAM, config=StreamConfig(scaling=Fixed(1)))
            relay = stack.enter_context(OutboxRelay(engine, store, STREAM))
            wait_for = stack.enter_context(running(relay))
            adding = threads.submit(_add_many, engine, 0)
            wait_for(lambda: relay.moved)
        with serve():
            adding.result()
            wait_for(lambda: rows_of(engine) == 0)
            assert numbers_in(store) == list(range(100))
            stack.close()
    engine.dispose()


def test_database_that_fails_before_rows_are_deleted_gets_them_moved_once(store: Store, tmp_path: Path) -> None:
    """The stream has the events by then: the same relay finds the rows again, and must not add them again."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        create_outbox(connection)
    failures = iter([True, True])

    @sa.event.listens_for(engine, "before_cursor_execute")
    def fail(*arguments: Any) -> None:  # noqa: ANN401 - as SQLAlchemy calls it
        if arguments[2].startswith("DELETE") and next(failures, False):
            raise sa.exc.OperationalError("DELETE", {}, Exception("the server closed the connection"))

    add(engine, 1, 2)
    with OutboxRelay(engine, store, STREAM) as relay, running(relay) as wait_for:
        wait_for(lambda: relay.moved == 2)
        add(engine, 3)
        wait_for(lambda: relay.moved == 3)
    engine.dispose()
    assert numbers_in(store) == [1, 2, 3]


def test_database_that_stays_away_ends_the_relay_with_the_error(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has to look at it: a relay that waits for ever looks as if there were no events."""
    monkeypatch.setattr(_outage, "PATIENCE_S", 0.05)
    engine = sa.create_engine(f"sqlite:///{tmp_path}/shop.db")
    with engine.begin() as connection:
        create_outbox(connection)
    with OutboxRelay(engine, store, STREAM) as relay:
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE evt_outbox")
        with pytest.raises(sa.exc.OperationalError, match="no such table"):
            relay.run(threading.Event())
    engine.dispose()
