"""Routing keys: the documented formula, written down once more."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadArgument
from penstock.stream.format._keys import key_position, key_positions

KEYS = st.text(st.characters(exclude_categories=["Cs"])) | st.binary()
KEY_COUNT: Final = 100_000
PART_COUNT: Final = 64


def crc32c(data: bytes) -> int:
    """The checksum bit by bit: reflected polynomial 0x82f63b78."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def model_position(key: str | bytes) -> float:
    """What the module's docstring says, with nothing but Python's own numbers."""
    x = crc32c(key.encode("utf-8") if isinstance(key, str) else key)
    x ^= x >> 16
    x = x * 0x85EBCA6B % 2**32
    x ^= x >> 13
    x = x * 0xC2B2AE35 % 2**32
    x ^= x >> 16
    return x / 2**32


def test_the_checksum_of_the_model_is_crc32c() -> None:
    """The check value of the standard; a model that is wrong proves nothing."""
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(
    ("key", "position"),
    [
        ("", 0x00000000),
        ("a", 0xEAD78E20),
        ("sensor-7", 0x26293940),
        ("größe", 0xEF7B3B0D),
        (b"\x00\xff", 0xE8126E48),
    ],
)
def test_positions_never_change(key: str | bytes, position: int) -> None:
    """What was written under a key stays where it is, so these figures are for ever."""
    assert key_position(key) == position / 2**32


@given(KEYS)
def test_a_position_is_what_the_documented_formula_says(key: str | bytes) -> None:
    """A writer in another language finds the same segment with nothing but the documentation."""
    assert key_position(key) == model_position(key)


@given(st.lists(KEYS))
def test_many_positions_at_once_are_those_one_by_one(keys: list[str | bytes]) -> None:
    """A key must go to the same segment whichever call it came with."""
    positions = key_positions(keys)
    assert positions.dtype == np.float64
    assert positions.tolist() == [key_position(key) for key in keys]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_and_its_utf_8_are_the_same_key(key: str) -> None:
    """A key may come as a text from one place and as bytes from another."""
    assert key_position(key) == key_position(key.encode())


@pytest.mark.parametrize("form", ["{}", "sensor-{}", "{:020}", "{}/a/b/c"])
def test_keys_that_are_much_alike_are_spread_evenly(form: str) -> None:
    """Keys are counted up more often than not; a segment must not get more than its share of them."""
    positions = key_positions([form.format(number) for number in range(KEY_COUNT)])
    counts = np.bincount((positions * PART_COUNT).astype(int), minlength=PART_COUNT)
    expected = KEY_COUNT / PART_COUNT
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 130  # 63 degrees of freedom: chance gives more in one of a million cases
    assert 0 <= positions.min() < positions.max() < 1


@pytest.mark.parametrize("key", [5, 1.5, None, ("a",), bytearray(b"a"), "\ud800"])
def test_what_is_no_key_is_refused(key: str) -> None:
    """One by one and many at once, and before anything is written."""
    with pytest.raises(BadArgument, match="invalid routing key"):
        key_position(key)
    with pytest.raises(BadArgument, match="invalid routing key"):
        key_positions(["fine", key])
