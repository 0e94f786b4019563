"""Large events as clients send them, by calls made by hand: one that went wrong once is over."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from penstock.client import RemoteStore, ServerFinder
from penstock.errors import BadArgument, EventAborted, EventClosed, PenstockError, TransactionEnded
from penstock.server._service import FlightService
from penstock.stream.format import EXTENT, StreamBlockHeader
from penstock.stream.segment import writer_hash
from penstock.stream.transaction._transaction_logs import TransactionLogs
from penstock.stream.write import LargeWrite
from penstock.wire.operations import transactions, writers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.stream import Engine
    from penstock.wire.operations import Operation

STREAM: Final = "plant/readings"
EVENT: Final = bytes(range(256)) * (12 << 10)
HEADER: Final = StreamBlockHeader(
    kind=EXTENT, count=0, writer=writer_hash("w"), last_number=1, flush_last=1, durable_floor=1
)


@dataclass(frozen=True)
class Upload:
    """A large event of a writer that is sent by hand."""

    client: RemoteStore
    writer: int
    number: int

    def call(self, call: Operation) -> object:
        return self.client.connection.call(call)

    def write(self, data: bytes = EVENT) -> None:
        self.call(writers.WriteUpload(self.writer, self.number, data))

    def commit(self, header: StreamBlockHeader = HEADER, *, size: int = len(EVENT), position: float = 0.5) -> object:
        return self.call(writers.CommitUpload(self.writer, self.number, size, header.pack(), b"", position))

    def another(self) -> Upload:
        number = self.client.connection.call(writers.OpenUpload(self.writer))
        return replace(self, number=number)


@pytest.fixture
def client(store: Engine) -> Iterator[RemoteStore]:
    store.create_stream(STREAM)
    service = FlightService(store, "grpc://127.0.0.1:0")
    with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as client:
        yield client
    service.shutdown()


@pytest.fixture
def upload(client: RemoteStore) -> Upload:
    writer = client.connection.call(writers.OpenWriter(STREAM, "w", "token", False, None))[0]
    return Upload(client, writer, client.connection.call(writers.OpenUpload(writer)))


def events_of(store: Engine) -> list[bytes]:
    """Return the events, as readers that know nothing of what was sent see them."""
    group = store.create_reader_group("g", [STREAM])
    found = []
    with group.reader("r", max_event_size=len(EVENT)) as reader:
        while (read := reader.read_next_event(timeout=0)) is not None:
            found.append(read.event)
    group.delete()
    return found


def test_a_large_event_that_is_sent_by_hand_is_taken(store: Engine, upload: Upload) -> None:
    """Otherwise the others would be refused for another reason."""
    upload.write()
    upload.commit()
    assert events_of(store) == [EVENT]


def test_a_commit_that_is_refused_can_be_made_right(store: Engine, upload: Upload) -> None:
    """Nothing was touched."""
    upload.write()
    for header, size, position in (
        (HEADER, len(EVENT), 2.0),
        (HEADER, len(EVENT), -0.5),
        (HEADER, 7, 0.5),
        (msgspec.structs.replace(HEADER, writer=writer_hash("other")), len(EVENT), 0.5),
        (msgspec.structs.replace(HEADER, kind=9), len(EVENT), 0.5),
        (msgspec.structs.replace(HEADER, count=7), len(EVENT), 0.5),
        (msgspec.structs.replace(HEADER, columns=3), len(EVENT), 0.5),
    ):
        with pytest.raises(BadArgument):
            upload.commit(header, size=size, position=position)
    upload.commit()
    assert events_of(store) == [EVENT]


def test_a_commit_that_failed_stays_failed(store: Engine, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would write a second last chunk, and the stream would be corrupt from there on."""
    upload.write()
    with monkeypatch.context() as patch:
        patch.setattr(TransactionLogs, "commit_large", failing)
        with pytest.raises(BadArgument, match="no space today"):
            upload.commit()
    for _ in range(2):
        with pytest.raises(BadArgument, match="aborted, because closing it failed"):
            upload.commit()
        with pytest.raises(EventClosed):
            upload.write(b"more")
    another = upload.another()
    another.write()
    another.commit()
    assert events_of(store) == [EVENT]


def test_a_write_that_failed_ends_the_event(store: Engine, upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of it may be missing, although its size says that they are there."""
    upload.write()
    with monkeypatch.context() as patch:
        patch.setattr(LargeWrite, "_send", failing)
        with pytest.raises(BadArgument, match="no space today"):
            upload.write()
    with pytest.raises(EventAborted):
        upload.write()
    with pytest.raises(PenstockError):
        upload.commit(size=2 * len(EVENT))
    assert events_of(store) == []


def failing(*_: object, **__: object) -> None:
    raise BadArgument("no space today")


def test_a_commit_that_is_made_twice_is_made_once(store: Engine, upload: Upload) -> None:
    """Both may be under way at the same time."""
    upload.write()
    results: list[object] = []

    def commit() -> None:
        try:
            results.append(upload.commit())
        except BadArgument as error:
            results.append(error)

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pointers = {result for result in results if not isinstance(result, Exception)}
    assert len(pointers) == 1
    assert events_of(store) == [EVENT]


def test_an_event_that_is_not_large_is_none(store: Engine, upload: Upload) -> None:
    """Clients send it in a block."""
    for data in (b"", b"small"):
        upload.write(data)
        with pytest.raises(BadArgument, match="does not match the bytes received"):
            upload.commit(size=5 if data else 0)
    assert events_of(store) == []


def test_a_part_of_what_a_transaction_was_sent_is_not_added(store: Engine, client: RemoteStore) -> None:
    """The client could commit it, and the rest would be missing."""
    call = client.connection.call
    uid = call(transactions.OpenTransactions(STREAM, None))
    transaction = call(transactions.BeginTransaction(STREAM, uid, None, 30.0))
    many = [("name", bytes(1 << 20))] * 20
    wrong: list[tuple[list[bytes | None], list[list[tuple[str, bytes]] | None]]] = [
        ([None], [None, None]),
        ([None, None], [None]),
        ([None, None], [None, many]),
    ]
    for keys, headers in wrong:
        with pytest.raises(BadArgument):
            call(transactions.WriteEvents(transaction, [b"first", b"second"], keys, headers))
    call(transactions.WriteEvents(transaction, [b"good"], [None], [None]))
    call(transactions.Commit(transaction, None, []))
    assert events_of(store) == [b"good"]


def test_events_of_any_size_that_cannot_all_be_added_leave_nothing(
    store: Engine, client: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client does not know which of them are there, so a commit would leave out some that it has written."""
    monkeypatch.setattr("penstock.stream.transaction._transaction_logs.LOGS_MAX", 3)
    call = client.connection.call
    uid = call(transactions.OpenTransactions(STREAM, None))
    transaction = call(transactions.BeginTransaction(STREAM, uid, None, 100.0))
    events = [b"first", *[bytes(1100 << 10)] * 3]
    with pytest.raises(PenstockError):
        call(transactions.WriteEvents(transaction, events, [None] * 4, [None] * 4))
    with pytest.raises(TransactionEnded, match="a batch could not be added"):
        call(transactions.Commit(transaction, None, []))
    assert events_of(store) == []
