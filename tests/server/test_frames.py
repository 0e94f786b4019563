"""Which messages of a client are passed on to gRPC, and which are not."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.server._frames import _HEADER_MAX, _UNFINISHED_MAX, AnswerFollower, FrameFollower, Refused
from tests.server.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    call,
    frame,
    message,
)
from tests.server.raw_put import BODY, DESCRIPTOR, HEADER, METADATA, field

PADDED: Final = 8
EVENTS: Final = pa.record_batch({"event": [b"abc" * 100], "key": pa.array(["a"]).dictionary_encode()})
BATCH: Final = pa.ipc.read_message(EVENTS.serialize())
PLAIN: Final = BATCH.metadata.to_pybytes()
NAME: Final = flight.FlightDescriptor.for_path("plant", "readings").serialize()


def follow(data: bytes, piece: int = 1 << 20) -> None:
    follower = FrameFollower()
    for place in range(0, len(data), piece):
        follower.feed(memoryview(data)[place : place + piece])


def heads_of(options: pa.ipc.IpcWriteOptions) -> list[bytes]:
    """Return the headers that Arrow itself writes: of the schema, of a dictionary, and of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENTS.schema, options=options) as writer:
        writer.write_batch(EVENTS)
    return [one.metadata.to_pybytes() for one in pa.ipc.MessageReader.open_stream(sink.getvalue())]


ORDINARY: Final = [
    message(b""),
    message(field(1, b"streams") + field(2, bytes(300))),
    message(field(2, bytes(_HEADER_MAX + 70))),
    message(b"\x08\x01\x1a\x05plant\x1a\x08readings"),
    message(field(DESCRIPTOR, NAME) + field(HEADER, heads_of(pa.ipc.IpcWriteOptions())[0])),
    message(field(HEADER, PLAIN) + field(METADATA, b"70") + field(BODY, BATCH.body.to_pybytes())),
    message(field(METADATA, bytes(1000))),
    message(field(METADATA, b"70") + field(BODY, b"")),
]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_what_clients_send_is_passed_on_in_whatever_pieces_it_comes(piece: int) -> None:
    """Messages do not end where frames do, nor frames where reads from the socket do."""
    together = b"".join(ORDINARY)
    frames = [together[place : place + 100] for place in range(0, len(together), 100)]
    data = PREFACE + frame(PING, 0, bytes(8)) + call(*ORDINARY) + call(*frames, stream=3)
    follow(data, piece)


FORM: Final = "not one of Flight"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n", "does not speak HTTP/2", id="HTTP/1"),
        pytest.param(PREFACE + call(message(b"abc", compressed=True)), "a compressed message", id="compressed"),
        pytest.param(PREFACE + call(*ORDINARY, message(b"", compressed=True)), "a compressed message", id="second"),
        pytest.param(PREFACE + frame(DATA, 1, message(b"")), "has not begun", id="data of an idle stream"),
        pytest.param(PREFACE + frame(DATA, 0, message(b"")), "has not begun", id="data of no stream"),
        pytest.param(PREFACE + call(message(b"")) + call(message(b"")), "begins twice", id="headers twice"),
        pytest.param(PREFACE + frame(HEADERS, 1, b"") + frame(CONTINUATION, 1, b""), "do not fit", id="continuation"),
        pytest.param(
            PREFACE + frame(HEADERS, 1, b"", END_HEADERS) + frame(DATA, 1, b"\1" + message(b"") + b"\0", PADDED),
            "padding",
            id="padding",
        ),
        pytest.param(PREFACE + call(message(field(4, b"abc"))), FORM, id="an unknown field"),
        pytest.param(PREFACE + call(message(field(2, b"a") + field(1, b"b"))), FORM, id="descending fields"),
        pytest.param(PREFACE + call(message(field(2, b"a") + field(2, b"b"))), FORM, id="a header twice"),
        pytest.param(PREFACE + call(message(b"\x08\x01" + field(BODY, b"a"))), FORM, id="a descriptor with a body"),
        pytest.param(PREFACE + call(message(b"\x08\x80\x01" + field(2, b"a"))), FORM, id="a large number"),
        pytest.param(PREFACE + call(message(b"\x12\x05abcd")), FORM, id="a field longer than its message"),
        pytest.param(PREFACE + call(message(b"\x12\x84\x80\x80\x80\x10abcd")), FORM, id="a length above 32 bits"),
        pytest.param(PREFACE + call(message(b"\x12\x84\x80\x80\x80\x80\x00abcd")), FORM, id="a length of 6 bytes"),
        pytest.param(PREFACE + call(message(b"\x12")), FORM, id="no length"),
        pytest.param(PREFACE + call(message(b"\xc2")), FORM, id="half a tag"),
        pytest.param(PREFACE + call(message(b"\xc1\x3e" + bytes(9))), FORM, id="a body of another wire type"),
        pytest.param(PREFACE + call(message(field(BODY, b"a"))), "missing", id="a body without a header"),
        pytest.param(
            PREFACE + call(message(field(BODY, b"a") + field(HEADER, PLAIN))), "missing", id="a header behind its body"
        ),
        pytest.param(
            PREFACE + call(message(field(HEADER, bytes(_HEADER_MAX + 1)) + field(BODY, b"a"))),
            "too long",
            id="too long",
        ),
        pytest.param(PREFACE + call(message(field(HEADER, b"abc") + field(BODY, b"a"))), "broken", id="no flatbuffer"),
        pytest.param(
            PREFACE + call(message(field(HEADER, b"\xff" * 64) + field(BODY, b"a"))), "broken", id="beyond its end"
        ),
    ],
)
@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_what_must_not_get_to_grpc_is_refused_with_a_reason(data: bytes, reason: str, piece: int) -> None:
    """It is compressed; or Arrow or gRPC might understand it in another way than the one who looks at it here."""
    with pytest.raises(Refused, match=reason):
        follow(data, piece)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_body_is_refused_by_what_its_header_says(codec: str) -> None:
    """Of a batch, and of a dictionary, which is a batch in a table of its own; a schema has no body."""
    schema, dictionary, batch = heads_of(pa.ipc.IpcWriteOptions(compression=codec))
    follow(PREFACE + call(message(field(HEADER, schema))))
    for head in (dictionary, batch):
        with pytest.raises(Refused, match="a compressed batch"):
            follow(PREFACE + call(message(field(HEADER, head) + field(BODY, bytes(64)))))


@pytest.mark.parametrize("version", [pa.ipc.MetadataVersion.V4, pa.ipc.MetadataVersion.V5])
def test_a_body_that_is_not_compressed_is_passed_on(version: pa.ipc.MetadataVersion) -> None:
    """Also one of an old client."""
    for head in heads_of(pa.ipc.IpcWriteOptions(metadata_version=version))[1:]:
        follow(PREFACE + call(message(field(HEADER, head) + field(BODY, bytes(64)))))


def test_the_compression_of_before_arrow_1_is_refused() -> None:
    """Arrow still reads it: it is in the metadata of a message of version 4, and there is no table of it."""
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENTS.schema, options=options) as writer:
        writer.write_batch(EVENTS, custom_metadata={"ARROW:experimental_compression": "zstd"})
    batch = [*pa.ipc.MessageReader.open_stream(sink.getvalue())][-1]
    with pytest.raises(Refused, match="a compressed batch"):
        follow(PREFACE + call(message(field(HEADER, batch.metadata.to_pybytes()) + field(BODY, bytes(64)))))


@pytest.mark.parametrize("ending", ["unfinished", "reset", "ended"])
def test_messages_that_never_end_are_not_remembered_without_limit(ending: str) -> None:
    """Each takes memory until it has come; one whose stream is over never comes."""
    follower = FrameFollower()
    follower.feed(memoryview(PREFACE))

    def begin(stream: int) -> None:
        data = frame(HEADERS, stream, b"", END_HEADERS)
        data += frame(DATA, stream, b"\0\0", END_STREAM if ending == "ended" else 0)
        data += frame(RST_STREAM, stream, bytes(4)) if ending == "reset" else b""
        follower.feed(memoryview(data))

    for number in range(_UNFINISHED_MAX):
        begin(2 * number + 1)
    if ending == "unfinished":
        with pytest.raises(Refused, match="not finished"):
            begin(2 * _UNFINISHED_MAX + 1)
    else:
        begin(2 * _UNFINISHED_MAX + 1)


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_calls_count_until_the_server_ends_them_or_the_client_cancels(piece: int) -> None:
    """There is memory for each in gRPC, whatever the client has sent of it."""
    follower = FrameFollower()
    follower.feed(memoryview(PREFACE + b"".join(frame(HEADERS, stream, b"", END_HEADERS) for stream in (1, 3, 5, 7))))
    follower.feed(memoryview(frame(RST_STREAM, 1, bytes(4)) * 2 + frame(DATA, 3, b"", END_STREAM)))
    assert (follower.calls, follower.cancelled) == ({3, 5, 7}, 1)
    answer = frame(HEADERS, 3, b"", END_HEADERS) + frame(DATA, 3, bytes(20)) + frame(DATA, 3, b"", END_STREAM)
    answer += (
        frame(SETTINGS, 0, b"", END_STREAM) + frame(HEADERS, 5, bytes(9), END_STREAM) + frame(RST_STREAM, 9, bytes(4))
    )
    answers = AnswerFollower(follower.calls)
    for place in range(0, len(answer), piece):
        answers.feed(memoryview(answer)[place : place + piece])
    assert follower.calls == {7}
