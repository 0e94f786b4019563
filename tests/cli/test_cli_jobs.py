"""``penstock archive``, ``aggregate`` and ``windows``: commands that run on Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import penstock
from penstock.cli._job import line_of
from penstock.spark import Progress

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal

pytestmark = pytest.mark.usefixtures("one_spark")
WINDOWS = ("windows", "plant/readings", "--length", "10 seconds", "--time")
TYPED = ("--option", "format=json", "--option", "json_schema=at bigint")


def rows_of(table: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table().to_pylist()
    )
    return rows


def test_archive_goes_on_where_it_was(call: Call, plant: Path) -> None:
    """Started by a timer, each run adds what is new, and reports it for people or for programs."""
    result = call("archive", "plant/readings", "table", "--date", "date'2026-11-15'")
    assert (result.code, result.out, result.err) == (0, "plant/readings to table: 4 events in 1 batch\n", "")
    call("write", "plant/readings", "readings.txt")
    report = json.loads(call("archive", "plant/readings", "table", "--date", "date'2026-11-15'", "--json").out)
    assert (report["rows"], report["batches"], report["lag_bytes"], report["watermark"]) == (2, 1, 0, None)
    rows = rows_of(plant / "table")
    assert sorted(row["event"] for row in rows) == [b"20.1", b"20.4", b"20.9", b"21.2", b"21.5", b"21.7"]  # type: ignore[type-var]
    assert {row["date"] for row in rows} == {"2026-11-15"}


def test_a_job_shows_how_it_is_doing_on_a_terminal(call_on_terminal: CallOnTerminal, plant: Path) -> None:
    """A line that changes, and is gone when the job is done."""
    shown = call_on_terminal("archive", "plant/readings", str(plant / "t"), "--option", "max_events_per_trigger=1")
    assert re.search(r"archiving plant/readings: [1-4] rows · [\d,]+ rows/s · \d+ B behind", shown)
    assert shown.rstrip().endswith("t: 4 events in 4 batches")


@pytest.mark.parametrize(
    "arguments",
    [
        ("archive", "plant/readings", "t", "--local", "--table", "delta"),
        ("archive", "plant/readings", "t", "--local", "--date", "current_date()"),
        ("aggregate", "plant/readings", "--into", "plant/all", "--local", "--key", "key"),
        ("aggregate", "plant/readings", "--into", "plant/all", "--local", "-o", "format=json"),
    ],
)
def test_options_of_spark_are_refused_without_it(call: Call, arguments: tuple[str, ...]) -> None:
    """They would do nothing, without a word."""
    result = call(*arguments)
    assert result.code == 2
    assert "needs Spark: leave it out, or leave out --local" in result.err


def test_archive_to_an_iceberg_table_needs_no_spark(call: Call, plant: Path) -> None:
    """Other engines find the table in its catalog; options of Spark and of other tables are refused."""
    to_iceberg = ("archive", "plant/readings", str(plant / "t"), "--table", "iceberg")
    result = call(*to_iceberg, "--date", "current_date()")
    assert (result.code, "leave out --table iceberg" in result.err) == (2, True)
    result = call("archive", "plant/readings", str(plant / "t"), "--local", "--catalog", "sqlite:///x")
    assert (result.code, "add --table iceberg" in result.err) == (2, True)
    assert not (plant / "t").exists()
    assert json.loads(call(*to_iceberg, "--json").out) == {"batches": 1, "rows": 4}
    assert "0 events" in call(*to_iceberg).out
    assert (plant / "t" / "catalog.db").exists()


def test_local_job_shows_how_it_is_doing_on_a_terminal(call_on_terminal: CallOnTerminal, plant: Path) -> None:
    """As those on Spark do."""
    shown = call_on_terminal("archive", "plant/readings", str(plant / "t"), "--local")
    assert shown.rstrip().endswith("t: 4 events in 1 batch")


def test_aggregate_merges_streams(call: Call, plant: Path) -> None:
    """The result is a stream like any other."""
    with penstock.connect(plant / "penstock-data") as store:
        store.create_stream("plant/alarms")
        store.create_stream("plant/all")
        with store.writer("plant/alarms") as writer:
            writer.write_event(b"stuck")
    result = call("aggregate", "plant/readings", "plant/alarms", "--into", "plant/all")
    assert result.out == "plant/readings, plant/alarms into plant/all: 5 events in 1 batch\n"
    assert sorted(call("read", "plant/all").lines) == ["20.1", "20.4", "20.9", "21.2", "stuck"]


def test_windows_are_added_up_by_the_writers_time(call: Call, here: Path) -> None:
    """With options of the source, and expressions over its columns."""
    with penstock.connect(here / "penstock-data", maintenance_interval_s=0.05) as store:
        for stream in ("plant/readings", "plant/sums"):
            store.create_stream(stream)
        with store.writer("plant/readings", "boiler") as writer:
            for second in (1, 12, 3, 21):
                writer.write_event(json.dumps({"at": second * 1000}).encode())
            writer.note_time(20_000)
            while store.watermark("plant/readings") is None:
                store.maintain()
    sums = ("--value", "count(*) AS n", "--value", "max(at) AS last")
    result = call(*WINDOWS, "timestamp_millis(at)", *TYPED, *sums, "--into", "plant/sums", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["watermark"] == 20_000
    events = [json.loads(line) for line in call("read", "plant/sums").lines]
    assert sorted((event["start"][17:19], event["n"], event["last"]) for event in events) == [
        ("00", 2, 3000), ("10", 1, 12_000),
    ]  # fmt: skip


def test_windows_that_no_watermark_closes_are_reported(call: Call, plant: Path) -> None:
    """Or somebody would look for rows where none can be."""
    result = call(*WINDOWS, "mark_time", "--table", str(plant / "t"))
    assert (result.code, result.out) == (0, "windows of plant/readings: 4 events in 1 batch\n")
    assert result.err == "no window is complete: no writer of plant/readings has noted a time\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("archive", "plant/none", "table"), 1, "no stream 'plant/none'"),
        (("aggregate", "plant/none", "--into", "plant/readings"), 1, "no stream 'plant/none'"),
        (("aggregate", "plant/readings", "--into", "plant/none"), 1, "no stream 'plant/none'"),
        (("windows", "plant/none", "--time", "mark_time", "--length", "1 second", "--table", "t"), 1, "plant/none"),
        (("archive", "plant/readings", "table", "--store", "nowhere"), 1, "no store in nowhere"),
        (("archive", "plant/readings", "table", "--option", "max_evnt_size=1"), 2, "do you mean 'max_event_size'?"),
        (("archive", "plant/readings", "s3a://bucket/table"), 2, "s3a://bucket/table is not a folder"),
        ((*WINDOWS, "mark_time", "--table", "s3a://bucket/table"), 2, "s3a://bucket/table is not a folder"),
        (("archive", "plant/readings", "table", "--option", "format"), 2, "--option format has no value"),
        (("archive", "plant/readings", "table", "--option", "Password=x"), 2, "--option Password is not allowed"),
        (("aggregate", "plant/readings", "--into", "plant/readings"), 2, "another to merge them into"),
        (("aggregate", *["plant/readings"] * 2, "--into", "plant/sums"), 2, "each once"),
        (("archive", "plant/readings", "table", "--date", "nothing"), 2, "`nothing` cannot be resolved"),
        ((*WINDOWS, "nonsense(", "--table", "t"), 2, "Syntax error"),
        ((*WINDOWS, "mark_time"), 2, "name one of them"),
        ((*WINDOWS, "mark_time", "--table", "t", "--into", "plant/readings"), 2, "name one of them"),
    ],
)
def test_what_makes_no_sense_is_told_in_one_line(
    call: Call, plant: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """Whatever Spark makes of it; and nothing is begun."""
    result = call(*arguments)
    assert (result.code, result.out) == (code, ""), result.err
    assert message in result.err
    assert result.err.startswith("penstock: ")
    assert result.err.count("\n") == 1
    assert not (plant / "table").exists()


@pytest.mark.parametrize("arguments", [("archive", "plant/readings"), ("windows", "plant/readings", "--nonsense")])
def test_wrong_call_exits_with_2_and_starts_nothing(call: Call, arguments: tuple[str, ...]) -> None:
    """Before Spark, which takes seconds."""
    result = call(*arguments)
    assert result.code == 2
    assert result.err.endswith(f"(see penstock {arguments[0]} --help)\n")


def test_a_job_tells_how_far_it_is() -> None:
    """In one line: what was done, how quickly, how much is to come, and the time that the writers have promised."""
    progress = Progress(batches=3, rows=12_345, rows_per_second=678.9, lag_bytes=2_000_000, watermark=None)
    assert line_of(progress) == "12,345 rows · 679 rows/s · 2 MB behind"
    assert line_of(replace(progress, watermark=5)).endswith(" · watermark 5")
