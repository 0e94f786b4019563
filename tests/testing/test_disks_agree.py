"""The real disk and those that stand in for it do the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.ports import OsDisk, write_all
from penstock.testing import FaultyDisk, MemoryDisk, RecordingDisk
from tests.sampling import examples

if TYPE_CHECKING:
    from penstock.ports import Disk

Make: TypeAlias = Callable[[], "AbstractContextManager[Disk]"]
NextCut: TypeAlias = tuple[str, str, str, int, list[bytes]]


@contextmanager
def os_disk() -> Iterator[Disk]:
    with tempfile.TemporaryDirectory() as folder:
        disk = OsDisk(folder)
        yield disk
        disk.close()


@contextmanager
def memory_disk() -> Iterator[Disk]:
    yield MemoryDisk()


@contextmanager
def recording_disk() -> Iterator[Disk]:
    yield RecordingDisk()


@contextmanager
def sound_faulty_disk() -> Iterator[Disk]:
    yield FaultyDisk(MemoryDisk())


every_disk: Final = pytest.mark.parametrize("make", [os_disk, memory_disk, recording_disk, sound_faulty_disk])
names: Final = st.sampled_from(["a", "b"])
steps: Final = st.lists(
    st.tuples(
        st.sampled_from(["create", "write", "write", "reserve", "truncate", "remove", "rename", "sync"]),
        names,
        names,
        st.integers(min_value=1, max_value=10_000),
        st.lists(st.binary(max_size=40), max_size=3),
    ),
    max_size=25,
)


class Model:
    """A folder as simple as it can be."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def do(self, step: NextCut) -> object:
        kind, name, other, number, parts = step
        if kind == "sync":
            return None
        if (kind == "create") == (name in self.files):
            return FileExistsError if kind == "create" else FileNotFoundError
        old, data = self.files.get(name, b""), b"".join(parts)
        match kind:
            case "create":
                self.files[name] = b""
            case "write":
                self.files[name] = old[:number].ljust(number, b"\0") + data + old[number + len(data) :] if data else old
                return len(data)
            case "reserve":
                self.files[name] = old.ljust(number, b"\0")
            case "truncate":
                self.files[name] = old[:number].ljust(number, b"\0")
            case "remove":
                del self.files[name]
            case "rename":
                self.files[other] = self.files.pop(name)
        return None


def do(disk: Disk, step: NextCut) -> object:
    kind, name, other, number, parts = step
    try:
        match kind:
            case "sync":
                disk.sync()
            case "create":
                disk.create(name).close()
            case "remove":
                disk.remove(name)
            case "rename":
                disk.rename(name, other)
            case _:
                return do_to_file(disk, kind, name, number, parts)
    except OSError as error:
        return type(error)
    return None


def do_to_file(disk: Disk, kind: str, name: str, number: int, parts: list[bytes]) -> object:
    file = disk.open(name)
    try:
        match kind:
            case "write":
                return file.pwritev(parts, number)
            case "reserve":
                file.reserve(number)
            case "truncate":
                file.truncate(number)
    finally:
        file.datasync()
        file.close()
    return None


def contents(disk: Disk) -> dict[str, bytes]:
    found = {}
    for name in disk.names():
        file = disk.open(name)
        found[name] = bytes(file.view(0, file.size() + 1))
        file.close()
    return found


@every_disk
@given(steps=steps)
@settings(max_examples=examples(60))
def test_every_disk_does_what_a_simple_folder_does(make: Make, steps: list[NextCut]) -> None:
    """What is proved on the disks for tests holds for the real one only if they cannot be told apart."""
    model = Model()
    with make() as disk:
        for step in steps:
            assert do(disk, step) == model.do(step)
            assert contents(disk) == model.files


@every_disk
def test_view_shows_later_writes_into_the_same_room(make: Make) -> None:
    """A mapping is shared: who holds a view of bytes that are not acknowledged sees them change."""
    with make() as disk:
        file = disk.create("plog")
        file.reserve(64)
        view = file.view(0, 64)
        file.pwritev([b"later"], 10)
        assert bytes(view[10:15]) == b"later"


@every_disk
def test_view_is_read_only_and_ends_with_the_file(make: Make) -> None:
    """A reader must neither change acknowledged bytes nor take what lies behind them."""
    with make() as disk:
        file = disk.create("plog")
        file.pwritev([b"0123456789"], 0)
        assert file.view(0, 4).readonly
        assert [bytes(file.view(8, 9)), bytes(file.view(10, 1)), bytes(file.view(99, 1))] == [b"89", b"", b""]


@every_disk
def test_views_and_handles_outlive_the_name(make: Make) -> None:
    """A plog is deleted while a slow reader still holds a part of it."""
    with make() as disk:
        file = disk.create("plog")
        file.pwritev([b"held"], 0)
        view = file.view(0, 4)
        disk.remove("plog")
        file.pwritev([b"more"], 4)
        assert bytes(file.view(0, 8)) == b"heldmore"
        file.close()
        assert bytes(view) == b"held"


@every_disk
def test_two_handles_are_of_one_file(make: Make) -> None:
    """A reader opens the file that a writer is appending to."""
    with make() as disk:
        writer = disk.create("plog")
        reader = disk.open("plog")
        writer.pwritev([b"one"], 0)
        assert bytes(reader.view(0, 9)) == b"one"
        writer.pwritev([b"two"], 3)
        assert bytes(reader.view(0, 9)) == b"onetwo"


@given(
    parts=st.lists(st.binary(max_size=50), max_size=6),
    cuts=st.lists(st.integers(min_value=1, max_value=30), max_size=20),
)
def test_write_all_writes_everything_however_short_each_write_is(parts: list[bytes], cuts: list[int]) -> None:
    """The kernel may take any part of a write; the rest has to follow in the right place."""
    disk = FaultyDisk(MemoryDisk())
    for call, size in enumerate(cuts, start=1):
        disk.shorten(size, call=call)
    file = disk.create("journal")
    write_all(file, parts, 7)
    assert bytes(file.view(7, 1000)) == b"".join(parts)
