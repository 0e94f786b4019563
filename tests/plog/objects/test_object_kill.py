"""An owner that is killed at any request, before it was carried out or after: nothing acknowledged is lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import NoSuchPlog, PenstockError
from penstock.model import PlogId
from penstock.plog.objects import ObjectPlogs
from penstock.plog.objects._records import FenceRecord, JournalHeader, unpack_table
from penstock.testing import MemoryObjects
from tests.plog.conftest import crowded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.ports import Objects

IDS = [PlogId("local", "main", f"{number:032x}") for number in range(4)]


class Dead(Exception):
    """The process is gone: no request is made, and no answer is seen."""


class MortalObjects:
    """A bucket as a process sees it that is killed at its request number ``dies_at``."""

    def __init__(self, bucket: MemoryObjects, dies_at: int, *, after: bool) -> None:
        self._bucket, self._dies_at, self._after = bucket, dies_at, after
        self._lock = threading.Lock()
        self.count = 0
        self.where = bucket.where
        self.put_new, self.replace = self._mortal(bucket.put_new), self._mortal(bucket.replace)
        self.get, self.get_range = self._mortal(bucket.get), self._mortal(bucket.get_range)
        self.delete, self.exists = self._mortal(bucket.delete), self._mortal(bucket.exists)
        self.names, self.sizes, self.close = self._mortal(bucket.names), bucket.sizes, bucket.close

    @property
    def is_dead(self) -> bool:
        return self.count >= self._dies_at

    def _mortal(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **rest: object) -> object:
            with self._lock:
                if self.is_dead:
                    raise Dead
                self.count += 1
                dies = self.count == self._dies_at
                answer = request(*args, **rest) if self._after or not dies else None
                if dies:
                    raise Dead
                return answer

        return call


class Expected:
    """What a program has been told about each plog, and what it had asked for when it died."""

    def __init__(self) -> None:
        self.acked: dict[PlogId, bytes] = {}
        self.asked: dict[PlogId, bytes] = {}
        self.created: set[PlogId] = set()
        self.sealed: set[PlogId] = set()
        self.deleting: set[PlogId] = set()
        self.deleted: set[PlogId] = set()

    def create(self, plogs: ObjectPlogs, plog_id: PlogId) -> None:
        self.asked[plog_id] = self.acked[plog_id] = b""
        plogs.create(plog_id=plog_id, size=5000)
        self.created.add(plog_id)

    def append(self, plogs: ObjectPlogs, plog_id: PlogId, *blocks: bytes) -> None:
        tickets = []
        for block in blocks:
            tickets.append(plogs.submit(plog_id, len(self.asked[plog_id]), block))
            self.asked[plog_id] += block
        for ticket in tickets:
            self.acked[plog_id] = self.asked[plog_id][: ticket.result()]
        assert plogs.read(plog_id, 0, len(self.acked[plog_id])) == self.acked[plog_id]

    def seal(self, plogs: ObjectPlogs, plog_id: PlogId) -> None:
        plogs.seal(plog_id, 1 << 40)
        self.sealed.add(plog_id)

    def delete(self, plogs: ObjectPlogs, plog_id: PlogId) -> None:
        self.deleting.add(plog_id)
        plogs.delete(plog_id)
        self.deleted.add(plog_id)

    def check(self, plogs: ObjectPlogs) -> dict[PlogId, bytes]:
        """Return what is there: all that was acknowledged, once, and nothing that was not asked for."""
        contents = {}
        for plog_id, asked in self.asked.items():
            try:
                info = plogs.info(plog_id)
            except NoSuchPlog:
                assert plog_id in self.deleting or plog_id not in self.created
                continue
            assert plog_id not in self.deleted
            assert plog_id not in self.sealed or info.sealed
            contents[plog_id] = bytes(plogs.read(plog_id, 0, info.length))
            assert asked.startswith(contents[plog_id])
            assert contents[plog_id].startswith(self.acked[plog_id])
        return contents


def life(objects: Objects, expected: Expected) -> None:
    """A little of everything, with a hand-over in the middle."""
    first, second, third, fourth = IDS
    with ObjectPlogs(objects, settings=crowded(part_size_min=200, journal_size_max=600)) as plogs:
        for plog_id in (first, second, third):
            expected.create(plogs, plog_id)
        expected.append(plogs, first, b"small", b"blocks", b"x" * 50)
        expected.append(plogs, second, b"a" * 300)
        expected.append(plogs, third, b"to be deleted" * 20)
        expected.seal(plogs, third)
        expected.append(plogs, second, b"tail", b"b" * 100)
        expected.seal(plogs, second)
        expected.delete(plogs, third)
        expected.append(plogs, first, b"y" * 40)
    with ObjectPlogs(objects, settings=crowded(part_size_min=200, journal_size_max=600)) as plogs:
        expected.create(plogs, fourth)
        for number in range(4):
            expected.append(plogs, first, bytes([number]) * 150)
        expected.append(plogs, fourth, b"last")
        expected.delete(plogs, second)
        expected.seal(plogs, first)


def leftovers(bucket: MemoryObjects) -> Iterator[str]:
    """Return the objects of plogs, and those of the journal that are no fence."""
    for name in bucket.names(""):
        if name.startswith("plogs/"):
            yield name
        if name.startswith("journal/"):
            data = bucket.get(name).data
            header = JournalHeader.unpack(data, where=name)
            match unpack_table(header, data, where=name):
                case [FenceRecord()]:
                    pass
                case _:
                    yield name


@pytest.mark.parametrize("after", [False, True], ids=["before it is carried out", "after it is carried out"])
def test_an_owner_that_is_killed_at_any_request_loses_nothing(*, after: bool) -> None:
    """Journal, parts, compaction, checkpoint, deletion, opening: a process ends anywhere, and the next one goes on."""
    dies_at, is_alive = 0, False
    while not is_alive:
        dies_at += 1
        bucket, expected = MemoryObjects(), Expected()
        objects = MortalObjects(bucket, dies_at, after=after)
        try:
            life(objects, expected)
        except (Dead, PenstockError):
            assert objects.is_dead
        is_alive = not objects.is_dead
        with ObjectPlogs(bucket, settings=crowded()) as plogs:
            contents = expected.check(plogs)
        with ObjectPlogs(bucket, settings=crowded()) as plogs:
            assert expected.check(plogs) == contents
            for plog_id in contents:
                if not plogs.info(plog_id).sealed:
                    plogs.append(plog_id, len(contents[plog_id]), b"goes on")
                plogs.delete(plog_id)
        with ObjectPlogs(bucket, settings=crowded()) as plogs:
            plogs.create(size=1)
        assert list(leftovers(bucket)) == [], f"killed at request {dies_at}"
    assert dies_at > 60
