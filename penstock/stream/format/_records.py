"""Catalog records: what the catalog log says about streams, transactions and reader groups.

One append to the catalog log is one MessagePack array of records; a record is an array that starts with its kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument
from penstock.stream.format._group_records import GroupCreated, GroupDeleted, GroupRecord
from penstock.stream.format._snapshot_records import SnapshotRecord
from penstock.stream.format._stream_records import StreamCreated, StreamDeleted, StreamRecord
from penstock.stream.format._transaction_records import TransactionRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

__all__ = ["Record", "decode_records", "encode_checked", "encode_records"]

Record = (
    StreamCreated
    | StreamRecord
    | StreamDeleted
    | GroupCreated
    | GroupRecord
    | GroupDeleted
    | TransactionRecord
    | SnapshotRecord
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Record])


def encode_records(records: Sequence[Record]) -> bytes:
    """Return the bytes of one append."""
    return _encoder.encode(records)


def encode_checked(records: Sequence[Record]) -> bytes:
    """Return the bytes of one append; ``BadArgument`` if they could not be read again, and the store not be opened."""
    try:
        data = _encoder.encode(records)
        _decoder.decode(data)
    except (TypeError, ValueError, OverflowError) as error:  # those of msgspec are ValueErrors
        raise BadArgument(f"this cannot be recorded: {error}") from error
    return data


def decode_records(data: Buffer) -> list[Record]:
    """Read what :func:`encode_records` wrote; ``msgspec.MsgspecError`` if no Penstock did."""
    return _decoder.decode(data)
