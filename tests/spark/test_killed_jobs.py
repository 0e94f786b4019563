"""Jobs whose driver is killed: what they have made in the end is what was there to be made, once."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow.dataset as ds
import pytest

import penstock
from penstock.server._operations import HANDLERS
from penstock.stream import Engine
from penstock.wire.operations import streams, transactions
from tests.spark.four_jobs import CHECKPOINTS, COUNTED, IN, MERGED, OTHER, WINDOW_S, run_jobs
from tests.spark.processes import Gates, done, kill_session, process_of, start, until
from tests.spark.spark_harness import note_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from penstock.model import EventPointer
    from penstock.server._session import Session
    from penstock.wire.operations import Operation

ROUNDS: Final = 3  # of writing: so many windows there are
KINDS: Final = 400  # of rows that a window has


class Written:
    """What is in the streams, for the jobs to be done with."""

    def __init__(self, folder: Path) -> None:
        self.events: Final[list[bytes]] = []
        self.others: Final = [b"other %d" % number + bytes(1000) for number in range(900)]
        self.windows: Final[Counter[tuple[int, str]]] = Counter()
        with penstock.connect(folder, maintenance_interval_s=0.05) as store:
            for name, segments in ((IN, 2), (OTHER, 1), (MERGED, 2), (COUNTED, 1)):
                store.create_stream(name, segments)
            with store.writer(OTHER) as writer:
                writer.write_batch(self.others)
            with store.writer(IN, "w") as writer:
                for number in range(ROUNDS):
                    events = [self._event(number, one) for one in range(500)]
                    writer.write_batch(events, keys=[str(one) for one in range(500)])
                    if number == ROUNDS // 2:
                        self.large = self._event(number, 500, size=200_000)
                        self.pointer = writer.write_event(self.large, key="large").result()
                    note_all(store, IN, WINDOW_S * (number + 1), writer)

    def _event(self, number: int, one: int, size: int = 1000) -> bytes:
        kind = f"k{one % KINDS}"
        event = {"at": 1000 * WINDOW_S * number + one, "kind": kind, "id": f"{number}-{one}", "rest": "." * size}
        self.windows[number * WINDOW_S, kind] += 1
        self.events.append(json.dumps(event).encode())
        return self.events[-1]

    def is_copied(self, pointer: EventPointer, archive: Path) -> bool:
        """Whether the large event is asked for to be copied: then the rows of its batch are there."""
        return pointer == self.pointer and (archive / "_large").exists()


class Answers:
    """Calls that the store's owner has done and does not answer: the caller waits, and cannot know."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch, self._said = monkeypatch, threading.Event()
        self.held: Final[set[str]] = set()

    def hold(self, operation: type[Operation], which: Callable[..., str | None]) -> None:
        """Hold those answers back to which there is a name, which is noted."""
        known = HANDLERS[operation]

        def run(session: Session, *args: Any) -> object:  # noqa: ANN401 - as they come
            answer = known(session, *args)
            if (name := which(*args)) is not None and not self._said.is_set():
                self.held.add(name)
                self._said.wait()
            return answer

        self._monkeypatch.setitem(HANDLERS, operation, run)

    def say(self) -> None:
        """Answer from now on."""
        self._said.set()


@pytest.mark.usefixtures("lost")  # for which there is time meanwhile
def test_jobs_that_are_killed_have_done_everything_once(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two in the middle of a batch, and two when all of it is there, and Spark does not know it yet."""
    written = Written(folder)
    (tmp_path / "gates").mkdir()
    gates = {job: Gates(tmp_path / "gates" / job) for job in CHECKPOINTS}
    for job in ("windows", "counted"):
        gates[job].shut()
    answers = Answers(monkeypatch)
    answers.hold(transactions.CommitAll, lambda stream, *args: stream if stream == MERGED and args[-2] else None)
    archive = tmp_path / "archive"
    answers.hold(streams.SegmentAt, lambda pointer: "copy" if written.is_copied(pointer, archive) else None)

    def is_in_the_middle() -> bool:
        half = any((tmp_path / "windows").rglob("_temporary/0/task_*"))  # of two tasks
        return half and answers.held == {MERGED, "copy"} and all(gates[job].waiting() for job in ("windows", "counted"))

    def finished() -> dict[str, int]:
        return {job: done(tmp_path / place) for job, place in CHECKPOINTS.items()}

    with penstock.connect(folder) as store:
        assert isinstance(store, Engine)
        try:
            with process_of("tests.spark.four_jobs", folder, tmp_path, tmp_path / "gates") as process:
                until(process, is_in_the_middle)
                kill_session(process)
        finally:
            answers.say()
        before = finished()
        assert all(before.values()), "each job had finished a batch, and was in another"
        assert list((tmp_path / "archive").glob(f"date=*/batch=*-{before['archive']}")), "this one, with all its rows"
        run_jobs(spark, folder, tmp_path)
        assert all(count > before[job] for job, count in finished().items())
        check(store, tmp_path, written)


@pytest.mark.long
def test_a_job_that_is_interrupted_ends_well(folder: Path, tmp_path: Path) -> None:
    """Ctrl-C, which all of its processes hear, is how one that follows a stream is ended: it reports what it did."""
    with penstock.connect(folder) as store:
        store.create_stream(IN)
        with store.writer(IN) as writer:
            writer.write_batch([b"a", b"b", b"c"])
        table, log = tmp_path / "table", tmp_path / "log"
        main = [sys.executable, "-c", "from penstock.cli import main; main()"]
        process = start([*main, "archive", IN, str(table), "--follow", "--store", str(folder)], log)
        try:
            until(process, lambda: done(table / "_checkpoint") > 0)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(60) == 0, log.read_text()
        finally:
            kill_session(process)
    said = [line for line in log.read_text().splitlines() if not line.startswith(("WARNING: ", "Picked up "))]
    assert said == [f"{IN} to {table}: 3 events in 1 batch"]
    assert len(rows_of(table)) == 3


def events_of(store: Engine, stream: str) -> list[bytes]:
    return [event for batch in store.read(stream) for event in batch.column("event").to_pylist()]


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Return the rows of a table, as somebody without Spark reads them."""
    rows: list[dict[str, Any]] = (
        ds.dataset(table, partitioning="hive", ignore_prefixes=["_", "."]).to_table().to_pylist()
    )
    return rows


def check(store: Engine, root: Path, written: Written) -> None:
    """See that nothing is missing, and nothing there twice."""
    rows = rows_of(root / "archive")
    (large,) = [row for row in rows if row["event"] is None]
    assert Counter(row["event"] for row in rows if row is not large) == Counter(written.events) - Counter(
        [written.large]
    )
    assert (root / "archive" / large["file"]).read_bytes() == written.large
    assert Counter(events_of(store, MERGED)) == Counter(written.events + written.others)
    windows = [(int(row["start"].timestamp()), row["kind"], row["events"]) for row in rows_of(root / "windows")]
    assert sorted(windows) == sorted((*window, count) for window, count in written.windows.items())
    counted = [json.loads(event) for event in events_of(store, COUNTED)]
    assert len(counted) == len(written.windows)
    assert sorted((one["kind"], one["start"], one["events"]) for one in counted) == sorted(
        (row["kind"], row["start"].isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z", row["events"])
        for row in rows_of(root / "windows")
    )
    assert not store.transactions.open
    assert not store.catalog.prepared
