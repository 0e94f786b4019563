"""Readers of other processes outlive the one that has the store open: who comes again goes on where it was."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest
from pyarrow import flight

import penstock
from penstock.client import RemoteStore
from penstock.client._membership import RemoteMembership
from penstock.embedded import open_store
from penstock.errors import DataTruncated, ReaderInUse, ReaderOffline, StoreUnreachable
from penstock.server._service import FlightService
from penstock.stream.group._coordinator import REMOTE_READERS_AWAITED_S
from penstock.testing import ManualClock
from penstock.wire.operations import readers
from tests.server.apart import eventually
from tests.stream.group.test_groups import put, rest, take
from tests.stream.wire_harness import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.stream import Engine, Reader

STREAM: Final = "plant/readings"
SECONDS_MAX: Final = 20.0


class RemoteReader:
    """A client with a reader, that finds the store where the test says."""

    patience_s = 60.0
    block_host = None

    def __init__(self, address: str, name: str, clock: ManualClock) -> None:
        self.address = address
        self.store = RemoteStore(self, clock=clock)
        self.name = name
        self.reader: Reader

    def open(self) -> flight.FlightClient:
        """Return a client, if there is something to connect to."""
        if not self.address:
            raise StoreUnreachable("nowhere", reason="the test says so")
        return flight.connect(self.address)

    def explained(self, reason: str) -> str:
        """Return it as it is."""
        return reason

    def close(self) -> None:
        """Nothing."""

    def lose(self) -> None:
        """Lose the connection, and find no other."""
        self.address = ""
        self.store.connection.channel.hang_up()


class World:
    """A store that is served, and killed: what comes then is opened from what is on the disk."""

    def __init__(self, folder: Path, parts: ExitStack) -> None:
        self.clock = ManualClock()
        self._folder, self._parts, self._lives = folder, parts, 0
        self._life = parts.enter_context(ExitStack())
        self.address = ""
        self.store = self._begin(folder)
        self.readers: list[RemoteReader] = []

    def _begin(self, folder: Path) -> Engine:
        store = self._life.enter_context(open_store(folder, clock=self.clock))
        _, finder = self._life.enter_context(served(store))
        self.address = finder.address
        return store

    def join(self, name: str) -> RemoteReader:
        """Let a client come, and its reader."""
        remote = RemoteReader(self.address, name, self.clock)
        self._parts.callback(remote.store.close)
        remote.reader = remote.store.reader_group("g").reader(name)
        self.readers.append(remote)
        return remote

    def kill(self, *, besides: RemoteReader | None = None) -> None:
        """Kill the owner of the store; another serves it, where all readers find it, besides one."""
        self._lives += 1
        copy = self._folder.with_name(f"life-{self._lives}")
        shutil.copytree(self._folder, copy)
        before, self._life = self._life, self._parts.enter_context(ExitStack())
        self._folder, self.store = copy, self._begin(copy)
        for remote in self.readers:
            remote.address = "" if remote is besides else self.address
        before.close()

    def shut_down(self, *, besides: RemoteReader | None = None) -> None:
        """End the owner of the store in order; another serves it, where all readers find it, besides one."""
        for remote in self.readers:
            remote.address = ""
        self._life.close()
        self._life = self._parts.enter_context(ExitStack())
        self.store = self._begin(self._folder)
        for remote in self.readers:
            remote.address = "" if remote is besides else self.address

    def held(self) -> dict[str, list[int]]:
        """Return which segments each reader has."""
        return {name: sorted(one for _, one in held) for name, held in self.store.catalog.group("g").readers.items()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two segments of a stream, with three events each; on a busy machine an answer takes as long as it takes."""
    monkeypatch.setattr("penstock.deadlines.ANSWER_SLACK_S", 60.0)
    with ExitStack() as parts:
        world = World(tmp_path / "data", parts)
        world.store.create_stream(STREAM, segments=2)
        world.store.create_reader_group("g", [STREAM])
        put(world.store, b"a", b"b", b"c", segment=0)
        put(world.store, b"d", b"e", b"f", segment=1)
        yield world


@pytest.fixture
def both(world: World) -> tuple[RemoteReader, RemoteReader]:
    """Two clients, whose readers were given two events each."""
    one, two = world.join("r1"), world.join("r2")
    assert take(one.reader, 2) == [b"a", b"b"]
    assert take(two.reader, 2) == [b"d", b"e"]
    return one, two


def following(reader: Reader, count: int) -> list[bytes]:
    """Return the next events, as soon as they are there."""
    reads = (reader.read_next_event(timeout=SECONDS_MAX) for _ in range(count))
    return [read.event for read in reads if read is not None]


def test_who_comes_again_goes_on_where_it_was(world: World, both: tuple[RemoteReader, RemoteReader]) -> None:
    """Nothing was recorded of what it read; it knows that itself."""
    one, two = both
    world.kill()
    assert (rest(one.reader), rest(two.reader)) == ([b"c"], [b"f"])


def test_one_that_had_something_is_waited_for_and_not_for_ever(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """What it had would be read twice if others had it at once, and never if it does not come."""
    one, two = both
    world.kill(besides=two)
    assert rest(one.reader) == [b"c"]
    assert world.held() == {"r1": [0], "r2": [1]}
    world.clock.advance(REMOTE_READERS_AWAITED_S)
    one.store.report_group("g")
    assert rest(one.reader) == [b"d", b"e", b"f"]
    two.address = world.address
    assert rest(two.reader) == []
    assert rest(one.reader) == []
    put(world.store, b"g", segment=0)
    put(world.store, b"h", segment=1)
    found: list[bytes] = []
    while len(found) < 2:  # clients are notified a moment later
        found += rest(one.reader) + rest(two.reader)
    assert sorted(found) == [b"g", b"h"]


def test_a_reader_whose_server_shut_down_is_waited_for_as_after_a_kill(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """It has returned events that it had not reported: who got its segments at once would read them again."""
    one, two = both
    world.shut_down(besides=two)
    assert rest(one.reader) == [b"c"]
    assert world.held() == {"r1": [0], "r2": [1]}
    two.address = world.address
    assert rest(two.reader) == [b"f"]


def test_a_reader_that_closed_before_its_server_shut_down_is_not_waited_for(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """Its segments would be read ten seconds late for nothing."""
    one, two = both
    two.reader.close()
    world.shut_down(besides=two)
    assert following(one.reader, 2) == [b"c", b"f"]


def test_a_reader_whose_server_shut_down_is_not_waited_for_for_ever(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """Its process may have ended together with the server, and its segments are to be read all the same."""
    one, two = both
    world.shut_down(besides=two)
    assert rest(one.reader) == [b"c"]
    world.clock.advance(REMOTE_READERS_AWAITED_S)
    one.store.report_group("g")
    assert rest(one.reader)[-1] == b"f"
    assert world.held() == {"r1": [0, 1]}


def test_a_service_that_starts_again_on_the_same_store_waits_for_readers(world: World) -> None:
    """The coordinator of the group lives on, with readers whose sessions have ended: they are not in their own way."""
    clock = world.clock
    with ExitStack() as parts:
        with served(world.store) as (_, finder):
            readers_here = [RemoteReader(finder.address, name, clock) for name in ("r1", "r2")]
            for remote in readers_here:
                parts.callback(remote.store.close)
                remote.reader = remote.store.reader_group("g").reader(remote.name)
            assert [take(remote.reader, 2) for remote in readers_here] == [[b"a", b"b"], [b"d", b"e"]]
            clock.advance(REMOTE_READERS_AWAITED_S)
            for remote in readers_here:
                remote.address = ""
        one, two = readers_here
        one.address = world.address
        assert rest(one.reader) == [b"c"]
        two.address = world.address
        assert rest(two.reader) == [b"f"]


def test_a_reset_ends_who_was_not_there(world: World, both: tuple[RemoteReader, RemoteReader]) -> None:
    """Or the group would go on, in some segments, where it was before."""
    one, two = both
    world.kill(besides=two)
    one.store.reader_group("g").reset("head")
    two.address = world.address
    for _ in range(2):
        with pytest.raises(ReaderOffline, match="reset"):
            two.reader.read_next_event(timeout=0)
    again = one.store.reader_group("g").reader("r2")
    assert rest(again) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_who_comes_again_after_a_truncation_is_told_what_it_missed(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """What it has at hand it still returns; behind that there is nothing any more."""
    one, two = both
    put(world.store, b"g", segment=0)
    put(world.store, b"h", segment=1)
    world.kill(besides=two)
    world.store.truncate_stream(STREAM, world.store.tail(STREAM))
    put(world.store, b"i", segment=0)
    put(world.store, b"j", segment=1)
    two.address = world.address
    for remote, first, last in ((one, b"c", b"i"), (two, b"f", b"j")):
        assert take(remote.reader, 1) == [first]
        with pytest.raises(DataTruncated):
            remote.reader.read_next_event(timeout=0)
        assert rest(remote.reader) == [last]


def test_what_a_reader_returned_last_does_not_count_until_it_comes_back_for_more(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """Its process may end before anything is done with the event; then another is given it again, and no other."""
    one, two = both
    world.kill()
    two.store.report()  # which takes the membership again, without asking for an event
    two.lose()
    assert following(one.reader, 3) == [b"c", b"e", b"f"]


def test_a_reader_that_is_kept_alive_does_not_outlive_its_process(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """What keeps it alive is in its process; work on a machine that lost its power goes to another."""
    one, two = both
    with two.reader.keep_alive():
        two.lose()
        assert following(one.reader, 4) == [b"c", b"d", b"e", b"f"]


def test_who_loses_only_its_connection_goes_on_where_it_was(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """What it had is free meanwhile, at the last place on record."""
    _, two = both
    two.lose()
    two.address = world.address
    assert rest(two.reader) == [b"f"]


def test_what_another_has_read_meanwhile_is_not_read_again(
    world: World, both: tuple[RemoteReader, RemoteReader]
) -> None:
    """Segments may come back to who has lost them; the place that it remembers is an old one then."""
    one, two = both
    two.lose()
    assert following(one.reader, 4) == [b"c", b"d", b"e", b"f"]
    put(world.store, b"g", segment=1)
    assert following(one.reader, 1) == [b"g"]
    two.address = world.address
    two.store.report()
    while world.held() != {"r1": [0], "r2": []}:  # before the other looks what it has
        assert one.reader.read_next_event(timeout=0.01) is None
    assert rest(two.reader) == []
    assert world.held() == {"r1": [0], "r2": [1]}
    put(world.store, b"h", segment=1)
    assert following(two.reader, 1) == [b"h"]


@pytest.mark.parametrize("place", [0, 57, 1 << 40], ids=["behind", "inside", "beyond"])
def test_a_position_where_no_reader_can_be_is_not_believed(
    world: World, both: tuple[RemoteReader, RemoteReader], place: int
) -> None:
    """The places of a group are cuts of its streams, whatever a client sends."""
    one, two = both
    before = world.store.catalog.group("g").readers["r2"].copy()
    world.kill(besides=two)
    epoch = world.store.catalog.group("g").epoch
    places = [(STREAM, 1, place), (STREAM, 7, 0), ("x", 0, 0)]
    one.store.connection.call(readers.OpenReader("g", "r2", epoch, places))
    assert world.store.catalog.group("g").readers["r2"] == before


def test_a_reader_whose_opening_was_given_up_and_carried_out_later_is_not_in_its_own_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A read gives up waiting for a slow server, which opens the reader all the same; the next read is the same one."""
    monkeypatch.setattr(RemoteMembership, "report_if_due", lambda _: None)  # only the read opens it again
    with open_store("memory:") as store:
        store.create_stream(STREAM)
        store.create_reader_group("group", [STREAM])
        service = FlightService(store, "grpc://127.0.0.1:0")
        with penstock.connect(f"penstock://127.0.0.1:{service.port}") as far:
            assert isinstance(far, RemoteStore)
            with far.reader_group("group").reader("reader") as reader, far.writer(STREAM) as writer:
                writer.write_event(b"a").result()
                assert reader.read_next_event(timeout=SECONDS_MAX) is not None
                with store.catalog.lock:
                    far.connection.channel.hang_up()
                    assert reader.read_next_event(timeout=0.1) is None  # there is no other session yet
                session = far.connection.channel.id
                with store.catalog.lock:
                    assert reader.read_next_event(timeout=0.1) is None
                eventually(lambda: bool(service._sessions[session]._open))  # it is carried out
                writer.write_event(b"b").result()
                event = reader.read_next_event(timeout=SECONDS_MAX)
                assert event is not None
                assert event.event == b"b"
                with pytest.raises(ReaderInUse):
                    far.reader_group("group").reader("reader")
        service.shutdown()
