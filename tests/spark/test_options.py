"""The options of ``format("penstock")``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from penstock import Position, StreamCut
from penstock.errors import BadArgument
from penstock.spark._options import Address, SourceOptions, sink_options, source_options

if TYPE_CHECKING:
    from pathlib import Path

GIVEN = {"store": "/data", "stream": "plant/readings"}


def test_what_is_not_given_has_a_default() -> None:
    """Store and stream are all that one must say."""
    assert source_options(GIVEN) == SourceOptions(address=Address("/data"), streams=("plant/readings",))
    assert (source_options(GIVEN).start, source_options(GIVEN).fail_on_data_loss) == ("earliest", True)


def test_every_option_of_a_source_is_read() -> None:
    """The documents name them; none may be taken and then forgotten."""
    cut = StreamCut("plant/readings", ((0, 17), (1, 0)))
    found = source_options(
        GIVEN
        | {
            "start": "latest",
            "end": str(cut),
            "max_bytes_per_trigger": "64m",
            "max_events_per_trigger": "1000",
            "align": "watermark",
            "max_event_size": "2MB",
            "format": "json",
            "json_schema": "a string",
            "on_corrupt": "column",
            "min_partitions": "16",
            "fail_on_data_loss": "false",
            "mark_rows": "true",
            "watermark_interval": "2 minutes",
            "include_headers": "true",
            "event_time": "timestamp_millis(at)",
            "consumer": "nightly-report",
            "user": "ada",
            "password": "hunter2",
            "token": "t0k3n",
            "tls_ca": "/ca.pem",
            "plogs": "s3://bucket/plant",
            "plogs_secret_access_key_id": "me",
        }
    )
    assert "me" not in repr(found.address).split("'")
    assert found == SourceOptions(
        address=Address("/data", "ada", "hunter2", "t0k3n", "/ca.pem", "s3://bucket/plant", (("access_key_id", "me"),)),
        streams=("plant/readings",),
        start="latest",
        end=Position((cut,)),
        max_bytes_per_trigger=64 << 20,
        max_events_per_trigger=1000,
        align=True,
        max_event_size=2 << 20,
        format="json",
        json_schema="a string",
        keep_corrupt=True,
        min_partitions=16,
        fail_on_data_loss=False,
        mark_rows=True,
        watermark_interval_ms=120_000,
        include_headers=True,
        event_time="timestamp_millis(at)",
        consumer="nightly-report",
    )


def test_every_option_of_a_sink_is_read() -> None:
    """The sink shares the address with the source, and has columns besides."""
    found = sink_options(GIVEN | {"event": "body", "key": "sensor", "time": "at", "pointer": "place"})
    assert (found.stream, found.event, found.key, found.time) == ("plant/readings", "body", "sensor", "at")
    assert found.pointer == "place"
    numbered = sink_options({"store": "/data", "txnAppId": "nightly", "txn_version": "0"})
    assert (numbered.stream, numbered.txn_app_id, numbered.txn_version) == (None, "nightly", 0)
    with pytest.raises(BadArgument, match="come together"):
        sink_options(GIVEN | {"txn_app_id": "nightly"})
    assert found.address == Address("/data")


def test_names_and_words_may_be_written_in_any_case() -> None:
    """Spark itself hands on names in small letters."""
    found = source_options({"Store": "/data", "STREAM": "plant/readings", "Align": "WATERMARK", "START": "Latest"})
    assert (found.address.store, found.stream, found.align, found.start) == ("/data", "plant/readings", True, "latest")


def test_a_cut_is_where_to_start() -> None:
    """What a reader or a store gave can be given to Spark."""
    cut = StreamCut("plant/readings", ((3, 4096),))
    assert source_options(GIVEN | {"start": str(cut)}).start == Position((cut,))
    assert source_options(GIVEN | {"end": "latest"}).end == "latest"


@pytest.mark.parametrize("name", ["start", "end", "startingOffsets", "endingTimestamp"])
def test_a_time_is_a_place_too(name: str) -> None:
    """In milliseconds as Kafka's source takes it, or as people write it, with a zone: this side knows no session's."""
    place = "start" if name.startswith("start") else "end"
    for text in ("1793520000000", "2026-11-01T08:00:00Z", "2026-11-01 09:00:00+01:00"):
        assert getattr(source_options(GIVEN | {name: text}), place) == 1_793_520_000_000
    with pytest.raises(BadArgument, match=f"of the option '{place}': .*with its zone"):
        source_options(GIVEN | {name: "2026-11-01T08:00:00"})


def test_options_are_known_by_the_spellings_that_people_of_spark_type() -> None:
    """Neither case nor underscores matter, and Kafka's names mean what they mean there."""
    found = source_options(
        {
            "store": "/data",
            "subscribe": "plant/readings, plant/alarms",
            "startingOffsets": "latest",
            "maxOffsetsPerTrigger": "1000",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "minPartitions": "3",
            "Max_Bytes_Per_Trigger": "1m",
        }
    )
    assert found.streams == ("plant/readings", "plant/alarms")
    assert (found.start, found.max_events_per_trigger, found.fail_on_data_loss) == ("latest", 1000, False)
    assert (found.min_partitions, found.max_bytes_per_trigger, found.include_headers) == (3, 1 << 20, True)
    with pytest.raises(BadArgument, match="'start' is given twice"):
        source_options(GIVEN | {"start": "latest", "startingOffsets": "latest"})


def test_streams_are_named_in_one_way() -> None:
    """One, some, or a pattern; two of them would leave open which are read."""
    pattern = source_options({"store": "/data", "subscribePattern": "plant/.*"}).pattern
    assert pattern is not None
    assert pattern.fullmatch("plant/readings")
    for texts in ({"subscribe": "plant/a"}, {"subscribe_pattern": "plant/.*"}):
        with pytest.raises(BadArgument, match="exclude each other"):
            source_options(GIVEN | texts)
    with pytest.raises(BadArgument, match="twice"):
        source_options({"store": "/data", "subscribe": "plant/a,plant/a"})
    with pytest.raises(BadArgument, match=r"'\(' of the option 'subscribe_pattern'"):
        source_options({"store": "/data", "subscribePattern": "("})


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("10b", 10), ("3k", 3 << 10), ("3kb", 3 << 10), ("2G", 2 << 30), (" 1t ", 1 << 40)]
)
def test_sizes_may_have_a_suffix(text: str, size: int) -> None:
    """As they have elsewhere in Spark."""
    assert source_options(GIVEN | {"max_bytes_per_trigger": text}).max_bytes_per_trigger == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("start", "yesterday"),
        ("start", "plant/readings:"),
        ("start", ""),
        ("end", "0@17"),
        ("max_bytes_per_trigger", "0"),
        ("max_bytes_per_trigger", "lots"),
        ("max_bytes_per_trigger", "1.5g"),
        ("max_bytes_per_trigger", "-1"),
        ("max_bytes_per_trigger", "999999999999999999t"),
        ("max_events_per_trigger", "0"),
        ("max_events_per_trigger", "1k"),
        ("max_events_per_trigger", "1" * 30),
        ("align", "true"),
        ("align", "time"),
        ("max_event_size", "big"),
        ("format", "avro"),
        ("on_corrupt", "drop"),
        ("min_partitions", "few"),
        ("min_partitions", "-3"),
        ("min_partitions", "10001"),
        ("fail_on_data_loss", "no"),
        ("consumer", "a b"),
        ("consumer", ""),
        ("stream", "readings"),
        ("stream", "../readings"),
        ("user", ""),
    ],
)
def test_a_value_that_cannot_be_is_told_with_the_options_name(name: str, text: str) -> None:
    """There may be a dozen options; the one to look at is named, and so is what it was."""
    with pytest.raises(BadArgument, match=f"(?s){name}.*") as caught:
        source_options(GIVEN | {name: text})
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["key", "event", "time"])
def test_a_sinks_column_has_a_name(name: str) -> None:
    """No name would mean the default, which is another column."""
    with pytest.raises(BadArgument, match=name):
        sink_options(GIVEN | {name: ""})


def test_an_option_that_there_is_not_is_told_with_the_one_that_is_meant() -> None:
    """Spark says nothing about options that are not read; a query that starts at the wrong end is found out late."""
    with pytest.raises(BadArgument, match=r"'max_event_per_trigger' is not an option .*'max_events_per_trigger'\?"):
        source_options(GIVEN | {"max_event_per_trigger": "5"})
    with pytest.raises(BadArgument, match=r"'xyzzy' is not an option to read .*there are .*start, store, stream"):
        source_options(GIVEN | {"xyzzy": "5"})


def test_options_of_the_source_are_not_those_of_the_sink() -> None:
    """A key to read with means nothing, and neither does a place to start writing at."""
    with pytest.raises(BadArgument, match="'key' is not an option to read"):
        source_options(GIVEN | {"key": "sensor"})
    with pytest.raises(BadArgument, match="'start' is not an option to write"):
        sink_options(GIVEN | {"start": "earliest"})


def test_what_spark_hands_on_is_passed_over() -> None:
    """A sink is given the checkpoint's place and the query's name with its own options."""
    assert sink_options(GIVEN | {"checkpointLocation": "/c", "queryName": "q", "mode": "append"}).event == "event"


@pytest.mark.parametrize("name", ["store", "stream"])
def test_store_and_stream_are_needed(name: str) -> None:
    """The message shows how to give them."""
    with pytest.raises(BadArgument, match=rf'the option {name!r} is missing: \.option\("{name}", '):
        source_options({other: text for other, text in GIVEN.items() if other != name})
    with pytest.raises(BadArgument, match=name):
        source_options(GIVEN | {name: ""})


def test_a_store_in_memory_is_refused() -> None:
    """Each of Spark's processes would have an empty one of its own."""
    with pytest.raises(BadArgument, match="memory:"):
        source_options(GIVEN | {"store": "memory:"})


def test_a_folder_becomes_a_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's processes run in folders of their own."""
    monkeypatch.chdir(tmp_path)
    assert source_options(GIVEN | {"store": "./data"}).address.store == str(tmp_path / "data")
    assert source_options(GIVEN | {"store": "~/data"}).address.store == os.path.expanduser("~/data")
    assert source_options(GIVEN | {"store": "penstock://host:7367"}).address.store == "penstock://host:7367"


def test_secrets_are_not_shown() -> None:
    """Options are written to logs."""
    found = source_options(GIVEN | {"user": "ada", "password": "hunter2", "token": "t0k3n"})
    assert "ada" in repr(found)
    assert "hunter2" not in repr(found)
    assert "t0k3n" not in repr(found)
