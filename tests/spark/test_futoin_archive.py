"""Archives of FutoIn events that a job has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import penstock
from penstock.events import StoreEvents
from penstock.server import Config, Server
from penstock.spark import archive
from tests.events.wire import call, message_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STREAM = "plant/events"


def test_archive_that_spark_has_written_answers_polls(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Its batches have several files, whose rows are not in order; a batch that Spark did not finish is not read."""
    table = tmp_path / "archive" / STREAM
    with penstock.connect(folder) as store:
        store.create_stream(STREAM)
        events = StoreEvents(store, STREAM)
        ids = [events.add("A", number) for number in range(60)]
        done = archive(
            spark, folder, STREAM, table, date="date_add(date'2026-11-15', cast(offset % 2 AS int))",
            options={"max_events_per_trigger": "25", "min_partitions": "3"},
        )  # fmt: skip
        assert (done.batches, done.rows) == (3, 60)
        store.truncate_stream(STREAM, store.tail(STREAM))
        ids.append(events.add("A", 60))
    settings = Config(store=str(folder), futoin_archive=str(tmp_path / "archive"), anonymous=True, port=0, http_port=0)
    poll = message_of("evt.poll:1.1:pollEvents", component="LIVE")
    with Server(settings) as server:
        found = call(server, poll, f"/futoin/{STREAM}")["r"]
        assert [(int(event["id"]), event["data"]) for event in found] == [*zip(ids, range(61), strict=True)]
        poll["p"]["last_id"] = str(ids[40])
        found = call(server, poll, f"/futoin/{STREAM}")["r"]
        assert [event["data"] for event in found] == [*range(41, 61)]
    max((table / "_checkpoint" / "commits").glob("[0-9]")).unlink()
    with Server(settings) as server:
        found = call(server, poll, f"/futoin/{STREAM}")["r"]
        assert [event["data"] for event in found] == [*range(41, 50), 60]
