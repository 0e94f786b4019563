"""Credentials that end while a client is connected: from then on it gets nothing, and what it has open ends."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight

import penstock
from penstock.errors import NotAuthenticated, NotPermitted, PenstockError
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from penstock.wire import PROTOCOL, pack, unpack
from tests.local.owners import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.client import RemoteStore

STREAM: Final = "plant/readings"


@pytest.fixture
def users(tmp_path: Path) -> Users:
    users = Users.open(tmp_path / "data" / USERS_FILE)
    for name in ("anna", "root"):
        users.add(name, "secret")
        users.grant(name, "admin", "*")
    return users


@pytest.fixture
def server(tmp_path: Path, users: Users) -> Iterator[Server]:
    assert list(users)
    with Server(Config(store=str(tmp_path / "data"), port=0, http_port=0)) as server:
        with penstock.connect(server.address, user="root", password="secret") as store:
            store.create_stream(STREAM)
        yield server


def replace_password(users: Users) -> None:
    users.add("anna", "better", replace=True)


def revoke(users: Users) -> None:
    users.revoke_tokens("anna")


def remove(users: Users) -> None:
    users.remove("anna")


@pytest.mark.parametrize(
    ("with_token", "end"),
    [(True, revoke), (True, replace_password), (True, remove), (False, replace_password), (False, remove)],
)
def test_what_a_client_has_open_ends_with_its_credentials(
    server: Server, users: Users, with_token: bool, end: Callable[[Users], None]
) -> None:
    """A stolen token must not go on as long as its thief does not hang up: neither readers nor notifications."""
    options = {"token": users.token("anna", 3600)} if with_token else {"user": "anna", "password": "secret"}
    store: RemoteStore = penstock.connect(server.address, **options)  # type: ignore[arg-type, assignment]
    with penstock.connect(server.address, user="root", password="secret") as other:
        try:
            group = store.create_reader_group("group", [STREAM])
            reader = group.reader("reader")
            assert reader.read_next_event(timeout=0) is None
            writer = store.writer(STREAM)
            writer.write_event(b"before").result()
            assert other.reader_group("group").readers() == ["reader"]
            end(users)
            wait_until(lambda: other.reader_group("group").readers() == [])
            with pytest.raises(NotAuthenticated):
                store.streams()
            with pytest.raises(PenstockError):
                writer.write_event(b"after").result()
            assert sum(map(len, other.read(STREAM))) == 1
        finally:
            with suppress(PenstockError):
                store.close()


def test_others_stay_connected(server: Server, users: Users) -> None:
    """And a client that comes again with the new password goes on."""
    with penstock.connect(server.address, user="root", password="secret") as other, other.writer(STREAM) as writer:
        replace_password(users)
        for _ in range(3):
            writer.write_event(b"event").result()
        with penstock.connect(server.address, user="anna", password="better") as again:
            assert sum(map(len, again.read(STREAM))) == 3


def test_a_read_that_is_under_way_ends_with_the_permission(server: Server, users: Users) -> None:
    """A stream may be long, and a client may read it slowly."""
    with penstock.connect(server.address, user="root", password="secret") as other, other.writer(STREAM) as writer:
        for _ in range(64):
            writer.write_batch([bytes(1 << 20)]).result()
    token = users.token("anna", 3600)
    client = flight.connect(server.address.replace("penstock", "grpc"))
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    reader = client.do_get(flight.Ticket(b'{"stream": "plant/readings"}'), options)
    first = reader.read_chunk().data
    users.revoke("anna", "admin", "*")
    with pytest.raises(pa.ArrowException, match="may not read"):
        reader.read_all()
    assert 0 < first.num_rows < 64
    client.close()


def test_a_put_that_is_under_way_ends_with_the_permission(server: Server, users: Users) -> None:
    """As it does for Penstock's own clients."""
    token = users.token("anna", 3600)
    client = flight.connect(server.address.replace("penstock", "grpc"))
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    batch = pa.record_batch({"event": pa.array([b"event"])})
    writer, _ = client.do_put(flight.FlightDescriptor.for_path(STREAM), batch.schema, options)
    writer.write_batch(batch)
    with penstock.connect(server.address, user="root", password="secret") as other:
        wait_until(lambda: sum(map(len, other.read(STREAM))) == 1)
        users.revoke("anna", "admin", "*")
        with suppress(pa.ArrowException):  # it may be over already
            writer.write_batch(batch)
            writer.done_writing()
        with pytest.raises(pa.ArrowException, match="may not write"):
            writer.close()
        assert sum(map(len, other.read(STREAM))) == 1
    client.close()


def test_notifications_of_a_stream_end_with_the_permission_and_come_again_with_it(server: Server, users: Users) -> None:
    """They say how much is written to a stream, and when, which is for those who may read it."""
    token = users.token("anna", 3600)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    begin = flight.FlightDescriptor.for_command(pack(["session", PROTOCOL, None]))
    with (
        penstock.connect(server.address, user="root", password="secret") as other,
        flight.connect(server.address.replace("penstock", "grpc")) as client,
        ExitStack() as parts,
    ):
        other.create_stream("plant/public")
        _writer, channel = client.do_exchange(begin, options)
        parts.callback(channel.cancel)

        def received() -> list[Any]:
            return unpack(channel.read_chunk().app_metadata.to_pybytes())  # type: ignore[no-any-return]

        def tail_in_notification_of(stream: str) -> int:
            messages: list[Any] = []
            while not messages or messages[-1][1] != stream:
                messages += received()
            assert {message[1] for message in messages} == {stream}
            *_, (_, tail, _), blocks = messages[-1]
            assert bool(blocks) == bool(tail)
            return tail  # type: ignore[no-any-return]

        def write(stream: str) -> int:
            with other.writer(stream) as writer:
                writer.write_event(b"event").result()
            return other.stream(stream).tail.offsets[0]

        session = received()[1]
        for stream in (STREAM, "plant/public"):
            list(client.do_action(flight.Action("watch", pack([session, [stream, 0]])), options))
            assert tail_in_notification_of(stream) == 0
        users.grant("anna", "read", "plant/public")
        users.revoke("anna", "admin", "*")
        tail = write(STREAM)
        assert write("plant/public") == tail_in_notification_of("plant/public")
        users.grant("anna", "read", STREAM)
        assert tail_in_notification_of(STREAM) == tail


def test_a_permission_that_is_revoked_ends_no_session(server: Server, users: Users) -> None:
    """The user is still who it was: other streams are not concerned."""
    with penstock.connect(server.address, user="anna", password="secret") as store:
        session = store.connection.channel.id  # type: ignore[attr-defined]
        users.revoke("anna", "admin", "*")
        users.grant("anna", "read", "plant/*")
        assert store.stream(STREAM).name == STREAM
        with pytest.raises(NotPermitted):
            store.create_stream("plant/more")
        assert store.connection.channel.id == session  # type: ignore[attr-defined]
