"""Spark and a server: the driver and the tasks all say who they are."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import argon2
import pytest

from penstock.errors import NotAuthenticated, NotPermitted
from penstock.server._login import login
from penstock.server._service import FlightService
from penstock.server._users import Users
from penstock.spark import open_event
from penstock.spark._errors import told_by
from tests.spark.source_harness import STREAM, write_events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from penstock.stream import StreamStore


@pytest.fixture
def address(store: StreamStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server at which ada may read, and bob may do nothing."""
    cheap = partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(argon2, "PasswordHasher", cheap)
    users = Users.open(tmp_path / "users.json")
    users.add("ada", "hunter2-hunter2")
    users.add("bob", "hunter2-hunter2")
    users.grant("ada", "read", "plant/*")
    service = FlightService(store, "grpc://127.0.0.1:0", guard=partial(login, users))
    try:
        yield f"penstock://127.0.0.1:{service.port}"
    finally:
        service.shutdown()


def test_user_and_password_are_enough_to_read(
    spark: SparkSession, store: StreamStore, address: str, tmp_path: Path
) -> None:
    """A table, and a stream whose query is registered as a consumer; a permission to read is all it takes."""
    written = sorted(write_events(store, [b"a", b"b", b"c"]))

    def with_options(reader: DataFrameReader | DataStreamReader) -> None:
        for name, value in {"store": address, "stream": STREAM, "user": "ada", "password": "hunter2-hunter2"}.items():
            reader.option(name, value)

    with_options(reader := spark.read.format("penstock"))
    rows = reader.load().collect()
    assert sorted(bytes(row.event) for row in rows) == written
    with open_event(rows[0].pointer, address, user="ada", password="hunter2-hunter2") as file:
        assert file.readall() == rows[0].event
    with_options(streaming := spark.readStream.format("penstock"))
    writer = streaming.load().writeStream.format("memory").queryName("of_server").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    assert sorted(bytes(row.event) for row in spark.table("of_server").collect()) == written
    for user, password, kind in [("ada", "wrong", NotAuthenticated), ("bob", "hunter2-hunter2", NotPermitted)]:
        with_options(refused := spark.read.format("penstock"))
        with pytest.raises(Exception, match=kind.__name__) as caught:
            refused.option("user", user).option("password", password).load()
        assert type(told_by(caught.value)) is kind
        assert "hunter2" not in str(caught.value)
