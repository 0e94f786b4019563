"""Owners of one bucket that stop at every request, until a test lets them go on: no two of them run at a time."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.errors import PenstockError, StorageUnavailable
from penstock.model import PlogId
from penstock.plog._block import pack_block_header
from penstock.plog.objects._commit import PutGroup
from penstock.plog.objects._journal import ObjectJournal
from penstock.plog.objects._maintenance import StoreMaintenance
from penstock.plog.objects._plogs import _Uncached
from penstock.plog.objects._read import load_home, read_slices
from penstock.plog.objects._records import CreateRecord, DeleteRecord, SealRecord
from penstock.plog.objects._requests import Requests
from penstock.plog.objects._settings import ObjectSettings
from penstock.plog.objects._state import folder_of
from penstock.plog.objects._take_over import take_over
from penstock.ports import SystemClock
from penstock.testing import MemoryObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from penstock.plog.objects._commit import PutTicket
    from penstock.plog.objects._state import StoreState
    from penstock.ports import Bytes, StoredObject

PLOGS: Final = 4
SIZE: Final = 1 << 20
SETTINGS: Final = ObjectSettings(
    group_wait_s=0, puts_in_flight_max=3, part_size_min=60, compact_size_min=1, journal_objects_max=3,
    checkpoint_objects=1, compaction_share=100.0, group_size_max=1,
)  # fmt: skip


class Killed(BaseException):
    """The process of this thread is gone."""


class Actor(threading.Thread):
    """A thread that goes on from one request to the next only when it is told to."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._run = run
        self._go, self._parked = threading.Semaphore(0), threading.Semaphore(0)
        self._fate = "do"
        self.is_done = False
        self.error: BaseException | None = None
        self.start()
        self._parked.acquire()

    def run(self) -> None:
        try:
            self.park()
            self._run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised in the thread that steps
            self.error = error
        self.is_done = True
        self._parked.release()

    def park(self) -> str:
        """Wait until the test lets this thread go on; return what becomes of its request."""
        self._parked.release()
        self._go.acquire()
        if self._fate == "kill":
            raise Killed
        return self._fate

    def step(self, fate: str = "do") -> None:
        """Go on to the next request, or to the end."""
        self._fate = fate
        self._go.release()
        self._parked.acquire()
        if self.is_done:
            self.join()
            if self.error is not None:
                raise self.error


class SteppedObjects(MemoryObjects):
    """A bucket each of whose requests waits for the test, which also decides whether it is carried out and answered."""

    late_names = 0

    def _await(self, do: Callable[[], object], *, is_read: bool = False) -> object:
        actor = threading.current_thread()
        fate = actor.park() if isinstance(actor, Actor) else "do"
        answer = None if fate == "lost" else do()
        if fate != "do" and not (is_read and fate == "unanswered"):
            raise StorageUnavailable("memory:", reason=fate)
        return answer

    def put_new(self, name: str, *parts: Bytes) -> None:
        self._await(lambda: super(SteppedObjects, self).put_new(name, *parts))

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        return str(self._await(lambda: super(SteppedObjects, self).replace(name, data, tag=tag)))

    def get(self, name: str) -> StoredObject:
        return self._await(lambda: super(SteppedObjects, self).get(name), is_read=True)  # type: ignore[return-value]

    def get_range(self, name: str, start: int, size: int) -> memoryview:
        parent = MemoryObjects.get
        return self._await(lambda: parent(self, name).data[start : start + size], is_read=True)  # type: ignore[return-value]

    def delete(self, *names: str) -> None:
        self._await(lambda: super(SteppedObjects, self).delete(*names))

    def names(self, prefix: str, *, after: str = "") -> Iterator[str]:
        names = list(super().names(prefix, after=after))
        return iter(names[: max(len(names) - self.late_names, 0)])


class Subject:
    """A plog as an owner sees it that knows of its own submissions only."""

    def __init__(self, plog_id: PlogId, birth: bytes, *, written: int, sealed: bool) -> None:
        self.plog_id, self.birth, self.written, self.sealed = plog_id, birth, written, sealed
        self.uid, self.folder = plog_id.uid_bytes, folder_of(plog_id, birth)
        self.pending = 0

    def acknowledge(self, offset: int) -> None:
        """Do nothing: the test looks at the tickets."""


class Owner:
    """A process that opens the bucket, changes plogs, compacts them, and may be stopped anywhere."""

    def __init__(self, bucket: SteppedObjects, number: int) -> None:
        self.token = number.to_bytes(16, "big")
        self.number = number
        clock = SystemClock()
        self.requests = Requests(bucket, clock=clock, pause=lambda _: None, unavailable_max_s=1e9)
        self.journal: ObjectJournal | None = None
        self.actors: list[Actor] = []
        self.subjects: dict[int, Subject] = {}
        self.pending: list[tuple[PutTicket, str, int, bytes]] = []  # the kind, the plog and the bytes of each change
        self.is_maintaining = False
        self._clock = clock
        self.begin(self._open)

    def begin(self, run: Callable[[], None]) -> None:
        self.actors.append(Actor(run))

    def _open(self) -> None:
        ownership = take_over(self.requests, token=self.token, owner=f"owner {self.number}", now=0.0)
        for uid in (*ownership.state.plogs, *ownership.state.homes):
            plog_id = ownership.state.plog_id(uid)
            assert plog_id is not None
            plog, home = ownership.state.plogs.get(uid), ownership.state.homes.get(uid)
            birth = plog.birth if plog else bytes.fromhex(home.name.split("/")[1].split(".")[1])  # type: ignore[union-attr]
            subject = Subject(plog_id, birth, written=plog.written if plog else 0, sealed=plog is None or plog.sealed)
            self.subjects[int(plog_id.uid, 16)] = subject
        journal = ObjectJournal(
            self.requests, _Uncached(self.requests.objects), SETTINGS, ownership, token=self.token, clock=self._clock
        )
        self.maintenance = StoreMaintenance(journal, owner=f"owner {self.number}")
        self.journal = journal

    @property
    def is_serving(self) -> bool:
        return self.journal is not None and not self.journal.is_stopped

    def change(self, rng: Random, data: bytes) -> None:
        """Submit a change that the rules allow."""
        key = rng.randrange(PLOGS)
        subject = self.subjects.get(key)
        if subject is None:
            self._create(key, rng.randbytes(8))
        elif subject.sealed:
            if not subject.pending and key >= PLOGS // 2:  # the others are never deleted
                self._submit("delete", key, DeleteRecord(subject.uid))
                del self.subjects[key]
        elif rng.random() < 0.8 or subject.pending:
            checksum_key = subject.uid + subject.birth
            header = pack_block_header(checksum_key, offset=subject.written, body=[data], body_size=len(data))
            subject.written += len(data)
            self._submit("append", key, None, header, data)
        else:
            subject.sealed = True
            self._submit("seal", key, SealRecord(subject.uid, subject.written))

    def _create(self, key: int, birth: bytes) -> None:
        plog_id = PlogId("local", "main", f"{key:032x}")
        self.subjects[key] = Subject(plog_id, birth, written=0, sealed=False)
        self._submit("create", key, CreateRecord("local", "main", plog_id.uid_bytes, SIZE, birth))

    def _submit(
        self, kind: str, key: int, record: CreateRecord | SealRecord | DeleteRecord | None, *block: bytes
    ) -> None:
        assert self.journal is not None
        subject = self.subjects[key]
        subject.pending += 1
        with suppress(PenstockError):
            ticket = self.journal.submit(subject, record, *block, offset=subject.written)
            self.pending.append((ticket, kind, key, block[1] if block else b""))

    def put(self) -> None:
        """Begin to put the next group, if there is one and not too many are under way."""
        assert self.journal is not None
        journal = self.journal
        with journal.changed:
            group = journal.take()
        if isinstance(group, PutGroup):
            self.begin(lambda: journal.put(group))

    def maintain(self) -> None:
        """Begin to compact and to replace the checkpoint, unless that is under way."""
        if not self.is_maintaining:
            self.is_maintaining = True
            self.begin(self._maintain)

    def _maintain(self) -> None:
        assert self.journal is not None
        self.journal.run(self.maintenance.compact)
        if not self.journal.is_stopped:
            self.journal.run(self.maintenance.checkpoint)
        self.is_maintaining = False

    def acknowledged(self) -> Iterator[tuple[str, int, int, bytes]]:
        """Return the changes that were acknowledged since the last call: kind, plog, offset behind it, and bytes."""
        rest = []
        for ticket, kind, key, data in self.pending:
            if not ticket.done:
                rest.append((ticket, kind, key, data))
            elif ticket.group.error is None:
                ticket.subject.pending -= 1  # type: ignore[attr-defined]
                yield kind, key, ticket.offset, data
        self.pending = rest

    def step(self, actor: Actor, fate: str) -> None:
        try:
            actor.step(fate)
        finally:
            self.actors = [other for other in self.actors if not other.is_done]

    def kill(self) -> None:
        """End the process; what it had under way is carried out or not, as the bucket says."""
        for actor in self.actors:
            while not actor.is_done:
                actor.step("kill")
        self.actors = []
        if self.journal is not None:
            self.journal.stop(StorageUnavailable("memory:", reason="killed"))


def contents(owner: Owner) -> dict[int, bytes]:
    """Return all bytes of all plogs, read from the bucket and checked."""
    journal = owner.journal
    assert journal is not None
    state: StoreState = journal.state
    plogs = dict(state.plogs)
    plogs.update({uid: load_home(owner.requests, home.name) for uid, home in state.homes.items()})
    found = defaultdict[int, bytes](bytes)
    for plog in plogs.values():
        replica = plog.replica()
        slices = list(replica.slices(0, replica.acked))
        views = read_slices(journal, plog, replica, slices)
        found[int(plog.plog_id.uid, 16)] = b"".join(views)
    return dict(found)
