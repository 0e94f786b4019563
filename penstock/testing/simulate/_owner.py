"""A simulated owner: sessions with all servers, appends under way, and the actions of protocols."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import GroupUnavailable, NoSuchPlog, PenstockError, StoreFenced
from penstock.log import protocols as log
from penstock.model import PlogId
from penstock.plog.replicated import (
    REPLICAS,
    AppendReplica,
    Ask,
    AwaitQuiet,
    GroupChoice,
    NoteCopied,
    OwnedPlogs,
    ReadRow,
    RemoveRow,
    WriteRow,
    note_damaged,
    read_blocks,
)
from penstock.testing.simulate._kernel import Future, Mutex, SimProcess, wait_all
from penstock.testing.simulate._network import SimLink

if TYPE_CHECKING:
    from penstock.plog import PlogInfo
    from penstock.plog.replicated import AppendWindow, ReplicaSteps, SentAppend, ServerAnswer
    from penstock.testing.simulate._kernel import Waits
    from penstock.testing.simulate._world import World

__all__ = ["CLUSTER", "SimOwner"]

T = TypeVar("T")
CLUSTER: Final = "sim"
_ASK_WAIT_S: Final = 1.5
_EXPIRE_S: Final = 2.05  # just behind the deadline of an append


class SimOwner:
    """A process that owns the partition, or believes so."""

    def __init__(self, world: World, number: int, epoch: int) -> None:
        self._world, self._kernel, self._truth = world, world.kernel, world.truth
        self.process = SimProcess(f"owner {number}")
        self.epoch = epoch
        self.token = number.to_bytes(16)
        self.number = 0
        self.clock_rate, self.clock_jump = 1.0, 0.0
        groups = {name: tuple(server.name for server in servers) for name, servers in world.groups.items()}
        self.plogs = OwnedPlogs(groups)
        self.choice = GroupChoice(groups)
        self.partition_lock = Mutex()
        self._locks: dict[PlogId, Mutex] = {}
        self._waiting: dict[PlogId, list[tuple[int, Future]]] = {}
        self.end_reason = ""
        self._links: dict[tuple[str, int], SimLink] = {}
        for group, servers in world.groups.items():
            for server in servers:
                self._links[group, server.place] = SimLink(self, server, world.network, world.kernel)

    def clock(self) -> float:
        """The time of this owner's own clock."""
        return self._kernel.now * self.clock_rate + self.clock_jump

    def end(self, reason: str) -> None:
        """End the process: it has a successor, or cannot go on."""
        if self.process.is_alive:
            self.process.is_alive, self.end_reason = False, reason
            self._world.owner_ended()

    def link(self, group: str, place: int) -> SimLink:
        """Return the connection to a server."""
        return self._links[group, place]

    def link_opened(self, group: str, place: int) -> None:
        """Repeat the appends that a server has not acknowledged."""
        for window in self.plogs.windows.values():
            if window.plog_id.group == group:
                for append in window.unacknowledged(place):
                    self._send(window, place, append)

    def submit(self, plog_id: PlogId, offset: int, data: bytes) -> Future:
        """Append without waiting; the result is the new offset, once it is committed."""
        window, future = self.plogs.window(plog_id), Future()
        append = window.submit(offset, data, now=self.clock())
        self._truth.note_written(self.epoch, plog_id, offset, data)
        self._waiting.setdefault(plog_id, []).append((append.end, future))
        for place in range(REPLICAS):
            if self._links[plog_id.group, place].is_up:
                self._send(window, place, append)
        self._kernel.at(_EXPIRE_S / self.clock_rate, self.process, lambda: self._expire(window))
        return future

    def _send(self, window: AppendWindow, place: int, append: SentAppend) -> None:
        data = b"".join(append.data)
        request = AppendReplica(window.plog_id.uid_bytes, append.offset, len(data))

        def answered(answer: ServerAnswer | None) -> None:
            if answer is not None:
                window.answered(place, answer.message)
                self.settle(window)

        self._links[window.plog_id.group, place].request(request, data, answered)

    def _expire(self, window: AppendWindow) -> None:
        window.expire(self.clock())
        self.settle(window)

    def settle(self, window: AppendWindow) -> None:
        """Tell those that wait what has become of their appends."""
        plog_id = window.plog_id
        self._truth.note_committed(self.epoch, plog_id, window.committed)
        waiting = self._waiting.get(plog_id, [])
        while waiting and waiting[0][0] <= window.committed:
            end, future = waiting.pop(0)
            future.resolve(end)
        if window.failure is not None:
            if isinstance(window.failure, StoreFenced):
                self.end("fenced")
            self.choice.failed(plog_id.group, now=self.clock())
            for _, future in self._waiting.pop(plog_id, []):
                future.resolve(error=window.failure)

    def run(self, steps: ReplicaSteps[T]) -> Waits[T]:
        """Run a protocol of replication."""
        result: Any = None
        error: PenstockError | None = None
        while True:
            try:
                action = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            try:
                result, error = (yield from self._perform(action)), None
            except PenstockError as refused:
                result, error = None, refused

    def _perform(self, action: object) -> Waits[Any]:
        oracle, process = self._world.oracle, self.process
        match action:
            case Ask():
                return (yield from self._ask(action))
            case AwaitQuiet():
                waiting = self._waiting.get(action.plog_id, [])
                yield from wait_all([future for _, future in waiting])
            case NoteCopied():
                yield self._kernel.sleep(0.001, process)
            case ReadRow():
                return (yield oracle.call(process, lambda: oracle.rows.get(action.plog_id)))
            case WriteRow() | RemoveRow():
                row = action.row if isinstance(action, WriteRow) else None
                plog_id, expected = action.plog_id, action.expected
                change = oracle.write_row
                return (yield oracle.call(process, lambda: change(plog_id, row, expected=expected, epoch=self.epoch)))
        return None

    def _ask(self, action: Ask) -> Waits[list[ServerAnswer | None]]:
        futures = []
        for place, request, parts in action.requests:
            future = Future()
            futures.append(future)
            self._links[action.group, place].request(request, b"".join(parts), future.resolve)

        def give_up() -> None:
            for (place, *_), future in zip(action.requests, futures, strict=True):
                if not future.is_done:
                    future.resolve()
                    if self._links[action.group, place].is_up:
                        self._links[action.group, place].cut()

        self._kernel.at(_ASK_WAIT_S, self.process, give_up)
        yield from wait_all(futures)
        return [future.result for future in futures]

    def locked(self, plog_id: PlogId, steps: ReplicaSteps[T]) -> Waits[T]:
        """Run a protocol while no other one of the same plog runs."""
        return self._locks.setdefault(plog_id, Mutex()).held(self.run(steps))

    def info(self, plog_id: PlogId) -> Waits[PlogInfo]:
        """Return the state of a plog."""
        info = yield from self.locked(plog_id, self.plogs.info(plog_id))
        if info.sealed:
            self._truth.note_length(self.epoch, plog_id, info.length)
        return info

    def read(self, plog_id: PlogId, offset: int, size: int, first: int | None = None) -> Waits[list[bytes]]:
        """Read committed bytes from any server, or from ``first``, as appends cut to the range."""
        if not size:
            return []
        start = self._kernel.random.randrange(REPLICAS) if first is None else first
        places = [(start + step) % REPLICAS for step in range(REPLICAS)]
        read = yield from self.run(read_blocks(plog_id, offset, size, servers=places))
        if read.damaged:
            yield from self.note_damaged(plog_id, read.damaged)
        end = offset + size
        return [bytes(view[max(offset - place, 0) : end - place]) for place, view in read.blocks]

    def note_damaged(self, plog_id: PlogId, places: frozenset[int]) -> Waits[None]:
        """Have damaged replicas replaced; the log leaves a plog that is open first."""
        window = self.plogs.windows.get(plog_id)
        if window is not None:
            window.lose(min(places), "its replica is damaged")
            self.settle(window)
        else:
            yield from self.locked(plog_id, note_damaged(plog_id, places))

    def delete(self, plog_id: PlogId) -> Waits[None]:
        """Delete a plog, if there is one."""
        self._truth.note_deletion(self.epoch, plog_id)
        try:
            yield from self.locked(plog_id, self.plogs.delete(plog_id))
        except NoSuchPlog:
            return
        self._truth.note_deleted(self.epoch, plog_id)

    def run_log(self, steps: log.Steps[T]) -> Waits[T]:
        """Run a protocol of the log, one at a time."""
        return self.partition_lock.held(self._run_log(steps))

    def _run_log(self, steps: log.Steps[T]) -> Waits[T]:
        result: Any = None
        error: PenstockError | None = None
        while True:
            try:
                action = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            try:
                result, error = (yield from self._act(action)), None
            except PenstockError as refused:
                result, error = None, refused

    def _act(self, action: log.Action) -> Waits[Any]:
        match action:
            case log.NewId():
                group = self.choice.choose(now=self.clock())
                result: object = PlogId(CLUSTER, group, self._kernel.random.randbytes(16).hex())
            case log.Append():
                result = yield self.submit(action.plog_id, action.offset, action.data)
            case log.FindMetadata() | log.Publish():
                result = yield from self._act_on_oracle(action)
            case log.Where():
                result = str(action.plog_id)
            case log.Drain():
                result = None  # the log has waited before
            case log.CreateAll():
                raise AssertionError("logs on replicated plogs are created one by one")
            case _:
                result = yield from self._act_on_plog(action)
        return result

    def _act_on_oracle(self, action: log.FindMetadata | log.Publish) -> Waits[Any]:
        oracle, process = self._world.oracle, self.process
        if isinstance(action, log.FindMetadata):
            return (yield oracle.call(process, lambda: oracle.metadata))
        plog_id, expected, publish = action.plog_id, action.expected, oracle.publish
        return (yield oracle.call(process, lambda: publish(plog_id, expected=expected, epoch=self.epoch)))

    def _act_on_plog(self, action: log.Create | log.Seal | log.Inspect | log.ReadAll | log.Delete) -> Waits[Any]:
        plog_id, result = action.plog_id, None
        match action:
            case log.Create():
                yield from self._create(action)
            case log.Seal():
                window = self.plogs.windows.get(plog_id)
                result = yield from self.locked(plog_id, self.plogs.seal(plog_id, action.offset))
                if window is not None and window.failure is None:
                    self.choice.succeeded(plog_id.group)
                is_present = self.epoch == self._world.oracle.epoch  # else its successor may have decided
                note = self._truth.note_sealed if is_present else self._truth.note_length
                note(self.epoch, plog_id, result)
            case log.Inspect():
                with suppress(NoSuchPlog):
                    return (yield from self.info(plog_id))
            case log.ReadAll():
                info = yield from self.info(plog_id)
                return [memoryview(data) for data in (yield from self.read(plog_id, 0, info.length))]
            case log.Delete():
                yield from self.delete(plog_id)
        return result

    def _create(self, action: log.Create) -> Waits[None]:
        self._truth.note_creation(self.epoch, action.plog_id)
        try:
            yield from self.locked(action.plog_id, self.plogs.create(action.plog_id, action.size))
        except GroupUnavailable:
            self.choice.failed(action.plog_id.group, now=self.clock())
            raise
