"""A client whose threads write events, commit transactions and close large events, whatever becomes of the servers.

Each thread notes when it begins and ends what it does, so that a test can kill a server in the middle of it, and what
the store has acknowledged.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Final, Literal

from penstock.errors import PenstockError
from tests.explore.busy_life import event_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from typing import Self

    from penstock import OpenTransaction, Store

__all__ = ["KINDS", "LARGE_MAX", "STREAM", "BusyClient", "Kind"]

Kind = Literal["write", "commit", "close"]
KINDS: Final[tuple[Kind, ...]] = ("commit", "close", "write")
STREAM: Final = "plant/readings"
LARGE_MAX: Final = 3 << 20
_LONG_S: Final = 60.0
_PAUSE_S: Final = 0.005  # so that other threads, and the processes of the test, get their turn


class BusyClient:
    """The threads, from entering the block to its end; then, what is known about the numbers of each of them."""

    def __init__(self, store: Store, dice: Random) -> None:
        self._store = store
        self._dice = {kind: Random(dice.getrandbits(32)) for kind in KINDS}
        self._next = Counter[Kind]()
        self._change = threading.Condition()
        self._begun, self._ended, self._took_s = Counter[Kind](), Counter[Kind](), dict.fromkeys(KINDS, 0.0)
        self._is_over = False
        self._executor = ThreadPoolExecutor(len(KINDS))
        self._threads: list[Future[None]] = []
        self.acknowledged: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
        self.unsure: dict[Kind, set[int]] = {kind: set() for kind in KINDS}
        self.committed: list[list[int]] = []
        self.failed: list[tuple[OpenTransaction, list[int]]] = []  # transactions whose commit raised an error

    def __enter__(self) -> Self:
        steps: dict[Kind, Callable[[], None]] = {
            "write": self._writes(),
            "commit": self._commit,
            "close": self._closes(),
        }
        self._threads = [self._executor.submit(self._repeat, step) for step in steps.values()]
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._executor.shutdown()
        for thread in self._threads:
            thread.result()

    def _repeat(self, step: Callable[[], None]) -> None:
        try:
            while not self._is_over:
                step()
                time.sleep(_PAUSE_S)
        finally:
            with self._change:
                self._is_over = True  # the test ends, and raises why
                self._change.notify_all()

    # Moments

    @contextmanager
    def _under_way(self, kind: Kind) -> Iterator[None]:
        begun = time.monotonic()
        with self._change:
            self._begun[kind] += 1
            self._change.notify_all()
        try:
            yield
            self._took_s[kind] = time.monotonic() - begun
        finally:
            with self._change:
                self._ended[kind] += 1
                self._change.notify_all()

    def in_the_middle(self, kind: Kind, dice: Random, act: Callable[[], None]) -> None:
        """Act at a random moment while something of that kind is under way."""
        while True:
            number, took_s = self._next_begun(kind)
            time.sleep(dice.uniform(0.0, took_s))
            if self._begun[kind] == number and self._ended[kind] < number:
                return act()

    def _next_begun(self, kind: Kind) -> tuple[int, float]:
        """Wait until the next one begins; return its number, and how long the one before took."""
        with self._change:
            before = self._begun[kind]
            self._await(lambda: self._begun[kind] > before)
            return self._begun[kind], self._took_s[kind]

    def await_more(self) -> None:
        """Return when each thread has done something more."""
        with self._change:
            wanted = {kind: len(self.acknowledged[kind]) for kind in KINDS}
            self._await(lambda: all(len(self.acknowledged[kind]) > wanted[kind] for kind in KINDS))

    def _await(self, holds: Callable[[], bool]) -> None:
        assert self._change.wait_for(lambda: self._is_over or holds(), _LONG_S), "nothing more is acknowledged"
        if self._is_over:
            for thread in self._threads:
                thread.result(_LONG_S)
            raise AssertionError("the threads have ended")

    # What they do

    def _numbers(self, kind: Kind, count: int) -> list[int]:
        first = self._next[kind]
        self._next[kind] += count
        return list(range(first, first + count))

    def _acknowledge(self, kind: Kind, numbers: list[int]) -> None:
        with self._change:
            self.acknowledged[kind] += numbers
            self._change.notify_all()

    def _writes(self) -> Callable[[], None]:
        writer, dice = self._store.writer(STREAM, "write"), self._dice["write"]

        def write() -> None:
            numbers = self._numbers("write", dice.randrange(1, 30))
            with self._under_way("write"):
                acks = [writer.write_event(event_of("write", number, dice.choice((0, 500))), "k") for number in numbers]
                for ack in acks:
                    ack.result(_LONG_S)
            self._acknowledge("write", numbers)

        return write

    def _commit(self) -> None:
        """Commit a transaction, often with a large event; some are aborted, or never ended."""
        dice, numbers = self._dice["commit"], self._numbers("commit", self._dice["commit"].choice((1, 5, 60)))
        is_large, end = dice.random() < 0.3, dice.choice(("commit", "commit", "commit", "abort", "nothing"))
        try:
            transaction = self._store.transactional_writer(STREAM).begin(lease=_LONG_S)
            for number in numbers:
                transaction.write_event(event_of("commit", number, 300), str(number))
            if is_large:
                numbers += self._numbers("commit", 1)
                with transaction.begin_write_event("k") as output:
                    output.write(event_of("commit", numbers[-1], 2 << 20))
            if end == "abort":
                transaction.abort()
        except PenstockError:
            return  # it cannot be committed any more: none of it may be there
        if end != "commit":
            return
        try:
            with self._under_way("commit"):
                transaction.commit()
        except PenstockError:
            self.failed.append((transaction, numbers))
            self.unsure["commit"] |= set(numbers)
        else:
            self.committed.append(numbers)
            self._acknowledge("commit", numbers)

    def _closes(self) -> Callable[[], None]:
        writer, dice = self._store.writer(STREAM, "close"), self._dice["close"]

        def close() -> None:
            [number] = self._numbers("close", 1)
            data = event_of("close", number, dice.choice((1 << 20, 2 << 20, LARGE_MAX)))
            try:
                output = writer.begin_write_event("k")
                output.write(data)
            except PenstockError:
                return  # it was not closed: none of it may be there
            try:
                with self._under_way("close"):
                    output.close()
            except PenstockError:
                self.unsure["close"].add(number)
            else:
                self._acknowledge("close", [number])

        return close
