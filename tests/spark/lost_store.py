"""Stores that are lost under what reads them: a server, and a folder."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import penstock
from penstock.server import Config, Server
from penstock.spark import Progress, archive
from tests.spark.source_harness import STREAM, write_events
from tests.spark.spark_harness import load_stream

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock import Store

__all__ = ["AFTER", "BEFORE", "WAIT_S", "Lost", "Reading", "Service"]

WAIT_S: Final = 120  # for what takes half a minute, and longer on a busy machine
BEFORE: Final = [b"before %d" % number for number in range(100)]
AFTER: Final = [b"after %d" % number for number in range(100)]


def fill(store: Store) -> None:
    store.create_stream(STREAM, segments=2)
    write_events(store, BEFORE)


class Service:
    """A store whose server comes and goes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._server, self._port = folder, ExitStack(), 0
        self.start()
        with penstock.connect(self.address) as store:
            fill(store)

    def start(self) -> None:
        """Serve, where it was served before."""
        config = Config(store=str(self._folder), port=self._port, http_port=0, anonymous=True)
        self.address = self._server.enter_context(Server(config)).address
        self._port = int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        """Serve no more."""
        self._server.close()


class Reading:
    """A query that reads a stream, and what it has seen."""

    def __init__(self, spark: SparkSession, store: Any, checkpoint: Path) -> None:  # noqa: ANN401 - folder or address
        self._spark, self._store, self._checkpoint = spark, store, checkpoint
        self._batches: dict[int, list[bytes]] = {}

    def start(self, **trigger: Any) -> StreamingQuery:  # noqa: ANN401 - as Spark takes them
        """Start the query, or go on with it."""

        def keep(df: DataFrame, batch: int) -> None:
            self._batches[batch] = [bytes(row.event) for row in df.collect()]

        writer = load_stream(self._spark, self._store, STREAM).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def seen(self) -> Counter[bytes]:
        """Return the events that it has seen."""
        return Counter(event for batch in self._batches.values() for event in batch)


class Lost:
    """A job and a query that run, and whose stores are gone: a server, and a folder."""

    def __init__(self, spark: SparkSession, root: Path, threads: ThreadPoolExecutor) -> None:
        self.service, self.table = Service(root / "served"), root / "table"
        arrived = threading.Event()

        def watch(progress: Progress) -> None:
            if progress.rows >= len(BEFORE):
                arrived.set()

        job = threads.submit(archive, spark, self.service.address, STREAM, self.table, follow=True, watch=watch)
        self.job: Final = job
        self.folder: Final = root / "folder"
        self.reading: Final = Reading(spark, self.folder, root / "checkpoint")
        with penstock.connect(self.folder) as store:
            fill(store)
            self.query = self.reading.start()
            self.query.processAllAvailable()
            self.folder.rename(root / "elsewhere")  # before its owner ends: else the query would be its next
        assert arrived.wait(WAIT_S)
        self.service.stop()
