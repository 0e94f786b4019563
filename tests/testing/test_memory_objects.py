"""The bucket in memory: what its conditional puts refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import NoSuchObject, ObjectChanged, ObjectExists
from penstock.testing import MemoryObjects

if TYPE_CHECKING:
    from penstock.ports import Objects


def test_an_object_is_put_once() -> None:
    """The fence of an old owner is a put that finds its name taken."""
    objects: Objects = MemoryObjects()
    objects.put_new("journal/1", b"mine", b" and more")
    with pytest.raises(ObjectExists, match="journal/1"):
        objects.put_new("journal/1", b"yours")
    assert bytes(objects.get("journal/1").data) == b"mine and more"


def test_a_version_is_replaced_once() -> None:
    """Of two owners that replace the same version, one loses."""
    objects: Objects = MemoryObjects()
    first = objects.replace("head", b"1", tag=None)
    objects.replace("head", b"2", tag=first)
    for tag in (first, None):
        with pytest.raises(ObjectChanged, match="head"):
            objects.replace("head", b"3", tag=tag)
    assert bytes(objects.get("head").data) == b"2"


def test_names_ranges_and_deletion() -> None:
    """Deleting what is not there is no error: a deletion is repeated after a crash."""
    objects: Objects = MemoryObjects()
    for name in ("b/2", "a/1", "b/1"):
        objects.put_new(name, b"0123456789")
    assert list(objects.names("b/")) == ["b/1", "b/2"]
    assert bytes(objects.get_range("a/1", 8, 5)) == b"89"
    objects.delete("b/1", "b/9")
    assert not objects.exists("b/1")
    with pytest.raises(NoSuchObject, match="b/1"):
        objects.get("b/1")
