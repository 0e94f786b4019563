"""Reads of a log whose plogs are larger than the steps in which they are read."""

from __future__ import annotations

import random
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import PlogCorrupt
from penstock.log import LogStream, MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.ports import OsDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model import PlogId

MIB: Final = 1 << 20
LARGE: Final = PlogSizes(first=16 * MIB, largest=16 * MIB)


@contextmanager
def opened(folder: Path) -> Iterator[LogStream]:
    """Open a log with large plogs."""
    with ExitStack() as stack:
        plogs = stack.enter_context(FilePlogs(OsDisk(folder / "plogs")))
        cpo = stack.enter_context(open_cpo(f"sqlite:{folder / 'cpo.db'}"))
        yield stack.enter_context(MetadataManager.open(plogs, cpo, "p0", sizes=LARGE)).log("log")


def first_plog(log: LogStream) -> PlogId:
    return log.plogs()[0][0]


def test_every_append_comes_once_and_whole_wherever_a_read_begins_and_ends(tmp_path: Path) -> None:
    """Appends lie across the ends of steps; a reader sees none twice, and none in two pieces."""
    rng = random.Random(1)
    with opened(tmp_path) as log:
        data = [rng.randbytes(rng.randrange(1, 2 * MIB)) for _ in range(24)]
        for piece in data:
            log.append(piece)
        ends = [sum(map(len, data[: number + 1])) for number in range(len(data))]
        whole, first = b"".join(data), first_plog(log)
        for _ in range(20):
            low, high = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
            found = list(log.blocks(low, high))
            expected = [
                (end - len(piece), piece)
                for end, piece in zip(ends, data, strict=True)
                if end > low and end - len(piece) < high
            ]
            assert [(start, bytes(view)) for start, view in found] == expected, (low, high)
            offset = min(low, log.plogs()[0][1])
            assert b"".join(log.read(first, offset, high - offset)) == whole[offset:high], (offset, high)


def test_a_read_raises_no_error_of_damage_that_lies_far_behind(tmp_path: Path) -> None:
    """What lies before a damaged block can be read, although it is in the same plog and the read is of all of it."""
    piece = random.Random(2).randbytes(MIB)
    with opened(tmp_path) as log:
        for _ in range(12):
            log.append(piece)
        path = tmp_path / "plogs" / f"{first_plog(log).uid}.plog"
    with path.open("r+b") as file:
        file.seek(11 * MIB + MIB // 2)
        file.write(b"damage")
    with opened(tmp_path) as log:
        views = log.read(first_plog(log), 0, 12 * MIB)
        before = [bytes(next(views)) for _ in range(8)]
        assert before == [piece] * 8
        with pytest.raises(PlogCorrupt, match="block 11 fails its checksum"):
            list(views)
