"""The root: the row under the empty key, with a digest of all others.

A row's own check does not detect that the row is missing, or that an older version replaced it. The root does: it is
rewritten in the same transaction as any other row. Its version is the counter that all versions are taken from. Its
value is one MessagePack array; its first element means the same in every format, as do the columns of the table::

    format  int  1
    count   int  the number of other rows
    digest  int  the sum of their checks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cpo._entry import Entry

ROOT_KEY: Final = ""
FORMAT: Final = 1


class Root(msgspec.Struct, frozen=True, array_like=True):
    """The count and the digest of the rows."""

    format: int = FORMAT
    count: int = 0
    digest: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Root:
        """Return the root of these rows."""
        checks = [entry.check for entry in entries]
        return cls(count=len(checks), digest=sum(checks))

    def plus(self, entry: Entry) -> Root:
        """Return the root with one row more."""
        return Root(count=self.count + 1, digest=self.digest + entry.check)

    def minus(self, entry: Entry) -> Root:
        """Return the root with one row less."""
        return Root(count=self.count - 1, digest=self.digest - entry.check)


_decoder: Final = msgspec.msgpack.Decoder(Root)
_array_decoder: Final = msgspec.msgpack.Decoder(list[object])


def encode(root: Root) -> bytes:
    """Return the stored form."""
    return msgspec.msgpack.encode(root)


def decode(value: bytes) -> Root:
    """Decode the stored form."""
    return _decoder.decode(value)


def format_of(value: bytes) -> object:
    """Return the format, also of a root that a newer Penstock wrote."""
    return _array_decoder.decode(value)[0]
