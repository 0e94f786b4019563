"""Objects that are damaged, lost or exchanged: errors that name them, and never other bytes than were written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import CorruptData, FormatUnknown, JournalCorrupt
from penstock.model import PlogId
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.plog.objects._records import journal_name
from penstock.testing import MemoryObjects

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS: Final = [PlogId("local", "main", f"{number:032x}") for number in range(4)]
SETTINGS: Final = ObjectSettings(group_wait_s=0, part_size_min=600, compact_size_min=500, checkpoint_objects=1000)
GROUPS: Final = 12  # journal objects behind the checkpoint, more than an owner has under way

Objects = dict[str, bytes]


def killed_store(*, seals: bool = False) -> tuple[Objects, dict[PlogId, bytes]]:
    """Return the objects of an owner that was killed, every kind of them, and the bytes of its plogs.

    Its last journal object has an append, or a seal that takes part of a plog away.
    """
    bucket = MemoryObjects()
    data = {
        IDS[0]: b"".join(b"<%d>" % number * 20 for number in range(10)),
        IDS[1]: b"p" * 700 + b"parts" * 20,
        IDS[2]: b"in the journal",
        IDS[3]: b"",
    }
    with ObjectPlogs(bucket, settings=SETTINGS) as plogs:
        for plog_id in IDS:
            plogs.create(size=10_000, plog_id=plog_id)
        for start in range(0, len(data[IDS[0]]), 100):
            plogs.append(IDS[0], start, data[IDS[0]][start : start + 100])
        plogs.seal(IDS[0], len(data[IDS[0]]))
        plogs.append(IDS[1], 0, data[IDS[1]][:700])
        plogs.append(IDS[1], 700, data[IDS[1]][700:])
        plogs.append(IDS[2], 0, data[IDS[2]])
        while not any(name.endswith(".plog") for name in bucket.names("plogs/")):
            plogs.check_running()  # the sealed plog is compacted in the background
    plogs = ObjectPlogs(bucket, settings=SETTINGS)
    for number in range(GROUPS):
        plogs.append(IDS[3], len(data[IDS[3]]), b"%d" % (number % 10))
        data[IDS[3]] += b"%d" % (number % 10)
    if seals:
        plogs.seal(IDS[2], 2)
    else:
        plogs.append(IDS[2], len(data[IDS[2]]), b"!")
        data[IDS[2]] += b"!"
    objects = {name: bytes(bucket.get(name).data) for name in bucket.names("")}
    plogs.close()
    return objects, data


def opened(objects: Objects) -> MemoryObjects:
    bucket = MemoryObjects()
    for name, data in objects.items():
        bucket.put_new(name, data)
    return bucket


def read(objects: Objects) -> dict[PlogId, bytes]:
    with ObjectPlogs(opened(objects), settings=SETTINGS) as plogs:
        return {plog_id: bytes(plogs.read(plog_id, 0, plogs.info(plog_id).length)) for plog_id in IDS}


def damages(objects: Objects, other: Objects, name: str) -> Iterator[tuple[str, bytes | None]]:
    """Return what may become of an object: other bytes, or None."""
    data = objects[name]
    for place in sorted({0, 9, 10, 30, len(data) // 2, len(data) - 1}):
        if place < len(data):
            yield f"byte {place} changed", data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
    for size in sorted({0, 15, 40, len(data) // 2, len(data) - 1}):
        yield f"cut to {size}", data[:size]
    yield "longer", data + b"\0"
    yield "gone", None
    kind = name.partition("/")[0]
    for neighbour in objects:
        if neighbour != name and neighbour.partition("/")[0] == kind:
            yield f"it is {neighbour}", objects[neighbour]
    if name in other:
        yield "of another store", other[name]


def test_a_damaged_lost_or_exchanged_object_is_an_error_and_never_other_bytes() -> None:
    """A bucket is edited by hand, restored in part, expired by a rule; a store that served half of it would lie."""
    objects, data = killed_store()
    other, _ = killed_store(seals=True)
    assert objects.keys() & other.keys() == {name for name in objects if not name.startswith("plogs/")}
    assert read(objects) == read({**objects, "journal/notes": b"not ours"}) == data
    assert {name.partition("/")[0] for name in objects} == {"store", "journal", "plogs", "checkpoint"}
    last = max(name for name in objects if name.startswith("journal/"))
    refused = 0
    for name in objects:
        for damage, data_then in damages(objects, other, name):
            if (name, damage) == (last, "gone"):
                continue  # nothing was put after it
            damaged = {**objects, name: data_then or b""}
            if data_then is None:
                del damaged[name]
            try:
                assert read(damaged) == data, f"{name}: {damage}"
            except (CorruptData, FormatUnknown):
                refused += 1
    assert refused > 10 * len(objects)


@pytest.mark.parametrize("count", [1, 3, GROUPS - 1])
def test_journal_objects_that_are_gone_are_not_taken_for_the_end_of_the_journal(count: int) -> None:
    """Appends that were acknowledged would vanish without a word, and the numbers would be used again."""
    objects, _ = killed_store()
    numbers = sorted(int(name.removeprefix("journal/")) for name in objects if name.startswith("journal/"))[
        -GROUPS - 1 :
    ]
    for number in numbers[:count]:
        del objects[journal_name(number)]
    bucket = opened(objects)
    with pytest.raises(
        JournalCorrupt, match=f"{journal_name(numbers[0])}.*is gone, though {journal_name(numbers[count])}"
    ):
        ObjectPlogs(bucket, settings=SETTINGS)
    assert {name: bytes(bucket.get(name).data) for name in bucket.names("")} == objects, "it can still be restored"
