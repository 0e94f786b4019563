"""The order in which passwords are checked, and the delay after wrong ones.

A check takes 64 MiB of memory and a tenth of a second, so only a few run at a time. The other logins wait in queues:

- Addresses take turns, so a flood from one address delays another address by a check or two.
- Within an address, there are up to three kinds of queues, which take turns, too: connections without a failed login,
  connections with one, and one for each user that has logged in from there before.
- Within a queue, the newest and the oldest login are taken alternately. A user that arrives behind many guesses is
  checked soon, and no login waits for more than twice as many checks as the queue has places.

Once an address has sent several wrong passwords, the answer to each further one is delayed, twice as long each time. A
delayed call does not hold up others, and a client that guesses passwords spends its time waiting.

Each waiting call occupies a thread. Their number is limited, for each address and in total; calls above a limit are
refused without a check, and the error says to try again.
"""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict, deque
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from penstock.errors import LoginsBusy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.ports import Clock

__all__ = ["Failures", "LoginQueue", "Origin"]

SHARE_OF_NETWORK: Final = 0.25  # of those that may wait
WAITING_OF_KNOWN_MAX: Final = 4  # of a user that has logged in from its network before
REMEMBERED_MAX: Final = 10_000  # networks with failures, connections with failures, users with their networks
FAILURES_FREE: Final = 5  # a user may mistype
FORGIVEN_EVERY_S: Final = 10.0
DELAY_MIN_S: Final = 0.25
DELAY_MAX_S: Final = 8.0  # a connection without an accepted call is closed soon after, and its place is free
LINES_EVERY_S: Final = 10.0  # of an address in the log
LINES_MAX: Final = 100  # of all addresses in that time

_Key = tuple[str, ...]


class Origin(NamedTuple):
    """Where a login comes from: a network, and a connection."""

    network: str
    peer: str


class _Lane:
    """Logins that share their turns. ``places`` counts them and the calls that are answered late."""

    def __init__(self) -> None:
        self.waiting: deque[threading.Event] = deque()
        self.places = 0
        self.turn = 0  # of the last that came
        self._is_newest_next = True

    def take(self) -> threading.Event:
        """Return the next to be checked."""
        is_newest, self._is_newest_next = self._is_newest_next, not self._is_newest_next
        return self.waiting.pop() if is_newest else self.waiting.popleft()


class LoginQueue:
    """The logins that are checked, and those that wait, so many at once; see the module."""

    def __init__(self, *, checks: int, waiting: int) -> None:
        self._lock = threading.Lock()
        self._checks_max, self._free = checks, checks
        self.delayed = 0  # logins that had to wait for others
        self._waiting_max, self._waiting_of_network_max = waiting, max(1, int(waiting * SHARE_OF_NETWORK))
        self._turns: list[tuple[int, int, _Lane]] = []  # a heap: for each login that waits a turn of its lane
        self._arrivals = count()
        self._lanes: dict[_Key, _Lane] = {}
        self._places = 0  # in all lanes
        self._turn = 0  # the last that was taken
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()  # a network, and a user that came from there
        self._failed: OrderedDict[str, None] = OrderedDict()  # connections

    @property
    def checked(self) -> int:
        """The number of passwords being checked."""
        return self._checks_max - self._free

    @property
    def waiting(self) -> int:
        """The number of calls that wait, with those being checked."""
        return self._places

    @contextmanager
    def turn(self, origin: Origin, name: str) -> Iterator[None]:
        """Wait until a password may be checked; ``LoginsBusy`` if too many wait."""
        gate = threading.Event()
        with self.place(origin, name) as lane:
            with self._lock:
                lane.turn = max(self._turn, lane.turn) + 1
                lane.waiting.append(gate)
                heapq.heappush(self._turns, (lane.turn, next(self._arrivals), lane))
                self.delayed += not self._free
                self._admit()
            gate.wait()
            try:
                yield
            finally:
                with self._lock:
                    self._free += 1
                    self._admit()

    @contextmanager
    def place(self, origin: Origin, name: str) -> Iterator[_Lane]:
        """Take the place of a call that waits, for a check or for something else."""
        with self._lock:
            key = self._key(origin, name)
            lane = self._lanes.setdefault(key, _Lane())
            lane.places += 1
            self._places += 1
        try:
            yield lane
        finally:
            with self._lock:
                self._places -= 1
                lane.places -= 1
                if not lane.places:
                    del self._lanes[key]

    def _key(self, origin: Origin, name: str) -> _Key:
        network, peer = origin
        known, fresh, failed = ("known", network, name), ("fresh", network), ("failed", network)
        if self.is_known(network, name) and self._places_of(known) < WAITING_OF_KNOWN_MAX:
            return known
        if self._places_of(fresh, failed) >= self._waiting_of_network_max or self._places >= self._waiting_max:
            raise LoginsBusy
        return failed if peer in self._failed else fresh

    def _places_of(self, *keys: _Key) -> int:
        return sum(self._lanes[key].places for key in keys if key in self._lanes)

    def _admit(self) -> None:
        while self._free and self._turns:
            self._turn, _, lane = heapq.heappop(self._turns)
            self._free -= 1
            lane.take().set()

    def note_known(self, network: str, name: str) -> None:
        """Note that a user has logged in from a network."""
        with self._lock:
            _add(self._known, (network, name))

    def is_known(self, network: str, name: str) -> bool:
        """Whether the user has logged in from the network."""
        return (network, name) in self._known

    def note_failed(self, peer: str) -> None:
        """Note that a login has failed on a connection."""
        with self._lock:
            _add(self._failed, peer)


_T = TypeVar("_T")


def _add(table: OrderedDict[_T, None], key: _T) -> None:
    """Add a key to a table that forgets the oldest."""
    table[key] = None
    table.move_to_end(key)
    if len(table) > REMEMBERED_MAX:
        table.popitem(last=False)


class _Failed(NamedTuple):
    """The failed logins of an network: how many count now, since when, when the log had a line, how many it has not."""

    number: float
    at: float
    logged_at: float
    unlogged: int


class Failures:
    """Failed logins by network. They are forgiven one by one, whether or not a login succeeds meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, _Failed] = OrderedDict()
        self._lines, self._lines_since = 0, clock.elapsed()
        self.total = 0

    def note(self, network: str, *, slows: bool = True) -> tuple[float, int]:
        """Count a failed login; return how long to wait with the answer, and how many to log now, if any.

        One that does not slow its network down is logged and counted with the others.
        """
        with self._lock:
            self.total += 1
            now, before = self._clock.elapsed(), self._failed.pop(network, _Failed(0.0, 0.0, float("-inf"), 0))
            number = self._left(before, now) + slows
            is_logged = now - before.logged_at >= LINES_EVERY_S and self._may_log(now)
            unlogged = before.unlogged + 1
            logged_at = now if is_logged else before.logged_at
            self._failed[network] = _Failed(number, now, logged_at, 0 if is_logged else unlogged)
            if len(self._failed) > REMEMBERED_MAX:
                self._failed.popitem(last=False)
            return _delay_s(number), unlogged if is_logged else 0

    def wait_s(self, network: str) -> float:
        """Return for how long an network is not to be answered yet, if it does not wait by itself."""
        with self._lock:
            failed = self._failed.get(network)
            if failed is None:
                return 0.0
            return max(0.0, failed.at + _delay_s(failed.number) - self._clock.elapsed())

    def _left(self, failed: _Failed, now: float) -> float:
        return max(0.0, failed.number - (now - failed.at) / FORGIVEN_EVERY_S)

    def _may_log(self, now: float) -> bool:
        if now - self._lines_since >= LINES_EVERY_S:
            self._lines, self._lines_since = 0, now
        self._lines += 1
        return self._lines <= LINES_MAX


def _delay_s(failures: float) -> float:
    beyond = failures - FAILURES_FREE
    return 0.0 if beyond <= 0 else min(DELAY_MAX_S, DELAY_MIN_S * 2 ** min(beyond - 1, 10))
