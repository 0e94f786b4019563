"""What goes wrong at plog servers one day: each is noticed as what it is, and costs no more than it must."""

from __future__ import annotations

import errno
import secrets
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cpo import open_cpo
from penstock.errors import (
    BadArgument,
    CpoUnavailable,
    DiskFailed,
    GroupUnavailable,
    PenstockError,
    PlogSealed,
    ReplicaLost,
)
from penstock.frames import pack_frame
from penstock.log import MetadataManager
from penstock.model import PlogId
from penstock.plog.replicated import (
    PROTOCOL,
    AppendReplica,
    Hello,
    SealRow,
    ServerAccess,
    decode_answer,
    encode_header,
    note_damaged,
    open_cluster_plogs,
    open_group_plogs,
)
from penstock.plog.replicated._actions import RemoveRow, WriteRow
from penstock.plog.replicated._link import open_session
from penstock.plog.replicated._messages import CreateReplica, ReplicaAppended, SealReplica
from penstock.plog.replicated._rows import OracleRows
from penstock.testing import ManualClock
from tests.cutting_proxy import CuttingProxy
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.frames import FrameConnection
    from penstock.plog.replicated import Answer, ReplicatedPlogs
    from penstock.plog.server._replicas import PartitionReplicas


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PlogServers]:
    with closing(PlogServers(tmp_path, "east", "west")) as servers:
        yield servers


def replicas_of(servers: PlogServers, group: str, place: int) -> PartitionReplicas:
    return servers.running[group, place].folder.partitions()["main"].replicas


def await_sessions(servers: PlogServers, plogs: ReplicatedPlogs, group: str) -> None:
    """Return when the owner has a session with the present run of each server: it notices a restart a moment later."""

    def is_open(place: int) -> bool:
        known = plogs._servers.get((group, place), ("", b""))[1]
        return known == servers.running[group, place].folder.identity.instance and plogs.is_up(group)

    eventually(lambda: all(map(is_open, range(3))))


def holders(servers: PlogServers, content: bytes) -> list[tuple[str, int]]:
    """Return the servers that run and have these bytes in a file."""
    return [
        (group, place)
        for group, place in servers.running
        if any(content in file.read_bytes() for file in (servers.folder(group, place) / "partition-main").iterdir())
    ]


def test_an_append_that_one_server_has_is_not_acknowledged_there(servers: PlogServers) -> None:
    """The two others may be gone for good, and the one is a single copy: it goes to three servers of another group."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
        log = manager.log("log")
        log.append(b"begin")
        group = log.tail.plog_id.group
        for place in (1, 2):
            servers.stop(group, place)
        log.append(b"precious")
        other = {"east": "west", "west": "east"}[group]
        assert {(other, place) for place in range(3)} <= set(holders(servers, b"precious"))
        servers.rob(group, 0)
        for place in range(3):
            servers.start(group, place)
        await_sessions(servers, plogs, group)
        eventually(lambda: not plogs.replication_use.under_replicated)
        assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == b"beginprecious"


def test_a_repeated_append_does_not_wait_for_one_behind_it(servers: PlogServers) -> None:
    """After a cut, appends are repeated and others follow at once: the thread of the connection once span for ever."""
    hello = Hello(PROTOCOL, "local", "east", "main", 1, b"o" * 16, 1)
    connection, _ = open_session(servers.addresses("east")[0], hello, ServerAccess())
    uid = secrets.token_bytes(16)
    with closing(connection):
        connection.send(_frame(2, CreateReplica(uid, 1000)), timeout_s=9)
        assert len(_answers(connection, 1)) == 1
        connection.send(_frame(3, AppendReplica(uid, 0, 3), b"abc"), timeout_s=9)
        assert len(_answers(connection, 1)) == 1
        later = [(4, 3, b"def"), (5, 0, b"abc"), (6, 6, b"ghi")]
        frames = [part for number, at, data in later for part in _frame(number, AppendReplica(uid, at, 3), data)]
        connection.send([b"".join(frames)], timeout_s=9)  # in one piece
        assert _answers(connection, 3) == {4: ReplicaAppended(6), 5: ReplicaAppended(3), 6: ReplicaAppended(9)}


def _frame(number: int, request: Any, data: bytes = b"") -> list[Any]:  # noqa: ANN401 - any request
    return pack_frame(encode_header(number, request), *([data] if data else []))


def _answers(connection: FrameConnection, count: int) -> dict[int, Answer]:
    answers: dict[int, Answer] = {}
    while len(answers) < count:
        frame = connection.receive()
        if frame is not None:
            number, answer = decode_answer(frame.header, payload_size=len(frame.payload))
            answers[number] = answer
        else:
            assert connection.wait(20), f"only {answers}"
    return answers


def test_a_read_that_a_server_refuses_for_now_damages_nothing(servers: PlogServers) -> None:
    """A server that has too many open files has a good replica: it is not replaced, and the next one is read."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"x" * 500)
        plogs.seal(plog_id, 500)
        deleted: list[int] = []
        replicas: list[Any] = [replicas_of(servers, plog_id.group, place) for place in range(3)]
        for place in range(3):
            replicas[place].blocks = _refused
            replicas[place].delete = partial(deleted.append, place)
        with pytest.raises(GroupUnavailable, match="Too many open files"):
            plogs.read(plog_id, 0, 10)
        del replicas[2].blocks
        assert [bytes(plogs.read(plog_id, 0, 2)) for _ in range(3)] == [b"xx"] * 3
        assert (plogs.replication_use.under_replicated, cpo.keys("seal/"), deleted) == (0, [], [])


def _refused(*_: object) -> None:
    raise DiskFailed("file", reason="Too many open files", stopped=False)


def test_a_server_with_a_full_disk_does_not_keep_the_next_owner_out(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as away until it has space; one full disk of six must not end the service."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plogs.append(plogs.create(size=100), 0, b"x")
        folder = servers.running["west", 2].folder

        def full(_: str, __: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(folder, "_replace", full)
        with servers.open(cpo) as plogs:
            assert "no space left" in plogs.replication_use.away[servers.addresses("west")[2]]
            plog_id = plogs.create(size=100)
            assert (plog_id.group, plogs.append(plog_id, 0, b"x")) == ("east", 1)
            monkeypatch.undo()
            eventually(lambda: not plogs.replication_use.away)


def test_a_partition_that_cannot_be_opened_is_a_disk_that_fails(
    servers: PlogServers, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator of the server sees why in its log, and owners go on with the other group."""
    (servers.folder("west", 1) / "epoch-main").mkdir()
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        assert "the disk failed" in plogs.replication_use.away[servers.addresses("west")[1]]
    assert "a session is refused: the disk failed" in caplog.text


def test_a_clock_that_was_set_back_does_not_keep_the_next_owner_out(servers: PlogServers) -> None:
    """Epochs are counted, not timed: the oracle's clock may be an hour slow after a failover."""
    clock = ManualClock(start=4e9)
    with open_cpo("memory:", clock=clock) as cpo:
        cpo.register_cluster("local", {group: servers.addresses(group) for group in ("east", "west")})
        with open_cluster_plogs("local", cpo) as plogs:
            former = plogs.create(size=100)
        clock.advance(-3600)
        with open_cluster_plogs("local", cpo) as plogs:
            assert plogs.info(former).sealed


def test_repair_goes_on_after_the_oracle_was_away(servers: PlogServers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is not worked off would leave a plog with two replicas until the owner is restarted."""
    rows, failed = OracleRows.plogs, list[int]()

    def away_once(self: OracleRows) -> list[PlogId]:
        if not failed:
            failed.append(1)
            raise CpoUnavailable("oracle", reason="away")
        return rows(self)

    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=100)
        plogs.append(plog_id, 0, b"x")
        plogs.seal(plog_id, 1)
        eventually(lambda: plogs._repairer is not None and not plogs._repairer._has_rows)
        monkeypatch.setattr(OracleRows, "plogs", away_once)
        plogs.run_alone(plog_id, note_damaged(plog_id, frozenset({1})))
        eventually(lambda: bool(failed) and not cpo.keys("seal/"))


def test_partitions_repair_their_own_plogs_alone(servers: PlogServers) -> None:
    """A row that another partition removes would bring a deleted plog back."""
    with servers.oracle() as cpo:
        with open_cluster_plogs("local", cpo, partition="b") as plogs:
            plog_id = plogs.create(size=100)
            plogs.append(plog_id, 0, b"secret")
            plogs.seal(plog_id, 6)
            servers.stop(plog_id.group, 2)
            eventually(lambda: bool(plogs.replication_use.away))
            plogs.delete(plog_id)
            [row] = cpo.keys("seal/b/")
        servers.start(plog_id.group, 2)
        with open_cluster_plogs("local", cpo, partition="a") as plogs:
            eventually(lambda: plogs._repairer is not None and not plogs._repairer._has_rows)
            assert cpo.keys("seal/") == [row]
        with open_cluster_plogs("local", cpo, partition="b"):
            eventually(lambda: not cpo.keys("seal/"))
        folder = servers.folder(plog_id.group, 2) / "partition-b"
        assert not list(folder.glob("*.plog"))


def test_an_owner_before_changes_no_row(servers: PlogServers) -> None:
    """It was suspended between its look at the replicas and its row: its successor may have decided without one."""
    with servers.oracle() as cpo:
        former = OracleRows(cpo, cluster="local", partition="main")
        plog_id = PlogId("local", "east", "0" * 32)
        version = former.write(WriteRow(plog_id, SealRow(1), 0))
        OracleRows(cpo, cluster="local", partition="main")
        for change in (
            lambda: former.write(WriteRow(plog_id, SealRow(2), version)),
            lambda: former.remove(RemoveRow(plog_id, version)),
        ):
            with pytest.raises(PenstockError, match="epoch"):
                change()


def test_a_server_that_does_not_answer_does_not_hold_up_the_others(servers: PlogServers) -> None:
    """Its machine hangs while a connection is opened: the two others decide, and are not taken for late."""
    port = int(servers.addresses("east")[0].rpartition(":")[2])
    with closing(CuttingProxy(port)) as proxy, open_cpo("memory:") as cpo:
        east = [f"127.0.0.1:{proxy.port}", *servers.addresses("east")[1:]]
        cpo.register_cluster("local", {"east": east})
        with open_cluster_plogs("local", cpo) as plogs:
            plog_id = plogs.create(size=1000)
            plogs.append(plog_id, 0, b"acknowledged")
            proxy.passes.clear()
            proxy.cut_all()
            eventually(lambda: plogs._links.of("east")[0].state != "up")
            assert plogs.seal(plog_id, 1000) == 12
            assert [link.state for link in plogs._links.of("east")[1:]] == ["up", "up"]


def test_files_that_are_not_replicas_are_passed_over(servers: PlogServers) -> None:
    """An operator may leave a copy there; the server must not fail at each look through its folder."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plog_id = plogs.create(size=100)
            plogs.append(plog_id, 0, b"x")
        servers.stop(plog_id.group, 1)
        folder = servers.folder(plog_id.group, 1) / "partition-main"
        (folder / "old copy.plog").write_bytes(b"")
        (folder / f"{plog_id.uid}.plog").unlink()
        servers.start(plog_id.group, 1)
        with servers.open(cpo) as plogs:
            assert plogs.info(plog_id).length == 1
            eventually(lambda: (folder / f"{plog_id.uid}.plog").exists() and not cpo.keys("seal/"))


def test_a_plog_whose_length_was_decided_before_is_not_kept_open(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data of its appends under way would stay in memory as long as the owner runs."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1 << 20)
        plogs.append(plog_id, 0, b"acknowledged")
        servers.stop(plog_id.group, 1)
        with pytest.raises(ReplicaLost):
            plogs.append(plog_id, 12, b"y" * 100_000)
        ask = plogs._links.ask
        monkeypatch.setattr(
            plogs._links,
            "ask",
            lambda what: [None] * len(what.requests) if isinstance(what.requests[0][1], SealReplica) else ask(what),
        )
        with pytest.raises(GroupUnavailable):
            plogs.seal(plog_id, 1 << 20)
        monkeypatch.undo()
        with pytest.raises(PlogSealed):
            plogs.seal(plog_id, 1 << 20)
        assert not plogs.is_open(plog_id)


def test_idle_plogs_are_repaired_whose_servers_lose_their_disks_one_after_another(servers: PlogServers) -> None:
    """Nothing is appended, so nothing fails; a log that is idle for days would lose all that was acknowledged."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
        log = manager.log("log")
        log.append(b"begin")
        plog_id = log.tail.plog_id
        for place in range(3):
            servers.rob(plog_id.group, place)
            servers.start(plog_id.group, place)
            await_sessions(servers, plogs, plog_id.group)
            replica = servers.folder(plog_id.group, place) / "partition-main" / f"{plog_id.uid}.plog"
            eventually(replica.exists)
            eventually(lambda: not plogs.replication_use.under_replicated)
        assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == b"begin"
        log.append(b" and end")
        assert log.tail.plog_id != plog_id
        manager.log("other").append(b"so that the metadata log goes on, too")
        assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == b"begin and end"
        eventually(lambda: not plogs.replication_use.under_replicated and not cpo.keys("seal/"))


def test_a_damaged_replica_of_an_open_plog_is_replaced(servers: PlogServers) -> None:
    """A read finds it, and it is copied anew, though nothing is appended; then the log continues in another plog."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
        log = manager.log("log")
        log.append(b"x" * 60_000)
        plog_id = log.tail.plog_id
        servers.stop(plog_id.group, 2)
        file = servers.folder(plog_id.group, 2) / "partition-main" / f"{plog_id.uid}.plog"
        damaged = file.read_bytes().replace(b"x" * 60_000, b"x" * 59_999 + b"y")
        file.write_bytes(damaged)
        servers.start(plog_id.group, 2)
        await_sessions(servers, plogs, plog_id.group)
        for _ in range(3):  # one of them asks this server first
            assert bytes(plogs.read(plog_id, 0, 60_000)) == b"x" * 60_000
        eventually(lambda: file.exists() and file.read_bytes() != damaged)
        log.append(b"on")
        assert log.tail.plog_id != plog_id
        manager.log("other").append(b"so that the metadata log goes on, too")
        eventually(lambda: not cpo.keys("seal/") and not plogs.replication_use.under_replicated)


def flip(file: Path, part: bytes) -> None:
    """Change one byte within the last of these bytes in a file."""
    content = bytearray(file.read_bytes())
    content[content.rindex(part) + len(part) // 2] ^= 1
    file.write_bytes(content)


def replica_file(servers: PlogServers, plog_id: PlogId, place: int) -> Path:
    return servers.folder(plog_id.group, place) / "partition-main" / f"{plog_id.uid}.plog"


@pytest.mark.parametrize("restarted", [(1,), (0, 1, 2)], ids=["one restarted", "all restarted"])
def test_a_damaged_last_append_of_one_replica_cuts_off_nothing(
    servers: PlogServers, restarted: tuple[int, ...]
) -> None:
    """On one server it looks like an append that was not finished; the two others have it, and it was acknowledged."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plog_id = plogs.create(size=1 << 20)
            for number in range(3):
                plogs.append(plog_id, number * 200_000, b"%d" % number * 200_000)
        for place in restarted:
            servers.crash(plog_id.group, place)
        flip(replica_file(servers, plog_id, 1), b"2" * 200_000)
        for place in restarted:
            servers.start(plog_id.group, place)
        with servers.open(cpo) as plogs:
            assert plogs.info(plog_id).length == 600_000
            eventually(lambda: not cpo.keys("seal/"))
            assert [bytes(plogs.read(plog_id, 400_000, 5)) for _ in range(3)] == [b"22222"] * 3


def test_the_owner_seals_its_plog_where_it_was_acknowledged_whatever_one_server_has_lost(servers: PlogServers) -> None:
    """It knows what it has acknowledged, and readers have seen it."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1 << 20)
        plogs.append(plog_id, 0, b"1" * 200_000)
        plogs.append(plog_id, 200_000, b"2" * 200_000)
        servers.crash(plog_id.group, 1)
        flip(replica_file(servers, plog_id, 1), b"2" * 200_000)
        servers.start(plog_id.group, 1)
        await_sessions(servers, plogs, plog_id.group)
        assert plogs.seal(plog_id, 1 << 20) == 400_000
        eventually(lambda: not cpo.keys("seal/"))
        for place in (0, 2):
            servers.stop(plog_id.group, place)
        assert bytes(plogs.read(plog_id, 200_000, 200_000)) == b"2" * 200_000


def test_one_server_that_was_restarted_does_not_decide_alone(servers: PlogServers) -> None:
    """Its replica may have lost its end; the two others know, and are only away."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plog_id = plogs.create(size=1000)
            plogs.append(plog_id, 0, b"acknowledged")
        for place in range(3):
            servers.stop(plog_id.group, place)
        servers.start(plog_id.group, 0)
        with servers.open(cpo) as plogs:
            with pytest.raises(GroupUnavailable, match="are away"):
                plogs.info(plog_id)
            servers.start(plog_id.group, 1)
            eventually(lambda: len(plogs.replication_use.away) == 1)
            assert plogs.info(plog_id).length == 12


def test_repair_deletes_no_replica_that_may_have_the_last_good_copy(servers: PlogServers) -> None:
    """Each of three replicas is damaged somewhere, and no byte is damaged in all: everything can still be read."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1 << 20)
        plogs.append(plog_id, 0, b"A" * 200_000)
        plogs.append(plog_id, 200_000, b"B" * 200_000)
        plogs.seal(plog_id, 400_000)
        for place, part in ((0, b"A"), (1, b"B"), (2, b"B")):
            servers.stop(plog_id.group, place)
            flip(replica_file(servers, plog_id, place), part * 200_000)
            servers.start(plog_id.group, place)
        await_sessions(servers, plogs, plog_id.group)
        for _ in range(3):
            assert bytes(plogs.read(plog_id, 0, 200_000)) == b"A" * 200_000
        eventually(lambda: bool(cpo.keys("seal/")))
        for _ in range(3):
            assert bytes(plogs.read(plog_id, 200_000, 200_000)) == b"B" * 200_000


def test_repair_copies_from_the_replica_that_is_whole(servers: PlogServers) -> None:
    """Two replicas are damaged in different places: the third one is good, and is found."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1 << 20)
        plogs.append(plog_id, 0, b"A" * 200_000)
        plogs.append(plog_id, 200_000, b"B" * 200_000)
        plogs.seal(plog_id, 400_000)
        for place, part in ((0, b"A"), (1, b"B")):
            servers.stop(plog_id.group, place)
            flip(replica_file(servers, plog_id, place), part * 200_000)
            servers.start(plog_id.group, place)
        await_sessions(servers, plogs, plog_id.group)
        for _ in range(3):
            plogs.read(plog_id, 0, 200_000)
        eventually(lambda: plogs.replication_use.copied_size > 0 and not cpo.keys("seal/"))
        good = b"A" * 200_000, b"B" * 200_000
        for place in range(3):
            content = replica_file(servers, plog_id, place).read_bytes()
            assert all(part in content for part in good), place


def test_servers_that_are_away_are_logged_once_however_often_the_plogs_are_opened(
    servers: PlogServers, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that stands by opens them every second: six lines a second would bury everything else."""
    caplog.set_level("INFO", "penstock.plogs")
    cpo = servers.oracle()
    places = list(servers.running)
    for place in places:
        servers.stop(*place)
    for _ in range(3):
        servers.open(cpo).close()
    assert sum("is away: " in message for message in caplog.messages) == len(places)
    for place in places:
        servers.start(*place)
    servers.open(cpo).close()
    assert sum("is back" in message for message in caplog.messages) == len(places)


def test_a_reader_makes_no_partition(servers: PlogServers) -> None:
    """It only asks; a hundred names that it makes up would keep the owner of a new partition out."""
    for number in range(3):
        hello = Hello(PROTOCOL, "local", "east", f"made-up-{number}", None, b"o" * 16, 1)
        connection, welcome = open_session(servers.addresses("east")[0], hello, ServerAccess())
        connection.close()
        assert welcome.epoch == 0
    assert not servers.running["east", 0].folder.partitions()
    assert not list(servers.folder("east", 0).glob("partition-*"))


def test_clients_that_are_silent_make_room_for_an_owner(tmp_path: Path) -> None:
    """Whoever opens as many connections as there may be, and says nothing, keeps owners out for a moment at most."""
    with closing(PlogServers(tmp_path, "east")) as servers, ExitStack() as idle, servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            plogs.append(plogs.create(size=100), 0, b"x")
        for number in range(300):
            hello = Hello(PROTOCOL, "local", "east", "main", None, b"o" * 16, 1 + number)
            with suppress(OSError):
                connection, _ = open_session(servers.addresses("east")[0], hello, ServerAccess())
                idle.callback(connection.close)
        with servers.open(cpo) as plogs:
            eventually(lambda: not plogs.replication_use.away)
            assert plogs.append(plogs.create(size=100), 0, b"x") == 1


@pytest.mark.parametrize("address", ["a..b:1", "b b:1", "c:99999", "d", "d:", ":1", "e:" + "1" * 5000, "-f:1"])
def test_addresses_that_cannot_be_are_refused(address: str) -> None:
    """Each would be looked up again and again, and fill the log."""
    with pytest.raises(BadArgument, match="invalid address"):
        open_group_plogs(f"{address},127.0.0.1:1,127.0.0.1:2")
