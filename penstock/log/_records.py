"""Metadata records: the changes of a partition's log streams, as its metadata log stores them.

One append to the metadata log is one MessagePack array of records; a record is an array that starts with its
kind. A plog id is its text, a sealed plog the pair of its id and its length.

==============  ====================================================================================
kind            fields after the log's name
==============  ====================================================================================
``chain``       (no log) sealed metadata plogs before this one, the next one's id, the spare id
``spares``      (no log) further spare ids, for logs that are created together
``init``        first plog, next plog, new spare id
``incremental`` the plog just sealed, its length, the new active plog, the next plog
``full``        whether it continues the record before, bytes truncated so far, sealed plogs, active, next,
                the labels of sealed plogs that have one, by their place in the list
``packed``      continues ``full`` with sealed plogs: their clusters and groups, the number of the group of each (4
                bytes, little-endian), their uids (16 bytes), their lengths (8 bytes), labels by their place
``next``        the next plog, because the one announced before cannot be used
``truncate``    the first plog that stays
``splice``      own length if sealed, the source log, its length, the active plog, the next plog, the label
``replace``     the first plog replaced, how many, the source log, its length: the source's plog replaces them
``drop``        (nothing)
``doomed``      (no log) plogs that are to be deleted
``lineage``     (no log) the metadata plogs before this one, the oldest first, as many as are remembered
==============  ====================================================================================

"Next" is the pre-allocated plog: its id is announced before it is created, so recovery knows which plog may exist, and
hold unacknowledged bytes, without being part of the log. "Spare" is the same for the first plog of the next new log,
"spares" for those of the next logs that are created together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["SNAPSHOT", "Chain", "Doomed", "Drop", "Full", "Incremental", "Init", "Lineage", "Next", "Packed", "Record",
           "Replace", "Spares", "Splice", "Truncate", "decode_records", "encode_records"]  # fmt: skip

Sealed = tuple[str, int]


class Chain(msgspec.Struct, tag="chain", array_like=True, frozen=True):
    """The metadata log's own metadata, first in each of its plogs."""

    previous: list[Sealed]
    next: str
    spare: str


class Spares(msgspec.Struct, tag="spares", array_like=True, frozen=True):
    """The ids of the plogs with which logs begin that are created together; those announced before are not used."""

    plogs: list[str]


class Init(msgspec.Struct, tag="init", array_like=True, frozen=True):
    """A log is created, with its first plog and the id of the next."""

    log: str
    plog: str
    next: str
    spare: str


class Incremental(msgspec.Struct, tag="incremental", array_like=True, frozen=True):
    """A log goes on in a new plog; the old one is sealed."""

    log: str
    sealed: str
    sealed_offset: int
    plog: str
    next: str


class Full(msgspec.Struct, tag="full", array_like=True, frozen=True):
    """All of a log, or a part of it that continues the record before."""

    log: str
    continues: bool
    start: int
    sealed: list[Sealed]
    plog: str
    next: str
    labels: dict[int, bytes] = {}


class Packed(msgspec.Struct, tag="packed", array_like=True, frozen=True):
    """More sealed plogs of the log in the record before, in a form that is read all at once."""

    log: str
    groups: list[tuple[str, str]]
    group_of: bytes
    uids: bytes
    lengths: bytes
    labels: dict[int, bytes] = {}


class Next(msgspec.Struct, tag="next", array_like=True, frozen=True):
    """Another plog is the pre-allocated one."""

    log: str
    next: str


class Truncate(msgspec.Struct, tag="truncate", array_like=True, frozen=True):
    """The plogs before ``first`` are no longer part of the log."""

    log: str
    first: str


class Splice(msgspec.Struct, tag="splice", array_like=True, frozen=True):
    """All plogs of ``source`` follow this log's own, and ``source`` is deleted.

    Each of them gets the ``label``, which the caller of the splice reads again with their blocks.
    """

    log: str
    sealed_offset: int | None
    source: str
    source_sealed_offset: int
    plog: str
    next: str
    label: bytes = b""


class Replace(msgspec.Struct, tag="replace", array_like=True, frozen=True):
    """The only plog of ``source`` replaces ``count`` plogs from ``first`` on, and ``source`` is deleted."""

    log: str
    first: str
    count: int
    source: str
    source_sealed_offset: int


class Drop(msgspec.Struct, tag="drop", array_like=True, frozen=True):
    """The log is deleted."""

    log: str


class Doomed(msgspec.Struct, tag="doomed", array_like=True, frozen=True):
    """No log needs these plogs; they are to be deleted."""

    plogs: list[str]


class Lineage(msgspec.Struct, tag="lineage", array_like=True, frozen=True):
    """The metadata plogs that this one continues, so that a backup finds out whether it is of this store's past."""

    plogs: list[str]


Record = (
    Chain | Spares | Init | Incremental | Full | Packed | Next | Truncate | Splice | Replace | Drop | Doomed | Lineage
)

SNAPSHOT: Final = (Chain, Spares, Full, Packed, Doomed, Lineage)  # the records with which a metadata plog starts

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """Return the bytes of one append."""
    return _encoder.encode(records)


def decode_records(data: Buffer) -> list[Record]:
    """Decode one append; ``msgspec.MsgspecError`` if the data is not a list of records."""
    return _decoder.decode(data)
