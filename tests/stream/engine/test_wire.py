"""The store over the wire: what is left of clients that are gone, and what they do when the connection is."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client._connection import Channel, Connection, ConnectionLost
from penstock.client._store import RemoteStore
from penstock.client._writer import RemoteHost
from penstock.embedded import open_store
from penstock.errors import (
    BadArgument,
    DataTruncated,
    NoSuchTransaction,
    PenstockError,
    ReaderInUse,
    ReaderOffline,
    StoreClosed,
    StoreUnreachable,
    TransactionEnded,
    WriterFailed,
    WriterFenced,
)
from penstock.model import EventPointer, StreamCut
from penstock.server._writers import ClientWriter
from penstock.stream.read import READER_LEASE_S
from penstock.stream.transaction import LocalTransaction, LocalTransactionalWriter
from penstock.wire import SmallBlock, pack_error, unpack_error
from penstock.wire.operations import transactions
from tests.log.harness import SECONDS_MAX
from tests.server.apart import eventually
from tests.stream.harness import STREAM
from tests.stream.large_harness import events_of, make_limits_small
from tests.stream.wire_harness import Fixed, come_to_rest, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.server._service import FlightService
    from penstock.stream import Engine, Reader
    from penstock.testing import ManualClock
    from penstock.wire.operations import Operation


class Served:
    """A store, its service, and clients."""

    def __init__(self, inside: Engine, service: FlightService, finder: Fixed, clients: ExitStack) -> None:
        self.inside, self.service, self._finder, self._clients = inside, service, finder, clients

    def connect(self) -> Any:  # noqa: ANN401 - tests look inside
        return self._clients.enter_context(RemoteStore(self._finder, clock=self.inside.clock))

    def end_sessions(self) -> None:
        """Let all connections be lost."""
        for session in list(self.service._sessions.values()):
            self.service._end(session)


@pytest.fixture
def wire(clock: ManualClock) -> Iterator[Served]:
    with open_store("memory:", clock=clock) as store:
        store.create_stream(STREAM)
        with served(store) as (service, finder), ExitStack() as clients:
            yield Served(store, service, finder, clients)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@contextmanager
def gone(client: RemoteStore) -> Iterator[None]:
    """Let a client go without a word at the end of the block."""
    yield
    client.connection.channel.hang_up()


def take(reader: Reader, count: int) -> list[bytes]:
    reads = [reader.read_next_event(timeout=SECONDS_MAX) for _ in range(count)]
    return [read.event for read in reads if read is not None]


def put(store: Engine, *events: bytes) -> None:
    with store.writer(STREAM) as writer:
        writer.write_batch(list(events)).result()


# Clients that go


def test_a_client_that_is_gone_leaves_nothing_open(wire: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers would hold up their segments, its writers time, its uploads the disk."""
    make_limits_small(monkeypatch)
    client = wire.connect()
    reader = client.create_reader_group("g", [STREAM]).reader("r")
    assert reader.read_next_event(timeout=0) is None
    client.writer(STREAM, "w", automatically_note_time=True)
    output = client.writer(STREAM).begin_write_event()
    output.write(bytes(1000))
    assert wire.inside.reader_group("g").readers() == ["r"]
    wire.end_sessions()
    assert wire.inside.reader_group("g").readers() == []
    assert wire.inside.writers.noting_time() == []
    assert not wire.inside.writers.all()
    assert not [name for name in wire.inside._manager.logs() if name.startswith("t")]
    assert not wire.inside.segments.get(STREAM, 0)._watchers


def test_the_name_of_a_reader_whose_client_is_gone_is_free_at_once(wire: Served) -> None:
    """A program that starts it again does not wait until the first one has been missed."""
    client, other = wire.connect(), wire.connect()
    client.create_reader_group("g", [STREAM]).reader("r")
    with pytest.raises(ReaderInUse):
        other.reader_group("g").reader("r")
    assert not wire.service._sessions[other.connection.channel.id]._open
    with gone(client):
        client.report = lambda: None  # or it takes its membership again by itself
    other.reader_group("g").reader("r").close()


def test_a_checkpoint_whose_caller_is_gone_is_dropped(wire: Served, pool: ThreadPoolExecutor) -> None:
    """Otherwise there could never be another one."""
    client = wire.connect()
    group = client.create_reader_group("g", [STREAM])
    with wire.inside.reader_group("g").reader("r"):
        waiting = pool.submit(group.checkpoint, "c", None)
        is_begun = threading.Event()
        live = wire.inside.groups.at_work["g"]
        with wire.inside.catalog.lock:
            live.readers["r"].attend = is_begun.set  # type: ignore[method-assign]
            if live.state.checkpoint is not None:
                is_begun.set()
        assert is_begun.wait(SECONDS_MAX)
        wire.end_sessions()
        with pytest.raises(StoreUnreachable):
            waiting.result(SECONDS_MAX)
        assert wire.inside.groups.at_work["g"].waiter is None


def test_a_server_ends_although_clients_have_things_open(wire: Served) -> None:
    """They wait for it, and it must not wait for them."""
    client = wire.connect()
    writer = client.writer(STREAM)
    writer.write_event(b"x").result()
    client.create_reader_group("g", [STREAM]).reader("r")
    ending = threading.Thread(target=wire.service.shutdown)
    ending.start()
    ending.join(SECONDS_MAX)
    assert not ending.is_alive()


# Connections that are lost


def test_a_writer_goes_on_when_the_connection_was_lost(wire: Served) -> None:
    """With an id or without one, and no event twice."""
    client = wire.connect()
    writers = [client.writer(STREAM), client.writer(STREAM, "w")]
    for number in range(3):
        for writer in writers:
            writer.write_event(b"%d" % number)
            writer.flush()
        wire.end_sessions()
    assert events_of(wire.inside) == [b"0", b"0", b"1", b"1", b"2", b"2"]


def test_events_whose_acknowledgement_was_lost_are_not_written_twice(
    wire: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are durable, and the client has no way to know but to ask."""
    client = wire.connect()
    writer = client.writer(STREAM)
    writer.write_event(b"a").result()
    acknowledge = ClientWriter.acknowledge

    def lose(one: ClientWriter) -> tuple[list[int], bytes | None]:
        answer = acknowledge(one)
        monkeypatch.undo()
        wire.end_sessions()
        return answer

    monkeypatch.setattr(ClientWriter, "acknowledge", lose)
    pointer = writer.write_event(b"b").result()
    writer.write_event(b"c").result()
    assert events_of(wire.inside) == [b"a", b"b", b"c"]
    assert wire.inside.fetch_event(pointer) == b"b"


def test_what_is_written_at_once_is_sent_a_part_at_a_time(wire: Served, pool: ThreadPoolExecutor) -> None:
    """However much it is: the server keeps little of what it has not acknowledged; and the stream may be scaled."""
    events = [b"%d" % number * 30_000 for number in range(10)] * 200
    with wire.connect().writer(STREAM) as writer:
        written = pool.submit(writer.write_batch(events, ["k"] * len(events)).result)
        for number in range(3):
            wire.inside.scale_stream(STREAM, [number], [(0.0, 1.0)])
        assert len(written.result(SECONDS_MAX)) == len(events)
    assert events_of(wire.inside) == events


def test_a_writer_that_was_fenced_while_it_was_away_stays_so(wire: Served) -> None:
    """The other one goes on from its numbers."""
    client, other = wire.connect(), wire.connect()
    writer = client.writer(STREAM, "w")
    client.connection.channel.hang_up()
    with other.writer(STREAM, "w") as newer:
        with pytest.raises(WriterFenced):
            writer.write_event(b"old").result()
        newer.write_event(b"new").result()
    assert events_of(wire.inside) == [b"new"]


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_writer_whose_id_another_had_meanwhile_is_fenced(
    wire: Served, monkeypatch: pytest.MonkeyPatch, count: int, is_sent: bool
) -> None:
    """Also when that one is closed: or its events would be taken for those under way, which are lost then."""
    client, other = wire.connect(), wire.connect()
    writer = client.writer(STREAM, "w")
    writer.write_event(b"a", "k").result()
    theirs = [b"b%d" % number for number in range(count)]

    def write_theirs() -> None:
        monkeypatch.undo()
        client.connection.channel.hang_up()
        with other.writer(STREAM, "w") as newer:
            newer.write_batch(theirs, ["k"] * count).result()

    def lose(host: RemoteHost, session: Channel, blocks: Sequence[Any]) -> None:
        for block in blocks:
            host.note_sent(block.header)  # it may have got there, as far as is known here
        write_theirs()
        raise ConnectionLost

    if is_sent:
        monkeypatch.setattr(RemoteHost, "_exchange", lose)
    else:
        write_theirs()
    with pytest.raises(WriterFenced):
        writer.write_batch([b"x", b"y"], ["k", "k"]).result()
    assert events_of(wire.inside) == [b"a", *theirs]


def test_a_writer_learns_from_another_client_that_it_is_fenced(wire: Served) -> None:
    """Before it writes in vain."""
    client, other = wire.connect(), wire.connect()
    writer = client.writer(STREAM, "w")
    other.writer(STREAM, "w")
    client.streams()
    come_to_rest(client)
    with pytest.raises(WriterFenced):
        writer.write_event(b"x")


def test_a_reader_goes_on_when_the_connection_was_lost(wire: Served, pool: ThreadPoolExecutor) -> None:
    """Where it was, also while it waits."""
    put(wire.inside, b"a", b"b")
    client = wire.connect()
    reader = client.create_reader_group("g", [STREAM]).reader("r")
    assert take(reader, 1) == [b"a"]
    wire.end_sessions()
    assert take(reader, 1) == [b"b"]
    waiting = pool.submit(take, reader, 1)
    wire.end_sessions()
    put(wire.inside, b"c")
    assert waiting.result(SECONDS_MAX) == [b"c"]


def test_a_large_event_is_lost_with_its_connection_and_nothing_else(
    wire: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first bytes are gone; what is sent of another event must not take their place."""
    make_limits_small(monkeypatch)
    client = wire.connect()
    writer = client.writer(STREAM)
    output = writer.begin_write_event()
    output.write(bytes(1000))
    wire.end_sessions()
    other = writer.begin_write_event()
    other.write(b"x" * 1000)
    with pytest.raises(StoreUnreachable):
        output.write(bytes(1000))
    other.close()
    assert events_of(wire.inside) == [b"x" * 1000]


def test_a_transaction_outlives_its_connection(wire: Served) -> None:
    """It is the store's, and has a lease."""
    client = wire.connect()
    transaction = client.transactional_writer(STREAM).begin()
    transaction.write_event(b"a")
    wire.end_sessions()
    transaction.write_event(b"b")
    transaction.commit()
    assert events_of(wire.inside) == [b"a", b"b"]


def test_a_commit_whose_answer_was_lost_is_asked_for(wire: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """To begin it again would write everything twice."""
    client = wire.connect()
    transaction = client.transactional_writer(STREAM).begin()
    transaction.write_event(b"a")
    commit = LocalTransaction.commit

    def lose(one: LocalTransaction, timestamp: int | None = None) -> None:
        commit(one, timestamp)
        wire.end_sessions()

    monkeypatch.setattr(LocalTransaction, "commit", lose)
    transaction.commit()
    assert events_of(wire.inside) == [b"a"]


def lose_answer(wire: Served, patch: pytest.MonkeyPatch, kind: type, name: str) -> None:
    """Let the connection be lost right after the next call of a method in the owner."""
    method = getattr(kind, name)

    def lose(*args: object, **named: object) -> None:
        patch.setattr(kind, name, method)
        method(*args, **named)
        wire.end_sessions()
        raise StoreClosed("the session")

    patch.setattr(kind, name, lose)


@pytest.mark.parametrize("how", ["event", "batch"])
def test_a_transaction_that_may_not_be_there_in_full_is_not_committed(
    wire: Served, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It is unknown whether the owner got the events: a caller that went on might commit it without them."""
    transaction = wire.connect().transactional_writer(STREAM).begin()
    lose_answer(wire, monkeypatch, LocalTransaction, "add_rows")
    with pytest.raises(StoreUnreachable):
        transaction.write_event(b"a") if how == "event" else transaction.write_batch([b"a"])
    for late in (transaction.commit, transaction.prepare):
        with pytest.raises(TransactionEnded, match="some events could not be sent"):
            late()
    assert events_of(wire.inside) == []


@pytest.mark.parametrize("number", [None, 5])
def test_a_commit_of_many_whose_answer_was_lost_is_done_once(
    wire: Served, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    """And so is their preparation. With a number the answer may be that it was there, which is as good."""
    writer = wire.connect().transactional_writer(STREAM, "query")
    transaction = writer.begin()
    transaction.write_batch([b"a", b"b"])
    lose_answer(wire, monkeypatch, LocalTransaction, "prepare")
    transaction.prepare()
    assert transaction.status == "prepared"
    lose_answer(wire, monkeypatch, LocalTransactionalWriter, "commit_all")
    assert writer.commit_all([transaction.id], number) is (number is None)
    assert (events_of(wire.inside), writer.last_number) == ([b"a", b"b"], number)


def test_a_prepared_transaction_is_committed_alone_although_the_connection_was_lost_before(
    wire: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for: as it is still prepared, nothing was done, and it is done again."""
    transaction = wire.connect().transactional_writer(STREAM).begin()
    transaction.write_event(b"a")
    transaction.prepare()
    commit, calls = LocalTransaction.commit, []

    def lose_first(one: LocalTransaction, timestamp: int | None = None) -> None:
        calls.append(one)
        if len(calls) == 1:
            wire.end_sessions()
            raise StoreClosed("the session")
        commit(one, timestamp)

    monkeypatch.setattr(LocalTransaction, "commit", lose_first)
    transaction.commit()
    assert (len(calls), events_of(wire.inside)) == (2, [b"a"])


@pytest.mark.parametrize(
    ("words", "data", "places"),
    [(b"123", b"", b""), (bytes(4), b"", b""), (bytes(8), b"x", bytes(8)), (bytes(4), b"", bytes(3))],
)
def test_a_batch_that_is_none_is_refused_by_the_owner(wire: Served, words: bytes, data: bytes, places: bytes) -> None:
    """A length that is wrong would be another event's bytes, whichever client sends it."""
    client = wire.connect()
    transaction = client.transactional_writer(STREAM).begin()
    with pytest.raises(BadArgument, match="batch"):
        client.connection.call(transactions.WriteBatch(transaction.id, words, data, places, 0, b""))
    transaction.write_batch([b"a"])
    transaction.commit()
    assert events_of(wire.inside) == [b"a"]


def test_events_of_a_transaction_are_not_kept_for_longer_than_it_lasts(
    wire: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor those that are never closed: nothing is stored of them, and the commit continues."""
    make_limits_small(monkeypatch)
    client = wire.connect()
    writer = client.transactional_writer(STREAM)
    for end in ("commit", "abort"):
        transaction = writer.begin()
        with transaction.begin_write_event() as output:
            output.write(bytes(1000))
        transaction.begin_write_event().write(b"x" * 1000)
        getattr(transaction, end)()
        (session,) = wire.service._sessions.values()
        assert not session._open
    assert events_of(wire.inside) == [bytes(1000)]


# Readers that are elsewhere


def test_a_slow_reader_is_not_silent_because_it_says_that_it_is_there(wire: Served, clock: ManualClock) -> None:
    """It may take minutes for the events of one block, and asks the server for nothing meanwhile."""
    put(wire.inside, *[b"a"] * 10)
    client, other = wire.connect(), wire.connect()
    group = client.create_reader_group("g", [STREAM])
    with group.reader("slow") as slow, other.reader_group("g").reader("other") as second:
        for _ in range(5):
            assert take(slow, 1) == [b"a"]
            clock.advance(READER_LEASE_S * 2 / 3)
            client.report()
            assert second.read_next_event(timeout=0) is None
        clock.advance(READER_LEASE_S + 1)
        client.report()
        clock.advance(READER_LEASE_S + 1)
        client.report()
        assert len(take(second, 6)) == 6, "what was returned last does not count"
        with pytest.raises(ReaderOffline):
            slow.read_next_event(timeout=0)


def test_segments_without_readers_are_not_watched_any_more(wire: Served) -> None:
    """A client that reads for years does not hear of every segment there ever was."""
    client = wire.connect()
    reader = client.create_reader_group("g", [STREAM]).reader("r")
    for number in range(3):
        put(wire.inside, b"x")
        wire.inside.scale_stream(STREAM, [number], [(0.0, 1.0)])
    assert take(reader, 3) == [b"x"] * 3
    assert reader.read_next_event(timeout=0) is None
    assert list(client._watched) == [(STREAM, 3)]
    (session,) = wire.service._sessions.values()
    assert list(session._watched) == [(STREAM, 3)]
    reader.close()
    assert not client._watched
    eventually(lambda: not session._watched)  # another thread of the client may be about to tell the server


# Errors


@pytest.mark.parametrize(
    "error",
    [
        DataTruncated(EventPointer(STREAM, 0, 5), head=StreamCut.of(STREAM, {0: 7})),
        WriterFailed(STREAM, cause=ValueError("x")),
        TransactionEnded("t", reason="why"),
        NoSuchTransaction("t"),
    ],
)
def test_errors_keep_their_class_their_text_and_their_fields(error: Exception) -> None:
    """A handler need not know where the store is."""
    found = unpack_error(pack_error(error))  # type: ignore[arg-type]
    assert (type(found), str(found)) == (type(error), str(error))
    assert vars(found) == {name: one for name, one in vars(error).items() if name != "cause"}


def test_a_read_of_much_goes_on_when_the_connection_is_lost_in_its_midst(
    wire: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More was on its way than had been asked for; that is asked for again, and nothing is left out."""
    events = [b"%d" % (number % 10) * 500_000 for number in range(12)]
    put(wire.inside, *events)
    get, left = Connection.blocks, iter([2, 3])

    def lose(self: Connection, *args: Any) -> Iterator[Any]:  # noqa: ANN401 - as they come
        batches = get(self, *args)
        count = next(left, None)
        yield from batches if count is None else islice(batches, count)
        if count is not None:
            raise ConnectionLost

    monkeypatch.setattr(Connection, "blocks", lose)
    assert events_of(wire.connect()) == events
    assert next(left, None) is None, "it was lost twice"


def test_blocks_of_any_size_arrive(wire: Served) -> None:
    """Small ones and large ones go over the wire in different ways."""
    events = [bytes([size % 251]) * size for size in range(16_200, 16_400)]
    client = wire.connect()
    with client.writer(STREAM) as writer:
        for event in events:
            pointer = writer.write_event(event).result()
            assert client.fetch_event(pointer) == event
        small = [b"x" * (number % 7) for number in range(100)]
        writer.write_batch(small).result()
    assert events_of(wire.inside) == [*events, *small]


@pytest.mark.parametrize(
    "change",
    [
        lambda message: b"",
        lambda message: message[:60],
        lambda message: message + b"x",
        lambda message: message[:-1],
        lambda message: message[:16] + b"\xff\xff\xff\xff" + message[20:],
        lambda message: message[:16] + b"\0\0\0\2" + message[20:],
        lambda message: message[:12] + b"\3" + message[13:],
        lambda message: message[:28] + bytes(16) + message[44:],
        lambda message: message[:13] + b"\1" + message[14:],
        lambda message: message[:13] + b"\2\0\1" + bytes(4) + message[20:76],
        lambda message: message[:13] + b"\xff" + message[14:],
    ],
    ids=[
        "empty",
        "short",
        "longer",
        "shorter",
        "huge count",
        "other count",
        "a chunk",
        "another writer",
        "keys that are not there",
        "headers of no events",
        "columns of an unknown kind",
    ],
)
def test_a_small_block_that_is_none_is_refused_and_nothing_is_written(
    wire: Served, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    """A client may be anything that speaks Flight."""
    writer = wire.connect().writer(STREAM)
    writer.write_event(b"before").result()
    pack = SmallBlock.pack
    monkeypatch.setattr(SmallBlock, "pack", lambda *args: change(pack(*args)))
    with pytest.raises(PenstockError):
        writer.write_event(b"event").result()
    monkeypatch.undo()
    put(wire.inside, b"after")
    assert events_of(wire.inside) == [b"before", b"after"]


def test_a_reader_at_the_tail_asks_for_nothing_but_the_next_block(
    wire: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred readers that also ask whether there is more to come are two hundred calls for every event."""
    client = wire.connect()
    with client.create_reader_group("g", [STREAM]).reader("r") as reader:
        put(wire.inside, b"before")
        assert take(reader, 1) == [b"before"]
        call, names = Channel.call, list[str]()

        def noted(channel: Channel, made: Operation) -> object:
            names.append(made.operation)
            return call(channel, made)

        monkeypatch.setattr(Channel, "call", noted)
        for event in (b"one", b"two"):
            put(wire.inside, event)
            assert take(reader, 1) == [event]
            assert reader.read_next_event(timeout=0) is None
        assert names == []
        wire.inside.seal_stream(STREAM)
        assert reader.read_next_event(timeout=SECONDS_MAX) is None
        assert names[-1] == "reader.finished", "the segment is over, and so may everything be"


def test_a_reader_that_was_ended_knows_when_others_have_read_everything(wire: Served) -> None:
    """What it had then, it has no more."""
    group = wire.connect().create_reader_group("g", [STREAM])
    put(wire.inside, b"event")
    with group.reader("r") as reader:
        assert take(reader, 1) == [b"event"]
    assert not reader.finished
    wire.inside.seal_stream(STREAM)
    with group.reader("other") as other:
        assert other.read_next_event(timeout=SECONDS_MAX) is None
    assert reader.finished
