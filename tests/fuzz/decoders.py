"""Every decoder that takes bytes from outside: what it is called with, and which errors it may raise.

A decoder is a function of bytes. It goes as far as Penstock itself does with such bytes, so that what was decoded can
also be used. Where a checksum would stop nearly every input, the function makes the checksums right as well.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from penstock import errors
from penstock.cli._json_events import given_event
from penstock.cli._json_long import LongLine
from penstock.embedded import open_store
from penstock.events._codings import CBOR, JSON, MSGPACK
from penstock.frames import FrameError
from penstock.model import NUMBER_MAX, EventPointer, PlogId, Position, StreamConfig, StreamCut, shown
from penstock.server import _plain as plain
from penstock.server._frames import FrameFollower, Refused
from penstock.server._limits import MessageLimit
from penstock.server._writers import _block_in, _check_body, _header_of
from penstock.stream.format import (
    EVENTS,
    WRITERS,
    Block,
    StreamBlockHeader,
    check_arrow,
    check_columns,
    read_block,
    read_header,
    unpack_columns,
)
from penstock.stream.segment import WriterTable
from penstock.stream.time._watermark_log import unpack_watermark
from penstock.stream.write import as_rows
from penstock.wire import (
    BLOCKS,
    Acknowledgement,
    Answer,
    Notifications,
    Welcome,
    cell,
    operations,
    pack,
    pack_shared,
    unpack,
    unpack_call,
    unpack_error,
    unpack_shared,
)
from tests.fuzz import backups, block_messages, bucket, files, futoin, plog_server, repo, spark, stored
from tests.server import http2, raw_put

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CORPUS", "DECODERS", "Decoder", "inputs_of"]

CORPUS: Final = Path(__file__).parent / "corpus"
MESSAGES: Final = MessageLimit(16 << 20)
WHERE: Final = "segment 0 of stream plant/readings"


class Decoder(NamedTuple):
    """A function of bytes, the errors that it documents, how its inputs are mutated, and some good ones."""

    run: Callable[[bytes], object]
    raises: tuple[type[Exception], ...]
    shape: str  # bytes, msgpack, json or text
    seeds: Callable[[], list[bytes]]
    sample: int = 3000  # inputs in make test
    together: int = 1  # inputs of one call, a line each


# Blocks and what is in them


def block(data: bytes) -> None:
    """Read a block of any kind, and all that a reader may ask of it."""
    found = read_block(memoryview(data), where=WHERE, start=1000)
    if isinstance(found, Block):
        found.arrow().validate(full=True)
        assert list(found.events()) == found.arrow().to_pylist()
        columns = [column for column in found.columns if column is not None]
        for column in columns:
            column.validate(full=True)
            assert len(column.to_pylist()) == found.count
        if found.count == 1:
            found.only_key()
        offsets = found.offsets()
        assert [found.index_at(int(offset)) for offset in offsets[:5]] == list(range(len(offsets[:5])))
    found.index_at(found.start + 70)
    header = read_header(memoryview(data), where=WHERE, start=1000)
    if header.kind == WRITERS:
        WriterTable.unpack(header, memoryview(data), where=WHERE, start=1000).pack(0, 0)


def chunk(data: bytes) -> None:
    """Read the blocks of a large event: chunks and extents only."""
    block(bytes([3 + (data[0] + 1) % 2]) + data[1:] if data else data)


def small_block(data: bytes) -> None:
    """Read a block that a client sends in one message, as the server does."""
    _, head, *body = _block_in(None, data)
    header = _header_of(head, bytes(head[16:32]), EVENTS, highest_before=0)
    assert max(header.last_number, header.flush_last, header.durable_floor) <= NUMBER_MAX
    _check_body(header, body)
    block(header.pack() + b"".join(body))


def shared_blocks(data: bytes) -> None:
    """Read small blocks of several writers, which come in one message."""
    blocks = unpack_shared(data)
    assert pack_shared(blocks) == data
    for _, one in blocks:
        small_block(one)


def columns(data: bytes) -> None:
    """Check keys and headers of a client; the first two bytes are flags and the number of events."""
    if len(data) < 2:
        return
    flags, count, view = data[0] & 7, data[1], memoryview(data)[2:]
    check_columns(flags, view, count)
    for column in unpack_columns(flags, view, count):
        assert column is None or len(column.to_pylist()) == count


# Arrow


def arrow_append(data: bytes) -> None:
    """Take the batches of any Flight client, up to the bytes that would be stored."""
    for batch in _batches(data):
        check_arrow(batch)
        _ = batch.nbytes
        names = batch.schema.names
        if names.count("event") == 1 and names.count("key") < 2 and names.count("headers") < 2:
            plain._check_decoded(batch, MESSAGES)
            keys, headers = (batch.column(name) if name in names else None for name in ("key", "headers"))
            rows, _ = as_rows(batch.column("event"), keys, headers, without=0.0)
            flags, parts = rows.packed()
            assert sum(map(len, parts)) <= int(rows.sizes().sum())
            header = StreamBlockHeader(count=len(rows), columns=flags)
            _check_body(header, [memoryview(part) for part in parts])


def arrow_block(data: bytes) -> None:
    """Take a block of a server, as a client does."""
    from penstock.client._segment import _block_of  # noqa: PLC0415 - one decoder needs it

    for batch in _batches(data):
        _block_of(batch)
        assert batch.schema == BLOCKS
        cell(batch.column(1))


def _batches(data: bytes) -> list[pa.RecordBatch]:
    """Return what Arrow itself reads; what it refuses, Flight refuses."""
    found: list[pa.RecordBatch] = []
    with suppress(pa.ArrowException, OSError, ValueError, OverflowError):  # Arrow's own, and not ours to change
        found.extend(pa.ipc.open_stream(data))
    return found


class _Anybody:
    name = "anybody"

    def may(self, permission: str, stream: str) -> bool:
        return bool(permission and stream)


@cache
def _store() -> Any:  # noqa: ANN401 - an engine
    store = open_store("memory:").__enter__()
    store.create_stream("plant/readings")
    with store.writer("plant/readings") as writer:
        writer.write_batch([b"one", b"two"], ["a", "b"])
    return store


# What goes over the wire besides events


def frames(data: bytes) -> None:
    """Follow the frames of a client; in whatever pieces they come, the result is the same."""
    results = set()
    for size in (1 + crc32(data) % max(16, len(data) // 4), len(data) + 1):
        follower = FrameFollower()
        try:
            for place in range(0, len(data), size):
                follower.feed(memoryview(data)[place : place + size])
            results.add("")
        except Refused as error:
            results.add(str(error))
    (result,) = results
    if result:
        raise Refused(result)


def _frames() -> list[bytes]:
    """Return calls of Flight's clients: an action, a list, and an append with and without compression."""
    batch = pa.record_batch({"event": [b"one"], "key": pa.array(["a"]).dictionary_encode()})
    messages = [
        [raw_put.field(1, b"head") + raw_put.field(2, bytes(20))],
        [b"\x08\x01" + raw_put.field(3, b"plant") + raw_put.field(3, b"readings")],
    ]
    for codec in (None, "zstd"):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(batch)
        found = [*pa.ipc.MessageReader.open_stream(sink.getvalue())]
        bodies = [b"" if one.body is None else raw_put.field(raw_put.BODY, one.body.to_pybytes()) for one in found]
        messages.append(
            [
                raw_put.field(raw_put.HEADER, one.metadata.to_pybytes()) + body
                for one, body in zip(found, bodies, strict=True)
            ]
        )
    return [http2.PREFACE + http2.call(*map(http2.message, sent)) for sent in messages]


def ticket(data: bytes) -> None:
    """Read what a ticket of any Flight client asks for."""
    if plain.is_ticket(data):
        list(plain.read(_store(), _Anybody, data))
    else:
        unpack_call(data)


def action(data: bytes) -> None:
    """Understand a call, whose name is the first of its values, as the server does."""
    name, args = unpack_call(data, tuple[str, Any])
    shown(operations.parse(name, args))


def _message(form: Any) -> Callable[[bytes], object]:  # noqa: ANN401 - a type for msgspec
    """Return a decoder of what a server sends in one form."""
    return lambda data: shown(unpack(data, form))


def remote_error(data: bytes) -> None:
    """Make the error of a server one of ours."""
    str(unpack_error(data))


# Texts


def json_line(data: bytes) -> None:
    """Take an event of ``write --json``; piece by piece, the result is the same."""
    given = given_event(data)
    with suppress(errors.BadArgument):  # it is only for lines whose event comes last
        long = LongLine(data)
        piece = 1 + data[-1] % 16
        parts = [long.add(data[place : place + piece]) for place in range(long.start, len(data), piece)]
        long.end()
        assert (b"".join(parts), long.key, long.headers) == (given.event, given.key, given.headers)


def _text(parse: Callable[[str], object]) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        found = parse(data.decode("utf-8", "surrogateescape"))
        assert parse(str(found)) == found

    return run


# Good inputs


def _blocks() -> list[bytes]:
    return stored.blocks()


def _block_columns() -> list[bytes]:
    found = []
    for one in stored.blocks():
        header = read_header(memoryview(one), where=WHERE, start=0)
        if header.kind == 1 and header.columns:
            words = np.frombuffer(one, ">u4", header.count, 64)
            found.append(bytes([header.columns, header.count]) + one[64 + 4 * header.count + int(words.sum()) :])
    return found


def _welcomes() -> list[bytes]:
    return [pack(["welcome", "id", 1 << 20, access]) for access in (None, [7000, "name", bytes(32)])]


def _small_blocks() -> list[bytes]:
    return [bytes(12) + one for one in stored.blocks()]


def _shared_blocks() -> list[bytes]:
    return [pack_shared([(1, one), (2, one)]) for one in _small_blocks()]


def _streams(*batches: pa.RecordBatch) -> list[bytes]:
    found = []
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        found.append(sink.getvalue().to_pybytes())
    return found


def _arrow_appends() -> list[bytes]:
    events, maps = pa.array([b"abc", b"", b"defg"]), pa.map_(pa.string(), pa.binary())
    headers = pa.array([[("a", b"1"), ("b", b"2")], None, [("c", b"3")]], maps)
    return _streams(
        pa.record_batch({"event": events}),
        pa.record_batch({"event": events.cast(pa.string()), "key": pa.array(["a", None, "c"])}),
        pa.record_batch(
            {"event": events.cast(pa.large_binary()), "key": events.dictionary_encode(), "headers": headers}
        ),
        pa.record_batch({"event": events.cast(pa.binary_view()), "other": pa.array([1, 2, 3])}),
    )


def _arrow_blocks() -> list[bytes]:
    return _streams(
        *(pa.record_batch([pa.array([0]), pa.array([one]), pa.array([0])], BLOCKS) for one in stored.blocks()[:2])
    )


def _tickets() -> list[bytes]:
    return [
        b'{"stream": "plant/readings"}',
        b'{"stream": "plant/readings", "start": "plant/readings:0@0", "end": "plant/readings:0@70"}',
        b'{"stream": "plant/readings", "start": 1000, "end": 1800000000000}',
        *stored.calls(),
    ]


def _actions() -> list[bytes]:
    """Return a call of each operation, with arguments that fit."""
    pointer, cut = EventPointer("plant/readings", 0, 70), StreamCut("plant/readings", ((0, 0),))
    values = ["plant/readings", 1, 0.5, True, None, b"x" * 16, b"x" * 32, b"x" * 64, [], pointer, cut, StreamConfig()]
    values += [Position((cut,)), "closest", "append", "before"]
    found = []
    for name, kind in operations.OPERATIONS.items():
        args: list[Any] = [None] * len(kind.__struct_fields__)
        for index, field in enumerate(kind.__struct_fields__):
            args[index] = next((value for value in values if _fits(kind, field, [*args[:index], value])), None)
        found.append(pack([name, args]))
    return found


def _fits(kind: Any, field: str, args: list[Any]) -> bool:  # noqa: ANN401 - an operation
    """Whether the arguments up to this one are not what is wrong."""
    try:
        kind.of(args + [None] * (len(kind.__struct_fields__) - len(args)))
    except errors.BadArgument as error:
        return f"invalid {field} " not in str(error)
    return True


_POINTERS: Final = (b"plant/readings:0@70", b"a/b:999999999999999999@0")
_LINES: Final = (
    b'{"pointer":"a/b:0@0","timestamp":1,"key":"k","headers":{"a":"1","b":{"base64":"/w=="}},"event":"\\u00e9 text"}',
    b'{"key_base64":"/w==","headers":[["a","1"],["a","2"]],"event_base64":"AAECAwQ="}',
)
_CUTS: Final = (b"plant/readings:0@0,1@70,12@34567", b"a/b:0@0")

_DELTAS: Final = {"repo-knit": "knit-delta", "repo-annotated": "knit-annotated-delta", "repo-mpdiff": "mpdiff"}
DECODERS: Final[dict[str, Decoder]] = {
    "block": Decoder(block, (errors.StreamCorrupt,), "bytes", _blocks),
    "chunk": Decoder(chunk, (errors.StreamCorrupt,), "bytes", _blocks),
    "shared-blocks": Decoder(shared_blocks, (errors.BadArgument, errors.StreamCorrupt), "bytes", _shared_blocks),
    "block-message": Decoder(block_messages.read, (errors.BadArgument,), "msgpack", block_messages.seeds),
    "small-block": Decoder(small_block, (errors.BadArgument, errors.StreamCorrupt), "bytes", _small_blocks),
    "columns": Decoder(columns, (ValueError,), "bytes", _block_columns),
    "catalog": Decoder(stored.catalog, (errors.StreamCorrupt,), "msgpack", stored.catalogs),
    "metadata": Decoder(stored.metadata, (errors.MetadataCorrupt,), "msgpack", stored.metadatas),
    "watermark": Decoder(
        lambda data: unpack_watermark(memoryview(data), stream="plant/readings", offset=0),
        (errors.StreamCorrupt,),
        "msgpack",
        stored.watermarks,
    ),
    "oracle": Decoder(stored.oracle, (errors.CpoCorrupt,), "msgpack", stored.oracles),
    "plog": Decoder(stored.plog, (errors.PlogCorrupt,), "bytes", stored.plogs),
    "journal": Decoder(stored.journal, (), "bytes", stored.journals),
    "object": Decoder(bucket.raw, (errors.FormatUnknown,), "bytes", bucket.raws),
    "object-records": Decoder(bucket.records, (errors.JournalCorrupt,), "msgpack", bucket.tables),
    "object-plog": Decoder(bucket.plog, (errors.PlogCorrupt,), "msgpack", bucket.plogs),
    "object-checkpoint": Decoder(bucket.checkpoint, (errors.JournalCorrupt,), "msgpack", bucket.checkpoints),
    **{f"backup-{name}": Decoder(*about) for name, about in backups.DECODERS.items()},
    "located": Decoder(stored.located, (errors.PlogCorrupt,), "msgpack", stored.locateds),
    "plog-frame": Decoder(plog_server.frame, (FrameError,), "bytes", plog_server.frames, sample=1000),
    "plog-request": Decoder(plog_server.request, (errors.BadArgument,), "msgpack", plog_server.requests),
    "plog-answer": Decoder(plog_server.answer, (errors.BadArgument,), "msgpack", plog_server.answers),
    "ticket": Decoder(ticket, (errors.PenstockError,), "json", _tickets, sample=500),
    "frames": Decoder(frames, (Refused,), "bytes", _frames, sample=1000),
    "action": Decoder(action, (errors.ServerError, errors.BadArgument), "msgpack", _actions),
    "answer": Decoder(_message(Answer), (errors.ServerError,), "msgpack", stored.answers),
    "welcome": Decoder(_message(Welcome), (errors.ServerError,), "msgpack", _welcomes),
    "notifications": Decoder(_message(Notifications), (errors.ServerError,), "msgpack", stored.notifications),
    "acknowledgement": Decoder(
        _message(Acknowledgement),
        (errors.ServerError,),
        "msgpack",
        lambda: [pack([[70, -1], None]), *(pack([[], error]) for error in stored.remote_errors())],
    ),
    "remote-error": Decoder(remote_error, (errors.ServerError,), "msgpack", stored.remote_errors),
    "arrow-append": Decoder(arrow_append, (errors.BadArgument,), "bytes", _arrow_appends, sample=500),
    "arrow-block": Decoder(arrow_block, (errors.ServerError,), "bytes", _arrow_blocks),
    "users": Decoder(files.users, (errors.UsersCorrupt,), "json", files.users_files),
    "authorization": Decoder(files.authorization, (errors.NotAuthenticated,), "text", files.authorizations),
    "config": Decoder(files.config, (errors.BadConfig,), "text", files.configs, sample=500),
    "config-value": Decoder(files.config_value, (errors.BadConfig,), "text", files.config_values),
    "futoin-json": Decoder(futoin.in_coding(JSON), (errors.FutoinError,), "json", lambda: futoin.messages_in(JSON)),
    "futoin-msgpack": Decoder(
        futoin.in_coding(MSGPACK), (errors.FutoinError,), "msgpack", lambda: futoin.messages_in(MSGPACK)
    ),
    "futoin-cbor": Decoder(futoin.in_coding(CBOR), (errors.FutoinError,), "bytes", lambda: futoin.messages_in(CBOR)),
    "futoin-sec": Decoder(futoin.sec, futoin.SEC_ERRORS, "text", futoin.secs),
    "futoin-answer": Decoder(futoin.answer, futoin.ANSWER_ERRORS, "json", futoin.answers),
    "futoin-event": Decoder(futoin.event, (), "json", futoin.events),
    "job": Decoder(files.job, (errors.BadArgument,), "json", files.jobs),
    "receiver-position": Decoder(files.position, (errors.CorruptData,), "text", files.positions),
    "json-line": Decoder(json_line, (errors.BadArgument,), "json", lambda: [*_LINES]),
    "spark-futoin": Decoder(spark.futoin_events, (), "json", spark.futoin_batches, together=100),
    "spark-json": Decoder(spark.json_events, (), "json", spark.json_batches, together=100),
    "repo-table": Decoder(repo.table, repo.BLOCK_ERRORS, "msgpack", repo.tables),
    "repo-index": Decoder(repo.block_index, (ValueError,), "bytes", repo.block_indexes),
    "repo-event": Decoder(repo.index_event, (ValueError,), "bytes", repo.index_events),
    "repo-insert": Decoder(repo.insert_record, (ValueError,), "bytes", repo.insert_records),
    "repo-bundle": Decoder(repo.bundle, (errors.BundleCorrupt, errors.NotABundle), "bytes", repo.bundles, sample=500),
    **{name: Decoder(repo.delta(kind), (), "bytes", partial(repo.deltas, kind)) for name, kind in _DELTAS.items()},
    "repo-inventory": Decoder(repo.inventory, (errors.BadRecord,), "text", repo.inventories),
    "repo-revision": Decoder(repo.revision, (errors.BadRecord,), "text", repo.revisions),
    "repo-refs": Decoder(repo.refs, (errors.BadRecord,), "text", repo.names),
    "pointer": Decoder(_text(EventPointer.parse), (errors.BadArgument,), "text", lambda: [*_POINTERS]),
    "cut": Decoder(_text(StreamCut.parse), (errors.BadArgument,), "text", lambda: [*_CUTS]),
    "position": Decoder(_text(Position.parse), (errors.BadArgument,), "text", lambda: [b";".join(_CUTS), b""]),
    "plog-id": Decoder(_text(PlogId.parse), (errors.BadArgument,), "text", lambda: [b"local/main/" + b"0f" * 16]),
}


@cache
def inputs_of(name: str) -> list[bytes]:
    """Return the good inputs of a decoder, and those of the corpus: a line each, in hexadecimal."""
    path = CORPUS / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return DECODERS[name].seeds() + [bytes.fromhex(line.partition("#")[0]) for line in lines]
