"""Plogs at the address of a bucket: in real servers, with settings, and a cache that is not believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import BadArgument, FormatUnknown, StoreFenced
from penstock.plog import open_plogs
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.plog.objects._cache import ObjectCache
from penstock.ports import Bucket
from penstock.testing import FaultyObjects, MemoryObjects

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["s3", "azurite"])
def test_plogs_in_a_real_bucket_survive_and_change_hands(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path
) -> None:
    """Appends, a restart, a second owner that fences the first, and a deletion, in servers that others wrote."""
    address = f"{request.getfixturevalue(f'{kind}_address')}?group_wait_s=0.001&cache_folder={tmp_path}"
    large = bytes(range(256)) * (8 << 10)
    with open_plogs(address) as plogs:
        plog, other = plogs.create(), plogs.create()
        offset = plogs.append(plog, 0, b"first", b" and more")
        offset = plogs.append(plog, offset, large)
        plogs.append(other, 0, b"to be deleted")
        plogs.delete(other)
    with open_plogs(address) as plogs:
        assert plogs.read(plog, 0, offset) == b"first and more" + large
        with open_plogs(address.partition("?")[0]) as successor:
            assert bytes(successor.read(plog, 6, 8)) == b"and more"
            assert successor.append(plog, offset, b"!") == offset + 1
            with pytest.raises(StoreFenced):
                plogs.append(plog, offset, b"?")
            assert successor.seal(plog, offset + 1) == offset + 1
            assert bytes(successor.read(plog, offset, 1)) == b"!"
        plogs.__exit__(StoreFenced, StoreFenced("", owner=""), None)


def test_a_prefix_of_others_is_refused(s3_address: str) -> None:
    """A typing error in an address must not mix a store with other data."""
    Bucket(s3_address).put_new("picture.png", b"...")
    with pytest.raises(FormatUnknown, match=s3_address):
        open_plogs(s3_address)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("group_wait=1", "unknown setting 'group_wait' of an object store: use group_wait_s, .*cache_folder"),
        ("group_wait_s=soon", "invalid group_wait_s 'soon'"),
        ("group_size_max=-1", "invalid group_size_max '-1'"),
        ("group_size_max=1e6", "invalid group_size_max '1e6'"),
        ("group_wait_s=nan", "invalid group_wait_s 'nan'"),
        ("puts_in_flight_max=99", "invalid puts_in_flight_max 99"),
    ],
)
def test_invalid_settings_are_refused_before_any_request(query: str, message: str) -> None:
    """A knob that is misspelled would otherwise stay at its default, unnoticed."""
    with pytest.raises(BadArgument, match=message):
        open_plogs(f"s3://bucket/prefix?{query}")


def test_copies_of_a_store_that_was_there_before_are_not_believed(tmp_path: Path) -> None:
    """A prefix that was emptied and used again has other bytes under the same names; a crash leaves zeros."""
    for content in (b"of the first store" * 10, b"of another store!!" * 10):
        objects = MemoryObjects()
        with ObjectPlogs(objects) as plogs:
            plog = plogs.create()
            plogs.append(plog, 0, content)
        cache = ObjectCache(objects, folder=tmp_path, memory_max=0, disk_max=1 << 20)
        with ObjectPlogs(objects, cache=cache) as plogs:
            assert plogs.read(plog, 0, len(content)) == content
            assert plogs.read(plog, 1, 2) == content[1:3]
            assert cache.counts().disk_size
        for file in tmp_path.glob("*.chunks"):
            damaged = bytearray(file.read_bytes())
            damaged[65536:] = bytes(len(damaged) - 65536)
            file.write_bytes(damaged)
        cache = ObjectCache(objects, folder=tmp_path, memory_max=0, disk_max=1 << 20)
        with ObjectPlogs(objects, cache=cache) as plogs:
            assert plogs.read(plog, 0, len(content)) == content


def test_objects_behind_a_sequential_read_are_fetched_before_it_asks(tmp_path: Path) -> None:
    """A plog lies in many objects; a reader that waited for each of them would mostly wait."""
    memory = MemoryObjects()
    with ObjectPlogs(memory, settings=ObjectSettings(group_wait_s=0)) as plogs:
        plog, offset = plogs.create(), 0
        for number in range(40):
            offset = plogs.append(plog, offset, bytes([number]) * 1000)
    objects = FaultyObjects(memory)
    cache = ObjectCache(objects, folder=tmp_path, memory_max=0, disk_max=1 << 20)
    with ObjectPlogs(objects, cache=cache) as plogs:
        objects.calls.clear()
        assert bytes(plogs.read(plog, 20_000, 1000)) == bytes([20]) * 1000
        assert objects.calls["get_range"] == 1  # one read somewhere says nothing about the next
        for number in range(30):
            assert bytes(plogs.read(plog, 1000 * number, 1000)) == bytes([number]) * 1000
            for fetch in list(cache._fetching.values()):
                fetch.result()
            assert objects.calls["get_range"] >= (min(number + 16, 39) if number else 2)
        assert objects.calls["get_range"] == 40  # each once
