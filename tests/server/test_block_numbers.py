"""The numbers in the blocks of a client: those that no writer gives are refused, because later writers go on there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

import penstock
from penstock.errors import PenstockError
from penstock.model import NUMBER_MAX, SEGMENTS_MAX
from penstock.server import FlightService
from penstock.stream.format import StreamBlockHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine

STREAM: Final = "plant/readings"
ALL_ONES: Final = (1 << 64) - 1
LIES: Final[dict[str, dict[str, int]]] = {
    "the highest of all": {"last_number": ALL_ONES, "flush_last": ALL_ONES, "durable_floor": ALL_ONES},
    "too high for a later one": {"last_number": NUMBER_MAX + 1, "flush_last": NUMBER_MAX + 1},
    "a flush that ends too high": {"flush_last": NUMBER_MAX + 1},
    "a flush that ends before the block": {"last_number": 7, "flush_last": 6},
    "none": {"last_number": 0},
    "the end of a flush that goes on": {"flush_segments": 0},
    "durable before they are written": {"durable_floor": 1 << 40},
    "durable, of a flush that goes on": {"flush_segments": 0, "flush_last": 0, "durable_floor": 1 << 40},
    "a flush to more segments than there are": {"flush_segments": SEGMENTS_MAX + 1},
}


@pytest.fixture
def address(store: Engine) -> Iterator[str]:
    """The address of a server with a stream of two segments."""
    store.create_stream(STREAM, segments=2)
    service = FlightService(store, "grpc://127.0.0.1:0")
    yield f"penstock://127.0.0.1:{service.port}"
    service.shutdown()


@pytest.mark.parametrize("size", [10, 3 << 20], ids=["small", "large"])
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_numbers_that_no_writer_gives_are_refused(
    address: str, monkeypatch: pytest.MonkeyPatch, lie: dict[str, int], size: int
) -> None:
    """They were acknowledged and stored, and from then on every writer with that id failed, also after a restart."""
    pack = StreamBlockHeader.pack
    with penstock.connect(address) as store:
        with monkeypatch.context() as lying:
            lying.setattr(StreamBlockHeader, "pack", lambda header: pack(msgspec.structs.replace(header, **lie)))
            writer = store.writer(STREAM, "boiler")
            with pytest.raises(PenstockError, match="event numbers that no writer gives"):
                writer.write_event(bytes(size)).result()
        with store.writer(STREAM, "boiler") as writer:
            assert writer.last_number is None
            writer.write_event(b"next").result()
        assert store.stream(STREAM).events == 1


def test_an_event_that_is_missing_is_sent_again_below_the_floor(address: str) -> None:
    """Its number is lower than what is durable, which is no lie: the caller numbers the events."""
    with penstock.connect(address) as store:
        with store.writer(STREAM, "boiler") as writer:
            writer.write_event(b"ten", key="0", number=10).result()
        with store.writer(STREAM, "boiler") as writer:
            written = [writer.write_event(b"again", key=str(number), number=number) for number in range(1, 10)]
            writer.flush()
        missing = sum(ack.result() is not None for ack in written)
        assert 0 < missing < 9
        assert store.stream(STREAM).events == 1 + missing


def test_the_highest_number_of_all_is_taken(address: str) -> None:
    """A caller may give it, here as in a store of its own process."""
    with penstock.connect(address) as store:
        with store.writer(STREAM, "boiler") as writer:
            writer.write_event(b"last", number=NUMBER_MAX - 1).result()
        with store.writer(STREAM, "boiler") as writer:
            assert writer.last_number == NUMBER_MAX - 1
