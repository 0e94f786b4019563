"""Decoders of what a plog server and its clients get from the network; their checksums are made right."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from penstock.errors import BadArgument
from penstock.frames import FrameConnection, pack_frame
from penstock.plog.replicated import Hello, Refusal, decode_answer, decode_request, encode_header
from penstock.plog.replicated._messages import (
    AppendReplica,
    CreateReplica,
    DamagedList,
    InspectReplica,
    ListDamaged,
    ListReplicas,
    ReadReplica,
    ReplicaAppended,
    ReplicaBlocks,
    ReplicaList,
    ReplicaState,
    SealReplica,
    Welcome,
)

if TYPE_CHECKING:
    from penstock.plog.replicated import Answer, ReplicaRequest

UID = bytes(range(16))


def frame(data: bytes) -> object:
    """Receive what a peer sends; the checksum of a first frame that is complete is made right."""
    near, far = socket.socketpair()
    with closing(near), closing(FrameConnection(far, size_max=4096)) as connection:
        header_size, payload_size = int.from_bytes(data[4:8], "big"), int.from_bytes(data[8:12], "big")
        header, payload = data[16 : 16 + header_size], data[16 + header_size : 16 + header_size + payload_size]
        if 0 < header_size == len(header) and payload_size == len(payload):
            data = b"".join(pack_frame(header, payload)) + data[16 + header_size + payload_size :]
        near.sendall(data[: 64 << 10])
        near.shutdown(socket.SHUT_WR)
        received = []
        with suppress(EOFError):
            while (item := connection.receive()) is not None:
                received.append(bytes(item.header))
        return received


def frames() -> list[bytes]:
    """Return frames, one of them after another."""
    first = b"".join(pack_frame(requests()[0]))
    return [first, first + b"".join(pack_frame(requests()[1], b"data"))]


def request(data: bytes) -> object:
    """Decode a request, with the data that it announces."""
    with suppress(BadArgument):
        return decode_request(data, payload_size=0)
    return decode_request(data, payload_size=4)


def requests() -> list[bytes]:
    """Return requests of each kind."""
    messages: tuple[ReplicaRequest, ...] = (
        Hello(1, "local", "main", "main", 3, UID, 1, "ada", "secret", UID),
        AppendReplica(UID, 70, 4),
        CreateReplica(UID, 1 << 20),
        SealReplica(UID, 70),
        InspectReplica(UID),
        ReadReplica(UID, 0, 70),
        ListReplicas(b"", 10),
        ListDamaged(),
    )
    return [encode_header(number, message) for number, message in enumerate(messages, 1)]


def answer(data: bytes) -> object:
    """Decode an answer, with the data that it announces."""
    with suppress(BadArgument):
        return decode_answer(data, payload_size=0)
    return decode_answer(data, payload_size=7)


def answers() -> list[bytes]:
    """Return answers of each kind."""
    messages: tuple[Answer, ...] = (
        Welcome("server", UID, 3),
        ReplicaAppended(70),
        ReplicaState(70, sealed=True, size=1 << 20, certain=False),
        ReplicaBlocks(0, [3, 4]),
        DamagedList([UID]),
        ReplicaList([(UID, 70, True, 1 << 20)], more=False),
        Refusal("wrong-offset", 70),
    )
    return [encode_header(number, message) for number, message in enumerate(messages, 1)]
