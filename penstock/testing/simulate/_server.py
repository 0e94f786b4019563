"""A simulated plog server: a real :class:`~penstock.plog.replicated.ReplicaHost` on a simulated disk."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import PenstockError
from penstock.plog.replicated import LIST_COUNT_MAX, DamagedList, Hello, ListDamaged, ReplicaHost, ServerIdentity
from penstock.testing.simulate._kernel import SimProcess
from penstock.testing.simulate._scrub import SimScrubber
from penstock.testing.simulate._storage import SimStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.plog.replicated import Answer, HostSession, HostSteps, ReplicaRequest
    from penstock.testing.simulate._kernel import Kernel
    from penstock.testing.simulate._storage import SavedDisk

__all__ = ["SimServer"]

_SYNC_S: Final = 0.001
_LOOK_S: Final = 1.0
_SHARED: Final = 0.1  # of that, for a request whose sync was that of the one before it


class SimServer:
    """A server that crashes and returns; its disk may be slow, full, failing or lost."""

    def __init__(self, kernel: Kernel, cluster: str, group: str, place: int) -> None:
        self._kernel = kernel
        self.group, self.place = group, place
        self.name = f"{group}.{place}"
        self.storage = SimStorage(self.name, cluster, group)
        self.slowness = 1.0
        self.cluster = cluster
        self._runs = 0
        self._fences: list[tuple[int, dict[bytes, int]]] = []  # each new epoch, and the durable lengths when it came
        self._welcomed_epoch = 0  # the highest of them: a crash before that may forget the fence
        self.process = SimProcess(self.name)
        self.process.is_alive = False
        self.start()

    def start(self) -> None:
        """Start again after a crash."""
        if self.process.is_alive:
            return
        self._runs += 1
        self.process = SimProcess(f"{self.name} run {self._runs}")
        identity = ServerIdentity(self.cluster, self.group, self.name, self._runs.to_bytes(16))
        epoch, owner = self.storage.epoch
        self._host = ReplicaHost(identity, self.storage, epoch=epoch, owner=owner)
        self._sessions: dict[int, HostSession] = {}
        self._begun: dict[int, deque[_SimRequest]] = {}  # by link; a connection completes them in their order
        self._scrub_for_ever(SimScrubber(self.storage, self._kernel))

    def _scrub_for_ever(self, scrubber: SimScrubber) -> None:
        """Let the scrub look whether it is due, again and again."""

        def check() -> None:
            scrubber.run_if_due()
            self._scrub_for_ever(scrubber)

        self._kernel.at(_LOOK_S * self._kernel.random.random(), self.process, check)

    def crash(self) -> None:
        """Stop at once; what is not synced may be lost."""
        if self.process.is_alive:
            self.process.is_alive = False
            self._fences = [fence for fence in self._fences if fence[0] <= self._welcomed_epoch]
            self.storage.crash(self._kernel.random)

    def lose_folder(self) -> None:
        """Return with an empty disk."""
        self.crash()
        self.storage.lose()
        self.start()

    def set_back(self, saved: SavedDisk) -> None:
        """Return with an older copy of the disk."""
        self.crash()
        self.storage.set_back(saved)
        self.start()

    def receive(
        self, link: int, number: int, request: ReplicaRequest, payload: bytes, answer: Callable[[Answer, bytes], None]
    ) -> None:
        """Carry out a request that arrived over a connection."""
        if isinstance(request, Hello):
            if request.epoch is not None and request.epoch > self._host.epoch:
                self._fences.append((request.epoch, self.storage.lengths()))

            def opened(result: tuple[HostSession | None, Answer]) -> None:
                session, welcome = result
                if session is not None:
                    self._sessions[link] = session
                    self._welcomed_epoch = max(self._welcomed_epoch, session.epoch or 0)
                answer(welcome, b"")

            self._begin(link, self._host.open_session(request), opened)
            return
        session = self._sessions.get(link)
        if session is None:
            return
        if isinstance(request, ListDamaged):
            answer(DamagedList(sorted(self.storage.damaged)[:LIST_COUNT_MAX]), b"")
            return
        steps = self._host.handle(session, number, request, payload, now=self._kernel.now)
        self._begin(link, steps, lambda reply: None if reply is None else answer(reply[0], b"".join(reply[1])))

    def acknowledged_max(self, uid: bytes, epoch: int) -> int:
        """Return how much of a plog it can have acknowledged to an owner: what it had before a newer one came."""
        fenced = next((lengths for fence, lengths in self._fences if fence > epoch), None)
        return (self.storage.lengths() if fenced is None else fenced).get(uid, -1)

    def _begin(self, link: int, steps: HostSteps[Any], done: Callable[[Any], None]) -> None:
        """Run a request up to its first call; what it waits for is waited for after the requests before it."""
        request = _SimRequest(steps, done)
        if not request.advance(None, None):
            return
        begun = self._begun.setdefault(link, deque())
        begun.append(request)
        if len(begun) == 1:
            self._wait(begun, 1.0)

    def _wait(self, begun: deque[_SimRequest], share: float) -> None:
        """Make the next call of the first request after some time, and go on until no request is left."""

        def make() -> None:
            if begun[0].make_call():
                self._wait(begun, 1.0)
                return
            begun.popleft()
            if begun:
                self._wait(begun, _SHARED)

        delay_s = _SYNC_S * self._kernel.random.uniform(0.3, 3.0) * self.slowness * share
        self._kernel.at(delay_s, self.process, make)


class _SimRequest:
    """A request and the call that it waits for."""

    def __init__(self, steps: HostSteps[Any], done: Callable[[Any], None]) -> None:
        self._steps, self._done = steps, done
        self._call: Callable[[], Any] | None = None

    def make_call(self) -> bool:
        """Make the call and go on; return whether there is another one to be made."""
        assert self._call is not None
        try:
            result = self._call()
        except PenstockError as error:
            return self.advance(None, error)
        return self.advance(result, None)

    def advance(self, result: object, error: PenstockError | None) -> bool:
        """Go on up to the next call; return False if there is none."""
        try:
            self._call = self._steps.send(result) if error is None else self._steps.throw(error)
        except StopIteration as end:
            self._done(end.value)
            return False
        return True
