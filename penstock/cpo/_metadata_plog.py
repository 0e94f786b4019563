"""The newest metadata plog of a partition, at which its recovery starts.

Stored under ``metadata/PARTITION`` as one MessagePack string, the plog id as ``cluster/group/uid``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from penstock.model import PlogId

_decoder: Final = msgspec.msgpack.Decoder(str)


@dataclass(frozen=True, slots=True)
class MetadataPlog:
    """A partition's newest metadata plog, and the version to expect when changing it."""

    plog_id: PlogId
    version: int


def encode(plog_id: PlogId) -> bytes:
    """Return the stored form."""
    return msgspec.msgpack.encode(str(plog_id))


def decode(value: bytes) -> PlogId:
    """Decode the stored form."""
    return PlogId.parse(_decoder.decode(value))
