"""The bytes of packs and points: they are read by later versions, and by nobody who would guess."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.backup._pack import (
    PACK_HEAD_SIZE,
    PackedPiece,
    PackIndex,
    checksum,
    pack_start,
    read_index,
    read_pack_head,
)
from penstock.backup._point import (
    Place,
    PlogAtPoint,
    Point,
    decode_point,
    encode_point,
    is_point_name,
    point_name,
    point_time_ms,
)
from penstock.errors import BackupCorrupt, FormatUnknown

UID = "0123456789abcdef0123456789abcdef"
KEY = bytes.fromhex(UID) + b"birthday"
PIECE = PackedPiece(f"local/main/{UID}", KEY, 100, 0, 5, 0, 25, 0x12345678)
PACK = "ab" * 16
POINT = Point(
    1_000_000_000_123,
    "1.2",
    PIECE.plog,
    [PACK],
    [PlogAtPoint(PIECE.plog, KEY, 100, 5, "", [Place(0, 0, 5, 32, 25, 0x12345678)])],
)


def index_of(data: bytes) -> PackIndex:
    head = read_pack_head(data[:PACK_HEAD_SIZE], where="x")
    return read_index(head, data[PACK_HEAD_SIZE : PACK_HEAD_SIZE + head.index_size], where="x")


def test_a_pack_begins_with_the_same_bytes_for_ever() -> None:
    """A backup is restored years later."""
    start = pack_start([PIECE])
    assert start[:12].hex() == "50454e535041434b00010000"
    assert start[16:32].hex() == "00000000000000530000000000000019"
    assert msgspec.msgpack.decode(start[32:]) == [
        [f"local/main/{UID}", KEY, 100, 0, 5, 0, 25, 0x12345678]
    ]  # fmt: skip
    assert index_of(start) == PackIndex([PIECE], len(start), len(start) + 25)


def test_a_point_begins_with_the_same_bytes_for_ever() -> None:
    """A backup is restored years later."""
    data = encode_point(POINT)
    assert data[:12].hex() == "50454e53504f494e00010000"
    assert int.from_bytes(data[12:16], "big") == checksum(data[16:])
    assert msgspec.msgpack.decode(zlib.decompress(data[16:])) == [
        1_000_000_000_123, "1.2", f"local/main/{UID}", [PACK],
        [[f"local/main/{UID}", KEY, 100, 5, "", [[0, 0, 5, 32, 25, 0x12345678]]]],
    ]  # fmt: skip
    assert decode_point(data, where="x") == POINT


@given(st.lists(st.integers(1, 1 << 20), max_size=20))
def test_an_index_comes_back_as_it_was(sizes: list[int]) -> None:
    """Pieces of any number and size."""
    pieces, position = [], 0
    for number, size in enumerate(sizes):
        pieces.append(
            PackedPiece(f"local/main/{number:032x}", KEY, size, number, number + size, position, size, number)
        )
        position += size
    assert index_of(pack_start(pieces)).pieces == pieces


@pytest.mark.parametrize(
    "changed",
    [
        msgspec.structs.replace(POINT, packs=[]),
        msgspec.structs.replace(POINT, packs=["../../../etc/passwd"]),
        msgspec.structs.replace(POINT, time_ms=1 << 62),
        msgspec.structs.replace(POINT, time_ms=-1),
        msgspec.structs.replace(
            POINT, plogs=[msgspec.structs.replace(POINT.plogs[0], places=[Place(0, 0, 5, -32, 25, 0)])]
        ),
        msgspec.structs.replace(POINT, metadata_plog="local/main/" + "f" * 32),
        msgspec.structs.replace(POINT, metadata_plog="nonsense"),
        msgspec.structs.replace(POINT, plogs=[msgspec.structs.replace(POINT.plogs[0], length=6)]),
        msgspec.structs.replace(POINT, plogs=[msgspec.structs.replace(POINT.plogs[0], key=b"x" * 24)]),
        msgspec.structs.replace(POINT, plogs=[msgspec.structs.replace(POINT.plogs[0], places=[])]),
    ],
)
def test_a_point_whose_parts_do_not_fit_is_damaged(changed: Point) -> None:
    """Its checksum is right; it was written by something else."""
    with pytest.raises(BackupCorrupt):
        decode_point(encode_point(changed), where="x")


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    """Files get lost, mixed up and cut."""
    body = b"PENSPOIN\0\1\0\0" + checksum(data).to_bytes(4, "big") + data
    for given_bytes in (data, body, body[:15]):
        with pytest.raises(BackupCorrupt):
            decode_point(given_bytes, where="x")
    with pytest.raises((BackupCorrupt, FormatUnknown)):
        index_of(b"PENSPACK" + data.ljust(24, b"\0"))


def test_a_newer_format_is_named() -> None:
    """The answer to it is an upgrade, and not a search for damage."""
    with pytest.raises(FormatUnknown, match="format 2"):
        decode_point(encode_point(POINT).replace(b"PENSPOIN\0\1", b"PENSPOIN\0\2"), where="x")
    with pytest.raises(FormatUnknown, match="format 2"):
        index_of(pack_start([PIECE]).replace(b"PENSPACK\0\1", b"PENSPACK\0\2"))


@given(st.integers(0, 4_000_000_000_000))
def test_the_name_of_a_point_is_its_time(time_ms: int) -> None:
    """Names sort as times do, and are read back."""
    name = point_name(time_ms)
    assert is_point_name(name)
    assert point_time_ms(name) == time_ms
    assert point_name(time_ms + 1) > name
