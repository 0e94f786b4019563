"""How many things of each kind there may be, in all and for one user."""

from __future__ import annotations

import gc
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock import ByConsumption, StreamConfig
from penstock.client import RemoteStore
from penstock.embedded import open_store
from penstock.errors import LimitReached, PenstockError, ServerBusy
from penstock.server import Config, Server
from penstock.server._limits import QUOTAS, UNLIMITED, Limits
from penstock.server._quotas import Quotas
from penstock.server._service import FlightService
from penstock.server._users import USERS_FILE, Users
from penstock.wire import BUSY
from penstock.wire.operations import streams, writers
from tests.sampling import EXPLORES
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.stream import Engine

STREAM: Final = "plant/readings"
PASSWORD: Final = "secret"


# Counting


def test_there_are_as_many_as_the_limit_says_and_no_more() -> None:
    """All users together; and when one is given back, another can be had."""
    quota = Quotas(Limits(max_handles=3))["handles"]
    for user in ("anna", "berta", None):
        quota.take(user)
    with pytest.raises(LimitReached, match=r"3 open writers and readers, and its limit is 3.*max_handles") as told:
        quota.take("carla")
    assert told.value.setting == "max_handles"
    quota.give("anna")
    quota.take("carla")
    assert (quota.used, quota.refused) == (3, 1)


def test_one_user_has_a_share_and_a_server_without_users_has_all() -> None:
    """Otherwise one user with a name and no permission keeps all others out."""
    quota = Quotas(Limits(max_handles=4))["handles"]
    for _ in range(2):
        quota.take("anna")
    with pytest.raises(
        LimitReached, match="user 'anna' has 2 open writers and readers, and the limit of one user is 2"
    ):
        quota.take("anna")
    for _ in range(2):
        quota.take("berta")
        quota.give("anna")
        quota.give("berta")
    for _ in range(4):
        quota.take(None)


def test_what_ends_soon_is_tried_again() -> None:
    """A client that finds the server busy need not know why."""
    quota = Quotas(Limits(max_reads=1))["reads"]
    quota.take("anna")
    with pytest.raises(flight.FlightUnavailableError, match="max_reads") as told:
        quota.take("berta")
    assert told.value.extra_info == BUSY


def test_every_kind_has_a_setting() -> None:
    """A limit that cannot be set is one that cannot be raised."""
    fields = Config.__struct_fields__
    assert {kind.setting for kind in QUOTAS.values()} <= set(fields)
    assert Limits.of(Config()).max_streams == Config().max_streams


def test_processes_of_the_same_user_are_not_limited() -> None:
    """They could end the process in other ways."""
    quota = Quotas(UNLIMITED)["calls"]
    for _ in range(10_000):
        quota.take(None)


# Each kind, at a server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    users = Users.open(tmp_path / "data" / USERS_FILE)
    for name in ("anna", "berta"):
        users.add(name, PASSWORD)
        users.grant(name, "admin", "*")
    return tmp_path / "data"


def serving(folder: Path, **settings: Any) -> Server:  # noqa: ANN401 - whatever there is to set
    return Server(Config(**{"store": str(folder), "port": 0, "http_port": 0, **settings}))


def as_user(server: Server, user: str) -> RemoteStore:
    return penstock.connect(server.address, user=user, password=PASSWORD)  # type: ignore[return-value]


def _streams(store: RemoteStore, name: str) -> Iterator[object]:
    for number in range(10):
        yield store.create_stream(f"{name}/stream-{number}")


def _segments(store: RemoteStore, name: str) -> Iterator[object]:
    yield store.create_stream(f"{name}/stream")
    for _ in range(10):
        low = store.stream(f"{name}/stream").segments[0]
        yield store.scale_stream(f"{name}/stream", [low.segment_id], [(low.low, low.high)])


def _groups(store: RemoteStore, name: str) -> Iterator[object]:
    for number in range(10):
        yield store.create_reader_group(f"{name}-{number}", [STREAM])


def _consumers(store: RemoteStore, name: str) -> Iterator[object]:
    for number in range(10):
        store.register_consumer(STREAM, f"{name}-{number}")
        yield number


def _transactions(store: RemoteStore, name: str) -> Iterator[object]:
    writer = store.transactional_writer(STREAM, name)
    for _ in range(10):
        yield writer.begin()


def _prepared(store: RemoteStore, name: str) -> Iterator[object]:
    writer = store.transactional_writer(STREAM, name)
    for _ in range(10):
        transaction = writer.begin()
        transaction.write_event(b"event")
        transaction.prepare()
        yield transaction


def _handles(store: RemoteStore, name: str) -> Iterator[object]:
    for number in range(10):
        yield store.writer(STREAM, f"{name}-{number}")


def _uploads(store: RemoteStore, name: str) -> Iterator[object]:
    number = store.connection.call(writers.OpenWriter(STREAM, None, name, False, None))[0]
    for _ in range(10):
        yield store.connection.call(writers.OpenUpload(number))


def _watches(store: RemoteStore, name: str) -> Iterator[object]:
    store.create_stream(f"{name}/many", segments=10)
    for number in range(10):
        yield store.connection.call(streams.Watch(f"{name}/many", number))


KINDS: Final[dict[str, Callable[[RemoteStore, str], Iterator[object]]]] = {
    "streams": _streams,
    "segments": _segments,
    "groups": _groups,
    "consumers": _consumers,
    "transactions": _transactions,
    "prepared": _prepared,
    "handles": _handles,
    "uploads": _uploads,
    "watches": _watches,
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_one_user_leaves_something_for_the_others(folder: Path, kind: str) -> None:
    """Of every kind: what the first user is refused, the second one gets."""
    with (
        serving(folder, **{f"max_{kind}": 8}) as server,
        as_user(server, "anna") as anna,
        as_user(server, "berta") as berta,
    ):
        anna.create_stream(STREAM)
        things = KINDS[kind](anna, "anna")
        with pytest.raises(LimitReached, match=f"max_{kind}"):
            list(things)
        assert next(KINDS[kind](berta, "berta")) != things


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_server_without_users_has_all_of_a_limit_and_no_more(folder: Path, kind: str) -> None:
    """One stream and one segment more are there before."""
    with serving(folder, anonymous=True, **{f"max_{kind}": 6}) as server, penstock.connect(server.address) as store:
        assert isinstance(store, RemoteStore)
        store.create_stream(STREAM)
        things, made = KINDS[kind](store, "name"), list[object]()
        with pytest.raises(LimitReached, match=f"limit is 6.*max_{kind}"):
            made.extend(things)  # as far as it comes
        assert 4 <= len(made) <= 6


@pytest.mark.parametrize("kind", ["streams", "segments", "prepared", "groups", "consumers"])
def test_what_a_user_has_counts_after_a_restart(folder: Path, kind: str) -> None:
    """Otherwise a user takes its share with every start of the server, until nothing is left for others."""
    with serving(folder) as server, as_user(server, "anna") as anna:
        anna.create_stream(STREAM)
        things = KINDS[kind](anna, "anna")
        for _ in range(5):
            next(things)
    with serving(folder, **{f"max_{kind}": 9}) as server, as_user(server, "berta") as berta:
        assert next(KINDS[kind](berta, "berta")) != []
        with as_user(server, "anna") as anna, pytest.raises(LimitReached, match="user 'anna' has"):
            next(KINDS[kind](anna, "other"))


def test_a_store_above_its_limits_works_and_takes_nothing_new(folder: Path) -> None:
    """A limit that is lowered must not lock users out of their events."""
    with open_store(folder) as store:
        for number in range(10):
            store.create_stream(f"old/stream-{number}", 2, StreamConfig(retention=ByConsumption()))
            store.create_reader_group(f"group-{number}", [f"old/stream-{number}"])
            store.register_consumer(f"old/stream-{number}", "consumer")
    limits = {f"max_{kind}": 1 for kind in ("streams", "segments", "groups", "consumers", "prepared")}
    with serving(folder, anonymous=True, **limits) as server, penstock.connect(server.address) as store:
        with store.writer("old/stream-3") as writer:
            writer.write_event(b"event").result()
        with store.reader_group("group-3").reader("reader") as reader:
            event = reader.read_next_event(timeout=10)
            assert event is not None
            assert event.event == b"event"
        store.register_consumer("old/stream-3", "consumer", "tail")
        for task in (
            lambda: store.create_stream("new/stream"),
            lambda: store.scale_stream("old/stream-3", [0], [(0.0, 0.25), (0.25, 0.5)]),
            lambda: store.create_reader_group("new", ["old/stream-3"]),
            lambda: store.register_consumer("old/stream-3", "new"),
        ):
            with pytest.raises(LimitReached):
                task()
        store.create_stream("old/stream-3", exist_ok=True)
        store.seal_stream("old/stream-3")
        store.delete_stream("old/stream-3")


def test_a_client_with_very_many_calls_is_told_to_try_again(store: Engine) -> None:
    """When gRPC can make no more threads, it ends the process."""
    begun = threading.Semaphore(0)

    class Service(FlightService):
        def _append(self, *given: Any) -> None:  # noqa: ANN401 - as it is
            begun.release()
            super()._append(*given)

    store.create_stream(STREAM)
    service = Service(store, "grpc://127.0.0.1:0", limits=Limits(max_calls=100))
    descriptor, schema = flight.FlightDescriptor.for_path(STREAM), pa.schema([("event", pa.binary())])
    with flight.connect(f"grpc://127.0.0.1:{service.port}") as client:
        opened = [client.do_put(descriptor, schema)[0] for _ in range(100)]
        for _ in opened:
            assert begun.acquire(timeout=60)
        with pytest.raises(flight.FlightUnavailableError, match="try again"):
            client.do_put(descriptor, schema)[0].close()  # whichever of them notices
        for writer in opened:
            writer.close()
        eventually(lambda: in_use(service)["calls"] == 0)
        with client.do_put(descriptor, schema)[0] as again:
            again.write_batch(pa.record_batch({"event": [b"event"]}))
    service.shutdown()
    assert [len(batch) for batch in store.read(STREAM)] == [1]


def test_reads_wait_for_each_other(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that finds the server busy sending tries again by itself, and says so only when it takes too long."""
    store.create_stream(STREAM)
    with store.writer(STREAM) as writer:
        writer.write_batch([bytes(100_000)] * 600)
    service = FlightService(store, "grpc://127.0.0.1:0", limits=Limits(max_reads=1))
    address = f"127.0.0.1:{service.port}"
    with flight.connect(f"grpc://{address}") as lazy, penstock.connect(f"penstock://{address}") as far:
        reader = lazy.do_get(flight.Ticket(b'{"stream": "%s"}' % STREAM.encode()))
        reader.read_chunk()
        with monkeypatch.context() as patch:
            patch.setattr("penstock.client._connection._PATIENCE_S", 0.2)
            with pytest.raises(ServerBusy, match="max_reads"):
                next(far.read(STREAM))
        threading.Timer(0.3, reader.cancel).start()
        assert sum(map(len, far.read(STREAM))) == 600
    service.shutdown()


# Exactness


def in_use(service: FlightService) -> dict[str, int]:
    return {use.kind: use.used for use in service.quotas()}


class _Chaos:
    """Does anything that takes and gives back, in any order, and ends in any way."""

    def __init__(self, port: int, seed: int) -> None:
        self._port, self._random = port, random.Random(seed)

    def run(self) -> None:
        for _ in range(3):
            with suppress(PenstockError, flight.FlightError, pa.ArrowException, OSError):
                self._live()

    def _live(self) -> None:
        store: Any = penstock.connect(f"penstock://127.0.0.1:{self._port}")
        try:
            things = list[Any]()
            for _ in range(40):
                with suppress(PenstockError):
                    things += self._random.choice(self._acts())(store)
                if things and self._random.random() < 0.4:
                    with suppress(PenstockError, AttributeError):
                        things.pop(self._random.randrange(len(things))).close()
        finally:
            if self._random.random() < 0.5:
                store.close()
            else:
                channel, store.connection._closed = store.connection.channel, True
                channel.hang_up()  # as if its process was killed

    def _acts(self) -> list[Callable[[Any], list[Any]]]:
        number = self._random.randrange(5)

        def upload(store: Any) -> list[Any]:  # noqa: ANN401
            output = store.writer(STREAM).begin_write_event()
            output.write(bytes(2 << 20))
            return [output]

        def transaction(store: Any) -> list[Any]:  # noqa: ANN401
            one = store.transactional_writer(STREAM).begin(lease=0.3)
            one.begin_write_event().write(bytes(100))
            return [one]

        def watch(store: Any) -> list[Any]:  # noqa: ANN401
            for segment in range(8):
                store.connection.call(streams.Watch(STREAM, segment))
            store.connection.call(streams.Unwatch(STREAM, number))
            return []

        def read(store: Any) -> list[Any]:  # noqa: ANN401
            batches = store.read(STREAM)
            next(batches, None)
            return [batches]

        return [
            lambda store: [store.writer(STREAM, f"writer-{number}")],
            lambda store: [store.writer(STREAM)],
            lambda store: [store.reader_group("group").reader(f"reader-{number}")],
            upload,
            transaction,
            watch,
            read,
        ]


@pytest.mark.parametrize("seed", range(10 if EXPLORES else 1))
def test_everything_is_given_back_however_clients_end(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that does not come back to zero refuses everybody some day."""
    monkeypatch.setattr("penstock.client._connection._PATIENCE_S", 0.2)
    with open_store("memory:", maintenance_interval_s=0.1) as store:
        store.create_stream(STREAM, segments=4)
        store.create_reader_group("group", [STREAM])
        with store.writer(STREAM) as writer:
            writer.write_batch([bytes(100_000)] * 100, [str(key) for key in range(100)])
        limits = Limits(
            max_handles=12,
            max_uploads=3,
            max_watches=9,
            max_transactions=4,
            max_reads=3,
            max_calls=40,
            idle_timeout_s=60,
        )
        service = FlightService(store, "grpc://127.0.0.1:0", limits=limits)
        threads = [threading.Thread(target=_Chaos(service.port, 100 * seed + one).run) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()  # a read that was not closed lasts as long as its iterator
        open_kinds = ("clients", "calls", "reads", "handles", "uploads", "watches", "transactions")
        eventually(lambda: [in_use(service)[kind] for kind in open_kinds] == [0] * len(open_kinds))
        service.shutdown()
