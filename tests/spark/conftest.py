"""One Spark for all tests: it takes seconds to start; and stores that are lost, which takes longer to be noticed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.spark import register
from tests.spark.lost_store import Lost

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock import Store

STREAM = "plant/readings"
MAINTENANCE_INTERVAL_S = 0.05


@pytest.fixture(scope="session")
def spark(python_of_spark: None) -> Iterator[SparkSession]:
    del python_of_spark
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.stopTimeout", "60s")
        .config("spark.log.level", "OFF")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    """A store that this process owns, with a stream of two segments; Spark's processes share it."""
    with penstock.connect(folder, maintenance_interval_s=MAINTENANCE_INTERVAL_S) as store:
        store.create_stream(STREAM, segments=2)
        yield store


@pytest.fixture(scope="session")
def lost(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """A job and a query whose stores are gone: for half a minute they hope, and other tests can go on meanwhile."""
    with ThreadPoolExecutor() as threads:
        lost = Lost(spark, tmp_path_factory.mktemp("lost"), threads)
        yield lost
        lost.query.stop()
        lost.service.stop()
