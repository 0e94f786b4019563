"""What a session is told first, also one of Spark Connect, which has no context."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import BadArgument
from penstock.spark import register
from penstock.spark._repository import RepositorySource
from penstock.spark._source import PenstockSource
from tests.spark.source_harness import STREAM, load_table, write_events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock import Store

PUSH_FILTERS = "spark.sql.python.filterPushdown.enabled"


class Settings(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value


def session_of_connect(push_filters: str) -> Any:  # noqa: ANN401 - stands in for one of Spark
    known: list[type] = []
    return SimpleNamespace(
        known=known, dataSource=SimpleNamespace(register=known.append), conf=Settings({PUSH_FILTERS: push_filters})
    )


def test_a_session_of_spark_connect_gets_the_source_and_its_filters() -> None:
    """It is what declarative pipelines run in."""
    session = session_of_connect("false")
    register(session)
    assert session.known == [PenstockSource, RepositorySource]
    assert session.conf == {PUSH_FILTERS: "true"}


def test_nothing_is_set_that_is_set_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The definitions of a declarative pipeline may set nothing; its configuration can."""
    session = session_of_connect("true")
    monkeypatch.setattr(Settings, "set", None)
    register(session)
    assert session.known == [PenstockSource, RepositorySource]


def test_a_session_is_told_of_the_sources_once() -> None:
    """Spark warns of a source that replaces another one, and each job registers them, as its user does."""
    session = session_of_connect("true")
    for _ in range(2):
        register(session)
    assert session.known == [PenstockSource, RepositorySource]


def test_a_store_for_tasks_needs_a_context() -> None:
    """Else tasks would be told of it only when they fail."""
    with pytest.raises(BadArgument, match="open_event"):
        register(session_of_connect("true"), "./data")


def test_any_thread_can_write_to_a_stream(spark: SparkSession, store: Store, folder: Path, tmp_path: Path) -> None:
    """Spark by itself finds no sink in a thread that did not make the session, as those that run jobs side by side."""
    write_events(store, [b"one", b"two"])

    def copy_twice() -> None:
        register(spark)
        sink = load_table(spark, folder).select("event").write.format("penstock").mode("append")
        sink.option("store", str(folder)).option("stream", STREAM).save()
        source = spark.readStream.format("penstock").option("store", str(folder)).option("stream", STREAM).load()
        query = source.select("event").writeStream.format("penstock").option("store", str(folder))
        query = query.option("stream", STREAM).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination()

    with ThreadPoolExecutor() as threads:
        threads.submit(copy_twice).result()
    assert sum(len(batch) for batch in store.read(STREAM)) == 8
