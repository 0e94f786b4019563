"""Work queues: jobs are tried again, set aside, and never lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from penstock.errors import BadArgument, NoSuchStream, StreamSealed
from penstock.patterns import WorkQueue, _queue
from penstock.stream.read import READER_LEASE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock import EventRead, Store
    from penstock.patterns import Worker

STREAM = "office/letters"


@pytest.fixture
def store(empty_store: Store) -> Store:
    empty_store.create_stream(STREAM)
    return empty_store


def write(store: Store, *events: bytes, **attributes: Any) -> None:  # noqa: ANN401
    with store.writer(STREAM) as writer:
        for event in events:
            writer.write_event(event, **attributes)


def dead_letters(store: Store, queue: WorkQueue) -> list[dict[str, Any]]:
    return [row for batch in store.read(queue.dead_letters) for row in batch.to_pylist()]


def fail(job: EventRead) -> None:
    raise ValueError(f"cannot send {job.event!r}")


def outcomes(worker: Worker, handle: Any) -> list[str]:  # noqa: ANN401
    return list(iter(lambda: worker.step(handle, timeout=0), None))


def test_a_job_that_keeps_failing_is_set_aside_with_its_story(store: Store) -> None:
    """Whoever looks at the dead letters has to see what failed, why, and where the job came from."""
    write(store, b"a", key="k", headers=[("h", b"1"), ("h", b"2")])
    queue = WorkQueue(store, STREAM, group="mail", attempts=3, retry_delay_s=0)
    with queue.worker("w") as worker:
        assert outcomes(worker, fail) == ["retry", "retry", "dead"]
    (row,) = dead_letters(store, queue)
    (source,) = [row["offset"] for batch in store.read(STREAM) for row in batch.to_pylist()]
    assert (row["event"], row["key"]) == (b"a", b"k")
    assert row["headers"] == [
        ("h", b"1"),
        ("h", b"2"),
        ("penstock-attempts", b"3"),
        ("penstock-source", f"{STREAM}:0@{source}".encode()),
        ("penstock-error", b"ValueError: cannot send b'a'"),
    ]


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def fail_without_text(job: EventRead) -> None:
    raise Mute


@pytest.mark.parametrize("handle", [fail, fail_without_text])
def test_no_job_holds_up_those_behind_it(store: Store, handle: Any) -> None:  # noqa: ANN401
    """One whose headers leave no room for ours, or whose error has no text, would be tried for ever."""
    write(store, b"a", headers=[("first", b"1"), ("long", bytes(65_400)), ("last", b"2")])
    write(store, b"b")
    queue = WorkQueue(store, STREAM, group="mail", attempts=2, retry_delay_s=0)
    with queue.worker("w") as worker:
        assert sorted(outcomes(worker, handle)) == ["dead", "dead", "retry", "retry"]
    first, _ = sorted(dead_letters(store, queue), key=lambda row: bytes(row["event"]))
    names = [name for name, _ in first["headers"]]
    assert names == ["first", "last", "penstock-attempts", "penstock-source", "penstock-error"]


def test_headers_that_others_wrote_do_not_count_as_attempts(store: Store) -> None:
    """A job could name itself a dead letter before it was tried, or stop every worker with a header."""
    write(store, b"a", headers={"penstock-attempts": b"99", "penstock-source": b"nonsense"})
    queue = WorkQueue(store, STREAM, group="mail", attempts=2, retry_delay_s=0)
    with store.writer(queue.retries) as writer:
        writer.write_event(b"b", headers={"penstock-attempts": "²".encode(), "penstock-source": b"\xff"})
    with queue.worker("w") as worker:
        assert sorted(outcomes(worker, fail)) == ["dead", "dead", "retry", "retry"]


def test_a_retry_waits_for_its_delay_and_is_not_lost_with_its_worker(store: Store) -> None:
    """The mail server that is busy now is still busy a microsecond later."""
    write(store, b"a", b"b")
    queue = WorkQueue(store, STREAM, group="mail", retry_delay_s=20)
    with queue.worker("w") as worker:
        assert worker.step(fail, timeout=0) == "retry"
        done: list[EventRead] = []
        assert worker.step(done.append, timeout=0) == "done"
        assert worker.step(done.append, timeout=0.01) is None
        assert [job.event for job in done] == [b"b"]
    with WorkQueue(store, STREAM, group="mail", retry_delay_s=0).worker("other") as worker:
        assert outcomes(worker, done.append) == ["done"]
    assert [job.event for job in done] == [b"b", b"a"]


def test_retries_that_were_handled_are_removed(tmp_path: Path) -> None:
    """Each attempt writes the whole job again, so a queue that runs for months would fill the disk with old retries."""
    with penstock.connect(tmp_path, maintenance_interval_s=0.01) as store:
        store.create_stream(STREAM)
        queue = WorkQueue(store, STREAM, group="mail", attempts=60, retry_delay_s=0)
        write(store, bytes(500_000))
        with queue.worker("w") as worker:
            assert outcomes(worker, fail) == ["retry"] * 59 + ["dead"]
            wait_until(lambda: store.stream(queue.retries).size_bytes < 5_000_000)
        assert store.tail(queue.retries).places[0][1] > 59 * 500_000, "all of them were written"
        assert [row["event"] for row in dead_letters(store, queue)] == [bytes(500_000)]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_job_is_the_next_one_again(store: Store, error: type[BaseException]) -> None:
    """Ctrl-C in a shell or a notebook, and the next call: the job that was under way is not done."""
    write(store, b"a")
    queue, done = WorkQueue(store, STREAM, group="mail"), list[Any]()

    def interrupt(_: EventRead) -> None:
        raise error

    with queue.worker("w") as worker:
        with pytest.raises(error):
            worker.step(interrupt, timeout=0)
        assert outcomes(worker, done.append) == ["done"]
    write(store, b"b")
    with pytest.raises(error), queue.worker("w") as worker:
        worker.step(interrupt, timeout=0)
    with queue.worker("w") as worker:
        assert outcomes(worker, done.append) == ["done"]
    assert [job.event for job in done] == [b"a", b"b"]


def test_a_retry_that_cannot_be_written_leaves_the_job_in_the_queue(store: Store) -> None:
    """A failed job that can be copied nowhere, as on a full disk, has to stay where it is."""
    write(store, b"a")
    queue = WorkQueue(store, STREAM, group="mail", retry_delay_s=0)
    with queue.worker("w") as worker:
        store.seal_stream(queue.retries)
        for _ in range(2):
            with pytest.raises(StreamSealed):
                worker.step(fail, timeout=0)
    assert store.reader_group("mail").lag().events == 1


def test_a_worker_that_was_taken_offline_joins_again(store: Store) -> None:
    """A machine that slept for a minute goes on by itself, and what it had not finished is not lost."""
    write(store, b"a", b"b")
    queue, done = WorkQueue(store, STREAM, group="mail"), list[bytes]()

    def offline(_: EventRead) -> None:
        store.reader_group("mail").reader_offline("w")

    with queue.worker("w") as worker:
        assert worker.step(offline, timeout=0) is None
        assert outcomes(worker, lambda job: done.append(job.event)) == ["done", "done"]
    assert done == [b"a", b"b"]


def test_a_job_that_is_too_large_is_set_aside_with_its_pointer(store: Store) -> None:
    """It must neither stop the queue nor fill the memory of a worker."""
    with store.writer(STREAM) as writer:
        writer.write_event(bytes(2_000))
        writer.write_event(b"a")
    queue = WorkQueue(store, STREAM, group="mail")
    with queue.worker("w", max_event_size=1_000) as worker:
        assert outcomes(worker, lambda _: None) == ["dead", "done"]
    (row,) = dead_letters(store, queue)
    pointer = penstock.EventPointer.parse(dict(row["headers"])["penstock-source"].decode())
    assert (row["event"], store.fetch_event(pointer)) == (b"", bytes(2_000))


def test_workers_share_the_jobs_and_a_dead_letter_can_be_tried_by_hand(store: Store) -> None:
    """Each job has one worker; jobs that were set aside are a stream like any other."""
    store.create_stream("office/many", segments=4)
    with store.writer("office/many") as writer:
        writer.write_batch([b"%d" % n for n in range(40)], [str(n) for n in range(40)])
    queue, done = WorkQueue(store, "office/many", group="mail"), list[bytes]()
    with queue.worker("w1") as first, queue.worker("w2") as second:
        for _ in range(200):
            found = [worker.step(lambda job: done.append(job.event), timeout=0) for worker in (first, second)]
            if not any(found) and len(done) >= 40:
                break
    assert sorted(done) == sorted(b"%d" % n for n in range(40))


def test_wrong_arguments_are_refused(store: Store) -> None:
    """A queue that never tries, or holds a retry beyond the lease of its reader, would lose its worker."""
    for arguments in (
        {"attempts": 0},
        {"retry_delay_s": -1},
        {"retry_delay_s": 21},
        {"retry_delay_s": float("nan")},
        {"retry_delay_s": None},
    ):
        with pytest.raises(BadArgument):
            WorkQueue(store, STREAM, group="mail", **arguments)
    with pytest.raises(NoSuchStream):
        WorkQueue(store, "office/none", group="mail")
    assert [info.name for info in store.streams()] == [STREAM]
    assert _queue._RETRY_DELAY_MAX_S < READER_LEASE_S
