"""What several tests of streams share: a store on any disk, and events that can be told apart."""

from __future__ import annotations

import inspect
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.stream import Engine
from penstock.testing import ManualClock, SeededRandom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cpo import Cpo
    from penstock.ports import Clock, Disk

STREAM: Final = "plant/readings"
SIZES: Final = PlogSizes(first=512, largest=512)
EMBEDDED_ONLY: Final = {
    "test_passing_by_an_event_reads_its_extent_alone": "a server reads ahead of the client's requests",
    "test_a_stream_that_is_deleted_while_a_batch_is_put_together_costs_no_event_of_the_others": (
        "a client can still return the events of a deleted stream that it has received"
    ),
    "test_a_disk_that_refuses_now_and_then_costs_no_event": "a client reads events that it has received, not the disk",
    "test_a_batch_that_does_not_count_and_is_truncated_away_is_told": "a client reports its positions a moment later",
    "test_who_comes_back_after_the_truncation_has_read_it": "a client reports its positions a moment later",
    "test_a_reader_that_was_taken_offline_is_woken_no_more": "a client stops watching a moment later",
    "test_a_reader_that_is_called_now_and_then_keeps_its_segments": (
        "a client sends its heartbeats by a clock that the test does not set"
    ),
    "test_a_reader_that_waits_is_not_silent": "a client sends its heartbeats by a clock that the test does not set",
    "test_places_are_recorded_about_once_a_second": "a client reports its positions a moment later",
    "test_what_has_a_later_number_waits_until_a_large_event_is_there": (
        "the replaced LargeWrite.finish would be called by the server, too"
    ),
    "test_the_events_of_one_block_are_not_copied": "events that come over the wire are copies",
    "test_retention_by_size_keeps_the_newest_event": (
        "a client's writer adds a table of writers, which retention takes for the newest block"
    ),
    "test_prepared_transactions_go_with_their_stream": "a client asks for a writer by the name of its stream",
}
"""The tests that do not hold for a store over the wire, and why; others are skipped for INSIDE in wire_harness."""


@contextmanager
def store_on(
    disk: Disk, cpo: Cpo, partition: str, *, seed: int, direct_size_min: int = 700, clock: Clock | None = None
) -> Iterator[Engine]:
    """Open a store whose journal is so small that checkpoints are part of its life."""
    with ExitStack() as resources:
        plogs = FilePlogs(disk, journal_size=4096, direct_size_min=direct_size_min, random=SeededRandom(seed))
        resources.enter_context(plogs)
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, partition, sizes=SIZES))
        with Engine(manager, clock=clock or ManualClock(), resources=resources) as store:
            yield store


def event_of(number: int, key: str) -> bytes:
    return f"{key}:{number}:".encode().ljust(90, b".")


def numbers_of(store: Engine) -> list[tuple[str, int]]:
    events = [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
    assert store.stream(STREAM).events == len(events), "a count that no crash may spoil"
    return [(key.decode(), int(number)) for key, number, _ in (event.split(b":") for event in events)]


def inside(store: Engine) -> Engine:
    """Return the store itself, also if this one is over the wire: to prepare what a test is about."""
    found: Engine = vars(store).get("inside", store)
    return found


def is_embedded(store: Engine) -> bool:
    """Whether the store is in this process."""
    return inside(store) is store


def embedded_only(store: Engine) -> None:
    """Skip the rest of the calling test, which has to be in EMBEDDED_ONLY, for a store over the wire."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    reason = EMBEDDED_ONLY[frame.f_back.f_code.co_name]
    if not is_embedded(store):
        pytest.skip(reason)
