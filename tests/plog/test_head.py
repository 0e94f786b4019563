"""The head of a plog's file: its bytes on disk, and that a damaged one is never believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import PlogId
from penstock.plog._block import HEAD_SIZE
from penstock.plog._head import STATE_POSITION, Identity, State, is_unborn, names_match, pack_new_head

if TYPE_CHECKING:
    from collections.abc import Callable

UID: Final = bytes(range(16))
PLOG_ID: Final = PlogId("local", "main", UID.hex())
IDENTITY: Final = bytes.fromhex(
    "50454e53504c4f47 0001 000000000000"  # PENSPLOG, format 1
    "000102030405060708090a0b0c0d0e0f"  # uid
    "5b25d7e339385f3b39bdd89e5f97e2e4"  # names
    "0000000000001234 6e6577626f726e21"  # size, birth
    "f4a1f323"  # checksum
)
BIRTH: Final = b"newborn!"
KEY: Final = UID + BIRTH
STATE: Final = bytes.fromhex("01 00000000000000 0000000000001234 83c1abdb")

uids = st.binary(min_size=16, max_size=16)
sizes = st.integers(0, 2**64 - 1)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


def head(identity: bytes, state: bytes = b"") -> memoryview:
    return memoryview((identity.ljust(STATE_POSITION, b"\0") + state).ljust(HEAD_SIZE, b"\0"))


def read_identity(data: bytes) -> Identity | None:
    return Identity.unpack(head(data))


def read_state(data: bytes) -> State | None:
    return State.unpack(KEY, head(b"", data))


def test_identity_has_the_bytes_of_format_1() -> None:
    """Stores that exist are read by every later version: these bytes never change."""
    assert Identity.of(PLOG_ID, size=0x1234, birth=BIRTH).pack() == IDENTITY


def test_state_has_the_bytes_of_format_1() -> None:
    """As above; the seal of a plog is read here."""
    assert State(sealed=True, length=0x1234).pack(KEY) == STATE


@given(uid=uids, cluster=names, group=names, size=sizes, birth=st.binary(min_size=8, max_size=8))
def test_identity_reads_back(uid: bytes, cluster: str, group: str, size: int, birth: bytes) -> None:
    """Whatever a plog is called and however large it is, its file says so."""
    plog_id = PlogId(cluster, group, uid.hex())
    identity = Identity.of(plog_id, size=size, birth=birth)
    assert read_identity(identity.pack()) == identity
    assert (identity.uid, identity.size, identity.birth) == (uid, size, birth)
    assert names_match(plog_id, head(identity.pack()))


@given(key=st.binary(min_size=24, max_size=24), stage=st.sampled_from(["open", "sealed", "new"]), length=sizes)
def test_state_reads_back(key: bytes, stage: str, length: int) -> None:
    """How long a plog is, and that it takes no more, is all that recovery has to go by."""
    state = State(sealed=stage == "sealed", length=length, new=stage == "new")
    assert State.unpack(key, head(b"", state.pack(key))) == state


def test_new_head_is_an_empty_open_plog_in_one_write() -> None:
    """Identity and state stand in a sector each, so that a later state is written whole and leaves the identity."""
    written = pack_new_head(PLOG_ID, size=0x1234, birth=BIRTH)
    assert written[: len(IDENTITY)] == IDENTITY
    assert State.unpack(KEY, memoryview(written)) == State(sealed=False, length=0, new=True)
    assert STATE_POSITION % 512 == 0
    assert len(IDENTITY) <= STATE_POSITION < len(written) <= STATE_POSITION + 512 <= HEAD_SIZE


def test_state_never_written_is_refused() -> None:
    """Zeros there are what a torn creation or a hole in the file leaves, not a plog of length 0."""
    assert State.unpack(KEY, head(IDENTITY)) is None


@pytest.mark.parametrize(
    ("record", "read"), [(IDENTITY, read_identity), (STATE, read_state)], ids=["identity", "state"]
)
def test_record_with_a_flipped_bit_is_refused(record: bytes, read: Callable[[bytes], object]) -> None:
    """A wrong length loses data, a wrong uid shows another's; every bit is covered, used or not."""
    assert read(record) is not None
    for bit in range(8 * len(record)):
        damaged = bytearray(record)
        damaged[bit // 8] ^= 1 << bit % 8
        assert read(bytes(damaged)) is None, f"bit {bit}"


@pytest.mark.parametrize(
    ("record", "read"), [(IDENTITY, read_identity), (STATE, read_state)], ids=["identity", "state"]
)
def test_record_half_written_is_refused(record: bytes, read: Callable[[bytes], object]) -> None:
    """The rest is zeros or what stood there before."""
    for length in range(1, len(record)):
        if any(record[length:]):
            assert read(record[:length]) is None
            assert read(record[:length].ljust(len(record), b"\xa5")) is None


@pytest.mark.parametrize("length", [0, 1, 67, 68, STATE_POSITION, STATE_POSITION + 8, STATE_POSITION + 19])
def test_head_cut_off_has_no_state(length: int) -> None:
    """A file cut off inside its head is not an empty plog: it had a state, which is unknown."""
    whole = head(IDENTITY, State(sealed=False, length=7).pack(KEY))
    assert State.unpack(KEY, whole[:length]) is None


def test_head_cut_off_inside_the_identity_has_none() -> None:
    """What is missing is not taken for zeros."""
    whole = head(IDENTITY)
    for length in range(len(IDENTITY)):
        assert Identity.unpack(whole[:length]) is None
    assert Identity.unpack(whole[: len(IDENTITY)]) is not None


def test_state_of_another_plog_is_refused() -> None:
    """A head written to the wrong file must not seal another plog."""
    assert State.unpack(KEY[::-1], head(b"", STATE)) is None


@pytest.mark.parametrize(
    ("cluster", "group"), [("local", "other"), ("other", "main"), ("main", "local"), ("local-main", "x")]
)
def test_file_of_another_cluster_or_group_does_not_match(cluster: str, group: str) -> None:
    """The file's name has the uid only, so the head has to tell the rest."""
    assert not names_match(PlogId(cluster, group, UID.hex()), head(IDENTITY))


def test_plog_is_unborn_until_its_creation_was_acknowledged() -> None:
    """Such a file may be begun again; one with another name, a seal or any state but new may not."""
    new = memoryview(pack_new_head(PLOG_ID, size=0x1234, birth=BIRTH))
    assert is_unborn(PLOG_ID, new)
    assert is_unborn(PLOG_ID, memoryview(bytes(HEAD_SIZE)))
    assert is_unborn(PLOG_ID, memoryview(b""))
    assert not is_unborn(PlogId("local", "other", UID.hex()), new)
    assert not is_unborn(PLOG_ID, head(IDENTITY, STATE))
    assert not is_unborn(PLOG_ID, head(IDENTITY, State(sealed=False, length=0).pack(KEY)))
    assert not is_unborn(PLOG_ID, head(IDENTITY))
    assert not is_unborn(PLOG_ID, memoryview(b"\xa5" * HEAD_SIZE))


def test_blank_head_matches_nothing() -> None:
    """A file whose creation was cut short belongs to no plog."""
    assert not names_match(PLOG_ID, memoryview(bytes(HEAD_SIZE)))
    assert not names_match(PLOG_ID, memoryview(b""))
