"""A system that is measured: a way to run Penstock, or a peer, behind the calls that every work is made of.

A call does its work through the best Python client that there is, and returns the seconds that it took. It makes its
connections before the clock starts, and counts what came back: a system that loses events has no figure.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = [
    "WAIT_S",
    "EventLoad",
    "NotOffered",
    "SystemMissing",
    "SystemUnderTest",
    "need_package",
    "tail_times",
]

_BATCH_EVENTS_MAX: Final = 10_000
_BATCH_BYTES_MAX: Final = 4 << 20
WAIT_S: Final = 30.0  # for one answer of a system; after that its figure is a failure
_IDLE_S: Final = 0.001  # before an event whose reader is to wait for it


class SystemMissing(Exception):
    """The system cannot run on this machine; the message says why, and how to get it."""


class NotOffered(Exception):
    """The system has no way to do this work; the message states its limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoad:
    """Events to write or to read: the same bytes so many times."""

    event: bytes
    count: int

    @property
    def batch_size(self) -> int:
        """The number of events in a batch, for systems that have batches."""
        return max(1, min(_BATCH_EVENTS_MAX, _BATCH_BYTES_MAX // len(self.event), self.count))

    def batch_sizes(self) -> list[int]:
        """The number of events in each batch."""
        full, rest = divmod(self.count, self.batch_size)
        return [self.batch_size] * full + [rest] * bool(rest)


class SystemUnderTest(ABC):
    """What every system can be asked to do; ``start`` comes first, ``stop`` last, and they may take turns."""

    name: ClassVar[str]
    """What ``--peers`` or ``--penstock`` calls it; two settings of a peer share it."""
    key: ClassVar[str]
    """Its name in the JSON."""
    title: ClassVar[str]
    is_synced: ClassVar[bool]
    """Whether an acknowledged event is on the disk."""
    is_default: ClassVar[bool]
    """Whether these are the settings that it comes with."""
    written_events_min: ClassVar[int] = 1
    """How many events of 100 bytes are written in a round at least, where something waits before the last are sent."""
    is_reader: ClassVar[bool] = False
    """Whether it differs from another system in nothing but how events are read, and takes part in that only."""
    stored_bytes_max: ClassVar[int | None] = None
    """How many bytes of a stream it has for readers, if that is little."""
    settings: ClassVar[Mapping[str, str]]
    """What a reader needs to know to judge the figures: client, durability, batches, how much is in flight.

    While a work writes many events, each system sends on without waiting for acknowledgements, as far as its client
    can, and waits for all of them in the end.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder
        self.filled: Final[dict[bytes, tuple[str, EventLoad]]] = {}
        """By event, a stream that readers may read, and what is in it."""
        self._numbers = count(1)

    def new_name(self) -> str:
        """Return a name that no stream has yet."""
        return f"stream-{next(self._numbers)}"

    @classmethod
    @abstractmethod
    def check(cls) -> None:
        """Raise SystemMissing if a program or a package that it needs is not there."""

    @abstractmethod
    def start(self) -> None:
        """Start it on the data in its folder, and wait until it answers."""

    @abstractmethod
    def stop(self) -> None:
        """End it in order; what was acknowledged stays in the folder. It may not be running."""

    def close(self) -> None:
        """End all of it, quickly: what it has stored is no longer needed."""
        self.stop()

    @abstractmethod
    def write_each(self, load: EventLoad) -> float:
        """Write with a call for each event, into a new stream that is removed; until all are acknowledged."""

    @abstractmethod
    def write_batches(self, load: EventLoad) -> float:
        """Write many events with a call, into a new stream that is removed; until all are acknowledged."""

    @abstractmethod
    def fill(self, load: EventLoad) -> str:
        """Write into a new stream, and return its name."""

    @abstractmethod
    def read_each(self, stream: str, load: EventLoad) -> float:
        """Read a stream from its beginning, with a call or a callback for each event."""

    @abstractmethod
    def read_batches(self, stream: str, load: EventLoad) -> float:
        """Read a stream from its beginning, with a call for many events."""

    @abstractmethod
    def write_singly(self, load: EventLoad) -> list[float]:
        """Write event by event, each acknowledged before the next; return what each took."""

    @abstractmethod
    def tail(self, load: EventLoad) -> list[float]:
        """Write event by event; return how long after the call another reader, which waits, has each."""

    @abstractmethod
    def large(self, size: int) -> tuple[float, float]:
        """Write and read one event of this size; return what each of both took."""

    @abstractmethod
    def create_streams(self, number: int, *, seconds_max: float) -> tuple[int, float]:
        """Create streams and write an acknowledged event to each, until time is up; return how many, and the time.

        They are removed after that, so that they are no burden for the works that follow.
        """

    def restart(self, stream: str, load: EventLoad) -> float:
        """Stop, and return how long it takes from the start until the first event of a stream has been read."""
        self.stop()
        start = time.perf_counter()
        self.start()
        self.read_each(stream, EventLoad(event=load.event, count=1))
        return time.perf_counter() - start


def need_package(module: str) -> None:
    """Raise SystemMissing if a package is not installed."""
    if find_spec(module) is None:
        raise SystemMissing(f"the package {module} is missing: pip install 'penstock-stream[bench]'")


def tail_times(write: Callable[[], object], read: Callable[[], object], times: int) -> list[float]:
    """Return how long after each call of ``write`` a thread that waits in ``read`` returns from it."""
    arrived: list[float] = []
    failures: list[BaseException] = []
    is_waiting, has_read = threading.Semaphore(0), threading.Semaphore(0)

    def follow() -> None:
        try:
            for _ in range(times):
                is_waiting.release()
                read()
                arrived.append(time.perf_counter())
                has_read.release()
        except BaseException as error:  # noqa: BLE001 - raised again, below
            failures.append(error)
            is_waiting.release()
            has_read.release()

    thread = threading.Thread(target=follow, name="penstock-bench-reader", daemon=True)
    thread.start()
    sent = []
    for _ in range(times):
        is_waiting.acquire()
        time.sleep(_IDLE_S)
        sent.append(time.perf_counter())
        write()
        if not has_read.acquire(timeout=WAIT_S):
            raise TimeoutError(f"an event has not reached its reader within {WAIT_S:g} s")
        if failures:
            raise failures[0]
    thread.join()
    return [after - before for before, after in zip(sent, arrived, strict=True)]
