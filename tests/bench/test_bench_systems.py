"""Every system does every work, for real."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from penstock.bench import choose_systems, choose_works, run_bench
from penstock.bench._penstock import EmbeddedPenstock, SentPenstock, ServedPenstock
from penstock.bench._postgresql import PostgreSQL
from penstock.bench._system import EventLoad, tail_times
from tests.bench.harness import TINY, is_missing
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.bench._system import SystemUnderTest

SLOW: Final = {"rabbitmq", "penstock-replicated", "penstock-bucket", "redis-default", "nats-synced"}
"""Systems that take seconds to start, and settings of which the other one does the same calls."""
LIMITS: Final = {
    "nats-synced": {"large"},
    "nats-default": {"large"},
    "rabbitmq": {"large"},
    "kafka-mock": {"large", "restart", "tail"},
}
"""Works that a peer cannot do, and says so."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the user of PostgreSQL may enter, which those of pytest are not."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.mark.parametrize("system", choose_systems(kinds=None, peers=None), ids=lambda system: system.key)
def test_a_system_has_a_figure_or_a_limit_for_every_work(system: type[SystemUnderTest], open_folder: Path) -> None:
    """A peer whose client has changed would drop out of the comparison without a word."""
    if system.key in SLOW and not EXPLORES:
        pytest.skip("takes seconds to start, or differs in one setting from another: make explore")
    if reason := is_missing(system):
        pytest.skip(reason)
    systems: list[type[SystemUnderTest]] = list(dict.fromkeys((EmbeddedPenstock, system)))
    report = run_bench(systems, choose_works(None, is_full=False), TINY, parent=open_folder)
    found = [each for each in report.measurements if each.system == system.key]
    assert not report.skipped
    if system.is_reader:
        assert {each.metric.title.split()[0] for each in found} == {"read", "from"}, "it is not asked to write"
    else:
        assert len({each.work for each in found}) == len(choose_works(None, is_full=False))
    assert {each.work for each in found if each.reason} == LIMITS.get(system.key, set())
    assert all(not each.reason.startswith("failed") for each in found if each.reason)
    assert all(value > 0 for each in found for value in each.values)
    assert list(open_folder.iterdir()) == [], "nothing is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose servers run as another user")
def test_postgresql_says_which_folder_its_user_may_not_enter(tmp_path: Path) -> None:
    """As root it runs as another user, who may not enter the home of root, and the remedy is another folder."""
    if reason := is_missing(PostgreSQL):
        pytest.skip(reason)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    works = choose_works(["durable"], is_full=False)
    (skipped,) = run_bench([EmbeddedPenstock, PostgreSQL], works, TINY, parent=closed).skipped
    assert "the user postgres may not enter /" in skipped.reason
    assert "use another --dir" in skipped.reason


def test_a_system_that_fails_has_the_reason_and_the_others_go_on(tmp_path: Path) -> None:
    """One peer that ends in the middle must not cost the figures of all others."""

    class Failing(EmbeddedPenstock):
        key = "penstock-failing"

        def write_each(self, load: EventLoad) -> float:
            raise ConnectionError(f"lost after {load.count // 4} events")

    works = choose_works(["write-each", "write-batch"], is_full=False)
    report = run_bench([EmbeddedPenstock, Failing], works, TINY, parent=tmp_path)
    reasons = {(each.work, each.system): each.reason for each in report.measurements}
    assert reasons == {
        ("write-each", "penstock-embedded"): None,
        ("write-each", "penstock-failing"): "failed: ConnectionError: lost after 5 events",
        ("write-batch", "penstock-embedded"): None,
        ("write-batch", "penstock-failing"): None,
    }


def test_a_system_that_does_not_start_is_skipped(tmp_path: Path) -> None:
    """A server that a machine has but cannot run, such as with a broken library, is like one that it lacks."""

    class Broken(EmbeddedPenstock):
        key = "penstock-broken"

        def start(self) -> None:
            raise OSError("no such library")

    report = run_bench([EmbeddedPenstock, Broken], choose_works(["durable"], is_full=False), TINY, parent=tmp_path)
    assert [(each.key, each.reason) for each in report.skipped] == [
        ("penstock-broken", "failed: OSError: no such library")
    ]
    assert {each.system for each in report.measurements} == {"penstock-embedded"}


def test_streams_that_were_created_do_not_burden_the_next_work(tmp_path: Path) -> None:
    """They come early in a run, and a thousand streams make everything else slower."""
    with ExitStack() as stack:
        system = EmbeddedPenstock(tmp_path)
        stack.callback(system.close)
        system.start()
        done, took = system.create_streams(3, seconds_max=60)
        assert (done, system.store.streams()) == (3, [])
        assert took > 0


def test_events_are_sent_where_the_files_are_said_to_be_out_of_reach(tmp_path: Path) -> None:
    """It stands for a client on another machine; mapped files would be a comparison with nobody."""
    load = EventLoad(event=bytes(1000), count=2000)
    for kind, is_mapped in ((SentPenstock, False), (ServedPenstock, True)):
        folder = tmp_path / kind.key
        folder.mkdir()
        with ExitStack() as stack:
            system = kind(folder)
            stack.callback(system.close)
            system.start()
            name = system.fill(load)
            batches = list(system.store.read(name))
            assert sum(map(len, batches)) == load.count
            assert (f"{folder}/store/" in Path("/proc/self/maps").read_text()) == is_mapped


def test_the_reader_that_fails_ends_the_measurement() -> None:
    """Otherwise the writer would wait for a reader that has gone."""

    def read() -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        tail_times(lambda: None, read, 3)
    assert not [thread for thread in threading.enumerate() if thread.name == "penstock-bench-reader"]
