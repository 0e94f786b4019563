"""What a client has open goes by numbers that the client sends: a call reaches what it is about, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.client import RemoteStore
from penstock.errors import BadArgument, ReaderInUse
from penstock.server._readers import ClientReader
from penstock.stream.read import READER_LEASE_S
from penstock.wire.operations import readers, streams, transactions, writers
from tests.stream.wire_harness import served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine
    from penstock.testing import ManualClock
    from penstock.wire.operations import Operation
    from tests.stream.wire_harness import Fixed

STREAM: Final = "plant/readings"
GROUP: Final = "group"


@pytest.fixture
def finder(store: Engine) -> Iterator[Fixed]:
    store.create_stream(STREAM)
    store.create_reader_group(GROUP, [STREAM])
    with served(store) as (_, finder):
        yield finder


@pytest.fixture
def client(finder: Fixed) -> Iterator[RemoteStore]:
    with RemoteStore(finder) as client:
        yield client


def begin(client: RemoteStore) -> str:
    uid = client.connection.call(transactions.OpenTransactions(STREAM, None))
    return client.connection.call(transactions.BeginTransaction(STREAM, uid, None, 30.0))  # type: ignore[no-any-return]


def add_event(client: RemoteStore, transaction: str) -> int:
    number: int = client.connection.call(transactions.BeginEvent(transaction, 0.5, None, None))
    client.connection.call(transactions.WriteChunk(transaction, number, b"event"))
    client.connection.call(transactions.EndEvent(transaction, number))
    return number


def open_reader(client: RemoteStore, token: str | None = None) -> int:
    return client.connection.call(readers.OpenReader(GROUP, "reader", None, [], token))[0]  # type: ignore[no-any-return]


def ending(transaction: str, events: list[int], *, commits: bool) -> Operation:
    return transactions.Commit(transaction, None, events) if commits else transactions.Abort(transaction, events)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_with_its_own_events_only(store: Engine, client: RemoteStore, commits: bool) -> None:
    """Its client had writers, readers and large events out of the session's table, which nothing could close then."""
    call = client.connection.call
    transaction, other = begin(client), begin(client)
    own, of_other = add_event(client, transaction), add_event(client, other)
    reader, writer = open_reader(client), call(writers.OpenWriter(STREAM, "boiler", "token", False, None))[0]
    upload = call(writers.OpenUpload(writer))
    for number in (reader, writer, upload, of_other):
        with pytest.raises(BadArgument, match=str(number)):
            call(ending(transaction, [own, number], commits=commits))
        assert store.transactions.get(transaction).status == "open"
    call(ending(transaction, [own], commits=commits))
    call(ending(other, [of_other], commits=True))
    call(writers.DropUpload(writer, upload))
    call(writers.GetLanes(writer))
    call(readers.Leave(reader, []))
    assert store.reader_group(GROUP).readers() == []
    assert sum(map(len, store.read(STREAM))) == 1 + commits


def test_the_place_of_an_event_of_an_earlier_session_is_not_told(finder: Fixed, client: RemoteStore) -> None:
    """A prepared transaction outlives its session, and its client commits it with the numbers that it knows."""
    transaction = begin(client)
    event = add_event(client, transaction)
    client.connection.call(transactions.Prepare(transaction))
    with RemoteStore(finder) as later:
        assert later.connection.call(transactions.Commit(transaction, None, [event])) == [None]


def test_a_reader_that_could_not_be_closed_is_in_use_until_its_lease_ends(
    store: Engine, finder: Fixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session was ended again and again, until the stack was full."""
    clock: ManualClock = store.clock  # type: ignore[assignment]
    with RemoteStore(finder) as client:
        open_reader(client, "token")

    def fail(_: ClientReader) -> Any:  # noqa: ANN401
        raise RuntimeError("the test says so")

    with monkeypatch.context() as patched:
        patched.setattr(ClientReader, "abandon", fail)
        with RemoteStore(finder) as client:
            open_reader(client, "token")
    with RemoteStore(finder) as client:
        with pytest.raises(ReaderInUse):
            open_reader(client, "token")
        clock.advance(READER_LEASE_S + 1)
        open_reader(client, "token")


@pytest.mark.parametrize("segment", [1, 1 << 40])
def test_the_last_number_in_a_segment_that_is_not_there_is_refused(
    client: RemoteStore, caplog: pytest.LogCaptureFixture, segment: int
) -> None:
    """A client may ask for any number, which is no defect of the server, and none for its log."""
    writer = client.connection.call(writers.OpenWriter(STREAM, "boiler", "token", False, None))[0]
    with pytest.raises(BadArgument, match=f"there is no segment {segment} of stream {STREAM}"):
        client.connection.call(writers.Last(writer, segment, 0.5))
    assert not caplog.records


CALLS_OF_NOTHING: Final[dict[str, Operation]] = {
    "reader": readers.Sync(7, [], None, False),
    "writer": writers.GetLanes(7),
    "closed writer": writers.CloseWriter(7, True),
    "closed reader": readers.Leave(7, []),
    "upload": writers.DropUpload(7, 7),
    "probe": streams.EndProbe(7),
}


@pytest.mark.parametrize("name", CALLS_OF_NOTHING)
def test_a_number_under_which_nothing_is_open_is_refused_in_words_of_the_api(client: RemoteStore, name: str) -> None:
    """Names of the server's own classes tell the user of another client nothing."""
    with pytest.raises(BadArgument, match=r"^invalid number 7: this client has nothing open under it"):
        client.connection.call(CALLS_OF_NOTHING[name])
