"""The figures for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.embedded import open_store_at
from penstock.server import _metrics
from penstock.server._health import Health
from penstock.server._log_counts import LogCounter, LogCounts
from penstock.server._metrics import new_registry
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from penstock.stream import Engine


@pytest.fixture
def logged() -> LogCounter:
    return LogCounter()


@pytest.fixture
def registry(store: Engine, tmp_path: Path, logged: LogCounter) -> CollectorRegistry:
    connections = {"flight": lambda: 7, "http": lambda: 2}
    return new_registry(store, connections, list, Health(store, tmp_path), sent_bytes=lambda: 5, logged=logged)


def figures(registry: CollectorRegistry) -> dict[str, float]:
    """What Prometheus reads, as it is written."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if family.name.startswith("penstock_")
    }


def test_empty_store_has_figures(registry: CollectorRegistry) -> None:
    """A dashboard without any looks like a server that is down."""
    found = figures(registry)
    assert found["penstock_streams"] == 0
    assert found["penstock_open_transactions"] == 0
    assert found["penstock_connections{flight}"] == 7
    assert found["penstock_connections{http}"] == 2


def test_process_has_figures(registry: CollectorRegistry) -> None:
    """Memory and open files are what a server runs out of."""
    assert b"process_open_fds" in generate_latest(registry)


def test_appends_are_counted_by_stream(store: Engine, registry: CollectorRegistry) -> None:
    """Events, bytes with what is stored besides, and what the stream holds."""
    store.create_stream("plant/readings", segments=2)
    store.create_stream("plant/alarms")
    with store.writer("plant/readings") as writer:
        writer.write_batch([b"1234"] * 10, [b"%d" % number for number in range(10)])
    found = figures(registry)
    assert found["penstock_appended_events_total{plant/readings}"] == 10
    assert found["penstock_appended_events_total{plant/alarms}"] == 0
    size = found["penstock_appended_bytes_total{plant/readings}"]
    assert size > 40
    assert found["penstock_stream_bytes{plant/readings}"] == size == store.stream("plant/readings").size_bytes


def test_count_of_appends_never_goes_back(store: Engine, registry: CollectorRegistry) -> None:
    """Prometheus would take it for a new start, and count everything once more."""
    store.create_stream("plant/readings")
    for number in range(3):
        with store.writer("plant/readings") as writer:
            writer.write_batch([b"x"] * 5)
        assert figures(registry)["penstock_appended_events_total{plant/readings}"] == 5 * (number + 1)
        store.scale_stream("plant/readings", [number], [(0.0, 1.0)])
        store.truncate_stream("plant/readings", store.tail("plant/readings"))
    assert figures(registry)["penstock_appended_events_total{plant/readings}"] == 15


def test_stream_that_is_deleted_is_forgotten(store: Engine, registry: CollectorRegistry) -> None:
    """One of the same name begins at nothing."""
    for _ in range(2):
        store.create_stream("plant/readings")
        with store.writer("plant/readings") as writer:
            writer.write_batch([b"x"] * 5)
        assert figures(registry)["penstock_appended_events_total{plant/readings}"] == 5
        store.seal_stream("plant/readings")
        store.delete_stream("plant/readings")
        assert not any("plant/readings" in name for name in figures(registry))


def test_syncs_are_a_histogram(store: Engine, registry: CollectorRegistry) -> None:
    """The slow ones are what users feel; an average would hide them."""
    store.create_stream("plant/readings")
    found = figures(registry)
    counts = [value for name, value in found.items() if name.startswith("penstock_sync_seconds_bucket")]
    assert counts == sorted(counts)
    assert found["penstock_sync_seconds_bucket{+Inf}"] == found["penstock_sync_seconds_count"] == store.syncs.count > 0
    assert found["penstock_sync_seconds_sum"] > 0


def test_errors_and_warnings_in_the_log_are_counted(registry: CollectorRegistry, logged: LogCounter) -> None:
    """An alarm on errors needs no program that reads the log."""
    found = figures(registry)
    assert (found["penstock_log_records_total{error}"], found["penstock_log_records_total{warning}"]) == (0, 0)
    logged.counts = LogCounts(3, 5)
    found = figures(registry)
    assert (found["penstock_log_records_total{error}"], found["penstock_log_records_total{warning}"]) == (3, 5)


def test_requests_to_a_bucket_are_counted(s3_address: str, tmp_path: Path, logged: LogCounter) -> None:
    """Each of them costs money, and the cache is there to save some."""
    address = f"{s3_address}?group_wait_s=0&cache_folder={tmp_path}"
    with open_store_at(address, "memory:", address="bucket") as store:
        store.create_stream("plant/readings")
        with store.writer("plant/readings") as writer:
            writer.write_batch([b"x" * 1000] * 100)
        found = figures(new_registry(store, {}, list, Health(store, tmp_path), sent_bytes=int, logged=logged))
    assert found["penstock_bucket_requests_total{put}"] > 4
    assert found["penstock_bucket_bytes_total{put}"] > 100_000
    assert found["penstock_bucket_requests_total{get}"] > 1
    assert found["penstock_cache_bytes{memory}"] > 100_000
    assert {"penstock_cache_hits_total", "penstock_cache_fetches_total", "penstock_cache_bytes{disk}"} <= set(found)


def test_lag_is_told_by_group(store: Engine, registry: CollectorRegistry) -> None:
    """In bytes, and in how long the oldest unread event waits."""
    assert isinstance(store.clock, ManualClock)
    store.create_stream("plant/readings")
    group = store.create_reader_group("dashboard", ["plant/readings"])
    with store.writer("plant/readings") as writer:
        writer.write_batch([b"1234"] * 10)
    store.clock.advance(60)
    found = figures(registry)
    assert found["penstock_group_lag_bytes{dashboard}"] == group.lag().bytes > 40
    assert found["penstock_group_lag_seconds{dashboard}"] == 60


def test_age_of_watermark_is_told_by_stream(store: Engine, registry: CollectorRegistry) -> None:
    """It grows when a writer has stopped; a stream without time has none."""
    assert isinstance(store.clock, ManualClock)
    store.create_stream("plant/readings")
    with store.writer("plant/readings", writer_id="w") as writer:
        writer.write_event(b"x").result()
        writer.note_time(int(store.clock.now() * 1000))
        writer.flush()
        for _ in range(3):
            store.clock.advance(1)
            store.maintain()
        store.clock.advance(27)
        assert figures(registry)["penstock_watermark_age_seconds{plant/readings}"] == 30


def test_open_transactions_are_counted(store: Engine, registry: CollectorRegistry) -> None:
    """A transaction that is never ended holds budget."""
    store.create_stream("plant/readings")
    transaction = store.transactional_writer("plant/readings").begin()
    assert figures(registry)["penstock_open_transactions"] == 1
    transaction.abort()
    assert figures(registry)["penstock_open_transactions"] == 0


def test_ten_thousand_streams_do_not_drown_prometheus(
    store: Engine, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those above the limit are only counted."""
    monkeypatch.setattr(_metrics, "NAMES_MAX", 2)
    for number in range(4):
        store.create_stream(f"plant/s{number}")
        store.create_reader_group(f"g{number}", [f"plant/s{number}"])
    found = figures(registry)
    assert found["penstock_streams"] == 4
    assert [name for name in found if name.startswith("penstock_stream_bytes")] == [
        "penstock_stream_bytes{plant/s0}",
        "penstock_stream_bytes{plant/s1}",
    ]
    assert sum(name.startswith("penstock_group_lag_bytes") for name in found) == 2


def test_stream_deleted_while_figures_are_looked_up_is_left_out(
    store: Engine, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are told all the same."""
    store.create_stream("plant/a")
    store.create_stream("plant/b")
    real = store.segments.at_work

    def delete_meanwhile() -> object:
        store.seal_stream("plant/a")
        store.delete_stream("plant/a")
        return real()

    monkeypatch.setattr(store.segments, "at_work", delete_meanwhile)
    found = figures(registry)
    assert "penstock_stream_bytes{plant/b}" in found
    assert "penstock_stream_bytes{plant/a}" not in found
