"""Clients read the files of plogs themselves where they can reach them, and are sent them where they cannot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import penstock
from penstock.client import RemoteStore, ServerFinder
from penstock.client._connection import Channel
from penstock.client._files import PlogFiles
from penstock.embedded import open_store
from penstock.errors import BadArgument, NotPermitted
from penstock.plog import LocatedBlocks
from penstock.server._service import FlightService
from penstock.server._session import Session as ServerSession
from penstock.wire import CHALLENGE_SIZE, probe_content, probe_name
from penstock.wire.operations import streams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock import Store
    from penstock.server._direct_access import AccessProbe
    from penstock.server._permissions import Principal
    from penstock.stream import Engine
    from penstock.wire.operations import Operation

STREAM: Final = "plant/readings"
CHALLENGE: Final = bytes(CHALLENGE_SIZE)
EVENTS: Final = [b"%d" % number * 100 for number in range(2000)]


class Ways:
    """How often blocks were sent, and read from files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent = self.direct = 0
        send, read = FlightService._blocks, PlogFiles.read

        def counted_send(*args: Any) -> object:  # noqa: ANN401 - as they come
            self.sent += 1
            return send(*args)

        def counted_read(*args: Any) -> object:  # noqa: ANN401 - as they come
            self.direct += 1
            return read(*args)

        monkeypatch.setattr(FlightService, "_blocks", counted_send)
        monkeypatch.setattr(PlogFiles, "read", counted_read)

    @property
    def used(self) -> list[str]:
        return [name for name, count in vars(self).items() if count]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    with open_store(tmp_path / "data") as store:
        write(store, STREAM, EVENTS)
        yield store


@pytest.fixture
def far(store: Engine) -> Iterator[RemoteStore]:
    """The store, as a client over TCP sees it."""
    service = FlightService(store, "grpc://127.0.0.1:0")
    with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as far:
        yield far
    service.shutdown()


def write(store: Store, stream: str, events: list[bytes]) -> None:
    store.create_stream(stream, exist_ok=True)
    with store.writer(stream) as writer:
        writer.write_batch(events).result()


def events_of(store: RemoteStore, stream: str = STREAM) -> list[bytes]:
    return [event for batch in store.read(stream) for event in batch["event"].to_pylist()]


def proofs(folder: Path) -> list[Path]:
    return list(folder.glob("data/plogs/access-probe-*"))


def see(monkeypatch: pytest.MonkeyPatch, change: Callable[[str, list[Any]], tuple[object, list[Any]]]) -> None:
    """Let the client be somewhere else, where paths lead to other places; or let the server say so."""
    reached = PlogFiles.probed

    def elsewhere(folder: str, name: str, content: bytes, place: list[Any]) -> PlogFiles | None:
        there, place = change(folder, place)
        return reached(there, name, content, place)

    monkeypatch.setattr(PlogFiles, "probed", elsewhere)


def test_no_file_is_left_by_a_session_that_ends_at_this_very_moment(
    far: RemoteStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No other process would remove it before the store is opened again."""
    made: list[Path] = []

    def add(_: ServerSession, probe: AccessProbe) -> int:
        made.append(probe.path)
        raise BadArgument("the session is over")

    monkeypatch.setattr(ServerSession, "add", add)
    with pytest.raises(BadArgument, match="over"):
        far.connection.call(streams.Probe(STREAM, 0, 0, CHALLENGE))
    assert made
    assert proofs(tmp_path) == []


def test_files_within_reach_are_read_and_nothing_is_sent(far: RemoteStore, ways: Ways, tmp_path: Path) -> None:
    """Events that lie on this machine need not go through two processes."""
    assert events_of(far) == EVENTS
    write(far, STREAM, [b"more"])
    assert events_of(far) == [*EVENTS, b"more"]
    assert ways.used == ["direct"]
    assert proofs(tmp_path) == []


def test_a_client_through_the_folder_reads_files_too(ways: Ways, tmp_path: Path) -> None:
    """It finds out in the same way as any other."""
    with penstock.connect(tmp_path / "data") as owner, penstock.connect(tmp_path / "data") as near:
        assert isinstance(near, RemoteStore)
        write(owner, STREAM, EVENTS)
        assert events_of(near) == EVENTS
    assert ways.used == ["direct"]


def test_through_a_shared_mount_files_are_copied(far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped file that another machine removes would end the process."""
    see(monkeypatch, lambda path, place: (path, ["another machine", *place[1:]]))
    monkeypatch.setattr("penstock.client._files.map_file", None)
    assert events_of(far) == EVENTS
    assert ways.used == ["direct"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("change", [lambda one: os.chown(one, 12345, 12345), lambda one: one.chmod(0o622)])
def test_files_that_another_user_can_shrink_are_copied(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """A mapped file that is shrunk ends the process that looks at it."""
    plogs = tmp_path / "data" / "plogs"
    for path in (plogs, *plogs.glob("*.plog")):
        change(path)
    monkeypatch.setattr("penstock.client._files.map_file", None)
    assert events_of(far) == EVENTS
    assert ways.used == ["direct"]


def test_a_folder_that_is_not_there_is_not_read(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The ordinary case: the client is on another machine."""
    see(monkeypatch, lambda path, place: (path.replace("data", "nowhere"), place))
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]
    assert proofs(tmp_path) == []


def test_another_folder_at_the_same_path_is_not_read(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container may have a copy there that went on in its own way: same files, same blocks, other events."""
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with open_store(tmp_path / "copy") as copy:
        write(copy, STREAM, [b"theirs"])
    write(far, STREAM, [b"ours"])
    see(monkeypatch, lambda path, place: (path.replace("data", "copy"), place))
    assert events_of(far) == [*EVENTS, b"ours"]
    assert ways.used == ["sent"]


def test_what_was_made_for_another_session_proves_nothing(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy may hold the file of a client that was there when it was made."""
    reached = PlogFiles.probed

    def stale(folder: str, name: str, content: bytes, place: list[Any]) -> PlogFiles | None:
        Path(folder, name).write_bytes(bytes(len(content)))
        return reached(folder, name, content, place)

    monkeypatch.setattr(PlogFiles, "probed", stale)
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


def test_what_is_put_in_the_place_of_the_folder_later_is_not_read(far: RemoteStore, ways: Ways, tmp_path: Path) -> None:
    """What was proven is the folder, not its path."""
    assert events_of(far) == EVENTS
    write(far, "plant/other", [b"ours"])
    (tmp_path / "data").rename(tmp_path / "moved")
    assert events_of(far, "plant/other") == [b"ours"]
    assert ways.used == ["direct"]
    (tmp_path / "moved").rename(tmp_path / "data")


def test_a_file_that_vanishes_is_sent(far: RemoteStore, ways: Ways, tmp_path: Path) -> None:
    """Retention removes files at any moment; who has them open still has the events."""
    assert events_of(far) == EVENTS
    write(far, "plant/other", EVENTS)
    for path in tmp_path.glob("data/plogs/*.plog"):
        path.unlink()
    assert events_of(far, "plant/other") == EVENTS
    assert ways.sent
    ways.direct = ways.sent = 0
    assert events_of(far) == EVENTS, "mapped before"
    assert ways.used == ["direct"]


@pytest.mark.parametrize("damage", [b"", b"garbage" * 10_000], ids=["emptied", "overwritten"])
def test_a_file_that_was_replaced_is_not_believed(far: RemoteStore, ways: Ways, tmp_path: Path, damage: bytes) -> None:
    """Every block is checked before it is returned; what fails is asked of the server, from then on."""
    assert events_of(far) == EVENTS
    write(far, "plant/other", EVENTS)
    for path in tmp_path.glob("data/plogs/*.plog"):
        other = path.with_suffix(".new")
        other.write_bytes(damage)
        other.replace(path)
    assert events_of(far, "plant/other") == EVENTS
    ways.direct = ways.sent = 0
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


def test_a_new_session_finds_out_anew(far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be with another server."""
    assert events_of(far) == EVENTS
    see(monkeypatch, lambda path, place: (path.replace("data", "nowhere"), place))
    far.connection.channel.hang_up()
    ways.direct = ways.sent = 0
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


def test_readers_at_the_tail_read_files(far: RemoteStore, ways: Ways) -> None:
    """Tailing is reading, too."""
    group = far.create_reader_group("group", [STREAM])
    with group.reader("reader") as reader:
        reads = [reader.read_next_event(timeout=60) for _ in EVENTS]
        assert [read.event for read in reads if read is not None] == EVENTS
        write(far, STREAM, [b"more"])
        read = reader.read_next_event(timeout=60)
        assert read is not None
        assert read.event == b"more"
    assert ways.used == ["direct"]


class Anna:
    """Somebody who may write, and read nothing."""

    name = "anna"

    def may(self, permission: str, stream: str) -> bool:
        del stream
        return permission == "write"


def test_who_may_not_read_a_stream_is_not_told_where_it_is(store: Engine, tmp_path: Path) -> None:
    """Neither the path of the folder nor that there is one."""

    def guard(_: str | None, __: str) -> Callable[[], Principal]:
        return Anna

    service = FlightService(store, "grpc://127.0.0.1:0", guard=guard)
    with RemoteStore(ServerFinder(f"penstock://127.0.0.1:{service.port}")) as far:
        for call in (streams.Probe(STREAM, 0, 0, CHALLENGE), streams.Locate(STREAM, 0, 0, 1)):
            with pytest.raises(NotPermitted):
                far.connection.call(call)
    service.shutdown()
    assert proofs(tmp_path) == []


@pytest.mark.parametrize("place", [("no/such", 0, 0), (STREAM, 7, 0), (STREAM, 0, 1 << 40)])
def test_nothing_is_made_for_what_is_not_there(far: RemoteStore, tmp_path: Path, place: tuple[str, int, int]) -> None:
    """A stream may be deleted while it is read; the next one may be within reach."""
    with pytest.raises(BadArgument, match="any more"):
        far.connection.call(streams.Probe(*place, CHALLENGE))
    assert proofs(tmp_path) == []


def test_a_client_leaves_one_file_at_most_and_none_when_it_is_gone(far: RemoteStore, tmp_path: Path) -> None:
    """Whatever it calls, it fills no folder."""
    challenges = [bytes([number]) * CHALLENGE_SIZE for number in range(3)]
    for challenge in challenges:
        far.connection.call(streams.Probe(STREAM, 0, 0, challenge))
    (path,) = proofs(tmp_path)
    assert path.read_bytes() == probe_content(far.connection.channel.id, challenges[-1])
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o044
    far.close()
    assert proofs(tmp_path) == []


def test_files_of_an_owner_that_was_killed_are_removed(tmp_path: Path) -> None:
    """No other process ever would."""
    penstock.connect(tmp_path / "data").close()
    (tmp_path / "data" / "plogs" / "access-probe-0123").write_bytes(b"left")
    penstock.connect(tmp_path / "data").close()
    assert proofs(tmp_path) == []


def test_a_folder_that_takes_no_file_is_not_read(far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk stops writers, and must not stop readers."""

    def fail(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("penstock.server._direct_access.os.write", fail)
        assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


def test_a_connection_that_is_lost_while_it_is_found_out_is_made_again(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with every other call of a reader."""
    call = Channel.call

    def lose(channel: Channel, made: Operation) -> object:
        if isinstance(made, streams.Probe):
            monkeypatch.setattr(Channel, "call", call)
            channel.hang_up()
        return call(channel, made)

    monkeypatch.setattr(Channel, "call", lose)
    assert events_of(far) == EVENTS
    assert ways.used


def test_folders_are_let_go(far: RemoteStore) -> None:
    """A process that connects again and again keeps no more open than it needs."""
    assert events_of(far) == EVENTS
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        far.connection.channel.hang_up()
        assert events_of(far) == EVENTS
    assert len(os.listdir("/proc/self/fd")) <= before + 2


# A hostile server, or a hostile client


def opened_by_client(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the client opens, as it does so; the server, in the same process, opens paths that are no text."""
    opened: list[str] = []
    honest = os.open

    def recorded(path: Any, *args: Any, **options: Any) -> int:  # noqa: ANN401 - as they come
        if isinstance(path, str):
            opened.append(path)
        return honest(path, *args, **options)

    monkeypatch.setattr("penstock.client._files.os.open", recorded)
    return opened


@pytest.mark.parametrize(
    "folder", ["private", "plogs/..", "linked/plogs", "plogs\0", 7, b"plogs", None, "plogs/secret"]
)
def test_a_server_cannot_point_a_client_at_other_files(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: object
) -> None:
    """It could guess what is in them, byte by byte: the client opens nothing but folders of plogs, and no link."""
    (tmp_path / "plogs").mkdir()
    (tmp_path / "plogs" / "secret").write_bytes(b"secret")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "plogs").symlink_to(tmp_path / "data" / "plogs")
    opened = opened_by_client(monkeypatch)
    there = str(tmp_path / folder) if isinstance(folder, str) else folder
    see(monkeypatch, lambda _, place: (there, place))
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]
    assert opened in ([], [str(tmp_path / "linked" / "plogs")])


def test_a_relative_folder_is_not_looked_into(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It would be another one for every process."""
    monkeypatch.chdir(tmp_path / "data")
    see(monkeypatch, lambda _, place: ("plogs", place))
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


def make_link(path: Path, content: bytes) -> None:
    path.with_name("content").write_bytes(content)
    path.unlink(missing_ok=True)
    path.symlink_to("content")


def make_longer(path: Path, content: bytes) -> None:
    path.write_bytes(content + b"more")


def make_pipe(path: Path, content: bytes) -> None:
    del content
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("make", [make_link, make_longer, make_pipe])
def test_a_probe_that_is_no_file_of_its_own_proves_nothing(
    far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path, bytes], None]
) -> None:
    """A link may lead anywhere."""
    reached = PlogFiles.probed

    def replaced(folder: str, name: str, content: bytes, place: list[Any]) -> PlogFiles | None:
        make(Path(folder, name), content)
        return reached(folder, name, content, place)

    monkeypatch.setattr(PlogFiles, "probed", replaced)
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_probe_of_another_user_proves_nothing(far: RemoteStore, ways: Ways, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user of the machine may have put it there."""
    reached = PlogFiles.probed

    def given_away(folder: str, name: str, content: bytes, place: list[Any]) -> PlogFiles | None:
        os.chown(Path(folder, name), 12345, 12345)
        return reached(folder, name, content, place)

    monkeypatch.setattr(PlogFiles, "probed", given_away)
    assert events_of(far) == EVENTS
    assert ways.used == ["sent"]


@pytest.mark.parametrize("name", ["FORMAT", "../cpo.db", "journal-0", "0" * 32, "0" * 32 + ".plog.new"])
def test_only_files_of_plogs_are_read(
    far: RemoteStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """The server says in which file a block is: it must not be any other file."""
    assert events_of(far) == EVENTS
    far.connection.channel.hang_up()
    call = Channel.call

    def elsewhere(channel: Channel, made: Operation) -> Any:  # noqa: ANN401 - as the operation says
        answer = call(channel, made)
        if isinstance(made, streams.Locate):
            return [[start, time, str(tmp_path / "data" / "plogs" / name), *rest] for start, time, _, *rest in answer]
        return answer

    monkeypatch.setattr(Channel, "call", elsewhere)
    opened = opened_by_client(monkeypatch)
    assert events_of(far) == EVENTS
    probe = probe_name(far.connection.channel.id)
    assert set(opened) == {str(tmp_path / "data" / "plogs"), probe}


@pytest.mark.parametrize("challenge", [b"", b"x" * 31, b"x" * 33, "x" * 32, None])
def test_a_client_cannot_have_bytes_of_its_choice_written(far: RemoteStore, tmp_path: Path, challenge: bytes) -> None:
    """The server writes a digest of the challenge, which has one size."""
    with pytest.raises(BadArgument, match="challenge"):
        far.connection.call(streams.Probe(STREAM, 0, 0, challenge))
    assert proofs(tmp_path) == []


def test_a_client_is_told_the_places_of_few_blocks_at_a_time(far: RemoteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole segment there may be gigabytes of them, and any reader could ask for them a thousand times."""
    monkeypatch.setattr("penstock.server._operations.LOCATE_MAX", 1000)
    for _ in range(20):
        write(far, STREAM, [b"x" * 400])
    begin = far.tail(STREAM).offsets[0] - 5000
    ((_, _, *located),) = far.connection.call(streams.Locate(STREAM, 0, begin, 1 << 40))
    offsets = LocatedBlocks.received(*located).offsets
    assert len(offsets) // 4 in range(2, 6)
