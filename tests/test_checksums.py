"""The checksum: the same for any size and kind of bytes, and computed without the interpreter's lock."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import google_crc32c
import pytest

from penstock import checksums
from penstock.checksums import _UNLOCKED_SIZE_MIN, crc32c

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("size", [0, 1, _UNLOCKED_SIZE_MIN - 1, _UNLOCKED_SIZE_MIN, 1_000_001])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(b"-" + data + b"-")[1:-1]])
def test_any_bytes_have_the_checksum_of_the_library(size: int, kind: Callable[[bytes], bytes]) -> None:
    """It is on disk: which way it is computed depends on the size."""
    data = bytes(number * 7 % 251 for number in range(size))
    assert crc32c(0, kind(data)) == google_crc32c.value(data)
    assert crc32c(5, b"head", kind(data), kind(data)) == google_crc32c.extend(5, b"head" + data + data)


def test_without_the_function_of_the_library_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of other systems may not show it."""
    data = bytes(_UNLOCKED_SIZE_MIN)
    expected = crc32c(0, data)
    monkeypatch.setattr(checksums, "_extend", None)
    assert crc32c(0, data) == expected


def test_large_blocks_are_checked_without_the_lock_of_the_interpreter() -> None:
    """A block may have to be read from the disk first: all other threads would wait for it."""
    extend: Any = checksums._extend
    holds_the_lock: int = ctypes._FUNCFLAG_PYTHONAPI  # type: ignore[attr-defined]
    assert not extend._flags_ & holds_the_lock
