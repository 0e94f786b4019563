"""The replica: what a plog allows, in which order it says no, and what is left of it after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import AppendTooLarge, BadArgument, PlogFull, PlogSealed, ReadOutOfRange, WrongOffset
from penstock.model import PlogId
from penstock.plog import APPEND_SIZE_MAX, PlogInfo
from penstock.plog._block import HEAD_SIZE, PLOG_BLOCK_HEADER_SIZE, pack_block_header
from penstock.plog._head import STATE_POSITION, State, pack_new_head
from penstock.plog._replica import Damage, Replica, recover_replica

UID: Final = bytes(range(16))
BIRTH: Final = b"newborn!"
KEY: Final = UID + BIRTH
PLOG_ID: Final = PlogId("local", "main", UID.hex())
BLOCKS: Final = (b"one", b"twenty", b"x" * 40)
LENGTH: Final = sum(map(len, BLOCKS))

bodies = st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=8)


def replica_of(*sizes: int, size: int = 100, acked: bool = True) -> Replica:
    """A replica that holds blocks of these sizes."""
    replica = Replica(PLOG_ID, size=size, birth=BIRTH)
    for block_size in sizes:
        replica.placed(block_size)
    if acked:
        replica.acknowledge(replica.written)
    return replica


def pack_block(body: bytes, offset: int, key: bytes = KEY) -> bytes:
    return pack_block_header(key, offset=offset, body=(body,), body_size=len(body)) + body


def pack_blocks(*bodies: bytes) -> bytes:
    data, offset = b"", 0
    for body in bodies:
        data += pack_block(body, offset)
        offset += len(body)
    return data


def image(blocks: bytes, state: State | None = None, *, size: int = 1000, room: int = 200) -> bytearray:
    """A plog's file: a head, blocks, and room that was allocated and not used."""
    data = bytearray(pack_new_head(PLOG_ID, size=size, birth=BIRTH).ljust(HEAD_SIZE, b"\0"))
    if state is not None:
        record = state.pack(KEY)
        data[STATE_POSITION : STATE_POSITION + len(record)] = record
    return data + blocks + bytes(room)


def recovered(data: bytes | bytearray) -> Replica:
    replica = recover_replica(PLOG_ID, memoryview(data))
    assert isinstance(replica, Replica), replica
    return replica


def damage(data: bytes | bytearray) -> Damage:
    found = recover_replica(PLOG_ID, memoryview(data))
    assert isinstance(found, Damage), found
    return found


def content(replica: Replica, data: bytes | bytearray) -> bytes:
    slices = replica.slices(0, replica.acked)
    return b"".join(bytes(data[part.start : part.end]) for part in slices)


@dataclass(frozen=True)
class Call:
    """An append that is wrong in more than one way, and the answer that comes first."""

    sealed: bool
    offset: int
    size: int
    answer: type[Exception]


TOO_LARGE: Final = APPEND_SIZE_MAX + 1


@pytest.mark.parametrize(
    "call",
    [
        Call(sealed=True, offset=99, size=TOO_LARGE, answer=PlogSealed),
        Call(sealed=True, offset=99, size=1, answer=PlogSealed),
        Call(sealed=True, offset=10, size=91, answer=PlogSealed),
        Call(sealed=True, offset=10, size=0, answer=PlogSealed),
        Call(sealed=False, offset=99, size=TOO_LARGE, answer=AppendTooLarge),
        Call(sealed=False, offset=10, size=TOO_LARGE, answer=AppendTooLarge),
        Call(sealed=False, offset=99, size=95, answer=WrongOffset),
        Call(sealed=False, offset=-1, size=1, answer=WrongOffset),
        Call(sealed=False, offset=99, size=0, answer=WrongOffset),
        Call(sealed=False, offset=10, size=91, answer=PlogFull),
    ],
    ids=str,
)
def test_append_wrong_in_several_ways_gets_the_first_answer(call: Call) -> None:
    """A writer decides by the class: sealed means go away, the wrong offset means look again."""
    replica = replica_of(10)
    if call.sealed:
        replica.seal(10)
    before = replica.info()
    with pytest.raises(call.answer):
        replica.check_append(call.offset, call.size)
    assert replica.info() == before


def test_refusals_say_what_a_caller_needs_to_go_on() -> None:
    """Without the expected offset, the room left or the sealed offset it would have to ask again."""
    replica = replica_of(10, acked=False)
    with pytest.raises(WrongOffset) as wrong:
        replica.check_append(3, 1)
    assert (wrong.value.offset, wrong.value.expected) == (3, 10)
    with pytest.raises(PlogFull) as full:
        replica.check_append(10, 91)
    assert (full.value.free, full.value.size) == (90, 91)
    with pytest.raises(AppendTooLarge) as large:
        replica.check_append(10, TOO_LARGE)
    assert (large.value.size, large.value.limit) == (TOO_LARGE, 2 << 20)
    replica.acknowledge(10)
    replica.seal(10)
    with pytest.raises(PlogSealed) as sealed:
        replica.check_append(10, 1)
    assert sealed.value.sealed_offset == 10


def test_plog_takes_exactly_its_size() -> None:
    """Exactly full is allowed; one byte more is not, and nothing is not too much."""
    replica = replica_of(10)
    replica.check_append(10, 90)
    replica.placed(90)
    replica.check_append(100, 0)
    with pytest.raises(PlogFull):
        replica.check_append(100, 1)


def test_largest_append_is_2_mib() -> None:
    """The limit itself is allowed."""
    replica = Replica(PLOG_ID, size=16 << 20, birth=BIRTH)
    replica.check_append(0, APPEND_SIZE_MAX)
    with pytest.raises(AppendTooLarge):
        replica.check_append(0, TOO_LARGE)


def test_offset_counts_what_is_written_and_length_what_is_acknowledged() -> None:
    """A writer may go on before the sync; a reader may not see what a crash could still take back."""
    replica = replica_of(10, 20, acked=False)
    replica.check_append(30, 1)
    assert replica.info() == PlogInfo(0, sealed=False, size=100)
    replica.acknowledge(10)
    assert replica.info().length == 10
    with pytest.raises(ReadOutOfRange):
        replica.slices(0, 11)


def test_late_acknowledgement_takes_nothing_back() -> None:
    """A sync of the file may overtake the journal's; what was readable stays so."""
    replica = replica_of(10, 20)
    replica.acknowledge(10)
    assert replica.info().length == 30


@pytest.mark.parametrize(("asked", "sealed_at"), [(0, 0), (5, 5), (29, 29), (30, 30), (31, 30), (1 << 60, 30)])
def test_seal_is_at_the_smaller_offset(asked: int, sealed_at: int) -> None:
    """The offset asked for is what the log's metadata says: less than it holds cuts, more cannot be."""
    replica = replica_of(10, 20)
    assert replica.check_seal(asked) == sealed_at
    replica.seal(sealed_at)
    assert replica.info() == PlogInfo(sealed_at, sealed=True, size=100)
    assert replica.check_seal(sealed_at) == sealed_at


def test_seal_counts_acknowledged_bytes_only() -> None:
    """What may still be lost must not be promised by a seal."""
    replica = replica_of(10, 20, acked=False)
    replica.acknowledge(10)
    assert replica.check_seal(30) == 10


@pytest.mark.parametrize("offset", [0, 9, 11, 30, 1 << 60])
def test_seal_elsewhere_again_is_refused(offset: int) -> None:
    """Two who seal at different offsets both believe they own the log: one of them must learn that it does not."""
    replica = replica_of(10, 20)
    replica.seal(10)
    with pytest.raises(PlogSealed) as caught:
        replica.check_seal(offset)
    assert caught.value.sealed_offset == 10


def test_negative_seal_is_refused() -> None:
    """It can only be a mistake of the caller's, and min() would take it for an offset."""
    with pytest.raises(BadArgument, match="-1"):
        replica_of(10).check_seal(-1)


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, -1), (-5, -5), (5, -1)])
def test_negative_read_is_refused(offset: int, size: int) -> None:
    """Python would read such a slice from the other end."""
    with pytest.raises(BadArgument):
        replica_of(10).slices(offset, size)


@pytest.mark.parametrize(("offset", "size"), [(0, 11), (10, 1), (11, 0), (1 << 70, 0), (0, 1 << 70)])
def test_read_past_the_end_is_refused_with_the_length(offset: int, size: int) -> None:
    """A reader at the tail learns from the error how far it may read."""
    with pytest.raises(ReadOutOfRange) as caught:
        replica_of(10).slices(offset, size)
    assert (caught.value.offset, caught.value.size, caught.value.length) == (offset, size, 10)


@given(bodies=bodies, data=st.data())
def test_slices_are_the_bytes_of_the_model(bodies: list[bytes], data: st.DataObject) -> None:
    """Offsets count bodies, files hold headers too: every range of the one is found in the other."""
    model = b"".join(bodies)
    replica = replica_of(*map(len, bodies), size=1000)
    file = image(pack_blocks(*bodies))
    offset = data.draw(st.integers(0, len(model)))
    size = data.draw(st.integers(0, len(model) - offset))
    slices = list(replica.slices(offset, size))
    assert b"".join(bytes(file[part.start : part.end]) for part in slices) == model[offset : offset + size]
    assert all(part.start < part.end for part in slices)
    for part in slices:
        assert file[part.position : part.position + 2] == b"PB"
        body_size = len(bodies[part.index])
        assert part.position + PLOG_BLOCK_HEADER_SIZE <= part.start
        assert part.end <= part.position + PLOG_BLOCK_HEADER_SIZE + body_size


@given(bodies=bodies, data=st.data())
def test_slices_end_at_the_seal(bodies: list[bytes], data: st.DataObject) -> None:
    """A seal may cut a block in two; the rest of it is in the file and must not come out."""
    model = b"".join(bodies)
    length = data.draw(st.integers(0, len(model)))
    replica = replica_of(*map(len, bodies), size=1000)
    replica.seal(length)
    file = image(pack_blocks(*bodies))
    assert content(replica, file) == model[:length]
    with pytest.raises(ReadOutOfRange):
        replica.slices(0, length + 1)


@given(bodies=bodies)
def test_blocks_lie_one_behind_another(bodies: list[bytes]) -> None:
    """The place of the next block follows from what is there: no index is kept on disk."""
    replica = Replica(PLOG_ID, size=1000, birth=BIRTH)
    for count, body in enumerate(bodies):
        assert replica.place() == HEAD_SIZE + len(pack_blocks(*bodies[:count]))
        assert replica.placed(len(body)) == sum(map(len, bodies[: count + 1]))


@given(bodies=bodies, known=st.integers(0, 8), sealed=st.booleans())
def test_file_gives_back_the_plog(bodies: list[bytes], known: int, *, sealed: bool) -> None:
    """Whatever part of the length the head knows, the blocks tell the rest; a seal's length is exact."""
    model = b"".join(bodies)
    length = sum(map(len, bodies[:known]))
    file = image(pack_blocks(*bodies), State(sealed, length))
    replica = recovered(file)
    expected = model[:length] if sealed else model
    assert replica.info() == PlogInfo(len(expected), sealed, 1000)
    assert content(replica, file) == expected


def test_new_file_is_an_empty_plog() -> None:
    """Between creation and the first append there may be a crash, too."""
    replica = recovered(image(b"", size=77))
    assert replica.info() == PlogInfo(0, sealed=False, size=77)
    assert replica.place() == HEAD_SIZE


@pytest.mark.parametrize("size", [0, 1, HEAD_SIZE, HEAD_SIZE + 500])
def test_blank_file_was_never_created(size: int) -> None:
    """The power went while the plog was made: it was not acknowledged, so it is not there and not damaged."""
    assert recover_replica(PLOG_ID, memoryview(bytes(size))) is None


@pytest.mark.parametrize("known", [0, 1, 2])
def test_last_block_cut_anywhere_is_cut_off(known: int) -> None:
    """Blocks that the head does not know of may be torn: what is before them stays."""
    blocks = pack_blocks(*BLOCKS)
    known_length = sum(map(len, BLOCKS[:known]))
    third = len(pack_blocks(*BLOCKS[:2]))
    for end in range(third, len(blocks)):
        for tail in (b"", b"\0" * 100, b"\xa5" * 100):
            state = State(sealed=False, length=known_length)
            replica = recovered(image(blocks[:end] + tail, state, room=0))
            assert replica.info().length == 9, (end, tail)


@pytest.mark.parametrize("length", [LENGTH, LENGTH - 1, LENGTH - 40 + 1])
def test_known_block_cut_anywhere_is_damage(length: int) -> None:
    """The head was written after that block was safe: losing it is not a crash but a loss, and must be said."""
    blocks = pack_blocks(*BLOCKS)
    third = len(pack_blocks(*BLOCKS[:2]))
    for end in range(third, len(blocks)):
        found = damage(image(blocks[:end], State(sealed=True, length=length), room=0))
        assert found.position == HEAD_SIZE + third


@pytest.mark.parametrize("sealed", [False, True])
def test_known_header_with_a_flipped_bit_is_damage_or_found_at_the_first_read(*, sealed: bool) -> None:
    """Opening reads the headers only; whatever it cannot see there, the checksum of the body shows."""
    sound = image(pack_blocks(*BLOCKS), State(sealed, LENGTH), room=0)
    info = recovered(sound).info()
    for start in (HEAD_SIZE, HEAD_SIZE + 23, HEAD_SIZE + 49):
        for bit in range(8 * PLOG_BLOCK_HEADER_SIZE):
            file = bytearray(sound)
            file[start + bit // 8] ^= 1 << bit % 8
            found = recover_replica(PLOG_ID, memoryview(file))
            if isinstance(found, Replica):
                assert found.info() == info, f"bit {bit} at {start}"
                assert not any(found.verified)


def test_unknown_block_with_a_flipped_bit_is_cut_off_with_all_behind_it() -> None:
    """It is unknown whether it was ever complete; a block behind a gap is never shown."""
    blocks = pack_blocks(*BLOCKS)
    for bit in range(8 * (PLOG_BLOCK_HEADER_SIZE + 3)):
        file = image(blocks)
        file[HEAD_SIZE + bit // 8] ^= 1 << bit % 8
        assert recovered(file).info().length == 0, f"bit {bit}"


def test_block_of_another_plog_or_place_ends_the_plog() -> None:
    """Stale bytes of a deleted plog, or of this one at another offset, are whole blocks, and not ours."""
    first = pack_block(b"one", 0)
    for stale in (pack_block(b"two", 3, KEY[::-1]), pack_block(b"two", 0), pack_block(b"two", 4)):
        assert recovered(image(first + stale)).info().length == 3
    for misdirected in (pack_block(b"two", 0), pack_block(b"two", 4)):
        found = damage(image(first + misdirected, State(sealed=False, length=6)))
        assert found.position == HEAD_SIZE + len(first)


def test_empty_block_ends_the_plog() -> None:
    """We never write one, and a walk over them would not come to an end."""
    assert recovered(image(pack_block(b"", 0) + pack_block(b"one", 0))).info().length == 0
    assert damage(image(pack_block(b"", 0), State(sealed=False, length=1))).position == HEAD_SIZE


def test_block_larger_than_the_plog_is_damage() -> None:
    """A length from a disk is checked, not believed."""
    file = image(pack_blocks(b"x" * 100), State(sealed=False, length=100), size=99)
    assert damage(file).position == HEAD_SIZE


def test_file_of_another_plog_is_damage() -> None:
    """A renamed file must not be served under its new name."""
    other = PlogId("local", "main", UID[::-1].hex())
    found = recover_replica(other, memoryview(image(b"")))
    assert isinstance(found, Damage)
    assert "another" in found.reason


@pytest.mark.parametrize("place", [0, 8, 59, STATE_POSITION, STATE_POSITION + 19])
def test_damaged_head_is_damage(place: int) -> None:
    """A head that was written once and fails its check is not a plog that was never created."""
    file = image(pack_blocks(*BLOCKS), State(sealed=True, length=3))
    file[place] ^= 0x10
    assert damage(file).reason


def test_head_cut_off_is_damage() -> None:
    """Half a head is not an empty plog."""
    file = image(pack_blocks(*BLOCKS), State(sealed=False, length=LENGTH))
    for length in range(1, STATE_POSITION + 20):
        assert damage(file[:length]).position == 0, length


def test_recovered_blocks_are_checked_before_they_are_first_handed_out() -> None:
    """Opening a plog of a gigabyte reads headers only; blocks that were read for it need no second check."""
    state = State(sealed=False, length=9)
    assert list(recovered(image(pack_blocks(*BLOCKS), state)).verified) == [False, False, True]
