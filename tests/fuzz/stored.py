"""Decoders of what is stored, and good inputs for them, most of which a real store has written."""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.checksums import crc32c
from penstock.cpo import _cluster, _lease, _metadata_plog, _root
from penstock.embedded import open_store
from penstock.errors import BadArgument, ServerError
from penstock.log._metadata import Metadata
from penstock.log._partition import _replay as replay_metadata
from penstock.model import PlogId, StreamConfig, StreamCut, Watermark
from penstock.plog._block import (
    HEAD_SIZE,
    LocatedBlocks,
    pack_block_header,
    read_extents,
    read_located,
    unpack_block_header,
)
from penstock.plog._head import STATE_POSITION, State, pack_new_head
from penstock.plog._journal_file import JOURNAL_HEAD_SIZE, JournalHead, pack_record_header, scan_journal
from penstock.plog._replica import Damage, recover_replica
from penstock.stream.catalog._catalog_state import replay as replay_catalog
from penstock.stream.catalog._catalog_state import snapshot_appends
from penstock.stream.format import decode_records
from penstock.stream.time._watermark_log import pack_watermark
from penstock.wire import pack, pack_error, unpack

if TYPE_CHECKING:
    from penstock.stream import Engine

STREAM: Final = "plant/readings"
UID: Final = bytes(range(16))
BIRTH: Final = bytes(8)


@cache
def _lived() -> Engine:
    """Return a store in which a little of everything has happened."""
    store = open_store("memory:").__enter__()
    store.create_stream(STREAM, 2, StreamConfig())
    writer = store.writer(STREAM, "writer")
    writer.write_batch([b"one", b"three", b""], ["a", "b", None], [{"trace": b"1"}, None, None]).result()
    writer.note_time(1_700_000_000_000)
    writer.write_event(b"alone", "key", headers=[("a", b""), ("a", b"2")]).result()
    with writer.begin_write_event("large") as large:
        large.write(bytes(3 << 20))
    transactions = store.transactional_writer(STREAM, "transactions")
    for prepared in (False, True):
        with transactions.begin() as transaction:
            transaction.write_event(b"committed")
            if prepared:
                transaction.prepare()
    group = store.create_reader_group("group", [STREAM])
    with group.reader("reader") as reader:
        reader.read_next_event(timeout=0)
        reader.commit()
        store.scale_stream(STREAM, [0], [(0.0, 0.25), (0.25, 0.5)])
    store.register_consumer(STREAM, "consumer", store.head(STREAM))
    store.maintain()
    return store


@cache
def blocks() -> list[bytes]:
    """Return blocks of every kind; those of large events are cut."""
    store, found = _lived(), list[bytes]()
    for number in range(2):
        segment = store.segments.get(STREAM, number)
        found += [bytes(view) for _, view, _ in segment.views(0, segment.tail)]
    return [one for one in found if len(one) < 1000] + [_short_chunk(one) for one in found if len(one) >= 1000][:2]


def _short_chunk(one: bytes) -> bytes:
    word = int.from_bytes(one[64:68], "big") & 0x80000000 | 5
    return one[:64] + word.to_bytes(4, "big") + one[68:73]


# The catalog and the metadata of logs


def catalog(data: bytes) -> None:
    """Open a catalog with these records, behind those of a real one; and write it down again."""
    appends = [*_catalog_appends(), data]
    offsets = [sum(map(len, appends[:index])) for index in range(len(appends))]
    log = SimpleNamespace(start=0, length=1, blocks=lambda *_: zip(offsets, appends, strict=True))
    state, _ = replay_catalog(log)  # type: ignore[arg-type] # a log
    for append in snapshot_appends(state):
        decode_records(append)


@cache
def _catalog_appends() -> list[bytes]:
    return list(snapshot_appends(_lived().catalog._state))


def catalogs() -> list[bytes]:
    """Return an append for each kind of record."""
    log = _lived().catalog._log
    found = [msgspec.msgpack.decode(bytes(data)) for _, data in log.blocks(log.start, log.length)]
    found += [msgspec.msgpack.decode(data) for data in _catalog_appends()]
    found.append([["ends", "local/main/00", {0: {0: [100, 3]}}]])
    kinds = {record[0]: msgspec.msgpack.encode([record]) for records in found for record in records}
    return [one for one in kinds.values() if len(one) < 1000]


def metadata(data: bytes) -> None:
    """Recover a partition whose last append this is."""
    partition: Any = SimpleNamespace(metadata=Metadata(), plog_id=PlogId("local", "main", UID.hex()), snapshot_end=0)
    steps = replay_metadata(partition, [memoryview(_full_metadata()), memoryview(data)])
    with suppress(StopIteration):
        next(steps)
        steps.send("somewhere")


@cache
def _full_metadata() -> bytes:
    return msgspec.msgpack.encode(list(_lived()._manager.read_all()))


def metadatas() -> list[bytes]:
    """Return an append for each kind of record."""
    records = msgspec.msgpack.decode(_full_metadata())
    ids = [f"local/main/{number:032x}" for number in range(4)]
    log = next(record[1] for record in records if record[0] not in {"chain", "spares"})
    records += [
        ["chain", [[ids[0], 10]], ids[1], ids[2]],
        ["init", "new", ids[0], ids[1], ids[2]],
        ["spares", ids],
        ["packed", log, [["local", "main"]], bytes(8), bytes(32), bytes(16), {1: b"label"}],
        ["full", "new", False, 0, [[ids[0], 10]], ids[1], ids[2], {0: b"label"}],
        ["next", log, ids[3]],
        ["splice", log, 10, log, 20, ids[1], ids[2], b""],
        ["replace", log, ids[0], 1, log, 10],
        ["doomed", ids],
        ["drop", log],
    ]
    kinds = {record[0]: msgspec.msgpack.encode([record]) for record in records}
    return [one for one in kinds.values() if len(one) < 1000]


def watermarks() -> list[bytes]:
    """Return watermarks."""
    return [pack_watermark(Watermark(1, 2, StreamCut(STREAM, ((0, 70), (1, 0)))))]


def oracle(data: bytes) -> None:
    """Decode a value of the oracle as each of its kinds."""
    decoders = (
        lambda: _lease.decode("name", data),
        lambda: _cluster.decode("name", data),
        lambda: _metadata_plog.decode(data),
        lambda: _root.decode(data),
    )
    for decode in decoders:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, BadArgument):  # what the oracle turns into CpoCorrupt
            decode()


def oracles() -> list[bytes]:
    """Return a value of each kind."""
    lease = _lease.Lease("name", "owner", 1, 2.5)
    cluster = _cluster.PersistenceCluster("name", {"main": ("host:1", "host:2")})
    plog_id = PlogId("local", "main", UID.hex())
    return [_lease.encode(lease), _cluster.encode(cluster), _metadata_plog.encode(plog_id), _root.encode(_root.Root())]


# Plogs. An input has no checksums, and no bytes between head, state and blocks.

_IDENTITY: Final = 64
_STATE: Final = 16


def plog(data: bytes) -> None:
    """Recover a plog from its file: as it is, and with right checksums."""
    head, state, rest = data[:_IDENTITY], data[_IDENTITY : _IDENTITY + _STATE], data[_IDENTITY + _STATE :]
    image = bytearray(head.ljust(STATE_POSITION, b"\0") + state).ljust(HEAD_SIZE, b"\0") + rest
    _recover(bytes(image))
    key = bytes(image[16:32] + image[56:64])
    image[64:68] = crc32c(0, bytes(image[:64])).to_bytes(4, "big")
    place = STATE_POSITION + _STATE
    image[place : place + 4] = crc32c(0, key, bytes(image[STATE_POSITION:place])).to_bytes(4, "big")
    position = HEAD_SIZE
    while (header := unpack_block_header(memoryview(image), position)) is not None:
        body = image[position + 20 : position + 20 + header.body_size]
        checksum = crc32c(0, key, bytes(image[position : position + 16]), bytes(body))
        image[position + 16 : position + 20] = checksum.to_bytes(4, "big")
        position += 20 + len(body)
    _recover(bytes(image))


def _recover(image: bytes) -> None:
    found = recover_replica(PlogId("local", "main", image[16:32].hex()), memoryview(image))
    if found is not None and not isinstance(found, Damage):
        assert found.written <= len(image)
        for part in found.slices(0, found.written):
            assert part.position < part.end <= len(image)


def plogs() -> list[bytes]:
    """Return plogs: new, open and sealed."""
    plog_id = PlogId("local", "main", UID.hex())
    head = pack_new_head(plog_id, size=1000, birth=BIRTH)[:_IDENTITY]
    bodies = b"".join(_plog_block(body, offset) for offset, body in ((0, b"abc"), (3, b"defgh")))
    states = (State(sealed=False, length=0, new=True), State(sealed=False, length=3), State(sealed=True, length=8))
    return [head + state.pack(UID + BIRTH)[:_STATE] + bodies for state in states]


def _plog_block(body: bytes, offset: int) -> bytes:
    return pack_block_header(UID + BIRTH, offset=offset, body=[body], body_size=len(body)) + body


def journal(data: bytes) -> None:
    """Scan a journal: as it is, and with right generations, places and checksums."""
    image = bytearray(data.ljust(JOURNAL_HEAD_SIZE, b"\0"))
    _scan(bytes(image))
    image[32:36] = crc32c(0, bytes(image[:32])).to_bytes(4, "big")
    place = JOURNAL_HEAD_SIZE
    while place + 64 <= len(image):
        image[place : place + 4] = b"PJRN"
        image[place + 8 : place + 24] = bytes(image[16:24]) + place.to_bytes(8, "big")
        end = place + 64 + int.from_bytes(image[place + 4 : place + 8], "big")
        checksum = crc32c(0, bytes(image[place : place + 60]), bytes(image[place + 64 : end]))
        image[place + 60 : place + 64] = checksum.to_bytes(4, "big")
        place = end
    _scan(bytes(image))


def _scan(image: bytes) -> None:
    head = JournalHead.unpack(memoryview(image))
    for record in scan_journal(memoryview(image), 0 if head is None else head.generation).records:
        assert record.end <= len(image)


def journals() -> list[bytes]:
    """Return a journal with two records."""
    found = JournalHead(7, 4096).pack().ljust(JOURNAL_HEAD_SIZE, b"\0")
    for kind, payload in ((b"writ", b"payload"), (b"dele", b"")):
        place = len(found)
        header = pack_record_header(
            generation=7,
            place=place,
            synced=512,
            uid=UID,
            position=4096,
            kind=kind,
            parts=(payload,),
            size=len(payload),
        )
        found += header + payload
    return [found]


def located(data: bytes) -> None:
    """Read blocks where a server says that they are."""
    try:
        first, offsets, extents, low, high = unpack(data, tuple[int, bytes, Any, int, int])
    except ServerError:
        return
    image = bytes(HEAD_SIZE) + _plog_block(b"abc", 0) + _plog_block(b"defgh", 3)
    blocks = LocatedBlocks.received("plog", UID + BIRTH, first, offsets, extents).between(low, high)
    if extents:  # the objects have the blocks at the same positions as the file
        list(read_extents(blocks, lambda _, position, size: memoryview(image)[position : position + size]))
    else:
        list(read_located(blocks, memoryview(image), set()))


def locateds() -> list[bytes]:
    """Return the places of two blocks, and what of them is asked for."""
    places = struct.pack("<3I", 0, 3, 8)
    extents = [[], [["a", 4096, 4096, 48]], [["a", 4096, 4096, 23], ["b", 4119, 4119, 25]]]
    return [msgspec.msgpack.encode((0, places, found, 0, high)) for high in (3, 8) for found in extents]


# Messages


def calls() -> list[bytes]:
    """Return calls, with values of the model in them."""
    cut = StreamCut(STREAM, ((0, 70), (1, 0)))
    values = [1, -1, 2.5, None, True, "text", b"bytes", [1, 2], {"a": 1}, cut, StreamConfig(), 1 << 70]
    return [pack(["session", [value]]) for value in values] + [pack(["blocks", "session", [STREAM, 0, 0, 100]])]


def answers() -> list[bytes]:
    """Return answers of a server, with values of the model in them."""
    cut = StreamCut(STREAM, ((0, 70), (1, 0)))
    return [pack([3, value]) for value in (1, 2.5, None, True, "text", b"bytes", [1, 2], {"a": 1}, cut, StreamConfig())]


def notifications() -> list[bytes]:
    """Return notifications of every kind."""
    error = pack_error(BadArgument("invalid"))
    kinds: list[list[object]] = [
        ["segment", STREAM, 0, [0, 70, None], [[64, 0, b"block"]]],
        ["segment", STREAM, 0, None, []],
        ["here?"],
        ["fence", "token"],
        ["note", "token", 1000],
        ["attend", 1],
        ["stop", 1, error],
        ["miss", 1, error],
    ]
    return [pack(kinds), *(pack([kind]) for kind in kinds)]


def remote_errors() -> list[bytes]:
    """Return errors."""
    return [pack_error(BadArgument("invalid")), pack(["Unknown", "text", {"field": 1}])]
