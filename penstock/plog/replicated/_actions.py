"""The requests of a replication protocol to servers and oracle.

As in :mod:`penstock.log`, a protocol is a generator that yields actions and is sent their results. It knows no socket
and no clock: the shell runs it against real servers, the simulator against simulated ones.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from penstock.errors import CpoCorrupt
from penstock.model import UNDECODABLE

if TYPE_CHECKING:
    from penstock.model import PlogId
    from penstock.plog.replicated._messages import Answer, ReplicaRequest

__all__ = ["Ask", "AwaitQuiet", "NoteCopied", "NoteCut", "ReadRow", "RemoveRow", "ReplicaSteps", "SealRow",
           "ServerAnswer", "VersionedRow", "WriteRow", "decode_row", "encode_row", "row_key"]  # fmt: skip

T = TypeVar("T")
_ROWS = "seal/"


class ServerAnswer(msgspec.Struct, frozen=True):
    """The answer of a server, and its payload."""

    message: Answer
    payload: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class Ask:
    """Send requests with their payloads to servers of a group, by their place in it, all at once and in this order.

    Result: a list with the :class:`ServerAnswer` to each, None where there is none in time. Requests are sent on open
    sessions alone, so that the fence of this owner is durable. A request without an answer may have been carried out.
    A question that another server can answer is not ``is_patient``: the next one is asked after a short time.
    """

    group: str
    requests: tuple[tuple[int, ReplicaRequest, tuple[bytes | memoryview, ...]], ...]
    is_patient: bool = True


@dataclass(frozen=True, slots=True)
class AwaitQuiet:
    """Wait until every append to an open plog of this owner is committed, or the plog has failed."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class NoteCopied:
    """Note that repair has copied so many bytes of a plog; the shell bounds the rate, and shows the progress."""

    plog_id: PlogId
    size: int


@dataclass(frozen=True, slots=True)
class NoteCut:
    """Note that a replica which is longer than the decided length is cut; the shell says so in the log."""

    plog_id: PlogId
    length: int
    longest: int


class SealRow(msgspec.Struct, frozen=True, array_like=True):
    """What the oracle knows about a plog whose replicas are not all well.

    ``length`` is the decided length, None for a plog that is deleted, but perhaps not on all servers. ``damaged`` are
    the places of servers whose replica is to be replaced, whatever they say about it.
    """

    length: int | None
    damaged: tuple[int, ...] = ()


class VersionedRow(NamedTuple):
    """A row and its version, to be expected when it changes."""

    row: SealRow
    version: int


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Ask the oracle for the row of a plog; result: a :class:`VersionedRow`, None if there is none."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class WriteRow:
    """Write the row if it is at version ``expected`` (0: if there is none); ``CasConflict`` if it is not.

    The oracle refuses it if the lease of this owner has a newer epoch: a row is written by the present owner only.
    """

    plog_id: PlogId
    row: SealRow
    expected: int


@dataclass(frozen=True, slots=True)
class RemoveRow:
    """Remove the row if it is at version ``expected``; the same errors as for writing it."""

    plog_id: PlogId
    expected: int


ReplicaAction = Ask | AwaitQuiet | NoteCopied | NoteCut | ReadRow | WriteRow | RemoveRow
ReplicaSteps = Generator[ReplicaAction, Any, T]

_decoder = msgspec.msgpack.Decoder(SealRow)


def row_key(partition: str, plog_id: PlogId | None = None) -> str:
    """Return the oracle's key of a plog's row, or the prefix of all such keys of a partition."""
    return f"{_ROWS}{partition}/" + ("" if plog_id is None else str(plog_id))


def encode_row(row: SealRow) -> bytes:
    """Return the stored form: a MessagePack array of the length, or nil, and the damaged places."""
    return msgspec.msgpack.encode(row)


def decode_row(value: bytes, *, where: str) -> SealRow:
    """Decode the stored form."""
    try:
        return _decoder.decode(value)
    except UNDECODABLE as error:
        reason = f"the row of a plog holds a value that no version of Penstock writes ({error})"
        raise CpoCorrupt(where, offset=None, reason=reason) from error
