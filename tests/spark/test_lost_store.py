"""A store that is lost under a running query: it is waited for, then the query ends; where it ended, it goes on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import penstock
from penstock.errors import StoreUnreachable
from penstock.spark import archive
from tests.spark.lost_store import AFTER, BEFORE, WAIT_S, Lost, Reading, Service
from tests.spark.source_harness import STREAM, refused, write_events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("lost")  # which are waited for meanwhile
def test_a_server_that_comes_back_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """As when it is started anew: the query goes on as if nothing had happened."""
    service = Service(tmp_path / "data")
    reading = Reading(spark, service.address, tmp_path / "checkpoint")
    query = reading.start()
    query.processAllAvailable()
    service.stop()
    service.start()
    with penstock.connect(service.address) as store:
        write_events(store, AFTER)
    query.processAllAvailable()
    query.stop()
    service.stop()
    assert reading.seen() == Counter(BEFORE + AFTER)


def test_a_job_whose_server_stays_away_says_so_and_goes_on_later(spark: SparkSession, lost: Lost) -> None:
    """In one sentence, of ours; nothing is lost, and nothing there twice."""
    address = lost.service.address
    with pytest.raises(StoreUnreachable, match=f"^cannot reach the store at {address}: .*$"):
        lost.job.result(WAIT_S)
    lost.service.start()
    with penstock.connect(address) as store:
        write_events(store, AFTER)
    archive(spark, address, STREAM, lost.table)
    rows = ds.dataset(lost.table, partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    assert Counter(rows.column("event").to_pylist()) == Counter(BEFORE + AFTER)


def test_a_query_whose_folder_is_removed_says_so_and_goes_on_later(lost: Lost) -> None:
    """It makes no empty store in its place, which would look as if there was nothing to read."""
    with refused(StoreUnreachable, str(lost.folder), "the store is not in its folder any more"):
        lost.query.awaitTermination(WAIT_S)
    assert not lost.folder.exists()
    (lost.folder.parent / "elsewhere").rename(lost.folder)
    with penstock.connect(lost.folder) as store:
        write_events(store, AFTER)
        lost.reading.start(availableNow=True).awaitTermination()
    assert lost.reading.seen() == Counter(BEFORE + AFTER)
