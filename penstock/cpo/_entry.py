"""The entry: one row of the oracle's table, with a checksum over its parts.

==========  =======  ============================================================
``key``     text     primary key; the empty one is the root's (see ``_root``)
``version`` int64    the oracle's counter when the row was written
``value``   bytes
``check``   int64    crc32c, see below
==========  =======  ============================================================

The check covers these bytes, in this order; with the key's size, no byte can move from key to value unnoticed::

    0    8  version   big-endian
    8    4  key size  big-endian
    12      key       UTF-8
            value
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import google_crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD: Final = struct.Struct(">qI")
assert _HEAD.size == 12, "in every stored check since format 1: another size needs a new format"


@dataclass(frozen=True, slots=True)
class Entry:
    """A row that has passed its check."""

    key: str
    version: int
    value: bytes

    @property
    def check(self) -> int:
        """The checksum to store with it."""
        key = self.key.encode()
        check: int = google_crc32c.value(_HEAD.pack(self.version, len(key)) + key + self.value)
        return check


def whole(row: Sequence[object]) -> Entry | None:
    """Return the entry of a row (key, version, value, check); None if it is damaged.

    SQLite stores a type with every value, so damage can turn any of them into any type.
    """
    match row:
        case [str(key), int(version), bytes(value), int(check)]:
            entry = Entry(key, version, value)
            return entry if entry.check == check else None
        case _:
            return None
