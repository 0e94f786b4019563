"""Which states a power loss may leave: exactly, where they can be counted, and by their rules, where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.testing import MemoryDisk, RecordingDisk
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing import CrashState

Contents: TypeAlias = dict[str, bytes]
NextCut: TypeAlias = tuple[str, int, bytes]
JUNK: Final = b"\xa5"


def contents(disk: MemoryDisk | RecordingDisk) -> Contents:
    files = {name: disk.open(name) for name in disk.names()}
    return {name: bytes(file.view(0, file.size())) for name, file in files.items()}


def states_now(disk: RecordingDisk, *, power_set_max: int = 5) -> list[CrashState]:
    return list(disk.crash_states(disk.crash_points()[-1], power_set_max=power_set_max))


def found(disk: RecordingDisk, name: str = "f", *, power_set_max: int = 5) -> set[bytes]:
    """Return what the file may hold if the power goes now."""
    return {contents(state.disk)[name] for state in states_now(disk, power_set_max=power_set_max)}


def disk_with(**files: bytes) -> RecordingDisk:
    memory = MemoryDisk()
    for name, data in files.items():
        memory.create(name).pwritev([data], 0)
    return RecordingDisk(memory)


def blocks(pattern: str, size: int) -> bytes:
    return b"".join(letter.encode() * size for letter in pattern)


def test_unsynced_writes_are_lost_kept_and_reordered() -> None:
    """These are all the states of two small appends: a store that bears them bears any order of write-back."""
    disk = disk_with(f=b"")
    file = disk.open("f")
    file.pwritev([b"AA"], 0)
    file.pwritev([b"BB"], 2)
    short = {b"", b"AA", b"\0\0BB", b"AABB"}
    zero_tail = {b"\0\0\0\0", b"AA\0\0"}
    stale_tail = {JUNK * 4, b"AA" + JUNK * 2, JUNK * 2 + b"BB"}
    assert found(disk) == short | zero_tail | stale_tail


def test_synced_writes_are_never_lost() -> None:
    """Ack means synced: a state without such a write would blame an innocent store."""
    disk = disk_with(f=b"")
    file = disk.open("f")
    file.pwritev([b"AA"], 0)
    file.pwritev([b"BB"], 2)
    file.datasync()
    assert found(disk) == {b"AABB"}


def test_sync_in_flight_saves_nothing_for_certain() -> None:
    """The power may go while the sync runs: the point before it has every state of the write."""
    disk = disk_with(f=b"")
    file = disk.open("f")
    file.pwritev([b"AA"], 0)
    file.datasync()
    before = {contents(state.disk)["f"] for state in disk.crash_states(disk.crash_points()[-2])}
    assert before == {b"", b"AA", b"\0\0", JUNK * 2}


def test_sync_saves_its_own_file_only() -> None:
    """Syncing the journal says nothing about the plog."""
    disk = disk_with(f=b"", g=b"")
    disk.open("f").pwritev([b"A"], 0)
    disk.open("g").datasync()
    assert b"" in found(disk)


def test_write_far_into_synced_room_stays_in_its_place() -> None:
    """The zeros of reserved room are not stored in the record, but they are there."""
    disk = disk_with(f=bytes(8))
    file = disk.open("f")
    file.pwritev([b"x"], 5)
    file.datasync()
    file.pwritev([b"y"], 7)
    assert found(disk) == {b"\0\0\0\0\0x\0\0", b"\0\0\0\0\0x\0y"}


def test_overwrite_that_is_lost_leaves_what_was_there() -> None:
    """Inside the old length there is neither a zero tail nor a stale one."""
    disk = disk_with(f=b"old old")
    disk.open("f").pwritev([b"new"], 4)
    assert found(disk) == {b"old old", b"old new"}


def test_write_is_torn_at_the_sectors_of_the_file_not_of_the_write() -> None:
    """A device writes whole sectors at fixed places, so an unaligned write has a short first and last piece."""
    disk = disk_with(f=blocks("o", 2000))
    disk.open("f").pwritev([blocks("n", 1400)], 300)
    first, second, third, last = (slice(300, 512), slice(512, 1024), slice(1024, 1536), slice(1536, 1700))
    old, new = blocks("o", 2000), b"o" * 300 + b"n" * 1400 + b"o" * 300
    assert found(disk) == {old, new} | {
        mixed(old, new, kept) for kept in ([first], [second, third, last], [first, second, third], [first, third])
    }


def mixed(old: bytes, new: bytes, kept: list[slice]) -> bytes:
    data = bytearray(old)
    for piece in kept:
        data[piece] = new[piece]
    return bytes(data)


def test_small_write_over_a_boundary_is_torn_too() -> None:
    """A record header of twenty bytes may lie in two sectors."""
    disk = disk_with(f=blocks("o", 1024))
    disk.open("f").pwritev([b"n" * 20], 502)
    assert found(disk) == {
        blocks("o", 1024),
        b"o" * 502 + b"n" * 10 + b"o" * 512,
        b"o" * 512 + b"n" * 10 + b"o" * 502,
        b"o" * 502 + b"n" * 20 + b"o" * 502,
    }


@pytest.mark.parametrize("block_size", [512, 4096])
def test_large_write_is_torn_in_sectors_and_in_pages(block_size: int) -> None:
    """Disks lose sectors, page caches lose pages; both leave holes that a checksum over the first bytes misses."""
    disk = disk_with(f=blocks("o", 16384))
    disk.open("f").pwritev([blocks("n", 16384)], 0)
    count = 16384 // block_size
    patterns = ["n" + "o" * (count - 1), "o" + "n" * (count - 1), "n" * (count - 1) + "o", "no" * (count // 2)]
    assert {blocks(pattern, block_size) for pattern in patterns} <= found(disk)


def test_other_writes_are_kept_or_lost_beside_a_torn_one() -> None:
    """A torn record may stand behind a whole one, or alone."""
    disk = disk_with(f=blocks("o", 1536))
    file = disk.open("f")
    file.pwritev([blocks("a", 512)], 0)
    file.pwritev([blocks("b", 1024)], 512)
    assert {blocks("abo", 512), blocks("oob", 512)} <= found(disk)


def test_torn_append_leaves_the_length_short_or_full() -> None:
    """The length is written apart from the data: the hole may be cut off, zero or stale."""
    disk = disk_with(f=b"")
    disk.open("f").pwritev([blocks("n", 1024)], 0)
    half = blocks("n", 512)
    assert {half, half + bytes(512), half + JUNK * 512} <= found(disk)


def test_reserved_room_may_be_missing_zero_or_stale_until_it_is_synced() -> None:
    """Pre-allocated blocks hold whatever the disk had there, if the power goes early."""
    disk = disk_with(f=b"ab")
    file = disk.open("f")
    file.reserve(4)
    assert found(disk) == {b"ab", b"ab\0\0", b"ab" + JUNK * 2}
    file.datasync()
    assert found(disk) == {b"ab\0\0"}


def test_lost_write_into_synced_room_leaves_zeros() -> None:
    """This is what reserving first is for: recovery finds zeros or the record, nothing else."""
    disk = disk_with(f=bytes(4))
    disk.open("f").pwritev([b"AA"], 0)
    assert found(disk) == {bytes(4), b"AA\0\0"}


def test_stale_bytes_may_be_those_of_a_removed_file() -> None:
    """Old records verify if their checksum is not bound to their place and file; junk would never show that."""
    disk = disk_with(f=b"", old=b"valid record", empty=b"")
    disk.remove("old")
    disk.remove("empty")
    disk.sync()
    disk.open("f").pwritev([b"n" * 14], 0)
    assert b"valid record" + JUNK * 2 in found(disk)


def test_stale_bytes_may_be_those_of_a_replaced_file() -> None:
    """A rename over a file frees its blocks as a removal does."""
    disk = disk_with(f=b"", old=b"replaced", new=b"")
    disk.rename("new", "old")
    disk.sync()
    disk.open("f").pwritev([b"n" * 8], 0)
    assert b"replaced" in found(disk)


def test_hole_that_was_never_written_reads_zeros() -> None:
    """Only blocks that were asked for can be stale; a hole has no block."""
    disk = disk_with(f=b"")
    disk.open("f").pwritev([b"n"], 3)
    assert found(disk) == {b"", b"\0\0\0n", b"\0\0\0\0", b"\0\0\0" + JUNK}


def test_unsynced_truncate_may_not_have_happened() -> None:
    """Recovery cuts off a torn tail; if that is not synced, the tail may be back behind what was appended since."""
    disk = disk_with(f=b"keep torn")
    file = disk.open("f")
    file.truncate(5)
    file.pwritev([b"NN"], 5)
    assert found(disk) == {
        b"keep torn",
        b"keep NNrn",
        b"keep ",
        b"keep NN",
        b"keep \0\0",
        b"keep " + JUNK * 2,
    }
    file.datasync()
    assert found(disk) == {b"keep NN"}


def test_file_made_longer_by_truncate_has_zeros() -> None:
    """It reserves no room: what was not written is a hole, and a hole is never stale."""
    disk = disk_with(f=b"ab")
    disk.open("f").truncate(4)
    assert found(disk) == {b"ab", b"ab\0\0"}


def test_new_file_may_be_missing_although_its_data_were_synced() -> None:
    """The commonest mistake of all: datasync saves the bytes, not the name."""
    disk = disk_with()
    file = disk.create("f")
    file.pwritev([b"data"], 0)
    file.datasync()
    assert [contents(state.disk) for state in states_now(disk)] == [{}, {"f": b"data"}]
    disk.sync()
    assert [contents(state.disk) for state in states_now(disk)] == [{"f": b"data"}]


def test_folder_sync_saves_no_data() -> None:
    """The other half of the mistake: the name is there and the file is empty."""
    disk = disk_with()
    disk.create("f").pwritev([b"data"], 0)
    disk.sync()
    assert b"" in found(disk)


def test_removed_file_may_be_back() -> None:
    """Recovery may meet a journal that it had thrown away."""
    disk = disk_with(f=b"data")
    disk.remove("f")
    assert [contents(state.disk) for state in states_now(disk)] == [{"f": b"data"}, {}]


def test_rename_is_done_or_not_done() -> None:
    """Replacing a file by a renamed one is atomic: the old or the new, never neither."""
    disk = disk_with(f=b"old", f_new=b"new")
    disk.rename("f_new", "f")
    assert [contents(state.disk) for state in states_now(disk)] == [{"f": b"old", "f_new": b"new"}, {"f": b"new"}]
    disk.sync()
    assert [contents(state.disk) for state in states_now(disk)] == [{"f": b"new"}]


def test_name_operations_survive_in_any_combination() -> None:
    """Folders are written back as files are: the later name may be there without the earlier."""
    disk = disk_with(a=b"a")
    disk.create("b")
    disk.remove("a")
    assert {frozenset(contents(state.disk)) for state in states_now(disk)} == {
        frozenset("a"),
        frozenset("ab"),
        frozenset("b"),
        frozenset(),
    }


def test_renamed_file_whose_creation_was_lost_has_its_last_name() -> None:
    """A file has the name it was last seen to have, or none; no state invents a third."""
    disk = disk_with()
    disk.create("tmp")
    disk.rename("tmp", "f")
    assert {frozenset(contents(state.disk)) for state in states_now(disk)} == {
        frozenset(),
        frozenset({"tmp"}),
        frozenset({"f"}),
    }


def test_many_writes_lose_none_all_some_or_each() -> None:
    """Beyond the power set the choice is systematic: write-back that stops early, starts late, or skips one."""
    disk = disk_with(f=bytes(24))
    file = disk.open("f")
    count = 12
    for place in range(count):
        file.pwritev([b"x"], 2 * place)
    masks = {bytes(data[::2]).replace(b"\0", b"-").decode() for data in found(disk)}
    whole = "x" * count
    assert masks == {
        variant
        for place in range(count + 1)
        for variant in (
            whole[:place].ljust(count, "-"),
            whole[place:].rjust(count, "-"),
            ("-" * place + "x").ljust(count, "-")[:count],
            (whole[:place] + "-").ljust(count, "x")[:count],
        )
    }


def test_many_writes_that_continue_each_other_are_taken_together() -> None:
    """A thousand small appends of one segment tear as one large one does, in few states."""
    disk = disk_with(f=bytes(2000))
    file = disk.open("f")
    for offset in range(0, 2000, 10):
        file.pwritev([b"x" * 10], offset)
    assert found(disk) == {
        bytes(2000),
        b"x" * 2000,
        b"x" * 512 + bytes(1488),
        bytes(512) + b"x" * 1488,
        b"x" * 1536 + bytes(464),
        b"x" * 512 + bytes(512) + b"x" * 512 + bytes(464),
    }


def test_power_set_can_be_asked_for() -> None:
    """A short history deserves every subset, whatever it costs."""
    disk = disk_with(f=bytes(8))
    file = disk.open("f")
    for place in range(8):
        file.pwritev([b"x"], place)
    assert len(found(disk, power_set_max=8)) == 2**8


def test_file_without_a_name_does_not_matter() -> None:
    """A removed plog that is still written to would crowd out the subsets of those that count."""
    disk = disk_with(f=bytes(8), gone=b"")
    gone = disk.open("gone")
    disk.remove("gone")
    disk.sync()
    for place in range(4):
        disk.open("f").pwritev([b"x"], 2 * place)
        gone.pwritev([b"x"], 2 * place)
    assert len(found(disk)) == len(states_now(disk)) == 2**4


def test_every_point_has_its_own_states_in_any_order_of_asking() -> None:
    """A failing state is looked at again on its own, without those before it."""
    disk = disk_with(f=b"")
    file = disk.open("f")
    for place in range(4):
        file.pwritev([b"x"], place)
        file.datasync()
    expected = [[contents(state.disk) for state in disk.crash_states(point)] for point in disk.crash_points()]
    backwards = [[contents(state.disk) for state in disk.crash_states(p)] for p in reversed(disk.crash_points())]
    assert backwards == expected[::-1]
    assert expected[0] == [{"f": b""}]


def test_every_state_of_all_points_comes_once_for_the_same_notes() -> None:
    """Recovery is slow and files stay unsynced for long: what was recovered from once need not be again."""
    disk = disk_with(f=b"", g=b"")
    disk.open("f").pwritev([b"long unsynced"], 0)
    for number in range(4):
        disk.open("g").pwritev([bytes([number + 1])], number)
        disk.open("g").datasync()
        disk.note(number)
    singly = {known(state) for point in disk.crash_points() for state in disk.crash_states(point)}
    at_once = [known(state) for state in disk.every_crash_state()]
    assert set(at_once) == singly
    assert len(at_once) == len(singly)


def known(state: CrashState) -> tuple[object, ...]:
    return state.notes, frozenset(contents(state.disk).items())


def test_files_of_the_same_bytes_are_one_state() -> None:
    """Which of two equal files a name belongs to cannot be seen after the crash."""
    disk = disk_with(f=b"same")
    disk.remove("f")
    disk.create("f").pwritev([b"same"], 0)
    seen = [frozenset(contents(state.disk).items()) for state in states_now(disk)]
    assert len(seen) == len(set(seen))


def test_state_says_what_happened() -> None:
    """Among thousands of states the failing one has to be found again by eye."""
    disk = disk_with(f=bytes(1024))
    file = disk.open("f")
    file.pwritev([blocks("a", 100)], 0)
    file.pwritev([blocks("b", 1024)], 512)
    disk.remove("f")
    lines = {state.describe for state in states_now(disk)}
    assert "after op 3 remove f; lost 1,2; names lost 3" in lines
    assert "after op 3 remove f; kept 1; names lost 3; tore 2 at 512: the first block" in lines
    assert "after op 3 remove f; kept 1; lost 2; names lost 3; zero tail" in lines
    assert [state.describe for state in disk.crash_states(0)] == ["before op 1"]


def test_state_is_a_disk_of_its_own() -> None:
    """Recovery writes to the state, and the next state must not see it."""
    disk = disk_with(f=b"data")
    disk.open("f").pwritev([b"!"], 4)
    for state in states_now(disk):
        state.disk.lock()
        assert contents(state.disk)["f"].startswith(b"data")
        state.disk.open("f").pwritev([b"gone"], 0)
    assert contents(disk) == {"f": b"data!"}


steps: Final = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "reserve", "truncate", "datasync"]),
        st.integers(min_value=0, max_value=1500),
        st.binary(min_size=1, max_size=4).map(lambda letters: letters * 200),
    ),
    max_size=12,
)


class Oracle:
    """The rules of survival again, byte by byte: what each byte may be if the power goes now."""

    def __init__(self) -> None:
        self.bytes: list[set[int]] = []
        self.certain_length = 0

    def do(self, step: NextCut) -> None:
        kind, number, data = step
        match kind:
            case "write":
                self._reach(number + len(data))
                for place, byte in enumerate(data, start=number):
                    self.bytes[place].add(byte)
            case "reserve":
                self._reach(number)
            case "truncate":
                self._reach(number)
                for possible in self.bytes[number:]:
                    possible.update({0, *JUNK})
                self.certain_length = min(self.certain_length, number)

    def _reach(self, length: int) -> None:
        self.bytes.extend({0, *JUNK} for _ in range(length - len(self.bytes)))

    def sync(self, data: bytes) -> None:
        self.bytes = [{byte} for byte in data]
        self.certain_length = len(data)

    def allows(self, data: bytes) -> bool:
        possible = zip(data, self.bytes, strict=False)
        return self.certain_length <= len(data) <= len(self.bytes) and all(byte in any_of for byte, any_of in possible)


def run(steps: list[NextCut]) -> Iterator[tuple[RecordingDisk, Oracle, bytes]]:
    """Yield, after every step, the disk, what it may lose, and what was synced last."""
    disk, oracle, synced = disk_with(f=b""), Oracle(), b""
    file = disk.open("f")
    for step in steps:
        kind, number, data = step
        match kind:
            case "write":
                file.pwritev([data], number)
            case "reserve":
                file.reserve(number)
            case "truncate":
                file.truncate(number)
            case "datasync":
                file.datasync()
                synced = contents(disk)["f"]
                oracle.sync(synced)
        oracle.do(step)
        yield disk, oracle, synced


@given(steps=steps)
@settings(max_examples=examples(60))
def test_every_state_has_the_synced_bytes_and_no_invented_ones(steps: list[NextCut]) -> None:
    """A state that is not legal wastes an afternoon; a rule written twice, in two ways, is right more often."""
    for disk, oracle, _ in run(steps):
        for state in states_now(disk):
            assert oracle.allows(contents(state.disk)["f"]), state.describe


@given(steps=steps)
@settings(max_examples=examples(60))
def test_states_differ_and_include_nothing_lost_and_everything_lost(steps: list[NextCut]) -> None:
    """The two ends are what every store meets first, and a state seen twice is time lost."""
    for disk, _, synced in run(steps):
        seen = [contents(state.disk)["f"] for state in states_now(disk)]
        assert {synced, contents(disk)["f"]} <= set(seen)
        assert len(seen) == len(set(seen))
