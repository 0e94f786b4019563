"""Spark and a server: who asks is known, plans come over the wire, and events from files where they are in reach."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException

import penstock
from penstock.errors import BadArgument, NotAuthenticated, NotPermitted, StoreUnreachable
from penstock.server import Config, Server
from penstock.server._service import FlightService
from penstock.server._users import Users
from penstock.spark import archive, windows, with_writer_watermark
from penstock.spark._errors import told_by
from tests.spark.conftest import MAINTENANCE_INTERVAL_S, STREAM
from tests.spark.spark_harness import event_time, load_stream, note_all, running, write_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock import Store
    from penstock.wire.operations import Permission

OUT: Final = "plant/out"
EVENTS: Final = [b"%d" % number * 100 for number in range(2000)]
PASSWORD: Final = "correct horse"
FOLDER_FD: Final = 1900  # which no other process has


class Service:
    """A server with users, and how often it has sent events because the files were not in reach."""

    def __init__(self, server: Server, users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
        self.address, self._users = server.address, users
        self.sent = 0
        send = FlightService._blocks

        def counted(*args: Any) -> object:  # noqa: ANN401 - as they come
            self.sent += 1
            return send(*args)

        monkeypatch.setattr(FlightService, "_blocks", counted)

    def options(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        """Return the options of somebody who has a password."""
        return {"store": self.address, "user": user, "password": password}

    def by_token(self, user: str) -> dict[str, str]:
        """Return the options of somebody who has a token."""
        return {"store": self.address, "token": self._users.token(user, 3600)}

    def grant(self, user: str, permission: Permission, pattern: str) -> None:
        """Grant a user something more."""
        self._users.grant(user, permission, pattern)

    def store(self) -> Store:
        """Open the store as somebody who may do everything."""
        return penstock.connect(self.address, user="admin", password=PASSWORD)


def new_service(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Serve a folder to an admin, to one who may only read, and to one who may only write."""
    users = Users.open(path / "users.json")
    for name, permission, pattern in (("admin", "admin", "*"), ("anna", "read", STREAM), ("bert", "write", OUT)):
        users.add(name, PASSWORD)
        users.grant(name, permission, pattern)  # type: ignore[arg-type]
    with Server(Config(store=str(path), port=0, http_port=0, maintenance_interval_s=MAINTENANCE_INTERVAL_S)) as server:
        service = Service(server, users, monkeypatch)
        with service.store() as store:
            store.create_stream(STREAM, segments=2)
            store.create_stream(OUT, segments=2)
        yield service


@pytest.fixture
def service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    folder.mkdir()
    yield from new_service(folder, monkeypatch)


@pytest.fixture
def far_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A server that has its folder under a path that leads nowhere in any other process, as on another machine."""
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.dup2(fd, FOLDER_FD, inheritable=False)
    try:
        yield from new_service(Path(f"/proc/self/fd/{FOLDER_FD}"), monkeypatch)
    finally:
        os.close(fd)
        os.close(FOLDER_FD)


def fill(service: Service) -> None:
    """Write the events that are read."""
    with service.store() as store, store.writer(STREAM) as writer:
        writer.write_batch(EVENTS, keys=[str(number) for number in range(len(EVENTS))])


def table(spark: SparkSession, options: dict[str, str], stream: str = STREAM) -> DataFrame:
    """Return a stream as a table."""
    return spark.read.format("penstock").options(**options).option("stream", stream).load()


def events_in(df: DataFrame) -> Counter[bytes]:
    """Return the events of a table."""
    return Counter(bytes(row.event) for row in df.select("event").collect())


def test_files_within_reach_are_read_by_executors(spark: SparkSession, service: Service) -> None:
    """That holds for planning and reading, with a password or a token; the server has sent no event."""
    fill(service)
    for options in (service.options("anna"), service.by_token("anna")):
        assert events_in(table(spark, options)) == Counter(EVENTS)
    assert service.sent == 0


def test_files_out_of_reach_are_sent(spark: SparkSession, far_service: Service) -> None:
    """The same rows, from a folder that Spark's processes do not find."""
    fill(far_service)
    assert events_in(table(spark, far_service.options("anna"))) == Counter(EVENTS)
    assert far_service.sent > 0


def save(spark: SparkSession, options: dict[str, str]) -> None:
    """Write a table."""
    rows = spark.range(20_000, numPartitions=2).selectExpr("concat(id, repeat('.', 50)) AS event", "'k' AS key")
    writer = rows.write.format("penstock").mode("append").options(**options)
    writer.option("stream", OUT).option("key", "key").save()


def test_tables_are_written(spark: SparkSession, service: Service) -> None:
    """By somebody who may write there, and nothing else."""
    for options in (service.options("bert"), service.by_token("bert")):
        save(spark, options)
    with service.store() as store:
        found = Counter(event for batch in store.read(OUT) for event in batch.column("event").to_pylist())
    assert found == Counter({b"%d" % number + b"." * 50: 2 for number in range(20_000)})


def copy_all(spark: SparkSession, source: dict[str, str], sink: dict[str, str], checkpoint: Path) -> None:
    """Copy a stream to another, as far as it is there."""
    reader = spark.readStream.format("penstock").options(**source).option("stream", STREAM)
    rows = reader.option("max_events_per_trigger", "1000").load().where("event IS NOT NULL").select("event")
    writer = rows.writeStream.format("penstock").options(**sink).option("stream", OUT)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("kind", ["service", "far_service"])
def test_a_query_copies_each_event_once(
    spark: SparkSession, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """From one who may read to one who may write, in batches, and again from its checkpoint; near or far."""
    service: Service = request.getfixturevalue(kind)
    fill(service)
    for _ in range(2):
        copy_all(spark, service.options("anna"), service.by_token("bert"), tmp_path / "checkpoint")
    with service.store() as store:
        found = Counter(event for batch in store.read(OUT) for event in batch.column("event").to_pylist())
    assert found == Counter(EVENTS)
    assert bool(service.sent) == (kind == "far_service")


def test_jobs_run_on_a_server(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    """The credentials are given once; only a place for the checkpoint is needed, where the store has no folder."""
    who = service.options("admin")
    address = who.pop("store")
    with service.store() as store:
        writer = store.writer(STREAM, "w")
        note_all(store, STREAM, 0.001, writer)
        write_at(writer, 1, 2, 11)
        note_all(store, STREAM, 15, writer)

        def count(checkpoint: Path | None) -> int:
            options = who | {"format": "json", "json_schema": "at bigint"}
            return windows(
                spark, address, STREAM, time="timestamp_millis(at)", length="10 seconds", into=OUT,
                checkpoint=checkpoint, options=options,
            ).rows  # fmt: skip

        with pytest.raises(BadArgument, match="name a folder for the job's checkpoint"):
            count(None)
        assert count(tmp_path / "c") == 3
        [event] = [event for batch in store.read(OUT) for event in batch.column("event").to_pylist()]
        assert json.loads(event)["events"] == 2
        while (mark := store.watermark(OUT)) is None or mark.lower < 15_000:
            store.maintain()
    assert archive(spark, address, STREAM, tmp_path / "table", options=who).rows == 3


def test_time_is_what_the_writers_promise(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    """Their writers are elsewhere, and so is Spark: the server knows."""
    with service.store() as store, store.writer(STREAM, "a") as a, store.writer(STREAM, "b") as b:
        note_all(store, STREAM, 0.001, a, b)
        options = service.by_token("anna")
        df = load_stream(spark, options.pop("store"), STREAM, **options)  # type: ignore[arg-type]
        timed = with_writer_watermark(df, "time", event_time())
        counts = timed.groupBy("time").count()
        with running(counts, "served", tmp_path / "checkpoint") as query:
            write_at(a, 9, 3)
            write_at(b, 1)
            note_all(store, STREAM, 5, a, b)
            while (last := query.lastProgress) is None or last.eventTime.get("watermark") != "1970-01-01T00:00:05.000Z":
                query.processAllAvailable()
            times = [row.time.timestamp() for row in spark.table("served").collect()]
    assert sorted(times) == [1, 3]


REFUSALS: Final[dict[str, tuple[Callable[[Service], dict[str, str]], type[Exception], str]]] = {
    "password": (lambda service: service.options("anna", "wrong"), NotAuthenticated, "is wrong"),
    "nobody": (lambda service: {"store": service.address}, NotAuthenticated, ""),
    "token": (lambda service: {"store": service.address, "token": "0123.4567"}, NotAuthenticated, ""),
    "port": (lambda service: service.options("anna") | {"store": "penstock://127.0.0.1:9"}, StoreUnreachable, ":9"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_who_is_not_known_is_told_so(spark: SparkSession, service: Service, tmp_path: Path, why: str) -> None:
    """In one error of ours, whatever was to be done."""
    make, kind, words = REFUSALS[why]
    options, good = make(service), service.options("admin")
    acts: list[Callable[[], object]] = [
        lambda: table(spark, options),
        lambda: save(spark, options),
        lambda: copy_all(spark, options, good, tmp_path / "one"),
        lambda: copy_all(spark, good, options, tmp_path / "two"),
    ]
    for act in acts[:3] if why == "port" else acts:  # a sink waits half a minute for its server
        fill(service)
        with pytest.raises(PySparkException) as failed:
            act()
        told = told_by(failed.value)
        assert isinstance(told, kind)
        assert words in str(told)
        assert PASSWORD not in str(failed.value)


def test_a_query_of_a_user_who_may_only_read_changes_nothing(
    spark: SparkSession, service: Service, tmp_path: Path
) -> None:
    """A registered consumer decides what is kept, so it takes a permission; a query with a name asks for one."""
    fill(service)
    anna, bert = map(service.options, ("anna", "bert"))
    copy_all(spark, anna, bert, tmp_path / "one")
    with service.store() as store:
        assert store.consumers(STREAM) == {}
        with pytest.raises(PySparkException) as failed:
            copy_all(spark, anna | {"consumer": "copy"}, bert, tmp_path / "two")
        assert isinstance(told_by(failed.value), NotPermitted)
        service.grant("anna", "consume", STREAM)
        copy_all(spark, anna | {"consumer": "copy"}, bert, tmp_path / "two")
        assert store.consumers(STREAM).keys() == {"copy"}


def test_what_is_not_granted_is_refused(spark: SparkSession, service: Service, tmp_path: Path) -> None:
    """A user who may read does not write, and the other way round; the error names the stream."""
    fill(service)
    anna, bert, admin = map(service.options, ("anna", "bert", "admin"))
    for act, words in (
        (lambda: table(spark, bert), STREAM),
        (lambda: table(spark, anna, OUT), OUT),
        (lambda: save(spark, anna), OUT),
        (lambda: copy_all(spark, bert, admin, tmp_path / "one"), STREAM),
        (lambda: copy_all(spark, admin, anna, tmp_path / "two"), OUT),
    ):
        with pytest.raises(PySparkException) as failed:
            act()
        told = told_by(failed.value)
        assert isinstance(told, NotPermitted)
        assert words in str(told)
    with service.store() as store:
        assert not [batch for batch in store.read(OUT) if len(batch)]
