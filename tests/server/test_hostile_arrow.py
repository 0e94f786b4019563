"""Arrow data whose offsets and buffers do not fit together: it is refused before anything looks into it.

The server is a process of its own, so that a segmentation fault is a failure here, and not the end of the tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.stream.format import StreamBlockHeader, pack_lengths
from penstock.stream.segment import writer_hash
from penstock.wire import APPENDS, column_of, pack
from penstock.wire.operations import writers
from tests.server.apart import memory_peak, server_apart
from tests.server.raw_put import buffer, lying, put, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client import RemoteStore

STREAM: Final = "plant/readings"
AT: Final = flight.FlightDescriptor.for_path(STREAM)
MIB: Final = 1 << 20
EVENTS: Final = pa.record_batch({"event": [b"abc", b"defg"]})  # its offsets are 12 bytes at 0, its data 7 at 16


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with server_apart(tmp_path_factory.mktemp("server"), anonymous=True) as found:
        yield found


@pytest.fixture
def store(server: tuple[int, int]) -> Iterator[RemoteStore]:
    with penstock.connect(f"penstock://127.0.0.1:{server[0]}") as store:
        store.create_stream(STREAM)
        yield store  # type: ignore[misc]
        store.seal_stream(STREAM)
        store.delete_stream(STREAM)


@pytest.mark.parametrize(
    "lies",
    [
        pytest.param({words(0, 3, 7): words(0, 3, 800_000)}, id="the last offset is beyond the data"),
        pytest.param({words(0, 3, 7): words(0, 1 << 30, 7)}, id="a middle offset is beyond the data"),
        pytest.param({words(0, 3, 7): words(0, -(1 << 30), 7)}, id="a middle offset is before the data"),
        pytest.param({words(0, 3, 7): words(-800_000, 3, 7)}, id="the first offset is before the data"),
        pytest.param({words(0, 3, 7): words(7, 3, 0)}, id="the offsets descend"),
        pytest.param({buffer(0, 12): buffer(0, 0)}, id="there are no offsets"),
        pytest.param({buffer(0, 12): buffer(0, 4)}, id="there are too few offsets"),
        pytest.param({buffer(16, 7): buffer(64, 0)}, id="there is no data"),
        pytest.param({buffer(16, 7): buffer(1 << 40, 7)}, id="the data is not in the message"),
        pytest.param({buffer(2, 0): buffer(1 << 40, 0)}, id="there are more events than anything"),
    ],
)
def test_events_outside_of_their_message_are_refused(
    server: tuple[int, int], store: RemoteStore, lies: dict[bytes, bytes]
) -> None:
    """The server stored its own memory, with others' passwords in it, and returned it to the sender; or it crashed."""
    put(server[0], AT, EVENTS.schema, [lying(EVENTS, lies)])
    assert store.stream(STREAM).size_bytes == 0


def mutated(array: pa.Array, buffer: int, values: list[int], kind: str = "<i4") -> pa.Array:
    """Change the offsets of an array after it was made: they are checked while it is."""
    buffers = array.buffers()
    words = np.frombuffer(buffers[buffer], kind).copy()
    buffers[buffer] = pa.py_buffer(words)
    changed = pa.Array.from_buffers(array.type, len(array), buffers)
    words[: len(values)] = values
    return changed


def put_plainly(port: int, columns: dict[str, pa.Array]) -> None:
    """Append events, as any Flight client does."""
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    with flight.connect(f"grpc://127.0.0.1:{port}") as client:
        writer, _ = client.do_put(AT, batch.schema)
        try:
            writer.write_batch(batch)
        finally:
            writer.close()


def repeated(count: int, size: int) -> pa.DictionaryArray:
    """Return a value of some size many times, a byte for each."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), [bytes(size)])


def views(count: int, size: int) -> pa.Array:
    """Return a value of some size many times, 16 bytes for each."""
    _, view, data = pa.array([bytes(size)], pa.binary_view()).buffers()
    return pa.Array.from_buffers(pa.binary_view(), count, [None, pa.py_buffer(view.to_pybytes() * count), data])


TWO: Final = pa.array([b"abc", b"defg"])
MAPS: Final = pa.array([[("a", b"1"), ("b", b"2")], [("c", b"3")]], pa.map_(pa.string(), pa.binary()))


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"event": mutated(TWO, 1, [0, 1 << 30, 7])}, id="events"),
        pytest.param({"event": mutated(TWO.cast(pa.large_binary()), 1, [0, 1 << 50, 7], "<i8")}, id="large events"),
        pytest.param({"event": mutated(TWO.cast(pa.string()), 1, [0, 1 << 30, 7])}, id="texts"),
        pytest.param({"event": TWO, "key": mutated(TWO, 1, [0, 900_000, 7])}, id="keys"),
        pytest.param(
            {
                "event": TWO,
                "key": pa.DictionaryArray.from_arrays(pa.array([0, 1 << 30], pa.int32()), pa.array([b"a"]), safe=False),
            },
            id="keys of a dictionary",
        ),
        pytest.param({"event": TWO, "other": mutated(TWO, 1, [0, 900_000, 7])}, id="a column that is not needed"),
    ],
)
def test_every_column_is_checked_and_the_error_says_so(
    server: tuple[int, int], store: RemoteStore, columns: dict[str, pa.Array]
) -> None:
    """A column that is not stored is looked into as well: its size is asked for."""
    with pytest.raises(flight.FlightServerError, match="invalid Arrow data"):
        put_plainly(server[0], columns)
    assert store.stream(STREAM).size_bytes == 0


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param({"event": repeated(8 * MIB, 200)}, id="events"),
        pytest.param({"event": repeated(MIB, 0), "key": repeated(MIB, 1500)}, id="keys"),
        pytest.param({"event": views(800_000, 2000)}, id="views"),
        pytest.param({"event": pa.Array.from_buffers(pa.binary(0), 1 << 28, [None, pa.py_buffer(b"")])}, id="nothing"),
        pytest.param(
            {"event": TWO, "headers": MAPS.cast(pa.map_(pa.string(), pa.dictionary(pa.int8(), pa.binary())))},
            id="headers",
        ),
    ],
)
def test_a_small_message_that_is_large_once_it_is_decoded_is_refused(
    server: tuple[int, int], store: RemoteStore, columns: dict[str, pa.Array]
) -> None:
    """A dictionary has a value once and refers to it often: a message of 1 MiB took 2.4 GiB."""
    port, pid = server
    before = memory_peak(pid)
    with pytest.raises(flight.FlightServerError, match=r"max_message_bytes|invalid headers of type"):
        put_plainly(port, columns)
    assert store.stream(STREAM).size_bytes == 0
    assert memory_peak(pid) - before < 256 * MIB


def test_keys_of_a_dictionary_and_views_are_welcome(server: tuple[int, int], store: RemoteStore) -> None:
    """They are what pandas and others send."""
    put_plainly(server[0], {"event": TWO.cast(pa.binary_view()), "key": TWO.dictionary_encode()})
    (batch,) = store.read(STREAM)
    assert batch["event"].to_pylist() == batch["key"].to_pylist() == [b"abc", b"defg"]


KINDS: Final = (pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view())


def nothing(kind: pa.DataType) -> pa.Array:
    """Return an array of no values that has no offsets."""
    return pa.Array.from_buffers(kind, 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])


def empty_maps(count: int) -> pa.Array:
    """Return maps that are empty, and whose keys and items have no offsets."""
    key, item = MAPS.type.key_field, MAPS.type.item_field
    pairs = pa.StructArray.from_arrays([nothing(pa.string()), nothing(pa.binary())], fields=[key, item])
    bounds = pa.py_buffer(words(*[0] * (count + 1)) if count else b"")
    return pa.Array.from_buffers(MAPS.type, count, [None, bounds], children=[pairs])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_batch_without_rows_and_without_offsets_is_nothing_written(
    server: tuple[int, int], store: RemoteStore, kind: pa.DataType
) -> None:
    """Arrow permits that an array of no values has no offsets; the server looked for them, and crashed."""
    put_plainly(server[0], {"event": nothing(kind)})
    put_plainly(server[0], {"event": nothing(kind), "key": nothing(kind), "headers": empty_maps(0)})
    assert store.stream(STREAM).size_bytes == 0


def test_arrays_without_values_and_offsets_inside_of_others_are_welcome(
    server: tuple[int, int], store: RemoteStore
) -> None:
    """Where all maps of a batch are empty, their keys are such an array, and so is a dictionary that is not used."""
    keys = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), nothing(pa.binary()))
    put_plainly(server[0], {"event": TWO, "key": keys, "headers": empty_maps(2), "other": empty_maps(2)})
    (batch,) = store.read(STREAM)
    assert batch["event"].to_pylist() == TWO.to_pylist()
    assert batch["key"].null_count == batch["headers"].null_count == 2


# Blocks, as Penstock's own client sends them


def open_writer(store: RemoteStore) -> tuple[flight.FlightDescriptor, pa.RecordBatch]:
    """Open a writer; return how its blocks are addressed, and a block of two events."""
    identity = writer_hash("hostile")
    number = store.connection.call(writers.OpenWriter(STREAM, "hostile", "token", False, None))[0]
    header = StreamBlockHeader(count=2, writer=identity, last_number=2, flush_last=2)
    parts = header.pack(), pack_lengths(np.array([3, 4])), b"abcdefg", b""
    batch = pa.record_batch([pa.array([0]), *map(column_of, parts)], APPENDS)
    command = pack(["append", store.connection.channel.id, number])
    return flight.FlightDescriptor.for_command(command), batch


def test_a_block_of_our_own_client_is_taken(server: tuple[int, int], store: RemoteStore) -> None:
    """Otherwise the blocks below would be refused for another reason."""
    at, batch = open_writer(store)
    put(server[0], at, APPENDS, [lying(batch, {})], bytes(4))
    assert [event for one in store.read(STREAM) for event in one["event"].to_pylist()] == [b"abc", b"defg"]


@pytest.mark.parametrize("column", ["segment", "header", "words", "data", "columns"])
@pytest.mark.parametrize("lie", ["empty", "outside"])
def test_a_block_with_an_empty_buffer_or_one_outside_is_refused(
    server: tuple[int, int], store: RemoteStore, column: str, lie: str
) -> None:
    """Arrow reads the offsets of a column where they should be, also where nothing is."""
    at, batch = open_writer(store)
    put(server[0], at, APPENDS, [with_buffer(batch, column, lie)], bytes(4))
    assert store.stream(STREAM).size_bytes == 0


def with_buffer(batch: pa.RecordBatch, column: str, lie: str) -> tuple[bytes, bytes]:
    """Return a message in which the first buffer of a column, its offsets mostly, is missing or somewhere else."""
    truth, told, place = [], [], 0
    for field, array in zip(batch.schema, batch.columns, strict=True):
        for index, one in enumerate(array.buffers()):
            size = 0 if one is None else one.size
            truth.append(buffer(place, size))
            is_told = field.name == column and index == 1
            told.append(truth[-1] if not is_told else buffer(place, 0) if lie == "empty" else buffer(1 << 40, size))
            place += -(-size // 8) * 8
    return lying(batch, {b"".join(truth): b"".join(told)})
