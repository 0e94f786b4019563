"""A server with its data plane: clients over TCP, with users and TLS; and who may call what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.errors import (
    BadArgument,
    NoSuchGroup,
    NoSuchStream,
    NoSuchTransaction,
    NotAuthenticated,
    NotPermitted,
    PenstockError,
    ServerBusy,
    StoreUnreachable,
)
from penstock.model import EventPointer
from penstock.server import Config, Server
from penstock.server._users import USERS_FILE, Users
from penstock.wire.operations import OPERATIONS, groups, readers, sessions, streams, transactions, writers
from tests.server.following import Following, Seen
from tests.server.samples import legal_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock import Store
    from penstock.client import RemoteStore
    from penstock.wire.operations import Operation, Permission

PASSWORD: Final = "correct horse"
OWN, OTHER = "own/readings", "other/readings"
ROLES: Final[dict[str, set[str]]] = {
    "nobody": set(),
    "read": {"read"},
    "consume": {"read", "consume"},
    "write": {"write"},
    "admin": {"read", "consume", "write", "admin"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def serving(folder: Path, **settings: Any) -> Server:  # noqa: ANN401 - whatever there is to set
    return Server(Config(store=str(folder), port=0, http_port=0, **settings))


def events_of(store: Store, stream: str) -> list[bytes]:
    return [event for batch in store.read(stream) for event in batch["event"].to_pylist()]


def test_a_client_over_the_network_writes_and_reads(folder: Path) -> None:
    """The same API as in this process."""
    with serving(folder, anonymous=True) as server, penstock.connect(server.address) as store:
        store.create_stream(OWN, segments=2)
        with store.writer(OWN) as writer:
            writer.write_batch([b"a", b"b"], ["1", "2"])
            with writer.begin_write_event("3") as out:
                out.write(bytes(3 << 20))
        assert sorted(events_of(store, OWN), key=str) == sorted([b"a", b"b", None], key=str)
        assert store.fetch_event_as_stream(out.pointer).size == 3 << 20
        with store.transactional_writer(OWN) as transactions, transactions.begin() as transaction:
            transaction.write_event(b"c", "4")
        with store.create_reader_group("group", [OWN]).reader("reader", max_event_size=4 << 20) as reader:
            found = [reader.read_next_event(timeout=30) for _ in range(4)]
        assert sorted(len(read.event) for read in found if read is not None) == [1, 1, 1, 3 << 20]


def test_a_served_folder_is_shared_with_processes_of_this_machine(folder: Path) -> None:
    """A server is an owner like any other."""
    with serving(folder, anonymous=True) as server, penstock.connect(folder) as near:
        with penstock.connect(server.address) as far:
            far.create_stream(OWN)
        assert [info.name for info in near.streams()] == [OWN]


def test_users_say_who_they_are_with_a_password_or_a_token(folder: Path) -> None:
    """All others are refused, and not told why."""
    folder.mkdir()
    users = Users.open(folder / USERS_FILE)
    users.add("anna", PASSWORD)
    users.grant("anna", "admin", "own/*")
    token = users.token("anna", 60)
    with serving(folder) as server:
        with penstock.connect(server.address, user="anna", password=PASSWORD) as store:
            store.create_stream(OWN)
        with penstock.connect(server.address, token=token) as store:
            assert [info.name for info in store.streams()] == [OWN]
        refused: list[dict[str, Any]] = [
            {},
            {"user": "anna", "password": "wrong"},
            {"user": "bert", "password": PASSWORD},
            {"token": "x"},
        ]
        for wrong in refused:
            with pytest.raises(NotAuthenticated):
                penstock.connect(server.address, **wrong)


def test_who_may_only_write_writes_transactions_too(folder: Path) -> None:
    """As a sink of Spark does; a stream that is not there is told at once all the same."""
    folder.mkdir()
    users = Users.open(folder / USERS_FILE)
    users.add("anna", PASSWORD)
    users.grant("anna", "write", "own/*")
    with serving(folder) as server, penstock.connect(folder) as near:
        near.create_stream(OWN)
        with penstock.connect(server.address, user="anna", password=PASSWORD) as far:
            with far.transactional_writer(OWN, "query").begin() as transaction:
                transaction.write_event(b"a")
            with pytest.raises(NoSuchStream):
                far.transactional_writer("own/none")
        assert events_of(near, OWN) == [b"a"]


def test_a_server_that_is_not_there_is_told_at_once(folder: Path) -> None:
    """Only one that was there before is waited for."""
    with serving(folder, anonymous=True) as server:
        address = server.address
    with pytest.raises(StoreUnreachable, match=f"{address}: no server listens there"):
        penstock.connect(address)


def test_everything_goes_over_tls_with_our_own_certificate(folder: Path) -> None:
    """A client that has a copy of it is sure of the server."""
    with serving(folder, anonymous=True, tls=True) as server:
        with penstock.connect(server.address, tls_ca=folder / "server.crt") as store:
            store.create_stream(OWN)
            with store.writer(OWN) as writer:
                writer.write_event(b"event").result()
            assert events_of(store, OWN) == [b"event"]
        with pytest.raises(StoreUnreachable):
            penstock.connect(server.address, tls=True)


@pytest.mark.parametrize(
    "options",
    [
        {"user": "anna"},
        {"password": "x"},
        {"token": "x", "user": "anna", "password": "x"},
        {"tls_ca": "no/such/file"},
    ],
)
def test_half_of_a_name_is_refused(options: dict[str, Any]) -> None:
    """Before the client connects."""
    with pytest.raises(ValueError, match=r"user|token|certificate"):
        penstock.connect("penstock://127.0.0.1:1", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"token": "id.secret\n"},
        {"token": "id.s\xe9cret"},
        {"token": b"id.secret"},
        {"user": 7, "password": "secret"},
        {"user": "anna", "password": b"secret"},
        {"user": "anna", "password": "secret\udcff"},
    ],
)
def test_who_one_is_has_to_be_something_that_can_be_sent(options: dict[str, Any]) -> None:
    """A token from a file has a line end soon, and gRPC's own message explains nothing; secrets are not shown."""
    with pytest.raises(BadArgument, match=f"{[*options][-1]}|user") as told:
        penstock.connect("penstock://127.0.0.1:1", **options)
    assert "cret" not in str(told.value)


@pytest.mark.parametrize(
    "address", ["penstock://", "penstock://host:port", "penstock://host:1/path", "penstock://u@host"]
)
def test_what_is_no_address_of_a_server_is_refused(address: str) -> None:
    """Rather than taken for something else."""
    with pytest.raises(ValueError, match="invalid server address"):
        penstock.connect(address)


# Who may call what


@pytest.fixture
def guarded(folder: Path) -> Iterator[tuple[Server, Users]]:
    """A server with a user for each role in one of two streams, and somebody who may do everything."""
    folder.mkdir()
    users = Users.open(folder / USERS_FILE)
    users.add("root", PASSWORD)
    users.grant("root", "admin", "*")
    for role, permissions in ROLES.items():
        users.add(role, PASSWORD)
        if permissions:
            users.grant(role, "admin" if role == "admin" else role, "own/*")  # type: ignore[arg-type]
    with serving(folder) as server:
        with penstock.connect(folder) as near:
            for stream in (OWN, OTHER):
                near.create_stream(stream)
                near.create_reader_group(stream.partition("/")[0], [stream])
        yield server, users


def as_user(server: Server, name: str) -> RemoteStore:
    return penstock.connect(server.address, user=name, password=PASSWORD)  # type: ignore[return-value]


def call_about(kind: type[Operation], stream: str, transaction: str) -> Operation:
    """Return a call that is about a stream, or what belongs to it, and does no harm if it may be made."""
    scope = stream.partition("/")[0]
    match kind.about:
        case "stream":
            return legal_call(kind, f"{scope}/nothing")
        case "streams":
            return legal_call(kind, "group", [f"{scope}/nothing"])
        case "pointer":
            return legal_call(kind, EventPointer(f"{scope}/nothing", 0, 0))
        case "group":
            return legal_call(kind, scope)
        case "transaction":
            return legal_call(kind, transaction)
        case _:
            return legal_call(kind)


def is_refused(store: RemoteStore, call: Operation) -> bool:
    """Whether a call is refused; what the user may not know of is not there."""
    try:
        store.connection.call(call)
    except (NotPermitted, NoSuchGroup, NoSuchTransaction):
        return True
    except PenstockError:
        return False
    return False


@pytest.mark.parametrize("stream", [OWN, OTHER])
@pytest.mark.parametrize("role", ROLES)
def test_every_operation_asks_for_what_it_needs(guarded: tuple[Server, Users], role: str, stream: str) -> None:
    """Every operation that there is, every role, one's own stream and another: denied unless it was granted."""
    server, _ = guarded
    with as_user(server, "root") as root, as_user(server, role) as store:
        if "consume" in ROLES[role]:
            store.reader_group("own").reader("first").close()  # the group belongs to this user from now on
        owner = store if stream == OWN and "write" in ROLES[role] else root
        for name, kind in OPERATIONS.items():
            if kind.about in ("open", "unchecked") or kind is groups.DeleteGroup:
                continue  # those have tests of their own
            transaction = owner.transactional_writer(stream).begin().id
            allowed = stream == OWN and kind.needs in ROLES[role] and kind.about != "store"
            refused = is_refused(store, call_about(kind, stream, transaction))
            assert refused is not allowed, f"{role} calls {name} about {stream}"
        assert is_refused(store, groups.DeleteGroup(stream.partition("/")[0])) is not (
            stream == OWN and groups.DeleteGroup.needs in ROLES[role]
        )


@pytest.mark.parametrize("role", ROLES)
def test_a_prepared_transaction_asks_for_what_its_stream_needs(guarded: tuple[Server, Users], role: str) -> None:
    """No user commits or aborts what others have prepared, not by its id, nor among those of a stream of their own."""
    server, _ = guarded
    with as_user(server, "root") as root, as_user(server, role) as store:
        uid = root.connection.call(transactions.OpenTransactions(OWN, None))
        for stream in (OWN, OTHER):
            owner = store if stream == OWN and "write" in ROLES[role] else root
            transaction = owner.transactional_writer(stream).begin()
            transaction.write_event(b"event")
            transaction.prepare()
            allowed = stream == OWN and "write" in ROLES[role]
            for kind in (transactions.Status, transactions.Prepare, transactions.Ping, transactions.WriteBatch):
                assert is_refused(store, legal_call(kind, transaction.id)) is not allowed
            for number in (None, 0):
                commit = transactions.CommitAll(OWN, uid, f"of-{role}", [transaction.id], number, None)
                refused = is_refused(store, commit)
                assert refused is ("write" not in ROLES[role])
            if not allowed:
                assert is_refused(store, transactions.Commit(transaction.id, None, []))
                assert is_refused(store, transactions.Abort(transaction.id, []))
            assert transaction.status == ("committed" if allowed else "prepared")


@pytest.mark.parametrize("role", ROLES)
def test_what_is_open_asks_again_with_every_call(guarded: tuple[Server, Users], role: str) -> None:
    """What was granted may be taken back while a client has something open."""
    server, users = guarded
    users.grant(role, "admin", "own/*")
    with as_user(server, role) as store:
        session = store.connection.channel
        writer = store.connection.call(writers.OpenWriter(OWN, None, "token", False, None))[0]
        reader = store.connection.call(readers.OpenReader("own", "reader"))[0]
        users.revoke(role, "admin", "own/*")
        if ROLES[role]:
            permission: Permission = "admin" if role == "admin" else role  # type: ignore[assignment]
            users.grant(role, permission, "own/*")
        for name, kind in OPERATIONS.items():
            if kind.about == "open":
                number = reader if name.startswith("reader") else writer
                assert is_refused(store, legal_call(kind, number)) is (kind.needs not in ROLES[role]), name
        assert store.connection.channel is session


@pytest.mark.parametrize("role", ROLES)
def test_lists_tell_only_of_what_may_be_read(guarded: tuple[Server, Users], role: str) -> None:
    """A name may be a secret, too."""
    server, _ = guarded
    readable = "read" in ROLES[role]
    with as_user(server, role) as store:
        assert [info.name for info in store.streams()] == ([OWN] if readable else [])
        assert store.reader_groups() == (["own"] if readable else [])


def test_blocks_are_not_sent_to_users_who_may_not_read_them(guarded: tuple[Server, Users]) -> None:
    """Nor appended by who may not write."""
    server, users = guarded
    with as_user(server, "admin") as store:
        writer = store.writer(OWN)
        writer.write_event(b"event").result()
        users.revoke("admin", "admin", "own/*")
        users.grant("admin", "read", "own/*")
        with pytest.raises(PenstockError, match="may not"):
            writer.write_event(b"another").result()
        assert events_of(store, OWN) == [b"event"]
        pointer = EventPointer(OWN, 0, 64)
        file = store.fetch_event_as_stream(pointer)
        assert file.read() == b"event"
        users.revoke("admin", "read", "own/*")
        with pytest.raises(NotPermitted):
            store.fetch_event(pointer)


def test_a_refusal_is_in_the_words_of_the_user(guarded: tuple[Server, Users]) -> None:
    """It says what cannot be done with which stream, and what an administrator types, not how the call is named."""
    server, users = guarded
    users.add("anna", PASSWORD)
    with as_user(server, "anna") as store:
        calls: list[tuple[str, str, Callable[[str], object]]] = [
            ("read", "read", store.head),
            ("write", "write to", store.writer),
            ("admin", "administer", store.seal_stream),
        ]
        for permission, act, call in calls:
            grant = f"an administrator can allow it with penstock user grant anna {permission} '{OWN}'"
            with pytest.raises(NotPermitted) as refused:
                call(OWN)
            assert str(refused.value) == f"user anna may not {act} {OWN}: {grant}"
        with pytest.raises(NotPermitted, match=r"user anna may not administer all streams: .* admin '\*'"):
            store.maintain()


def test_a_session_is_of_its_user_alone(guarded: tuple[Server, Users]) -> None:
    """A client that learns the number of another's session cannot use it."""
    server, _ = guarded
    with as_user(server, "root") as root, as_user(server, "admin") as store:
        mine = store.connection.channel
        mine.id = root.connection.channel.id
        with pytest.raises(NotPermitted, match="of another user"):
            store.connection.call(streams.Head(OWN))
        with pytest.raises(NotPermitted, match="of another user"):
            store.connection.call(sessions.End())
        assert root.streams()


def test_one_user_does_not_take_the_place_of_all_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without any permission could keep all others out."""
    folder.mkdir()
    users = Users.open(folder / USERS_FILE)
    for name in ("anna", "berta"):
        users.add(name, PASSWORD)
    with serving(folder, max_connections=6) as server, ExitStack() as clients:
        for _ in range(3):
            clients.enter_context(as_user(server, "anna"))
        monkeypatch.setattr("penstock.client._connection._PATIENCE_S", 0.1)
        with pytest.raises(
            ServerBusy, match=r"user 'anna' has 3 clients, .* of one user is 3, its share of 6 \(max_connections\)"
        ):
            as_user(server, "anna")
        clients.enter_context(as_user(server, "berta"))


def test_what_is_permitted_for_one_writer_holds_for_no_other(guarded: tuple[Server, Users]) -> None:
    """Nor for another transaction: a large event belongs to the one that it was begun with."""
    server, users = guarded
    users.grant("write", "write", OTHER)
    with as_user(server, "write") as store:
        call = store.connection.call
        mine, theirs = (call(writers.OpenWriter(one, None, "token", False, None))[0] for one in (OWN, OTHER))
        upload = call(writers.OpenUpload(theirs))
        uids = [call(transactions.OpenTransactions(one, None)) for one in (OWN, OTHER)]
        own, other = (
            call(transactions.BeginTransaction(one, uid, None, 30.0))
            for one, uid in zip((OWN, OTHER), uids, strict=True)
        )
        event = call(transactions.BeginEvent(other, 0.5, None, None))
        users.revoke("write", "write", OTHER)
        uploads: list[type[Operation]] = [writers.WriteUpload, writers.CommitUpload, writers.DropUpload]
        events: list[type[Operation]] = [transactions.WriteChunk, transactions.EndEvent, transactions.DropEvent]
        for kind in uploads:
            with pytest.raises(BadArgument, match="not a large event of writer"):
                call(legal_call(kind, mine, upload))
        for kind in events:
            with pytest.raises(BadArgument, match="not an event of transaction"):
                call(legal_call(kind, own, event))


SERVE: Final = """
    import sys
    from penstock.server import Config, run
    config = Config(store=sys.argv[1], port=int(sys.argv[2]), http_port=0, anonymous=True)
    run(config, ready=lambda server: print(server.port, flush=True))
"""


def start(folder: Path, port: int) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVE), str(folder), str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def stop(process: subprocess.Popen[str], how: int) -> None:
    process.send_signal(how)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


def test_a_client_goes_on_when_the_server_is_killed_and_comes_again(folder: Path) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and the reader misses nothing."""
    process, port = start(folder, 0)
    seen: list[bytes] = []
    with penstock.connect(f"penstock://127.0.0.1:{port}") as store:
        store.create_stream(OWN)
        group = store.create_reader_group("group", [OWN])
        with store.writer(OWN, "writer") as writer, group.reader("reader") as reader:
            for life in range(3):
                acks = [writer.write_event(b"%d" % number, "key") for number in range(life * 500, life * 500 + 500)]
                acks[100].result()
                os.kill(process.pid, signal.SIGKILL)
                stop(process, signal.SIGKILL)
                process, _ = start(folder, port)
                for ack in acks:
                    ack.result()
                while len(seen) < life * 500 + 500:
                    read = reader.read_next_event(timeout=60)
                    assert read is not None
                    seen.append(read.event)
        expected = [b"%d" % number for number in range(1500)]
        assert events_of(store, OWN) == expected
        assert seen == expected
    stop(process, signal.SIGTERM)


def test_readers_of_a_group_are_given_nothing_again_when_the_server_is_killed(folder: Path) -> None:
    """Each knows where it was; that the server had it on record only from time to time is its own affair."""
    process, port = start(folder, 0)
    address, seen = f"penstock://127.0.0.1:{port}", Seen()
    with penstock.connect(address) as store:
        store.create_stream(OWN, segments=4)
        store.create_reader_group("group", [OWN])
        readers = [Following(address, name, seen, 8000) for name in ("a", "b")]
        with store.writer(OWN, "writer") as writer:
            for life in range(4):
                for number in range(life * 2000, life * 2000 + 2000):
                    writer.write_event(b"%d" % number, f"key-{number % 50}")
                writer.flush()
                seen.wait_for(life * 2000 + 1000)
                if life < 3:
                    stop(process, signal.SIGKILL)
                    process, _ = start(folder, port)
        for reader in readers:
            reader.join(60)
    stop(process, signal.SIGTERM)
    assert seen.counts == Counter(b"%d" % number for number in range(8000))
