"""The entry: one row of the oracle's table, and the check that ties its parts together.

==========  =======  ============================================================
``key``     text     primary key; the empty one is the root's (see ``_root``)
``version`` int64    the oracle's counter when the row was written
``value``   bytes
``check``   int64    crc32c, see below
==========  =======  ============================================================

The check is over these bytes, in this order; the key's size keeps a byte from moving between key and value unnoticed::

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
    """One row, known to be whole."""

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
    """Return the entry that a database gave as (key, version, value, check), None if it is damaged.

    SQLite keeps a value's type with the value, so damage can turn any of them into any type.
    """
    match row:
        case [str(key), int(version), bytes(value), int(check)]:
            entry = Entry(key, version, value)
            return entry if entry.check == check else None
        case _:
            return None
