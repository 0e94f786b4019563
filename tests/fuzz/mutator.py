"""Changes inputs at random: bytes, or the values inside MessagePack and JSON, where a byte more is mostly no value."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
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
_TEXTS: Final = [*(bytes([one]) for one in b"0-@:,;/='\"\n\0\xff"), b"", b"\xc3\xa9", b"9" * 30]


def mutate(data: bytes, others: list[bytes], random: Random, shape: str) -> bytes:
    """Return another input, changed in a few places."""
    for _ in range(random.choice((1, 1, 1, 2, 4, 8))):
        changed = (
            _mutated_value(data, random, shape) if shape in ("msgpack", "json") and random.random() < 0.7 else None
        )
        data = _mutated_bytes(data, others, random, shape) if changed is None else changed
    return data[:SIZE_MAX]


def _mutated_bytes(data: bytes, others: list[bytes], random: Random, shape: str) -> bytes:  # noqa: PLR0911 - a case each
    place = random.randrange(len(data) + 1)
    end = min(len(data), place + random.choice((1, 1, 2, 4, 8, 16, 64)))
    match random.randrange(8):
        case 0:
            return data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]
        case 1:
            return data[:place] + data[end:]
        case 2:
            return data[:place] + random.randbytes(random.choice((1, 4, 8))) + data[place:]
        case 3:
            return data[:place] + data[place:end] * random.choice((2, 3, 50)) + data[end:]
        case 4:
            other = random.choice(others)
            return data[:place] + other[random.randrange(len(other) + 1) :]
        case 5:
            return data[:place] + random.choice(_TEXTS) + data[place if shape == "text" else end :]
        case 6:
            return data[: place - place % 4] if random.random() < 0.3 else data[:place]
        case _:
            size = random.choice((1, 2, 4, 8))
            number = random.choice(_NUMBERS) + random.choice((0, 0, -1, 1))
            word = (number & (1 << 8 * size) - 1).to_bytes(size, random.choice(("big", "little")))
            return data[:place] + word + data[place + size :]


def _mutated_value(data: bytes, random: Random, shape: str) -> bytes | None:
    """Return the data with one of its values changed; None if there are none."""
    try:
        form: Any = msgspec.msgpack if shape == "msgpack" else msgspec.json
        return form.encode(_changed(form.decode(data), random))  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _changed(value: Any, random: Random) -> Any:  # noqa: ANN401 - anything that can be sent
    if random.random() < 0.2 or not isinstance(value, list | dict) or not value:
        return random.choice(_VALUES)
    if isinstance(value, dict):
        key = random.choice(list(value))
        if random.random() < 0.2:
            return {(random.choice(_VALUES[8:13]) if one == key else one): value[one] for one in value}
        return {**value, key: _changed(value[key], random)}
    index = random.randrange(len(value))
    match random.randrange(6):
        case 0:
            return value[:index] + value[index + 1 :]
        case 1:
            return [*value[:index], value[index], *value[index:]]
    return [*value[:index], _changed(value[index], random), *value[index + 1 :]]
