"""Objects: what a bucket in memory, an S3 server and an Azure server have in common."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import NoSuchObject, ObjectChanged, ObjectError, ObjectExists
from penstock.ports import Bucket, StoredObject
from penstock.testing import MemoryObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.ports import Objects

KINDS: Final = ("memory", "s3", "azurite")
RACERS: Final = 8
AWKWARD: Final = ("a b", "100%", "a%20b", "x+y", "ä/ö", "q?x=1&y#z", "_-.~", "n" * 200)


@pytest.fixture(params=KINDS)
def objects(request: pytest.FixtureRequest) -> Iterator[Objects]:
    """Objects of every kind, none at the beginning."""
    if request.param == "memory":
        yield MemoryObjects()
        return
    bucket = Bucket(request.getfixturevalue(f"{request.param}_address"))
    yield bucket
    bucket.close()


def race(put: Callable[[int], object]) -> list[int]:
    """Call at the same time from all threads; return the numbers of those that won."""
    barrier = threading.Barrier(RACERS)

    def attempt(number: int) -> bool:
        barrier.wait()
        try:
            put(number)
        except ObjectError:
            return False
        return True

    with ThreadPoolExecutor(RACERS) as threads:
        return [number for number, won in enumerate(threads.map(attempt, range(RACERS))) if won]


def test_an_object_is_put_once(objects: Objects) -> None:
    """The fence of an old owner is a put that finds its name taken."""
    objects.put_new("journal/1", b"mine", memoryview(b" and more"))
    with pytest.raises(ObjectExists, match="journal/1"):
        objects.put_new("journal/1", b"yours")
    assert bytes(objects.get("journal/1").data) == b"mine and more"


def test_a_version_is_replaced_once(objects: Objects) -> None:
    """Of two owners that replace the same version, one loses; an object that is gone is not made again."""
    first = objects.replace("head", b"1", tag=None)
    second = objects.replace("head", b"2", tag=first)
    assert objects.get("head") == StoredObject(memoryview(b"2"), second)
    for tag in (first, None):
        with pytest.raises(ObjectChanged, match="head"):
            objects.replace("head", b"3", tag=tag)
    objects.delete("head")
    with pytest.raises(ObjectChanged, match="head"):
        objects.replace("head", b"3", tag=second)
    assert not objects.exists("head")


def test_of_racing_puts_one_wins(objects: Objects) -> None:
    """Two owners of a journal put at the same name at the same time, each certain that it is the only one."""
    for turn in range(3):
        name = f"journal/{turn}"
        (winner,) = race(lambda number, name=name: objects.put_new(name, b"%d" % number))  # type: ignore[misc]
        assert bytes(objects.get(name).data) == b"%d" % winner
    tag = objects.replace("head", b"", tag=None)
    (winner,) = race(lambda number: objects.replace("head", b"%d" % number, tag=tag))
    assert bytes(objects.get("head").data) == b"%d" % winner


def test_ranges_end_where_the_object_ends(objects: Objects) -> None:
    """A reader of a chunk does not know how long the object is."""
    objects.put_new("a/1", b"0123456789")
    objects.put_new("a/empty")
    ranges = {(0, 10): b"0123456789", (3, 4): b"3456", (8, 5): b"89", (10, 5): b"", (99, 1): b"", (2, 0): b""}
    assert {(start, size): bytes(objects.get_range("a/1", start, size)) for start, size in ranges} == ranges
    assert bytes(objects.get_range("a/empty", 0, 10)) == bytes(objects.get("a/empty").data) == b""
    for size in (0, 1):
        with pytest.raises(NoSuchObject, match="a/2"):
            objects.get_range("a/2", 0, size)
    with pytest.raises(NoSuchObject, match="a/2"):
        objects.get("a/2")
    assert objects.exists("a/1")
    assert not objects.exists("a/2")


def test_names_are_listed_by_prefix_and_deleted(objects: Objects) -> None:
    """Deleting what is not there is no error: a deletion is repeated after a crash."""
    for name in ("b/2", "a/1", "b/10", "b/1", "b0/1", "ab"):
        objects.put_new(name, b"")
    assert list(objects.names("")) == ["a/1", "ab", "b/1", "b/10", "b/2", "b0/1"]
    assert list(objects.names("b/")) == ["b/1", "b/10", "b/2"]
    assert list(objects.names("b/1")) == ["b/1", "b/10"]
    assert list(objects.names("b")) == ["b/1", "b/10", "b/2", "b0/1"]
    assert list(objects.names("c/")) == []
    assert list(objects.names("b/", after="b/1")) == ["b/10", "b/2"]
    assert list(objects.names("b/", after="b/2")) == []
    objects.delete()
    objects.delete("c")
    objects.delete("b/9", "b/1", "nothing", "ab", "b/10")
    assert list(objects.names("")) == ["a/1", "b/2", "b0/1"]


def test_awkward_names_mean_themselves(objects: Objects) -> None:
    """A name is part of a URL, of what is signed, and of XML; none of them may change it."""
    for number, name in enumerate(AWKWARD):
        objects.put_new(f"odd/{name}", b"%d" % number)
    assert list(objects.names("odd/")) == sorted(f"odd/{name}" for name in AWKWARD)
    assert [bytes(objects.get(f"odd/{name}").data) for name in AWKWARD] == [b"%d" % n for n in range(len(AWKWARD))]
    objects.delete(*(f"odd/{name}" for name in AWKWARD))
    assert list(objects.names("odd/")) == []


def test_a_large_object_arrives_whole(objects: Objects) -> None:
    """Obstore cuts what is large into parts of 5 MiB, if it may; a conditional put must not be cut."""
    data = bytes(range(256)) * (12 << 12)
    objects.put_new("parts/large", *(data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)))
    with pytest.raises(ObjectExists):
        objects.put_new("parts/large", data)
    assert objects.get("parts/large").data == data
    assert objects.get_range("parts/large", 5 << 20, 3 << 20) == data[5 << 20 : 8 << 20]
