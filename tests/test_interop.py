"""Streams in pandas, Polars, DuckDB and Delta Lake, from a folder and over the wire."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import penstock
from penstock.client import RemoteStore
from penstock.errors import DataTruncated, NoSuchStream
from penstock.stream import READ_SCHEMA
from tests.sources import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock import Store

STREAM = "plant/readings"


@pytest.fixture(params=["embedded", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with a thousand readings in two segments."""
    with penstock.connect(tmp_path / "data") as owner:
        owner.create_stream(STREAM, segments=2)
        with owner.writer(STREAM) as writer:
            for part in range(0, 1000, 100):
                events = [json.dumps({"celsius": n}).encode() for n in range(part, part + 100)]
                writer.write_batch(events, [f"sensor-{n % 4}" for n in range(100)], [{"n": b"1"}] * 100)
                writer.flush()
        if request.param == "embedded":
            yield owner
        else:
            with penstock.connect(tmp_path / "data") as client:
                assert isinstance(client, RemoteStore)
                yield client


SQL: Final = """
import sys, duckdb, penstock
with penstock.connect(sys.argv[1]) as store:
    by_key = "SELECT decode(key), count(*) FROM r GROUP BY 1 ORDER BY 1"
    rows = duckdb.from_arrow(store.read("plant/readings")).query("r", by_key).fetchall()
    assert rows == [(f"sensor-{n}", 250) for n in range(4)]
    readings = store.read("plant/readings")
    hottest = "max((decode(event)::JSON->>'celsius')::INT)"
    query = f"SELECT decode(key), count(*), {hottest} FROM readings GROUP BY 1 ORDER BY 1"
    assert duckdb.sql(query).fetchall() == [(f"sensor-{n}", 250, 996 + n) for n in range(4)]
    store.create_stream("plant/empty")
    empty = store.read("plant/empty")
    assert duckdb.sql("SELECT count(*), max(timestamp) FROM empty").fetchall() == [(0, None)]
"""


def test_sql_over_a_stream_is_one_line(store: Store, tmp_path: Path) -> None:
    """A question about a stream should not need a program; a stream without events has no rows, and is no error.

    DuckDB reports leaks where pytest holds its modules, so it has a process of its own.
    """
    if not isinstance(store, RemoteStore):
        store.close()  # the other process opens it itself
    command = [sys.executable, "-c", SQL, str(tmp_path / "data")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    page = (ROOT / "docs" / "interop.md").read_text()
    assert re.search(
        r'^    print\(duckdb.from_arrow\(store.read\("plant/readings"\)\)\.query\(.*\)\)$', page, re.MULTILINE
    )


def test_frames_have_every_row_and_column(store: Store) -> None:
    """What is null, a map or a time with a zone is what most conversions get wrong."""
    frame = pl.from_arrow(store.read(STREAM))
    assert isinstance(frame, pl.DataFrame)
    assert (frame.height, frame.columns) == (1000, READ_SCHEMA.names)
    panda = store.read(STREAM).read_pandas()
    assert (len(panda), list(panda.columns)) == (1000, READ_SCHEMA.names)
    assert str(panda["timestamp"].dtype) == "datetime64[ms, UTC]"
    assert panda["mark_time"].isna().all()
    assert panda["headers"][0] == [("n", b"1")]
    assert sorted(frame["offset"].to_list()) == sorted(panda["offset"])


def test_a_delta_table_is_one_line(store: Store, tmp_path: Path) -> None:
    """A copy for once; an archive that goes on is a job."""
    write_deltalake(tmp_path / "delta", store.read(STREAM))
    assert pa.table(DeltaTable(tmp_path / "delta").to_pyarrow_dataset().to_table()).num_rows == 1000


def test_a_stream_goes_through_the_c_interface_without_a_copy_of_it_all(store: Store) -> None:
    """The batches are those of the stream: a query over a stream that is larger than memory is possible."""
    batches = store.read(STREAM)
    assert isinstance(batches, pa.RecordBatchReader)
    first = next(batches)
    assert 0 < len(first) < 1000
    assert len(first) + sum(map(len, batches)) == 1000
    part, *_ = store.segment_ranges(STREAM)
    assert isinstance(store.read_range(part), pa.RecordBatchReader)


def test_errors_come_as_they_are_at_the_call_and_on_the_way(store: Store) -> None:
    """Programs catch the errors of Penstock, also when they come out of Arrow."""
    with pytest.raises(NoSuchStream):
        store.read("plant/none")
    head = store.head(STREAM)
    batches = store.read(STREAM)
    store.truncate_stream(STREAM, store.tail(STREAM))
    if not isinstance(store, RemoteStore):  # a client may have received the events already
        with pytest.raises(DataTruncated):
            batches.read_all()
    with pytest.raises(DataTruncated):
        store.read(STREAM, start=head)


def test_an_empty_stream_has_its_columns(store: Store) -> None:
    """A program that asks for a column of no events gets an empty one."""
    store.create_stream("plant/empty")
    assert store.read("plant/empty").read_all() == READ_SCHEMA.empty_table()


def test_a_frame_is_written_as_a_batch(store: Store) -> None:
    """The way back: a column of a frame is an Arrow array, which a writer takes without a loop."""
    store.create_stream("plant/copies")
    frame = pl.DataFrame({"event": [b"a", b"b"], "key": [b"k", b"l"]})
    with store.writer("plant/copies") as writer:
        writer.write_batch(frame["event"].to_arrow().cast(pa.binary()), frame["key"].to_list())
        writer.write_batch(frame["event"].to_arrow())
    assert sorted(store.read("plant/copies").read_all()["event"].to_pylist()) == [b"a", b"a", b"b", b"b"]
