"""The messages between an owner of plogs and a plog server, with their limits.

A message travels as a header, and a payload if it has data: this module defines the header, a MessagePack array
``[number, message]``; the connection adds sizes and a checksum. A request has a number that grows with every request of
its owner, over all sessions; an answer carries the number of its request. Answers come in any order. An append that is
answered by :class:`AppendKept` is answered again, or covered by the answer to an append before it.

The plog ids of a session have one cluster and one group, so that a message carries the uid alone.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from penstock.errors import BadArgument
from penstock.frames import PAYLOAD_SIZE_MAX
from penstock.model import UNDECODABLE
from penstock.plog._replica import APPEND_SIZE_MAX, PLOG_SIZE_MAX

__all__ = [
    "LIST_COUNT_MAX",
    "PROTOCOL",
    "READ_COUNT_MAX",
    "READ_SIZE_MAX",
    "Answer",
    "AppendKept",
    "AppendReplica",
    "CreateReplica",
    "DamagedList",
    "DeleteReplica",
    "Hello",
    "InspectReplica",
    "ListDamaged",
    "ListReplicas",
    "ReadReplica",
    "Refusal",
    "ReplicaAppended",
    "ReplicaBlocks",
    "ReplicaDone",
    "ReplicaList",
    "ReplicaRequest",
    "ReplicaState",
    "SealReplica",
    "Welcome",
    "decode_answer",
    "decode_request",
    "encode_header",
]

PROTOCOL: Final = 1
READ_SIZE_MAX: Final = 4 << 20  # of the range asked for; the answer has complete appends, so up to two more of them
READ_COUNT_MAX: Final = 32_768  # appends of an answer; a reader asks again for the rest
LIST_COUNT_MAX: Final = 1000
assert READ_SIZE_MAX + 2 * APPEND_SIZE_MAX <= PAYLOAD_SIZE_MAX, "an answer fits into a frame"

NumberOf = Annotated[int, msgspec.Meta(ge=1, lt=1 << 62)]
Epoch = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Uid = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=PLOG_SIZE_MAX)]
Size = Annotated[int, msgspec.Meta(ge=1, le=PLOG_SIZE_MAX)]
AppendSize = Annotated[int, msgspec.Meta(ge=0, le=APPEND_SIZE_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class _ReplicaMessage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """An array of its tag and its fields."""


class Hello(_ReplicaMessage, frozen=True, tag=1):
    """The first message of a session; an epoch fences all owners of the partition with a lower one.

    ``owner`` is random, so that two owners with the same epoch are told apart. ``session`` grows with every session
    of an owner; a later session ends the earlier ones. A reader has no epoch. A server with users asks for one.
    """

    protocol: Annotated[int, msgspec.Meta(ge=1, lt=1 << 16)]
    cluster: Name
    group: Name
    partition: Name
    epoch: Epoch | None
    owner: Uid
    session: NumberOf
    user: Annotated[str, msgspec.Meta(max_length=255)] = ""
    password: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    deployment: Annotated[bytes, msgspec.Meta(max_length=16)] = b""  # of an owner that has an oracle

    def __repr__(self) -> str:
        """Show no password."""
        return f"Hello({self.cluster}/{self.group}/{self.partition}, epoch={self.epoch}, session={self.session})"


class CreateReplica(_ReplicaMessage, frozen=True, tag=2):
    """Create a plog of this size."""

    uid: Uid
    size: Size


class AppendReplica(_ReplicaMessage, frozen=True, tag=3):
    """Append the payload at an offset."""

    uid: Uid
    offset: Offset
    size: AppendSize


class SealReplica(_ReplicaMessage, frozen=True, tag=4):
    """Seal a plog at exactly this length, and cut off bytes behind it."""

    uid: Uid
    length: Offset


class InspectReplica(_ReplicaMessage, frozen=True, tag=5):
    """Ask for the state of a replica; no append is under way when it is answered."""

    uid: Uid


class ReadReplica(_ReplicaMessage, frozen=True, tag=6):
    """Read the appends that hold any of these bytes, or the first of them if they are many."""

    uid: Uid
    offset: Offset
    size: Annotated[int, msgspec.Meta(ge=0, le=READ_SIZE_MAX)]


class DeleteReplica(_ReplicaMessage, frozen=True, tag=7):
    """Delete a plog."""

    uid: Uid


class ListReplicas(_ReplicaMessage, frozen=True, tag=8):
    """Ask for the replicas of the partition, in the order of their uids, behind ``after``: the first of them."""

    after: Annotated[bytes, msgspec.Meta(max_length=16)]
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIST_COUNT_MAX)]


class ListDamaged(_ReplicaMessage, frozen=True, tag=9):
    """Ask for replicas of the partition that the server has found damaged by itself, and that are not replaced yet."""


class Welcome(_ReplicaMessage, frozen=True, tag=20):
    """The session is open: the fence is durable. A reader is told the highest epoch so far.

    ``server`` is the server's id, ``instance`` differs after each of its starts.
    """

    server: Name
    instance: Uid
    epoch: Epoch


class ReplicaDone(_ReplicaMessage, frozen=True, tag=21):
    """It is done, and durable."""


class ReplicaAppended(_ReplicaMessage, frozen=True, tag=22):
    """Everything up to ``length`` is durable: this append, those before it, and those kept behind it."""

    length: Offset


class AppendKept(_ReplicaMessage, frozen=True, tag=23):
    """The append is out of order, and kept until the appends before it are there; the replica ends at ``length``."""

    length: Offset


class ReplicaState(_ReplicaMessage, frozen=True, tag=24):
    """A replica: its durable length, whether it is sealed, its size, and whether its length is certain.

    It is certain if the server has run since the plog was created. After a restart, a damaged last append looks like
    one that was not finished: then the replica may be shorter than what the server has acknowledged.
    """

    length: Offset
    sealed: bool
    size: Size
    certain: bool


class ReplicaBlocks(_ReplicaMessage, frozen=True, tag=25):
    """Complete appends, one after another in the payload, the first at ``offset``."""

    offset: Offset
    sizes: Annotated[list[AppendSize], msgspec.Meta(max_length=READ_COUNT_MAX)]


class ReplicaList(_ReplicaMessage, frozen=True, tag=26):
    """The replicas of a partition: uid, length, whether sealed, size; ``more`` says that others follow.

    The length of a replica that is not sealed is at least that. A replica of size 1 may be one that cannot be read.
    """

    replicas: Annotated[list[tuple[Uid, Offset, bool, Size]], msgspec.Meta(max_length=LIST_COUNT_MAX)]
    more: bool


class DamagedList(_ReplicaMessage, frozen=True, tag=28):
    """The uids of damaged replicas: all, or the first of very many."""

    uids: Annotated[list[Uid], msgspec.Meta(max_length=LIST_COUNT_MAX)]


class Refusal(_ReplicaMessage, frozen=True, tag=27):
    """The server has not done it. ``value`` is the figure of the reason: an epoch, a length, a free size."""

    reason: Literal[
        "fenced",  # value: the epoch of the present owner
        "busy",  # another change of the plog, or too many logins, are under way
        "superseded",  # the owner has a later session
        "no-such-plog",
        "exists",
        "sealed",  # value: the length
        "too-large",
        "wrong-offset",  # value: the offset expected
        "full",  # value: the bytes left
        "out-of-range",  # value: the length
        "short",  # value: the length, which is below that of the seal
        "corrupt",
        "disk-full",
        "disk-failed",
        "bad-request",
        "other-deployment",  # the partition belongs to owners that agree by another oracle
    ]
    value: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    text: Annotated[str, msgspec.Meta(max_length=2000)] = ""


ReplicaRequest = (
    Hello | CreateReplica | AppendReplica | SealReplica | InspectReplica | ReadReplica | DeleteReplica | ListReplicas
    | ListDamaged
)  # fmt: skip
Answer = (
    Welcome | ReplicaDone | ReplicaAppended | AppendKept | ReplicaState | ReplicaBlocks | ReplicaList | DamagedList
    | Refusal
)  # fmt: skip

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(tuple[NumberOf, ReplicaRequest])
_answers: Final = msgspec.msgpack.Decoder(tuple[NumberOf, Answer])


def encode_header(number: int, message: ReplicaRequest | Answer) -> bytes:
    """Return the header of a message."""
    return _encoder.encode((number, message))


def decode_request(header: bytes | memoryview, *, payload_size: int) -> tuple[int, ReplicaRequest]:
    """Decode and check the header of a request; ``BadArgument`` if it is not one that an owner sends."""
    try:
        number, request = _requests.decode(header)
    except UNDECODABLE as error:
        raise BadArgument(f"invalid request to a plog server: {error}") from error
    needed = request.size if isinstance(request, AppendReplica) else 0
    if payload_size != needed:
        raise _wrong_payload(request, payload_size, needed=needed)
    return number, request


def decode_answer(header: bytes | memoryview, *, payload_size: int) -> tuple[int, Answer]:
    """Decode and check the header of an answer; ``BadArgument`` if it is not one that a plog server gives."""
    try:
        number, answer = _answers.decode(header)
    except UNDECODABLE as error:
        raise BadArgument(f"invalid answer of a plog server: {error}") from error
    needed = sum(answer.sizes) if isinstance(answer, ReplicaBlocks) else 0
    if payload_size != needed:
        raise _wrong_payload(answer, payload_size, needed=needed)
    return number, answer


def _wrong_payload(message: object, size: int, *, needed: int) -> BadArgument:
    kind = type(message).__name__
    return BadArgument(f"invalid {kind} with {size} bytes of data: its header announces {needed}")
