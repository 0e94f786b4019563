"""The work queue: events as jobs, with retries and a stream for those that keep failing.

A worker handles a job, makes the outcome durable, and only then moves its position. So a job is never lost, and may be
handled again after a crash. Its readers are kept alive meanwhile: a job that takes long does not go to another worker
as well. A job that failed is copied to the retry stream, which the same workers read when its delay is over; after the
last attempt it is copied to the dead-letter stream. A copy has the key and the headers of the job. Three more headers
say how often it was tried, where the job was first, and why it failed. Retries that were handled are removed by the
retention of their stream; dead letters stay.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self

from penstock.errors import BadArgument, EventTooLarge, ReaderOffline
from penstock.model import ByConsumption, EventPointer, StreamConfig, StreamCut, check_timeout, check_whole, shown
from penstock.patterns._checks import check_function, check_returned, check_stop, check_store
from penstock.store import EVENT_SIZE_DEFAULT
from penstock.stream.format import HEADERS_SIZE_MAX, headers_size

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from penstock.model import StreamPosition
    from penstock.store import Store
    from penstock.stream import EventRead, Reader, StreamWriter

    Outcome = Literal["done", "retry", "dead"]

__all__ = ["WorkQueue", "Worker"]

ATTEMPTS: Final = "penstock-attempts"
SOURCE: Final = "penstock-source"
ERROR: Final = "penstock-error"
_OURS: Final = (ATTEMPTS, SOURCE, ERROR)
_ERROR_SIZE_MAX: Final = 1_000
_RETRY_DELAY_MAX_S: Final = 20.0  # a worker holds the next retry until it is due, within the lease of its reader
_WAIT_S: Final = 0.5
_log: Final = logging.getLogger(__name__)


class WorkQueue:
    """The events of a stream as jobs, which the workers of a group share.

    A job is tried ``attempts`` times, with at least ``retry_delay_s`` seconds between them. Retries are in the stream
    ``<stream>.<group>.retry`` and jobs that failed for good in ``<stream>.<group>.dead``; both are created. The group
    reads from ``start``, by default from the head.
    """

    def __init__(
        self,
        store: Store,
        stream: str,
        *,
        group: str,
        attempts: int = 5,
        retry_delay_s: float = 1.0,
        start: StreamPosition | None = None,
    ) -> None:
        check_store(store)
        check_whole("attempts", attempts, least=1)
        _check_delay(retry_delay_s)
        if start is not None and not isinstance(start, StreamCut | datetime | int | str):
            raise BadArgument(f"invalid start {shown(start)}: use a StreamCut, a time, 'head' or 'tail'")
        self._store, self.attempts, self.retry_delay_s = store, attempts, retry_delay_s
        self.retries, self.dead_letters = f"{stream}.{group}.retry", f"{stream}.{group}.dead"
        store.stream(stream)
        store.create_stream(self.retries, config=StreamConfig(retention=ByConsumption()), exist_ok=True)
        store.create_stream(self.dead_letters, exist_ok=True)
        self._groups = (
            store.create_reader_group(group, [stream], start, exist_ok=True),
            store.create_reader_group(f"{group}.retry", [self.retries], exist_ok=True),
        )

    def worker(self, worker_id: str, *, max_event_size: int = EVENT_SIZE_DEFAULT) -> Worker:
        """Open a worker; use it in ``with``. One of the same name whose process has ended is replaced."""
        return Worker(self, worker_id, max_event_size)

    def open_readers(self, worker_id: str, max_event_size: int, into: ExitStack) -> tuple[Reader, Reader]:
        """Open the readers of a worker: of jobs, and of retries."""
        jobs, retries = (
            into.enter_context(group.reader(worker_id, max_event_size=max_event_size)) for group in self._groups
        )
        return jobs, retries

    def open_writer(self, stream: str, into: ExitStack) -> StreamWriter:
        """Open a writer of retries or dead letters."""
        return into.enter_context(self._store.writer(stream))


class _Retry(NamedTuple):
    """A job that is to be tried again, and when, by :func:`time.time`."""

    job: EventRead
    due: float


class Worker:
    """Handles jobs one after the other; one thread at a time uses it. Several workers share the jobs of a queue."""

    def __init__(self, queue: WorkQueue, worker_id: str, max_event_size: int) -> None:
        self._queue, self._id, self._max_event_size = queue, worker_id, max_event_size
        self._held: _Retry | None = None
        self._is_interrupted = False  # by an error while a job was under way: it must not count as handled
        self._open()

    def _open(self) -> None:
        queue = self._queue
        with ExitStack() as opened:  # which closes what is open if the rest cannot be opened
            self._jobs, self._retries = queue.open_readers(self._id, self._max_event_size, opened)
            self._retry_writer = queue.open_writer(queue.retries, opened)
            self._dead_writer = queue.open_writer(queue.dead_letters, opened)
            self._handles = opened.pop_all()

    def step(self, handle: Callable[[EventRead], object], timeout: float | None = None) -> Outcome | None:
        """Handle the next job; return its outcome, None if there was none within ``timeout`` seconds.

        A job is done when ``handle(job)`` returns, however long that takes, and failed if it raises an ``Exception``.
        ``handle`` is a plain function: ``BadArgument`` for a coroutine function, or one that returns an awaitable.
        A job above ``max_event_size`` is a dead letter without its bytes: its header says where it is. After any other
        error, such as a full disk or Ctrl-C, the next call begins with the same job.
        """
        check_function(handle)
        check_timeout("timeout", timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._is_interrupted:
            self._reopen()
        self._is_interrupted = True
        try:
            outcome = self._next_outcome(handle, deadline)
        except ReaderOffline:
            _log.warning("worker %s was silent for too long: other workers have its jobs, and it joins again", self._id)
            return None
        self._is_interrupted = False
        return outcome

    def _next_outcome(self, handle: Callable[[EventRead], object], deadline: float | None) -> Outcome | None:
        while True:
            outcome = self._try_once(handle, deadline)
            if outcome is not None or (deadline is not None and time.monotonic() >= deadline):
                return outcome

    def run(self, handle: Callable[[EventRead], object], stop: threading.Event) -> None:
        """Handle jobs until ``stop`` is set."""
        check_function(handle)
        check_stop(stop)
        while not stop.is_set():
            self.step(handle, _WAIT_S)

    def _try_once(self, handle: Callable[[EventRead], object], deadline: float | None) -> Outcome | None:
        """Handle a retry that is due, or the next job; wait for a job until the next retry may be due."""
        reader = self._retries
        try:
            job = self._due_retry()
            if job is None:
                reader = self._jobs
                job = reader.read_next_event(self._wait_s(deadline))
        except EventTooLarge as error:
            self._write_dead_letter(b"", None, (), error.pointer, error, attempts=1)
            reader.commit()
            return "dead"
        if job is None or job.checkpoint is not None:
            return None
        with self._jobs.keep_alive(), self._retries.keep_alive():  # a job takes as long as it takes
            outcome = self._outcome(handle, job)
            if reader is self._retries:
                self._held = None
            reader.commit()
        return outcome

    def _due_retry(self) -> EventRead | None:
        if self._held is None:
            job = self._retries.read_next_event(0)
            if job is None or job.timestamp is None:
                return None
            self._held = _Retry(job, job.timestamp / 1000 + self._queue.retry_delay_s)
        return self._held.job if self._held.due <= time.time() else None

    def _wait_s(self, deadline: float | None) -> float:
        """Return how long to wait for a job; not for long, because another worker may have added a retry."""
        rest = _WAIT_S if deadline is None else max(min(_WAIT_S, deadline - time.monotonic()), 0.0)
        return rest if self._held is None else max(min(rest, self._held.due - time.time()), 0.0)

    def _outcome(self, handle: Callable[[EventRead], object], job: EventRead) -> Outcome:
        assert job.pointer is not None, "checkpoints are no jobs"
        try:
            returned = handle(job)
        except Exception as error:  # noqa: BLE001 - whatever the job fails with is why it is tried again
            attempts, source = 1, job.pointer
            if job.pointer.stream == self._queue.retries:
                attempts, source = _attempts_of(job) + 1, _source_of(job) or job.pointer
            if attempts >= self._queue.attempts:
                self._write_dead_letter(job.event, job.key, job.header_pairs, source, error, attempts=attempts)
                return "dead"
            headers = _headers(job.header_pairs, source, error, attempts=attempts)
            self._retry_writer.write_event(job.event, job.key, headers=headers).result()
            return "retry"
        check_returned(returned)
        return "done"

    def _write_dead_letter(
        self,
        event: bytes,
        key: bytes | None,
        pairs: tuple[tuple[str, bytes], ...],
        source: object,
        error: Exception,
        *,
        attempts: int,
    ) -> None:
        self._dead_writer.write_event(event, key, headers=_headers(pairs, source, error, attempts=attempts)).result()

    def _reopen(self) -> None:
        self._let_go()
        self._open()
        self._is_interrupted = False

    def _let_go(self) -> None:
        """Close all handles; what a reader returned last, and was not committed, does not count as read."""
        self._held = None
        unhandled = _Unhandled()
        self._handles.__exit__(_Unhandled, unhandled, None)

    def close(self) -> None:
        """Let other workers go on; a retry that is not due yet goes to one of them."""
        self._let_go()

    def __enter__(self) -> Self:
        """Close at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close; a job that was not handled to its end goes to another worker."""
        self._let_go()


class _Unhandled(Exception):
    """With which readers are left: a job that was returned, and not committed, is returned again."""


def _check_delay(delay: object) -> None:
    if not isinstance(delay, int | float) or not 0 <= delay <= _RETRY_DELAY_MAX_S:
        raise BadArgument(f"invalid retry_delay_s {delay!r}: use 0 to {_RETRY_DELAY_MAX_S:.0f} seconds")


def _attempts_of(job: EventRead) -> int:
    """Return how often a job has failed; 0 if its header is not one of ours."""
    digits = job.headers.get(ATTEMPTS, b"0")
    return int(digits) if digits.isdigit() and len(digits) < 10 else 0


def _source_of(job: EventRead) -> EventPointer | None:
    """Return where a job was first; None if its header does not say so."""
    try:
        return EventPointer.parse(job.headers.get(SOURCE, b"").decode())
    except ValueError:  # which BadArgument is, too
        return None


def _headers(
    pairs: tuple[tuple[str, bytes], ...], source: object, error: Exception, *, attempts: int
) -> list[tuple[str, bytes]]:
    """Return the headers of a job with ours in place of those of the last attempt; one that has no room is omitted."""
    reason = f"{type(error).__name__}: {_text_of(error)}".encode(errors="replace")[:_ERROR_SIZE_MAX]
    ours = [(ATTEMPTS, b"%d" % attempts), (SOURCE, str(source).encode()), (ERROR, reason)]
    kept, left = [], HEADERS_SIZE_MAX - headers_size(tuple(ours))
    for pair in pairs:
        if pair[0] not in _OURS and (size := headers_size((pair,))) <= left:
            kept.append(pair)
            left -= size
    return kept + ours


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception as own:  # noqa: BLE001 - an error of the caller's; it must not keep the job from being moved
        return f"(its text raises {type(own).__name__})"
