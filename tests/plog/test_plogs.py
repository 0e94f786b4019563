"""The contract of plogs, to the letter, in memory and in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import (
    AppendTooLarge,
    BadArgument,
    NoSuchPlog,
    PlogExists,
    PlogFull,
    PlogSealed,
    ReadOutOfRange,
    StoreClosed,
    WrongOffset,
)
from penstock.plog import APPEND_SIZE_MAX, PLOG_SIZE_DEFAULT, PLOG_SIZE_MAX, FilePlogs, PlogId, PlogInfo, open_plogs
from penstock.ports import OsDisk
from penstock.testing import MemoryDisk, SeededRandom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

    from penstock.plog import Plogs
    from penstock.testing._memory import MemoryFile

MIB: Final = 1 << 20
UNKNOWN: Final = PlogId("local", "main", "0" * 32)


def content(plogs: Plogs, plog_id: PlogId) -> bytes:
    return bytes(plogs.read(plog_id, 0, plogs.info(plog_id).length))


def fill(plogs: Plogs, plog_id: PlogId, *blocks: bytes) -> bytes:
    for block in blocks:
        plogs.append(plog_id, plogs.info(plog_id).length, block)
    return b"".join(blocks)


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


# Create


def test_new_plog_is_empty_open_and_of_the_size_asked_for(plogs: Plogs) -> None:
    """This is what everything starts from."""
    assert plogs.info(plogs.create(size=1000)) == PlogInfo(0, sealed=False, size=1000)


def test_plog_has_16_mib_by_default(plogs: Plogs) -> None:
    """The seed's plog size."""
    assert plogs.info(plogs.create()).size == PLOG_SIZE_DEFAULT == 16 << 20


def test_ids_are_different_and_name_a_cluster_and_a_group(plogs: Plogs) -> None:
    """A client finds the servers of a plog from its id alone."""
    ids = {plogs.create(size=1), plogs.create(size=1), plogs.new_id(), plogs.new_id()}
    assert len(ids) == 4
    assert {(plog_id.cluster, plog_id.group) for plog_id in ids} == {("local", "main")}
    assert all(PlogId.parse(str(plog_id)) == plog_id for plog_id in ids)


def test_create_takes_an_id(plogs: Plogs) -> None:
    """A log writes the id of its next plog down before it creates it."""
    plog_id = plogs.new_id()
    assert plogs.create(plog_id=plog_id, size=10) == plog_id
    assert plogs.info(plog_id).size == 10


def test_create_again_is_refused_and_changes_nothing(plogs: Plogs) -> None:
    """Two logs that write into one plog would destroy each other."""
    plog_id = plogs.create(size=1000)
    plogs.append(plog_id, 0, b"data")
    for size in (1000, 5):
        with pytest.raises(PlogExists, match=str(plog_id)) as caught:
            plogs.create(plog_id=plog_id, size=size)
        assert caught.value.plog_id == plog_id
    assert plogs.info(plog_id) == PlogInfo(4, sealed=False, size=1000)
    assert content(plogs, plog_id) == b"data"


@pytest.mark.parametrize("size", [0, -1, -(1 << 70), PLOG_SIZE_MAX + 1, 1 << 70])
def test_create_of_an_impossible_size_is_refused(plogs: Plogs, size: int) -> None:
    """A size from a configuration file is checked before anything is allocated."""
    plog_id = plogs.new_id()
    with pytest.raises(BadArgument, match=str(size)):
        plogs.create(plog_id=plog_id, size=size)
    with pytest.raises(NoSuchPlog):
        plogs.info(plog_id)


def test_smallest_plog_takes_one_byte(plogs: Plogs) -> None:
    """Tests of everything above plogs use tiny ones to force switches."""
    plog_id = plogs.create(size=1)
    assert plogs.append(plog_id, 0, b"x") == 1
    assert content(plogs, plog_id) == b"x"


@pytest.mark.parametrize("twin", [PlogId("other", "main", "1" * 32), PlogId("local", "other", "1" * 32)], ids=str)
def test_id_of_another_cluster_or_group_is_another_plog(plogs: Plogs, twin: PlogId) -> None:
    """The name of a file has the uid only; asking with a wrong id must neither show nor harm what is there."""
    plog_id = plogs.create(plog_id=PlogId("local", "main", "1" * 32), size=100)
    fill(plogs, plog_id, b"data")
    for ask in operations(plogs, twin).values():
        with pytest.raises(NoSuchPlog):
            ask()
    with pytest.raises(PlogExists):
        plogs.create(plog_id=twin, size=5)
    assert content(plogs, plog_id) == b"data"
    assert plogs.append(plog_id, 4, b"more") == 8


# An unknown plog


def operations(plogs: Plogs, plog_id: PlogId) -> dict[str, Callable[[], object]]:
    """Every call that needs a plog, with arguments that are wrong as well where they can be."""
    return {
        "append": lambda: plogs.append(plog_id, -1, bytes(APPEND_SIZE_MAX + 1)),
        "submit": lambda: plogs.submit(plog_id, 7, b"data"),
        "read": lambda: plogs.read(plog_id, 0, 1 << 40),
        "views": lambda: plogs.views(plog_id, 0, 1),
        "seal": lambda: plogs.seal(plog_id, 0),
        "info": lambda: plogs.info(plog_id),
        "delete": lambda: plogs.delete(plog_id),
    }


@pytest.mark.parametrize("name", list(operations(open_plogs("memory:"), UNKNOWN)))
def test_unknown_plog_is_refused_by_every_operation(plogs: Plogs, name: str) -> None:
    """The check comes first: what else is wrong with a call to a plog that is gone does not matter."""
    plogs.create(size=10)
    with pytest.raises(NoSuchPlog, match=str(UNKNOWN)) as caught:
        operations(plogs, UNKNOWN)[name]()
    assert caught.value.plog_id == UNKNOWN
    assert plogs.create(plog_id=UNKNOWN, size=10) == UNKNOWN


# Append


def test_append_returns_the_new_offset(plogs: Plogs) -> None:
    """The next append goes there."""
    plog_id = plogs.create(size=100)
    assert plogs.append(plog_id, 0, b"four") == 4
    assert plogs.append(plog_id, 4, b"seven!!") == 11
    assert plogs.info(plog_id).length == 11
    assert content(plogs, plog_id) == b"fourseven!!"


@pytest.mark.parametrize("offset", [-1, 0, 3, 5, 1 << 70])
def test_append_at_another_offset_is_refused(plogs: Plogs, offset: int) -> None:
    """A repeated, lost or foreign append shows by its offset."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"data")
    with pytest.raises(WrongOffset) as caught:
        plogs.append(plog_id, offset, b"more")
    assert (caught.value.offset, caught.value.expected) == (offset, 4)
    assert content(plogs, plog_id) == b"data"


def test_checks_of_an_append_come_in_the_promised_order(plogs: Plogs) -> None:
    """A writer tells by the first answer whether to give up, split, look again or go on elsewhere."""
    plog_id = plogs.create(size=3 * MIB)
    fill(plogs, plog_id, b"data")
    too_large = bytes(APPEND_SIZE_MAX + 1)
    with pytest.raises(AppendTooLarge) as large:
        plogs.append(plog_id, 99, too_large)
    assert (large.value.size, large.value.limit) == (APPEND_SIZE_MAX + 1, APPEND_SIZE_MAX)
    fill(plogs, plog_id, bytes(2 * MIB))
    with pytest.raises(WrongOffset):
        plogs.append(plog_id, 99, bytes(2 * MIB))
    with pytest.raises(PlogFull) as full:
        plogs.append(plog_id, 2 * MIB + 4, bytes(2 * MIB))
    assert (full.value.free, full.value.size) == (MIB - 4, 2 * MIB)
    plogs.seal(plog_id, 4)
    for offset, data in ((99, too_large), (4, b"x"), (99, b"x"), (4, bytes(2 * MIB))):
        with pytest.raises(PlogSealed) as sealed:
            plogs.append(plog_id, offset, data)
        assert sealed.value.sealed_offset == 4


def test_append_of_exactly_2_mib_is_allowed(plogs: Plogs) -> None:
    """The limit itself, and not a byte more."""
    plog_id = plogs.create(size=5 * MIB)
    data = np.random.default_rng(1).bytes(APPEND_SIZE_MAX)
    assert plogs.append(plog_id, 0, data) == 2 * MIB
    assert plogs.read(plog_id, 0, 2 * MIB) == data
    with pytest.raises(AppendTooLarge):
        plogs.append(plog_id, 2 * MIB, data + b"x")
    assert plogs.info(plog_id).length == 2 * MIB


@pytest.mark.parametrize("last", [1, 50, 100])
def test_exactly_full_is_allowed_and_one_byte_more_is_not(plogs: Plogs, last: int) -> None:
    """The size is a promise in both directions."""
    plog_id = plogs.create(size=100)
    data = fill(plogs, plog_id, *([bytes(100 - last)] if last < 100 else []))
    with pytest.raises(PlogFull):
        plogs.append(plog_id, len(data), bytes(last + 1))
    assert plogs.append(plog_id, len(data), b"x" * last) == 100
    with pytest.raises(PlogFull) as caught:
        plogs.append(plog_id, 100, b"x")
    assert caught.value.free == 0
    assert content(plogs, plog_id) == data + b"x" * last


def test_plog_takes_its_size_in_single_bytes(plogs: Plogs) -> None:
    """Every block has a header of its own, for which the room must be found on top."""
    plog_id = plogs.create(size=300)
    pending = [plogs.submit(plog_id, offset, bytes([offset % 256])) for offset in range(300)]
    assert [append.result() for append in pending] == list(range(1, 301))
    assert content(plogs, plog_id) == bytes(offset % 256 for offset in range(300))


def test_empty_append_changes_nothing(plogs: Plogs) -> None:
    """It is allowed at the current offset, and a full plog takes it too."""
    plog_id = plogs.create(size=4)
    assert plogs.append(plog_id, 0, b"") == 0
    fill(plogs, plog_id, b"data")
    assert plogs.append(plog_id, 4, bytearray()) == 4
    with pytest.raises(WrongOffset):
        plogs.append(plog_id, 0, b"")
    assert content(plogs, plog_id) == b"data"


def test_empty_append_is_done_when_all_before_it_is(plogs: Plogs) -> None:
    """Its result says that the plog is durable up to that offset."""
    plog_id = plogs.create(size=100)
    plogs.submit(plog_id, 0, b"data")
    assert plogs.append(plog_id, 4, b"") == 4
    assert plogs.info(plog_id).length == 4


@pytest.mark.parametrize(
    "data",
    [
        b"\x01\x02\x03\x04\x05\x06\x07\x08",
        bytearray(b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        memoryview(b"\0\x01\x02\x03\x04\x05\x06\x07\x08\0")[1:-1],
        memoryview(b"\x01\x02\x03\x04\x05\x06\x07\x08").cast("H"),
        np.frombuffer(b"\x01\x02\x03\x04\x05\x06\x07\x08", ">u4").reshape(2, 1),
        pa.py_buffer(b"\x01\x02\x03\x04\x05\x06\x07\x08"),
        pa.py_buffer(b"\0\0\x01\x02\x03\x04\x05\x06\x07\x08\0").slice(2, 8),
    ],
    ids=["bytes", "bytearray", "memoryview", "memoryview of shorts", "numpy", "arrow", "arrow slice"],
)
@pytest.mark.parametrize("direct_size_min", [1, 512], ids=["direct", "journaled"])
def test_anything_that_holds_bytes_is_data(
    open_store: Callable[..., Plogs], data: Buffer, direct_size_min: int
) -> None:
    """Batches come from Arrow and from numpy, and copying them first would cost what we want to save."""
    plogs = open_store(direct_size_min=direct_size_min)
    plog_id = plogs.create(size=100)
    assert plogs.append(plog_id, 0, data) == 8
    assert bytes(plogs.read(plog_id, 0, 8)) == b"\x01\x02\x03\x04\x05\x06\x07\x08"


def test_text_is_no_data(plogs: Plogs) -> None:
    """Which bytes a text is, only its writer knows."""
    plog_id = plogs.create(size=100)
    with pytest.raises(TypeError):
        plogs.append(plog_id, 0, "text")  # type: ignore[arg-type]
    assert plogs.append(plog_id, 0, b"data") == 4


def test_submitted_appends_are_in_order_and_done_in_any(plogs: Plogs) -> None:
    """A writer keeps several appends under way and asks for the last one first."""
    plog_id = plogs.create(size=100)
    first, second, third = (plogs.submit(plog_id, offset, b"abcd") for offset in (0, 4, 8))
    assert third.result() == 12
    assert first.result() == 4
    assert second.result() == second.result() == 8
    assert content(plogs, plog_id) == b"abcd" * 3


@pytest.mark.parametrize("kind", ["memory", "file"])  # an object store does not wait until a thread asks for the result
def test_submitted_append_counts_for_the_next_offset_but_not_for_the_length(plogs: Plogs) -> None:
    """The writer goes on, the reader waits for the disk."""
    plog_id = plogs.create(size=100)
    pending = plogs.submit(plog_id, 0, b"data")
    with pytest.raises(WrongOffset) as caught:
        plogs.submit(plog_id, 0, b"data")
    assert caught.value.expected == 4
    assert plogs.info(plog_id).length == 0
    with pytest.raises(ReadOutOfRange):
        plogs.read(plog_id, 0, 1)
    pending.result()
    assert bytes(plogs.read(plog_id, 0, 4)) == b"data"


# Read


def test_read_returns_the_bytes_asked_for_across_blocks(plogs: Plogs) -> None:
    """Where one append ended and the next began is none of a reader's business."""
    plog_id = plogs.create(size=100)
    data = fill(plogs, plog_id, b"a", b"bcd", b"efghij", b"k")
    for offset in range(len(data) + 1):
        for end in range(offset, len(data) + 1):
            assert plogs.read(plog_id, offset, end - offset) == data[offset:end]


def test_views_are_the_pieces_as_they_were_appended(plogs: Plogs) -> None:
    """A caller that sends bytes on does not need them in one piece, and saves the copy."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"abc", b"def", b"ghi")
    assert [bytes(view) for view in plogs.views(plog_id, 1, 7)] == [b"bc", b"def", b"gh"]
    assert plogs.views(plog_id, 3, 0) == []


def test_read_inside_one_append_is_no_copy(plogs: Plogs) -> None:
    """Two readers of a megabyte need one megabyte."""
    plog_id = plogs.create(size=4 * MIB)
    data = fill(plogs, plog_id, b"small", np.random.default_rng(2).bytes(MIB))
    first, second = plogs.read(plog_id, 5, MIB), plogs.read(plog_id, 105, 1000)
    assert address(first) + 100 == address(second)
    assert second == data[105:1105]
    assert [address(view) for view in plogs.views(plog_id, 5, MIB)] == [address(first)]


def test_views_cannot_be_written_to(plogs: Plogs) -> None:
    """A view is the stored data itself."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"abc", b"def")
    for view in (plogs.read(plog_id, 0, 3), plogs.read(plog_id, 0, 6), *plogs.views(plog_id, 0, 6)):
        assert view.readonly
        assert (view.format, view.ndim) == ("B", 1)


def test_whole_plog_is_one_read(plogs: Plogs) -> None:
    """A read takes up to one plog."""
    plog_id = plogs.create(size=5 * MIB)
    block = np.random.default_rng(3).bytes(MIB)
    data = fill(plogs, plog_id, *[block] * 5)
    assert plogs.read(plog_id, 0, 5 * MIB) == data


@pytest.mark.parametrize(("offset", "size"), [(0, 5), (4, 1), (5, 0), (3, 2), (1 << 70, 1), (0, 1 << 70)])
def test_read_past_the_end_is_refused_with_the_length(plogs: Plogs, offset: int, size: int) -> None:
    """A reader at the tail learns how much there is; half an answer would pass for a whole one."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"data")
    for read in (plogs.read, plogs.views):
        with pytest.raises(ReadOutOfRange) as caught:
            read(plog_id, offset, size)
        assert caught.value.length == 4


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, -1), (-4, 4), (2, -2), (-(1 << 70), 0)])
def test_negative_read_is_refused(plogs: Plogs, offset: int, size: int) -> None:
    """It is a mistake of the caller's; Python would count from the end."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"data")
    for read in (plogs.read, plogs.views):
        with pytest.raises(BadArgument):
            read(plog_id, offset, size)


def test_read_of_nothing_is_empty_anywhere_up_to_the_end(plogs: Plogs) -> None:
    """An empty range at the tail is where every follower starts."""
    plog_id = plogs.create(size=100)
    assert bytes(plogs.read(plog_id, 0, 0)) == b""
    fill(plogs, plog_id, b"da", b"ta")
    assert [bytes(plogs.read(plog_id, offset, 0)) for offset in range(5)] == [b""] * 5


# Seal


@pytest.mark.parametrize(("asked", "sealed_at"), [(0, 0), (2, 2), (3, 3), (6, 6), (7, 6), (1 << 70, 6)])
def test_seal_is_at_the_smaller_offset(plogs: Plogs, asked: int, sealed_at: int) -> None:
    """The process that seals knows how much was promised; bytes behind that were not, and missing bytes cannot be."""
    plog_id = plogs.create(size=100)
    data = fill(plogs, plog_id, b"abc", b"def")
    assert plogs.seal(plog_id, asked) == sealed_at
    assert plogs.info(plog_id) == PlogInfo(sealed_at, sealed=True, size=100)
    assert content(plogs, plog_id) == data[:sealed_at]
    with pytest.raises(ReadOutOfRange) as caught:
        plogs.read(plog_id, 0, sealed_at + 1)
    assert caught.value.length == sealed_at


def test_seal_again_is_fine_at_the_same_offset_and_refused_at_another(plogs: Plogs) -> None:
    """Repeating a call whose answer was lost is no error; a second opinion is."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"abcdef")
    assert plogs.seal(plog_id, 4) == 4
    assert plogs.seal(plog_id, 4) == 4
    for offset in (0, 3, 5, 6, 1 << 70):
        with pytest.raises(PlogSealed) as caught:
            plogs.seal(plog_id, offset)
        assert caught.value.sealed_offset == 4
    assert plogs.info(plog_id).length == 4


def test_sealed_plog_takes_not_even_an_empty_append(plogs: Plogs) -> None:
    """A fenced writer must learn it at its next call, whatever that is."""
    plog_id = plogs.create(size=100)
    plogs.seal(plog_id, 0)
    with pytest.raises(PlogSealed):
        plogs.append(plog_id, 0, b"")
    with pytest.raises(PlogSealed):
        plogs.submit(plog_id, 0, b"data")


def test_negative_seal_is_refused(plogs: Plogs) -> None:
    """It would be the smaller of the two."""
    plog_id = plogs.create(size=100)
    with pytest.raises(BadArgument):
        plogs.seal(plog_id, -1)
    assert plogs.info(plog_id).sealed is False


def test_seal_waits_for_appends_under_way(plogs: Plogs) -> None:
    """What was submitted before is in the length, so that its writer is not told of a success that is cut off."""
    plog_id = plogs.create(size=4 * MIB)
    small, large = plogs.submit(plog_id, 0, b"data"), plogs.submit(plog_id, 4, bytes(MIB))
    assert plogs.seal(plog_id, 1 << 40) == MIB + 4
    assert (small.result(), large.result()) == (4, MIB + 4)


def test_views_stay_good_when_the_plog_is_sealed(plogs: Plogs) -> None:
    """Sealing cuts the file; what a reader holds was acknowledged and stays, even if it is behind the seal."""
    plog_id = plogs.create(size=2 * MIB)
    data = fill(plogs, plog_id, np.random.default_rng(4).bytes(MIB), b"end")
    view, end = plogs.read(plog_id, 0, MIB), plogs.read(plog_id, MIB, 3)
    plogs.seal(plog_id, 10)
    assert view == data[:MIB]
    assert bytes(end) == b"end"


# Delete


def test_deleted_plog_is_unknown(plogs: Plogs) -> None:
    """Its id is as if it had never been."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"data")
    plogs.delete(plog_id)
    for ask in operations(plogs, plog_id).values():
        with pytest.raises(NoSuchPlog):
            ask()


@pytest.mark.parametrize("sealed", [False, True])
def test_deleted_plog_can_be_created_again(plogs: Plogs, *, sealed: bool) -> None:
    """Nothing of the old one shines through."""
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"old", b"data")
    if sealed:
        plogs.seal(plog_id, 3)
    plogs.delete(plog_id)
    assert plogs.create(plog_id=plog_id, size=50) == plog_id
    assert plogs.info(plog_id) == PlogInfo(0, sealed=False, size=50)
    fill(plogs, plog_id, b"new")
    assert content(plogs, plog_id) == b"new"


@pytest.mark.parametrize("block", [b"small", bytes(range(256)) * 4], ids=["journaled", "direct"])
@pytest.mark.parametrize("turns", [False, True], ids=["same generation", "later generation"])
def test_plog_created_again_is_there_after_reopening(
    open_store: Callable[..., Plogs], block: bytes, *, turns: bool
) -> None:
    """The journal still knows of the deletion, which is of the plog before."""
    plogs = open_store()
    plog_id, other = plogs.create(size=5000), plogs.create(size=50_000)
    fill(plogs, plog_id, b"old")
    plogs.delete(plog_id)
    plogs.create(plog_id=plog_id, size=5000)
    fill(plogs, plog_id, block)
    if turns:
        fill(plogs, other, *[bytes(400)] * 30)
    assert content(plogs, plog_id) == block
    assert content(open_store(), plog_id) == block


def test_views_stay_good_when_the_plog_is_deleted_and_the_store_closed(
    open_store: Callable[..., Plogs],
) -> None:
    """A reader that is sending a view on must not crash because somebody else truncates the log."""
    plogs = open_store()
    plog_id = plogs.create(size=10_000)
    small, large = b"small", np.random.default_rng(5).bytes(3000)
    fill(plogs, plog_id, small, large)
    views = plogs.views(plog_id, 0, 3005)
    plogs.delete(plog_id)
    assert [bytes(view) for view in views] == [small, large]
    plogs.create(plog_id=plog_id, size=10_000)
    fill(plogs, plog_id, bytes(3005))
    plogs.close()
    assert [bytes(view) for view in views] == [small, large]


def test_delete_waits_for_appends_under_way(plogs: Plogs) -> None:
    """They were accepted before, so they succeed before."""
    plog_id = plogs.create(size=4 * MIB)
    small, large = plogs.submit(plog_id, 0, b"data"), plogs.submit(plog_id, 4, bytes(MIB))
    plogs.delete(plog_id)
    assert (small.result(), large.result()) == (4, MIB + 4)


# Close and open


def test_close_twice_is_close_once(plogs: Plogs) -> None:
    """A `with` block around a store that closed itself is ordinary."""
    plogs.close()
    plogs.close()


def test_store_used_after_close_says_so(plogs: Plogs) -> None:
    """Not a bad file descriptor, and above all not a write into somebody else's file."""
    plog_id = plogs.create(size=100)
    plogs.close()
    for call in (*operations(plogs, plog_id).values(), *operations(plogs, UNKNOWN).values()):
        with pytest.raises(StoreClosed, match="closed"):
            call()
    with pytest.raises(StoreClosed):
        plogs.create(size=1)


def test_appends_under_way_are_durable_when_the_store_is_closed(open_store: Callable[..., Plogs]) -> None:
    """Closing makes everything durable, waited for or not."""
    plogs = open_store()
    plog_id, other = plogs.create(size=5000), plogs.create(size=5000)
    small, large, last = (plogs.submit(plog_id, *what) for what in ((0, b"small"), (5, bytes(1000)), (1005, b"last")))
    direct = plogs.submit(other, 0, bytes(600))
    plogs.close()
    assert [pending.result() for pending in (small, large, last, direct)] == [5, 1005, 1009, 600]
    plogs = open_store()
    assert content(plogs, plog_id) == b"small" + bytes(1000) + b"last"
    assert content(plogs, other) == bytes(600)


def test_views_stay_good_when_the_store_is_closed(open_store: Callable[..., Plogs]) -> None:
    """The reader of a view does not know who else uses the store."""
    plogs = open_store()
    plog_id = plogs.create(size=100)
    fill(plogs, plog_id, b"data")
    view = plogs.read(plog_id, 0, 4)
    plogs.close()
    assert bytes(view) == b"data"


def test_reopened_store_has_everything(open_store: Callable[..., Plogs]) -> None:
    """Lengths, seals, sizes and bytes, and that what was deleted is gone."""
    plogs = open_store()
    rng = np.random.default_rng(6)
    contents: dict[PlogId, bytes] = {}
    infos: dict[PlogId, PlogInfo] = {}
    for number in range(12):
        plog_id = plogs.create(size=4000 + number)
        blocks = [rng.bytes(int(size)) for size in rng.integers(1, 1200, size=number % 4)]
        contents[plog_id] = fill(plogs, plog_id, *blocks)
        if number % 3 == 0:
            contents[plog_id] = contents[plog_id][: plogs.seal(plog_id, 700)]
        infos[plog_id] = plogs.info(plog_id)
    gone = plogs.create(size=100)
    plogs.delete(gone)
    for _ in range(3):
        plogs = open_store()
        assert {plog_id: plogs.info(plog_id) for plog_id in infos} == infos
        assert {plog_id: content(plogs, plog_id) for plog_id in infos} == contents
        with pytest.raises(NoSuchPlog):
            plogs.info(gone)
        with pytest.raises(PlogExists):
            plogs.create(plog_id=next(iter(infos)), size=1)


def test_reopened_plog_goes_on_where_it_was(open_store: Callable[..., Plogs]) -> None:
    """A writer that restarts appends at the length it finds."""
    plog_id, data = open_store().create(size=5000), b""
    for number in range(8):
        plogs = open_store()
        assert content(plogs, plog_id) == data
        with pytest.raises(WrongOffset) as caught:
            plogs.append(plog_id, len(data) + 1, b"x")
        assert caught.value.expected == len(data)
        data += fill(plogs, plog_id, bytes([number]) * (90 * number + 1), b"end")


def test_large_and_small_appends_share_a_plog(open_store: Callable[..., Plogs]) -> None:
    """The one kind goes to the file alone, the other through the journal: a reader sees one plog."""
    plogs = open_store()
    plog_id = plogs.create(size=100_000)
    rng = np.random.default_rng(7)
    blocks = [rng.bytes(size) for size in (1, 600, 511, 512, 513, 1, 1, 2000, 3, 700, 5)]
    data = fill(plogs, plog_id, *blocks)
    offset, pending = len(data), []
    for block in blocks:
        pending.append(plogs.submit(plog_id, offset, block))
        offset += len(block)
    assert pending[-1].result() == offset
    assert content(plogs, plog_id) == data * 2
    assert content(open_store(), plog_id) == data * 2


def test_journal_turns_over_many_times(open_store: Callable[..., Plogs]) -> None:
    """Two small files serve for ever; what they held is in the plogs by then."""
    plogs = open_store(journal_size=1024, direct_size_min=200)
    plog_ids = [plogs.create(size=20_000) for _ in range(5)]
    blocks = [bytes([number]) * (number % 190 + 1) for number in range(200)]
    for number, block in enumerate(blocks):
        fill(plogs, plog_ids[number % 5], block)
        if number % 67 == 66:
            plogs = open_store(journal_size=1024, direct_size_min=200)
    for index, plog_id in enumerate(plog_ids):
        assert content(plogs, plog_id) == b"".join(blocks[index::5])


def test_journal_size_may_change_from_one_opening_to_the_next(open_store: Callable[..., Plogs]) -> None:
    """It is a setting of the program, not of the folder."""
    data, plog_id = b"", open_store(journal_size=4096).create(size=50_000)
    for size in (100_000, 2049, 8192, 2049):
        plogs = open_store(journal_size=size)
        assert content(plogs, plog_id) == data
        data += fill(plogs, plog_id, *[bytes([size % 251]) * 300] * 20)


# Files


def test_more_plogs_than_open_files_are_all_there(open_store: Callable[..., Plogs]) -> None:
    """A store has many thousand plogs, a process a thousand files."""
    plogs = open_store(open_files_max=3)
    plog_ids = [plogs.create(size=5000) for _ in range(20)]
    for turn in range(6):
        for number, plog_id in enumerate(plog_ids):
            fill(plogs, plog_id, bytes([turn, number]), bytes([turn, number]) * (300 if number % 7 == turn else 1))
    for number, plog_id in enumerate(plog_ids[::2]):
        plogs.seal(plog_id, 5 + number)
    expected = {plog_id: content(plogs, plog_id) for plog_id in plog_ids}
    assert [len(expected[plog_id]) for plog_id in plog_ids[:4:2]] == [5, 6]
    plogs = open_store(open_files_max=3)
    assert {plog_id: content(plogs, plog_id) for plog_id in plog_ids} == expected
    assert [plogs.info(plog_id).sealed for plog_id in plog_ids] == [True, False] * 10


class CountingDisk(MemoryDisk):
    """A disk that counts its open files."""

    def __init__(self) -> None:
        super().__init__()
        self.handles: list[MemoryFile] = []

    def create(self, name: str) -> MemoryFile:
        return self._count(super().create(name))

    def open(self, name: str) -> MemoryFile:
        return self._count(super().open(name))

    def _count(self, file: MemoryFile) -> MemoryFile:
        self.handles = [handle for handle in self.handles if handle._handle is not None]
        self.handles.append(file)
        return file


def test_open_files_are_few_whatever_is_done() -> None:
    """A process may have 1024; those of the journal and of a checkpoint come on top."""
    disk = CountingDisk()
    most = 0
    with FilePlogs(disk, journal_size=1 << 16, direct_size_min=1 << 12, open_files_max=8) as plogs:
        plog_ids = [plogs.create(size=20_000) for _ in range(100)]
        for turn in range(4):
            for plog_id in plog_ids:
                fill(plogs, plog_id, b"x" * 10 if turn < 3 else bytes(5000))
                assert bytes(plogs.read(plog_id, 0, 1)) == b"x"
                most = max(most, len(disk.handles))
    assert most <= 8 + 2 + 8


def blocks_of(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_room_is_allocated_when_a_plog_is_created(folder: Path) -> None:
    """An append that was promised room must not find the disk full."""
    with FilePlogs(OsDisk(folder), journal_size=4096, direct_size_min=512) as plogs:
        path = folder / f"{plogs.create(size=4 * MIB).uid}.plog"
        assert path.stat().st_size >= 4 * MIB
        assert blocks_of(path) >= 4 * MIB


def test_seal_gives_the_unused_room_back(folder: Path) -> None:
    """A log that seals a plog early has 16 MiB allocated and uses a part of it."""
    with FilePlogs(OsDisk(folder)) as plogs:
        plog_id = plogs.create(size=8 * MIB)
        path = folder / f"{plog_id.uid}.plog"
        data = fill(plogs, plog_id, b"x" * MIB, b"end")
        plogs.seal(plog_id, 1 << 40)
        assert path.stat().st_size < MIB + 16384
        assert blocks_of(path) < MIB + 65536
        assert content(plogs, plog_id) == data


def test_delete_gives_the_room_back(folder: Path) -> None:
    """Truncating a log is how a user frees a full disk."""
    with FilePlogs(OsDisk(folder)) as plogs:
        plog_id = plogs.create(size=8 * MIB)
        path = folder / f"{plog_id.uid}.plog"
        assert path.exists()
        plogs.delete(plog_id)
        assert not path.exists()


def test_same_randomness_gives_the_same_ids() -> None:
    """A failing run is repeated from its seed."""
    first, second = (FilePlogs(MemoryDisk(), random=SeededRandom(1)) for _ in range(2))
    assert [first.new_id(), first.create(size=1)] == [second.new_id(), second.create(size=1)]


@pytest.mark.parametrize("url", ["", "file:", "memory", "memory:x", "files:/tmp/x", "/tmp/x", "s3:", ":x"])
def test_unknown_address_is_refused(url: str) -> None:
    """A typing mistake must not make a folder of that name."""
    with pytest.raises(BadArgument, match="cannot open plogs"):
        open_plogs(url)


def test_folder_is_made_with_those_above_it(folder: Path) -> None:
    """A new store needs no preparation."""
    with open_plogs(f"file:{folder / 'a' / 'b'}") as plogs:
        plog_id = plogs.create(size=10)
    with open_plogs(f"file:{folder / 'a' / 'b'}") as plogs:
        assert plogs.info(plog_id).size == 10


def test_memory_is_each_store_s_own(plogs: Plogs) -> None:
    """Two tests in one process must not meet."""
    plog_id = plogs.create(size=10)
    with open_plogs("memory:") as other, pytest.raises(NoSuchPlog):
        other.info(plog_id)


def test_disk_is_let_go_when_opening_fails(folder: Path) -> None:
    """The next try, after the user moved the stray file away, must not find the folder locked."""
    folder.mkdir()
    (folder / "stray").write_text("not ours")
    with pytest.raises(Exception, match="other files"):
        open_plogs(f"file:{folder}")
    (folder / "stray").unlink()
    open_plogs(f"file:{folder}").close()
