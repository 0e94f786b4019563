"""The clock of the server counts: whatever time a client claims, its events carry the time of the store's owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.client import RemoteStore, ServerFinder
from penstock.model import ByTime, StreamConfig
from penstock.server._service import FlightService
from penstock.stream.format import BLOCK_HEADER_SIZE, StreamBlockHeader
from penstock.testing import ManualClock
from tests.stream.large_harness import make_limits_small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.stream import Engine

STREAM: Final = "plant/readings"
LONG_AGO, FAR_AHEAD = 1, (1 << 63) - 1


@pytest.fixture
def address(store: Engine) -> Iterator[str]:
    service = FlightService(store, "grpc://127.0.0.1:0")
    yield f"penstock://127.0.0.1:{service.port}"
    service.shutdown()


def write_small(address: str, clock: ManualClock) -> None:
    with RemoteStore(ServerFinder(address), clock=clock) as client, client.writer(STREAM, "writer") as writer:
        writer.write_event(b"small", "key").result()


def write_batch(address: str, clock: ManualClock) -> None:
    with RemoteStore(ServerFinder(address), clock=clock) as client, client.writer(STREAM) as writer:
        writer.write_batch([bytes(9000)] * 3).result()  # too large for a message without a batch


def write_large(address: str, clock: ManualClock) -> None:
    with (
        RemoteStore(ServerFinder(address), clock=clock) as client,
        client.writer(STREAM) as writer,
        writer.begin_write_event("key") as output,
    ):
        output.write(bytes(1000))


def commit(address: str, clock: ManualClock) -> None:
    with (
        RemoteStore(ServerFinder(address), clock=clock) as client,
        client.transactional_writer(STREAM) as writer,
        writer.begin() as transaction,
    ):
        transaction.write_batch([b"small", bytes(300)], ["1", "2"])
        with transaction.begin_write_event("key") as output:
            output.write(bytes(1000))


def put(address: str, clock: ManualClock) -> None:
    client = flight.connect(address.replace("penstock", "grpc"))
    times = pa.array([int(clock.now() * 1000)], pa.timestamp("ms", "UTC"))
    batch = pa.record_batch({"event": pa.array([b"plain"]), "timestamp": times, "time_ms": times})
    writer, answers = client.do_put(flight.FlightDescriptor.for_path(STREAM), batch.schema)
    writer.write_batch(batch)
    writer.done_writing()
    answers.read()
    writer.close()
    client.close()


@pytest.mark.parametrize("claimed_ms", [LONG_AGO, FAR_AHEAD])
@pytest.mark.parametrize("write", [write_small, write_batch, write_large, commit, put])
def test_the_clock_of_a_client_removes_no_events(
    store: Engine,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[str, ManualClock], None],
    claimed_ms: int,
) -> None:
    """Retention by time goes by the times of blocks: one bad clock would remove what others have just written."""
    make_limits_small(monkeypatch)
    store.create_stream(STREAM, config=StreamConfig(retention=ByTime(3600)))
    with store.writer(STREAM) as writer:
        writer.write_event(b"of another").result()
    honest = StreamBlockHeader.pack

    def claiming(header: StreamBlockHeader) -> bytes:
        packed: Any = honest(msgspec.structs.replace(header, time_ms=claimed_ms, before=1 << 40))
        assert len(packed) == BLOCK_HEADER_SIZE
        return bytes(packed)

    with monkeypatch.context() as patched:
        patched.setattr(StreamBlockHeader, "pack", claiming)
        write(address, ManualClock(min(claimed_ms / 1000, 1e11)))
    assert isinstance(store.clock, ManualClock)
    before = _times(store)
    assert set(before) == {int(store.clock.now() * 1000)}
    store.clock.advance(1800)
    store.maintain()
    assert _times(store) == before
    store.clock.advance(3600)
    for _ in range(3):  # one run begins a new file, and the next removes the old one
        store.maintain()
    assert _times(store) == []


def _times(store: Engine) -> list[int]:
    return [time for batch in store.read(STREAM) for time in batch["timestamp"].cast(pa.int64()).to_pylist()]
