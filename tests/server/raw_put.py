"""Flight messages made by hand: Arrow's own writer checks what it sends, and a hostile client has no such scruples."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.server.http2 import Call

if TYPE_CHECKING:
    from pyarrow import flight

DESCRIPTOR, HEADER, METADATA, BODY = 1, 2, 3, 1000


def field(number: int, data: bytes) -> bytes:
    """Return a field of a protobuf message."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def lying(batch: pa.RecordBatch, lies: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """Return the head and the body of a batch's message, with bytes of either replaced by others."""
    message = pa.ipc.read_message(batch.serialize())
    head, body = message.metadata.to_pybytes(), message.body.to_pybytes()
    for truth, lie in lies.items():
        assert len(truth) == len(lie)
        assert head.count(truth) + body.count(truth) == 1
        head, body = head.replace(truth, lie), body.replace(truth, lie)
    return head, body


def words(*values: int) -> bytes:
    """Return offsets as they are in a body."""
    return struct.pack(f"<{len(values)}i", *values)


def buffer(offset: int, size: int) -> bytes:
    """Return the place of a buffer as it is in a head."""
    return struct.pack("<qq", offset, size)


def put(
    port: int,
    descriptor: flight.FlightDescriptor,
    schema: pa.Schema,
    messages: list[tuple[bytes, bytes]],
    metadata: bytes = b"",
) -> None:
    """Send messages that begin with a schema, and wait until the server has ended the call."""
    hello = pa.ipc.read_message(schema.serialize()).metadata.to_pybytes()
    with Call(port, "DoPut") as call:
        call.send_message(field(DESCRIPTOR, descriptor.serialize()) + field(HEADER, hello))
        for head, body in messages:
            call.send_message(field(HEADER, head) + field(METADATA, metadata) + field(BODY, body))
        call.wait_until_ended()
