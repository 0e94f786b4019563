"""Taking over: a new owner reads what the owner before it has made durable, and ends its writing.

The new owner puts a *fence* with a higher epoch at the first free number of the journal. The owner before acknowledges
group after group, so it cannot acknowledge anything behind the fence; what it has under way there is void. It has at
most ``JOURNAL_WINDOW`` objects under way, so it puts nothing at the number of the fence plus that, where the new owner
continues. Then the new owner replaces the checkpoint. Had the owner before replaced it meanwhile, it could have deleted
journal objects, and the number only looked free: the new owner begins again.

The end of the journal is never found by a listing, which may come late. A listing only shows what lies behind it: an
object there that was made when the number was already acknowledged proves that the number is not free, but lost.

An owner of a lower epoch cannot replace the checkpoint any more, and it deletes only what the checkpoint that it
replaced last did not need. Fences are never deleted: an owner that was suspended before its put at this number would
succeed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import JournalCorrupt, NoSuchObject, ObjectChanged, StoreFenced
from penstock.plog.objects._checkpoint import CHECKPOINT_NAME, StoreCheckpoint, pack_checkpoint, unpack_checkpoint
from penstock.plog.objects._records import (
    JOURNAL_HEADER_SIZE,
    JOURNAL_PREFIX,
    FenceRecord,
    JournalHeader,
    journal_name,
    pack_table,
    unpack_table,
)
from penstock.plog.objects._settings import JOURNAL_WINDOW
from penstock.plog.objects._state import StoreState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.plog.objects._records import Record
    from penstock.plog.objects._requests import Requests

__all__ = ["JournalObject", "Ownership", "Recovery", "owner_since", "read_object", "take_over"]

_TABLE_READ_SIZE: Final = 64 << 10  # enough for the table of most journal objects
_AHEAD: Final = 16
_ATTEMPTS_MAX: Final = 20


class JournalObject(msgspec.Struct, frozen=True):
    """A journal object without its blocks."""

    header: JournalHeader
    records: list[Record]


class Ownership(msgspec.Struct):
    """What an owner begins with: its epoch, the number of its first journal object, and the checkpoint's version."""

    epoch: int
    number: int
    serial: int
    tag: str
    state: StoreState
    journal: dict[int, int]


class Recovery:
    """The journal behind a checkpoint, applied object by object, without any request."""

    def __init__(self, checkpoint: StoreCheckpoint) -> None:
        self.state: Final = checkpoint.state
        self.number = checkpoint.number  # of the next object
        self.epoch = checkpoint.epoch  # the highest so far
        self.journal: Final = dict(checkpoint.journal)
        self.owner = checkpoint.owner
        self._token = checkpoint.token  # of the owner with that epoch

    def apply(self, stored: JournalObject, *, where: str) -> None:
        """Apply the next object; it is void if it has a lower epoch than one before it, as behind a fence."""
        header = stored.header
        match stored.records:
            case [FenceRecord()] if header.epoch > self.epoch:
                self._token = header.token
            case _ if header.epoch > self.epoch or (header.epoch == self.epoch and header.token != self._token):
                raise JournalCorrupt(where, offset=0, reason="it is of an owner that never took this store over")
        if header.epoch >= self.epoch:
            self.epoch = header.epoch
            for record in stored.records:
                self.state.apply(
                    record, number=self.number, epoch=header.epoch, data_start=header.data_start, where=where
                )
        match stored.records:
            case [FenceRecord(owner=owner)]:
                self.owner = owner
            case _:
                self.journal[self.number] = header.size
        self.number += 1


def read_object(requests: Requests, number: int) -> JournalObject | None:
    """Return the header and the records of a journal object, None if the number is free."""
    objects, name = requests.objects, journal_name(number)
    try:
        data = requests.again(lambda: objects.get_range(name, 0, _TABLE_READ_SIZE))
        header = JournalHeader.unpack(data, where=objects.where(name))
        if header.data_start > len(data):
            rest = requests.again(
                lambda: objects.get_range(name, JOURNAL_HEADER_SIZE, header.data_start - JOURNAL_HEADER_SIZE)
            )
            data = memoryview(bytes(data[:JOURNAL_HEADER_SIZE]) + rest)
    except NoSuchObject:
        return None
    if header.number != number:
        raise JournalCorrupt(objects.where(name), offset=0, reason=f"it is the journal object {header.number}")
    return JournalObject(header, unpack_table(header, data, where=objects.where(name)))


def _read_on(requests: Requests, recovery: Recovery, run: Callable[..., Iterable[JournalObject | None]]) -> None:
    """Apply all objects up to the first free number; some are read ahead."""
    count = 1
    while True:
        numbers = range(recovery.number, recovery.number + count)
        for stored in run(lambda number: read_object(requests, number), numbers):
            if stored is None:
                return
            recovery.apply(stored, where=requests.objects.where(journal_name(recovery.number)))
        count = _AHEAD


def _evidence_of_loss(requests: Requests, recovery: Recovery) -> str | None:
    """Return the name of an object which shows that the next number was acknowledged; None if it is the end.

    What the owner before had under way behind the end does not: it was made while that number was not acknowledged.
    """
    end, objects = recovery.number, requests.objects
    for name in requests.again(lambda: list(objects.names(JOURNAL_PREFIX, after=journal_name(end)))):
        digits = name.removeprefix(JOURNAL_PREFIX)
        number = int(digits) if digits.isdecimal() else end  # an object that is not ours says nothing
        stored = read_object(requests, number)
        if stored is not None and stored.header.epoch >= recovery.epoch and number - stored.header.pending > end:
            return name
    return None


def _is_new(requests: Requests) -> bool:
    """Return whether no process has ever owned the store: without a checkpoint it would look as if it were empty.

    Processes that ended while they opened it for the first time have left fences, at the first numbers.
    """
    objects = requests.objects
    fences = requests.again(lambda: list(objects.names("journal/")))
    plogs = requests.again(lambda: next(objects.names("plogs/"), None))
    return plogs is None and fences == [journal_name(number) for number in range(len(fences))]


def _load(requests: Requests) -> tuple[StoreCheckpoint, str | None]:
    objects = requests.objects
    try:
        stored = requests.again(lambda: objects.get(CHECKPOINT_NAME))
    except NoSuchObject:
        if not _is_new(requests):
            if requests.again(lambda: objects.exists(CHECKPOINT_NAME)):  # another process has just made it
                return _load(requests)
            where = objects.where(CHECKPOINT_NAME)
            raise JournalCorrupt(where, offset=None, reason="it is gone, though the store holds plogs") from None
        return StoreCheckpoint(0, 0, 0, b"", "", StoreState(), {}), None
    return unpack_checkpoint(stored.data, where=objects.where(CHECKPOINT_NAME)), stored.tag


def owner_since(requests: Requests, token: bytes) -> StoreFenced | None:
    """Return the error of an owner that is not the owner any more, None if the checkpoint is still its own."""
    checkpoint, _ = _load(requests)
    return None if checkpoint.token == token else StoreFenced(requests.objects.where(), owner=checkpoint.owner)


def take_over(
    requests: Requests,
    *,
    token: bytes,
    owner: str,
    now: float,
    run: Callable[..., Iterator[JournalObject | None]] = map,
) -> Ownership:
    """Become the owner; ``run`` maps a function over numbers, perhaps in several threads."""
    for _ in range(_ATTEMPTS_MAX):
        checkpoint, tag = _load(requests)
        recovery = Recovery(checkpoint)
        try:
            _put_fence(requests, recovery, FenceRecord(owner, now), token=token, run=run)
        except JournalCorrupt:
            if _load(requests)[1] == tag:
                raise
            continue  # the owner before has replaced the checkpoint, and deleted what it does not need
        epoch, number = recovery.epoch + 1, recovery.number + JOURNAL_WINDOW
        serial = checkpoint.serial + 1
        recovery.journal.update(dict.fromkeys(range(recovery.number + 1, number), 0))  # late puts of the owner before
        data = pack_checkpoint(StoreCheckpoint(number, epoch, serial, token, owner, recovery.state, recovery.journal))
        try:
            tag = requests.replace_own(CHECKPOINT_NAME, data, tag=tag)
        except ObjectChanged:
            continue
        return Ownership(epoch, number, serial, tag, recovery.state, recovery.journal)
    raise StoreFenced(requests.objects.where(), owner="other processes that open it at the same time")


def _put_fence(
    requests: Requests,
    recovery: Recovery,
    record: FenceRecord,
    *,
    token: bytes,
    run: Callable[..., Iterator[JournalObject | None]],
) -> None:
    """Read the journal to its end, and put a fence there; ``JournalCorrupt`` if the end is a gap."""
    while True:
        _read_on(requests, recovery, run)
        number, epoch = recovery.number, recovery.epoch + 1
        evidence = _evidence_of_loss(requests, recovery)
        if evidence is None:
            fence = pack_table([record], epoch=epoch, number=number, token=token, data_size=0)
            if requests.put_if_first(journal_name(number), fence, head_size=len(fence)):
                return
        elif read_object(requests, number) is None:  # else an owner that goes on has put it meanwhile
            where = requests.objects.where(journal_name(number))
            raise JournalCorrupt(where, offset=None, reason=f"it is gone, though {evidence} was put after it")
