"""Virtual time: events in order, and tasks that wait for each other.

Everything that happens is an event at a time, of a process. A process that is dead gets no events, one that is paused
gets them when it is woken. One seed gives one order of all events.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from random import Random
from typing import Any, TypeVar

from penstock.errors import PenstockError

__all__ = ["Future", "Kernel", "Mutex", "SimProcess", "Waits", "wait_all"]

T = TypeVar("T")


class SimProcess:
    """Something that can be killed and paused: a server in one of its runs, or an owner."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.deferred: list[Callable[[], None]] = []


class Future:
    """A result that a task waits for."""

    __slots__ = ("_waiting", "error", "is_done", "result")

    def __init__(self) -> None:
        self.is_done = False
        self.result: Any = None
        self.error: PenstockError | None = None
        self._waiting: list[Callable[[], None]] = []

    def resolve(self, result: object = None, error: PenstockError | None = None) -> None:
        """Set the result or the error, once; later ones are ignored."""
        if self.is_done:
            return
        self.is_done, self.result, self.error = True, result, error
        for waiting in self._waiting:
            waiting()
        self._waiting.clear()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call when it is done, at once if it is."""
        if self.is_done:
            call()
        else:
            self._waiting.append(call)


Waits = Generator[Future, Any, T]


class Kernel:
    """The events to come, in order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self._events: list[tuple[float, int, SimProcess, Callable[[], None]]] = []
        self._ready: deque[tuple[SimProcess, Callable[[], None]]] = deque()
        self._count = 0
        self.world = SimProcess("world")

    def at(self, delay: float, process: SimProcess, call: Callable[[], None]) -> None:
        """Have a process do something after a delay."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, process, call))

    def soon(self, process: SimProcess, call: Callable[[], None]) -> None:
        """Have a process do something now, after the event under way."""
        self._ready.append((process, call))

    def sleep(self, delay: float, process: SimProcess) -> Future:
        """Return a future that is done after a delay."""
        future = Future()
        self.at(delay, process, future.resolve)
        return future

    def spawn(self, process: SimProcess, waits: Waits[Any]) -> Future:
        """Run a task of a process; return its result."""
        future = Future()

        def step(done: Future | None) -> None:
            try:
                if done is None:
                    wanted = next(waits)
                elif done.error is not None:
                    wanted = waits.throw(done.error)
                else:
                    wanted = waits.send(done.result)
            except StopIteration as end:
                future.resolve(end.value)
            except PenstockError as error:
                future.resolve(error=error)
            else:
                wanted.when_done(lambda: self.soon(process, lambda: step(wanted)))

        self.soon(process, lambda: step(None))
        return future

    def run(self, until: Callable[[], bool], *, seconds: float) -> bool:
        """Let time pass until a condition holds; return False if it does not hold after so many seconds."""
        end = self.now + seconds
        while not until():
            if self._ready:
                process, call = self._ready.popleft()
            elif self._events and self._events[0][0] <= end:
                self.now, _, process, call = heapq.heappop(self._events)
            else:
                self.now = end
                return False
            self.steps += 1
            if process.is_paused:
                process.deferred.append(call)
            elif process.is_alive:
                call()
        return True

    def wake(self, process: SimProcess) -> None:
        """Let a paused process continue with all that has come for it meanwhile."""
        process.is_paused = False
        for call in process.deferred:
            self.soon(process, call)
        process.deferred = []


class Mutex:
    """Taken by one task at a time, in the order of asking."""

    def __init__(self) -> None:
        self._held = False
        self._queue: deque[Future] = deque()

    def held(self, waits: Waits[T]) -> Waits[T]:
        """Run a task while holding it."""
        if self._held:
            turn = Future()
            self._queue.append(turn)
            yield turn
        self._held = True
        try:
            return (yield from waits)
        finally:
            if self._queue:
                self._queue.popleft().resolve()
            else:
                self._held = False


def wait_all(futures: list[Future]) -> Waits[None]:
    """Wait until all are done, whatever their results."""
    for future in futures:
        if not future.is_done:
            done = Future()
            future.when_done(done.resolve)
            yield done
