"""Changes inputs at random: bytes, or the values inside MessagePack and JSON, where a byte more is mostly no value.

It is made for millions of inputs, so each choice is one call of ``random()``: ``randrange`` and ``choice`` take as long
as most decoders.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

__all__ = ["mutate"]

SIZE_MAX: Final = 4096
_NUMBERS: Final = [
    0, 1, 2, 3, 4, 7, 8, 64, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1,
]  # fmt: skip
_VALUES: Final[list[Any]] = [
    None, True, False, -1, 1.5, math.nan, math.inf, -1e300, "", "x", "\x00", "a/b", "plant/readings", b"",
    b"\xff", [], {}, [[]], {"a": 1}, {1: 2}, *_NUMBERS, *(-number for number in _NUMBERS[1:-2]),
]  # fmt: skip
_TEXTS: Final = [*(bytes([byte]) for byte in b"0-@:,;/='\"\n\0\xff"), b"", b"\xc3\xa9", b"9" * 30]
_WORDS: Final = [
    ((number + more) & (1 << 8 * size) - 1).to_bytes(size, order)
    for number in _NUMBERS
    for more in (0, 0, -1, 1)
    for size in (1, 2, 4, 8)
    for order in ("big", "little")
]
_CHANGES: Final = (1, 1, 1, 2, 4, 8)
_LENGTHS: Final = (1, 1, 2, 4, 8, 16, 64)
_COPIES: Final = (2, 3, 50)
_DECODED: Final = 1024  # inputs whose values are remembered: changing them leaves these as they are
_FORMS: Final[dict[str, tuple[Callable[[bytes], Any], Callable[[Any], bytes]]]] = {
    "msgpack": (lru_cache(_DECODED)(msgspec.msgpack.Decoder().decode), msgspec.msgpack.Encoder().encode),
    "json": (lru_cache(_DECODED)(msgspec.json.Decoder().decode), msgspec.json.Encoder().encode),
}


def mutate(data: bytes, others: list[bytes], random: Random, shape: str) -> bytes:
    """Return another input, changed in a few places: values first, because after other bytes there are mostly none."""
    chance, form = random.random, _FORMS.get(shape)
    changes = _CHANGES[int(chance() * 6)]
    if form is not None:
        in_values = 0
        for _ in range(changes):
            in_values += chance() < 0.7
        changed = _mutated_values(data, in_values, chance, *form) if in_values else None
        if changed is not None:
            data, changes = changed, changes - in_values
    for _ in range(changes):
        data = _mutated_bytes(data, others, chance, is_text=shape == "text")
    return data[:SIZE_MAX]


def _mutated_bytes(  # noqa: PLR0911 - a case each
    data: bytes, others: list[bytes], chance: Callable[[], float], *, is_text: bool
) -> bytes:
    place = int(chance() * (len(data) + 1))
    end = place + _LENGTHS[int(chance() * 7)]
    head, kind = data[:place], int(chance() * 8)
    if kind == 0:
        return head + bytes((int(chance() * 256),)) + data[place + 1 :]
    if kind == 1:
        return head + data[end:]
    if kind == 2:
        return head + int(chance() * (1 << 53)).to_bytes(8, "little")[: 1 << int(chance() * 4)] + data[place:]
    if kind == 3:
        return head + data[place:end] * _COPIES[int(chance() * 3)] + data[end:]
    if kind == 4:
        other = others[int(chance() * len(others))]
        return head + other[int(chance() * (len(other) + 1)) :]
    if kind == 5:
        return head + _TEXTS[int(chance() * len(_TEXTS))] + data[place if is_text else end :]
    if kind == 6:
        return data[: place & ~3] if chance() < 0.3 else head
    word = _WORDS[int(chance() * len(_WORDS))]
    return head + word + data[place + len(word) :]


def _mutated_values(
    data: bytes,
    changes: int,
    chance: Callable[[], float],
    decode: Callable[[bytes], Any],
    encode: Callable[[Any], bytes],
) -> bytes | None:
    """Return the data with some of its values changed; None if there are none."""
    try:
        value = decode(data)
        for _ in range(changes):
            value = _changed(value, chance)
        return encode(value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _changed(value: Any, chance: Callable[[], float]) -> Any:  # noqa: ANN401 - anything that can be sent
    if chance() < 0.2 or not isinstance(value, list | dict) or not value:
        return _VALUES[int(chance() * len(_VALUES))]
    if isinstance(value, dict):
        key = list(value)[int(chance() * len(value))]
        if chance() < 0.2:
            return {(_VALUES[8 + int(chance() * 5)] if name == key else name): value[name] for name in value}
        return {**value, key: _changed(value[key], chance)}
    index = int(chance() * len(value))
    kind = chance()
    if kind < 1 / 6:
        return value[:index] + value[index + 1 :]
    if kind < 1 / 3:
        return [*value[:index], value[index], *value[index:]]
    return [*value[:index], _changed(value[index], chance), *value[index + 1 :]]
