"""Faulty objects: what a fault leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import NoSuchObject, ObjectExists, StorageUnavailable
from penstock.testing import FaultyObjects, MemoryObjects, ObjectFault

if TYPE_CHECKING:
    from penstock.ports import Objects

CARRIED_OUT = {ObjectFault.UNANSWERED}


@pytest.mark.parametrize("fault", ObjectFault)
def test_a_failed_put_was_carried_out_or_was_not(fault: ObjectFault) -> None:
    """The error is the same, so code that guesses is wrong half of the time."""
    memory = MemoryObjects()
    objects = FaultyObjects(memory)
    objects.fail(fault, on="put_new", call=2, prefix="journal/")
    objects.put_new("journal/1", b"1")
    objects.put_new("parts/1", b"1")
    with pytest.raises(StorageUnavailable, match="memory:journal/2"):
        objects.put_new("journal/2", b"2")
    assert memory.exists("journal/2") == (fault in CARRIED_OUT)
    objects.put_new("journal/3", b"3")
    assert objects.calls["put_new"] == 4


@pytest.mark.parametrize("fault", ObjectFault)
def test_a_failed_replacement_was_carried_out_or_was_not(fault: ObjectFault) -> None:
    """The caller does not know the tag of what it has put."""
    memory = MemoryObjects()
    tag = memory.replace("head", b"1", tag=None)
    objects = FaultyObjects(memory)
    objects.fail(fault, on="replace", call=None)
    with pytest.raises(StorageUnavailable):
        objects.replace("head", b"2", tag=tag)
    assert bytes(memory.get("head").data) == (b"2" if fault in CARRIED_OUT else b"1")
    objects.heal()
    objects.replace("head", b"3", tag=memory.get("head").tag)


def test_a_deletion_that_is_cut_is_carried_out_in_part() -> None:
    """A deletion of many objects is not atomic anywhere."""
    memory = MemoryObjects()
    objects = FaultyObjects(memory)
    for name in "abcd":
        objects.put_new(name, b"")
    objects.fail(ObjectFault.CUT, on="delete")
    with pytest.raises(StorageUnavailable):
        objects.delete("a", "b", "c", "d")
    assert list(objects.names("")) == ["c", "d"]


def test_reads_fail_and_errors_of_the_bucket_stay() -> None:
    """A fault must not hide that an object exists, or that it does not."""
    objects: Objects = FaultyObjects(MemoryObjects())
    objects.put_new("a", b"1")
    with pytest.raises(ObjectExists):
        objects.put_new("a", b"2")
    with pytest.raises(NoSuchObject):
        objects.get_range("b", 0, 1)
    faulty = FaultyObjects(objects)
    for call in ("get", "get_range", "exists", "names"):
        faulty.fail(ObjectFault.CUT, on=call)
    for read in (
        lambda: faulty.get("a"),
        lambda: faulty.get_range("a", 0, 1),
        lambda: faulty.exists("a"),
        lambda: faulty.names(""),
    ):
        with pytest.raises(StorageUnavailable):
            read()
        assert read()


def test_a_listing_lacks_the_newest_objects() -> None:
    """A bucket may list an object late, so no list proves that an object is missing."""
    objects = FaultyObjects(MemoryObjects(), late_names=2)
    for name in ("b", "a", "d", "c"):
        objects.put_new(name, b"")
    assert list(objects.names("")) == ["a", "b"]
    assert objects.exists("c")
    objects.late_names = 0
    assert list(objects.names("")) == ["a", "b", "c", "d"]


def test_faults_by_chance_repeat_with_their_seed() -> None:
    """A failure that is found by chance is found again."""

    def history(seed: int) -> list[str]:
        outcomes, seen = [], list[str]()
        objects = FaultyObjects(
            MemoryObjects(), chance=0.5, seed=seed, delay=lambda call, name: seen.append(call + name)
        )
        for number in range(50):
            try:
                objects.put_new(f"{number}", b"")
                outcomes.append("")
            except StorageUnavailable as error:
                outcomes.append(error.reason)
        assert seen == [f"put_new{number}" for number in range(50)]
        return outcomes

    assert history(1) == history(1) != history(2)
    assert set(history(1)) == {"", *(fault.value for fault in ObjectFault)}
