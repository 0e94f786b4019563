"""A server that lies: what it sends is checked before the client looks into it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.embedded import open_store
from penstock.errors import PenstockError, ServerError, StreamCorrupt, WriterFailed
from penstock.server import FlightService
from penstock.wire import BLOCKS, SMALL_SIZE_MAX, pack
from tests.server.apart import memory_peak

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAM: Final = "plant/readings"
BOMB: Final = """
import grpc
from concurrent.futures import ThreadPoolExecutor

def zeros(request, context):
    yield bytes(256 << 20)

service = "arrow.flight.protocol.FlightService"
methods = {
    "DoAction": grpc.unary_stream_rpc_method_handler(zeros),
    "DoExchange": grpc.stream_stream_rpc_method_handler(zeros),
}
options = [("grpc.max_send_message_length", -1)]
server = grpc.server(ThreadPoolExecutor(2), compression=grpc.Compression.Gzip, options=options)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
server.wait_for_termination()
"""
ONE: Final = (pa.array([0]), pa.array([b"a block that is none"]), pa.array([0]))


def outside() -> pa.RecordBatch:
    """Return a block that is said to be longer than its message."""
    offsets = np.array([0, 20], np.int32)
    block = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(bytes(20))])
    batch = pa.record_batch([ONE[0], block, ONE[2]], BLOCKS)
    offsets[1] = 1 << 20  # after the batch was made: it is checked while it is
    return batch


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (outside(), ServerError),
        (pa.record_batch([pa.nulls(1, field.type) for field in BLOCKS], BLOCKS), ServerError),
        (pa.record_batch([pa.concat_arrays([column] * 2) for column in ONE], BLOCKS), ServerError),
        (pa.record_batch([column[:0] for column in ONE], BLOCKS), ServerError),
        (pa.record_batch(list(ONE), BLOCKS), StreamCorrupt),
    ],
    ids=["outside of its message", "null", "two", "none", "not a block"],
)
def test_what_a_server_sends_in_place_of_a_block_is_refused(sent: pa.RecordBatch, error: type[PenstockError]) -> None:
    """A client that connects to the wrong address must not crash, nor take its own memory for events."""

    class Liar(FlightService):
        def _blocks(self, session: Any, *args: Any) -> Iterator[pa.RecordBatch]:  # noqa: ANN401 - as it is
            del session, args
            yield sent

    with open_store("memory:") as store:
        store.create_stream(STREAM)
        with store.writer(STREAM) as writer:
            writer.write_event(b"event").result()
        service = Liar(store, "grpc://127.0.0.1:0")
        with penstock.connect(f"penstock://127.0.0.1:{service.port}") as far, pytest.raises(error):
            list(far.read(STREAM))
        service.shutdown()


WRONG: Final[dict[str, Any]] = {
    "nothing": None,
    "a figure": 7,
    "a text": "welcome",
    "none of them": [],
    "too few": ["welcome"],
    "too many": ["welcome", "id", 1, 2, 3],
    "others": [None, None, None],
    "of a wrong type": ["welcome", 5, "much"],
    "below zero": ["welcome", "id", -1],
    "of another kind": ["farewell", "id", 1 << 20],
}


@pytest.mark.parametrize("sent", WRONG.values(), ids=WRONG)
def test_what_a_server_says_first_has_a_form(monkeypatch: pytest.MonkeyPatch, sent: object) -> None:
    """A user who mistypes an address got an AssertionError, or a ValueError about unpacking."""
    with open_store("memory:") as store:
        service = FlightService(store, "grpc://127.0.0.1:0")
        monkeypatch.setattr("penstock.server._service.pack", lambda _: pack(sent))
        with pytest.raises(ServerError, match="cannot decode the message"):
            penstock.connect(f"penstock://127.0.0.1:{service.port}")
        service.shutdown()


@pytest.mark.parametrize("sent", [*WRONG.values(), [-1, None], [1.5, None]], ids=[*WRONG, "before", "a fraction"])
def test_what_a_server_answers_has_a_form(monkeypatch: pytest.MonkeyPatch, sent: object) -> None:
    """A caller gets an error that is documented."""
    with open_store("memory:") as store:
        service = FlightService(store, "grpc://127.0.0.1:0")
        with penstock.connect(f"penstock://127.0.0.1:{service.port}") as far:
            with monkeypatch.context() as lying:
                lying.setattr("penstock.server._service.pack", lambda _: pack(sent))
                with pytest.raises(ServerError, match="cannot decode the message"):
                    far.streams()
            assert far.streams() == []
        service.shutdown()


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "large"])
@pytest.mark.parametrize("sent", [None, 7, [[]], [[70, 71], None], [["70"], None], [[-5], None]])
def test_what_a_server_acknowledges_has_a_form(monkeypatch: pytest.MonkeyPatch, sent: object, size: int) -> None:
    """An event must not count as durable because of an answer that is none."""
    with open_store("memory:") as store:
        store.create_stream(STREAM)
        service = FlightService(store, "grpc://127.0.0.1:0")
        with penstock.connect(f"penstock://127.0.0.1:{service.port}") as far:
            writer = far.writer(STREAM)
            is_small = size < SMALL_SIZE_MAX
            monkeypatch.setattr("penstock.server._appends.pack_plain", lambda _: pack([sent] if is_small else sent))
            with pytest.raises(ServerError, match=r"cannot decode the message|acknowledged 2 blocks of 1"):
                writer.write_event(bytes(size)).result()
            monkeypatch.undo()
            with pytest.raises(WriterFailed):
                writer.close()
        service.shutdown()


@pytest.mark.parametrize("writers", [0, 2])
def test_a_server_acknowledges_the_blocks_of_each_writer(monkeypatch: pytest.MonkeyPatch, writers: int) -> None:
    """Or one of them would take the answer of another for its own."""
    with open_store("memory:") as store:
        store.create_stream(STREAM)
        service = FlightService(store, "grpc://127.0.0.1:0")
        with penstock.connect(f"penstock://127.0.0.1:{service.port}") as far:
            writer = far.writer(STREAM)
            monkeypatch.setattr("penstock.server._appends.pack_plain", lambda _: pack([[[70], None]] * writers))
            with pytest.raises(ServerError, match=f"acknowledged the blocks of {writers} writers, not of 1"):
                writer.write_event(b"event").result()
        service.shutdown()


def test_a_compressed_message_is_not_unpacked() -> None:
    """256 KiB of a hostile server would become 256 MiB here, before anything could see how large it is."""
    server = subprocess.Popen([sys.executable, "-c", BOMB], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    with server.stdout:
        try:
            port = int(server.stdout.readline())
            before = memory_peak(os.getpid())
            with pytest.raises(ServerError, match="'gzip' is disabled"):
                penstock.connect(f"penstock://127.0.0.1:{port}")
            assert memory_peak(os.getpid()) - before < 128 << 20
        finally:
            server.kill()
            server.wait()
