"""Blocks by the place where they are: what another process reads is what the owner does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PlogCorrupt, ReadOutOfRange
from penstock.plog import FilePlogs, LocatedBlocks, copy_located, read_located
from penstock.ports import OsDisk, map_file
from penstock.testing import MemoryDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.plog import PlogId

BLOCKS = [bytes([number]) * (1 + number * 37) for number in range(40)]


@pytest.fixture
def plogs(tmp_path: Path) -> Iterator[FilePlogs]:
    with FilePlogs(OsDisk(tmp_path)) as plogs:
        yield plogs


def filled(plogs: FilePlogs) -> PlogId:
    plog_id, offset = plogs.create(size=1 << 20), 0
    for block in BLOCKS:
        offset = plogs.append(plog_id, offset, block)
    return plog_id


def read(plogs: FilePlogs, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, bytes]]:
    located = plogs.locate(plog_id, offset, size)
    return [(place, bytes(view)) for place, view in read_located(located, mapped(located), set())]


def mapped(located: LocatedBlocks) -> memoryview:
    with Path(located.path).open("rb") as file:
        return map_file(file.fileno(), os.fstat(file.fileno()).st_size)


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (0, 5000), (777, 1), (777, 4000), (100, 0)])
def test_another_reads_the_same_blocks_as_the_owner(plogs: FilePlogs, offset: int, size: int) -> None:
    """Also those that the owner has only put into the journal yet."""
    plog_id = filled(plogs)
    expected = [(place, bytes(view)) for place, view in plogs.blocks(plog_id, offset, size)]
    assert read(plogs, plog_id, offset, size) == expected


def test_what_was_located_stays_good_when_the_plog_is_sealed_and_deleted(plogs: FilePlogs) -> None:
    """A process that has the file mapped needs no other process any more."""
    plog_id = filled(plogs)
    located = plogs.locate(plog_id, 0, plogs.info(plog_id).length)
    image = mapped(located)
    plogs.seal(plog_id, plogs.info(plog_id).length)
    plogs.delete(plog_id)
    assert [bytes(view) for _, view in read_located(located, image, set())] == BLOCKS


def test_a_damaged_block_is_never_returned(plogs: FilePlogs, tmp_path: Path) -> None:
    """A reader in another process checks each block, once."""
    plog_id = filled(plogs)
    located = plogs.locate(plog_id, 0, plogs.info(plog_id).length)
    image, verified = mapped(located), set[int]()
    list(read_located(located.between(0, 10), image, verified))
    assert verified == {0, 1}
    with (tmp_path / located.path).open("r+b") as file:
        file.seek(located.end - 1)
        file.write(b"\xff")
    with pytest.raises(PlogCorrupt, match=f"block {len(BLOCKS) - 1} fails its checksum"):
        list(read_located(located, image, verified))


def test_blocks_are_copied_as_they_are_mapped(plogs: FilePlogs) -> None:
    """From anywhere in the file, and checked."""
    plog_id = filled(plogs)
    for low, high in ((0, 1), (777, 4000), (0, plogs.info(plog_id).length)):
        located = plogs.locate(plog_id, low, high - low)
        with Path(located.path).open("rb") as file:
            copied = list(copy_located(located, file.fileno()))
        assert copied == list(read_located(located, mapped(located), set()))
        other = replace(located, key=bytes(24))
        with Path(located.path).open("rb") as file, pytest.raises(PlogCorrupt, match=f"at byte {located.begin} "):
            list(copy_located(other, file.fileno()))


def test_a_block_of_another_size_is_not_the_one_that_was_located(plogs: FilePlogs) -> None:
    """It may be whole, and of the same plog, in a copy of the folder that went on in its own way."""
    plog_id = plogs.create(size=1 << 20)
    plogs.append(plog_id, 0, b"abc")
    located = replace(plogs.locate(plog_id, 0, 3), offsets=np.array([0, 2], "<u4").tobytes())
    with pytest.raises(PlogCorrupt):
        list(read_located(located, mapped(located), set()))


def test_an_empty_file_holds_no_block(plogs: FilePlogs, tmp_path: Path) -> None:
    """The system does not map what is empty."""
    located = plogs.locate(filled(plogs), 0, 10)
    empty = tmp_path / "empty"
    empty.touch()
    with pytest.raises(PlogCorrupt):
        list(read_located(located, mapped(replace(located, path=str(empty))), set()))


def test_what_is_not_acknowledged_is_not_located() -> None:
    """Data that could still be lost is never read."""
    with FilePlogs(MemoryDisk()) as plogs:
        plog_id = filled(plogs)
        with pytest.raises(ReadOutOfRange):
            plogs.locate(plog_id, 0, plogs.info(plog_id).length + 1)


@given(st.data())
def test_a_part_holds_the_blocks_that_have_any_of_its_bytes(data: st.DataObject) -> None:
    """No block too few, and none too many."""
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    offsets = np.cumsum([0, *sizes])
    low = data.draw(st.integers(0, int(offsets[-1]) - 1))
    high = data.draw(st.integers(low + 1, int(offsets[-1])))
    part = LocatedBlocks("path", b"key", 5, offsets.astype("<u4").tobytes()).between(low, high)
    wanted = [index for index in range(len(sizes)) if offsets[index] < high and low < offsets[index + 1]]
    assert part.first == 5 + wanted[0]
    assert np.frombuffer(part.offsets, "<u4").tolist() == offsets[wanted[0] : wanted[-1] + 2].tolist()
