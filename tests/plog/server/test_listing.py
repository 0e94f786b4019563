"""The replicas of a server are listed quickly, however many and however full they are, and hold up no append."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from penstock.errors import DiskFailed
from penstock.frames import pack_frame
from penstock.plog import PlogInfo
from penstock.plog.replicated import (
    PROTOCOL,
    Hello,
    ListReplicas,
    ReplicaList,
    ServerAccess,
    decode_answer,
    encode_header,
    list_replicas,
    note_damaged,
)
from penstock.plog.replicated._link import open_session
from penstock.plog.server._replicas import PartitionReplicas
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.model import PlogId
    from penstock.plog.replicated import Answer, Ask, ReplicatedPlogs, ServerAnswer


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PlogServers]:
    with closing(PlogServers(tmp_path)) as servers:
        yield servers


def replicas_of(servers: PlogServers, place: int) -> PartitionReplicas:
    return servers.running["main", place].folder.partitions()["main"].replicas


def sealed_plog(plogs: ReplicatedPlogs, *, appends: int = 3) -> PlogId:
    plog_id = plogs.create(size=1000)
    pending = [plogs.submit(plog_id, number, b"x") for number in range(appends)]
    pending[-1].result()
    assert plogs.seal(plog_id, appends) == appends
    return plog_id


def restart(servers: PlogServers) -> None:
    for place in range(3):
        servers.stop("main", place)
        servers.start("main", place)


def test_sealed_replicas_are_listed_and_inspected_by_their_heads_alone(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read every block took 18 ms for each: a server with 600 did not answer in time, and counted as away."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            sealed = sorted(sealed_plog(plogs).uid_bytes for _ in range(5))
        restart(servers)
        loaded: list[object] = []
        monkeypatch.setattr("penstock.plog._open_plogs.load_replica", lambda *what: loaded.append(what))
        with servers.open(cpo) as plogs:
            assert plogs.run(list_replicas("main")) == {uid: {0, 1, 2} for uid in sealed}
            replicas = replicas_of(servers, 0)
            assert replicas.replicas(b"", 99) == [(uid, PlogInfo(3, sealed=True, size=1000)) for uid in sealed]
            assert [uid for uid, _ in replicas.replicas(sealed[1], 2)] == sealed[2:4]
            assert replicas.info(replicas.plog_id(sealed[0].hex())).length == 3
        assert not loaded


def test_a_replica_that_is_open_or_in_use_is_listed_as_it_is(servers: PlogServers) -> None:
    """Its head is older: the journal has what is newer."""
    with servers.open() as plogs:
        opened, sealed = plogs.create(size=1000), sealed_plog(plogs)
        plogs.append(opened, 0, b"12345")
        listed = dict(replicas_of(servers, 1).replicas(b"", 99))
        assert listed[opened.uid_bytes] == PlogInfo(5, sealed=False, size=1000)
        assert listed[sealed.uid_bytes] == PlogInfo(3, sealed=True, size=1000)


def test_replicas_that_are_damaged_are_not_listed_and_one_that_cannot_be_read_is(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may be replaced if the others list every plog as sealed; a bad sector must not hide the other plogs."""
    with servers.open() as plogs:
        good, found, short, torn, unreadable = (sealed_plog(plogs) for _ in range(5))
    servers.stop("main", 0)
    servers.start("main", 0)
    replicas = servers.running["main", 0].folder.partition("main", count_max=1).replicas
    replicas.begin_check(found)
    assert replicas.note_checked(found, is_damaged=True)
    os.truncate(replicas.where(short), 4096 + 2)
    os.truncate(replicas.where(torn), 20)
    pread = os.pread

    def fails(fd: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}") == replicas.where(unreadable):
            raise OSError(5, "Input/output error")
        return pread(fd, size, offset)

    monkeypatch.setattr("penstock.plog.server._heads.os.pread", fails)
    assert dict(replicas.replicas(b"", 99)) == {
        good.uid_bytes: PlogInfo(3, sealed=True, size=1000),
        unreadable.uid_bytes: PlogInfo(0, sealed=False, size=1),
    }
    with pytest.raises(DiskFailed, match="Input/output error"):
        replicas.info(unreadable)


def test_a_slow_disk_answers_in_parts_and_the_owner_gets_all_of_them(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner waits for 5 seconds for an answer, and a disk that seeks reads a hundred heads in a second."""
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            sealed = [sealed_plog(plogs).uid_bytes for _ in range(10)]
        restart(servers)
        known_info = PartitionReplicas.known_info

        def seeks(self: PartitionReplicas, plog_id: PlogId) -> PlogInfo:
            time.sleep(0.05)
            return known_info(self, plog_id)

        monkeypatch.setattr(PartitionReplicas, "known_info", seeks)
        with servers.open(cpo) as plogs:
            assert plogs.run(list_replicas("main")) == {uid: {0, 1, 2} for uid in sealed}
        part = replicas_of(servers, 0).replicas(b"", 99)
        assert 1 < len(part) < 7
        assert [info is None for _, info in part] == [False] * (len(part) - 1) + [True]


def test_appends_do_not_wait_for_a_list_on_the_same_connection(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every new owner has its servers listed: its first appends would be late, and its plogs would lose a replica."""
    may_go_on = threading.Event()
    with servers.oracle() as cpo:
        with servers.open(cpo) as plogs:
            sealed_plog(plogs)
        replicas, listed = replicas_of(servers, 0), list[str]()
        at_once = replicas.replicas

        def waits(after: bytes, limit: int) -> list[tuple[bytes, PlogInfo | None]]:
            listed.append("begins")
            may_go_on.wait(30)
            listed.append("ends")
            return at_once(after, limit)

        monkeypatch.setattr(replicas, "replicas", waits)
        with servers.open(cpo) as plogs:
            eventually(lambda: listed == ["begins"])
            plog_id = plogs.create(size=1000)
            for number in range(20):
                assert plogs.append(plog_id, number, b"x") == number + 1
            assert listed == ["begins"]
            may_go_on.set()
            eventually(lambda: "ends" in listed)
            assert not plogs.replication_use.away


def test_a_plog_of_many_small_appends_is_copied_in_small_portions(
    servers: PlogServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append of the owner waits behind them on the same connection: 30,000 of them took as long as it has."""
    with servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id, ask, asked = sealed_plog(plogs, appends=700), plogs._links.ask, list[int]()

        def counts(what: Ask) -> list[ServerAnswer | None]:
            asked.append(len(what.requests))
            return ask(what)

        monkeypatch.setattr(plogs._links, "ask", counts)
        plogs.run_alone(plog_id, note_damaged(plog_id, frozenset({1})))
        eventually(lambda: plogs.replication_use.copied_size == 700 and not cpo.keys("seal/"))
        assert max(asked) == 256
        assert replicas_of(servers, 1).info(plog_id) == PlogInfo(700, sealed=True, size=1000)


def test_lists_that_a_client_asks_for_at_once_are_all_answered(servers: PlogServers) -> None:
    """They wait for each other, so that a client cannot have as many threads as it likes."""
    with servers.open() as plogs:
        sealed = sealed_plog(plogs)
    hello = Hello(PROTOCOL, "local", "main", "main", None, b"o" * 16, 1)
    connection, _ = open_session(servers.addresses("main")[0], hello, ServerAccess())
    with closing(connection):
        for number in range(2, 52):
            connection.send(pack_frame(encode_header(number, ListReplicas(b"", 9))), timeout_s=9)
        answers: dict[int, Answer] = {}
        while len(answers) < 50:
            frame = connection.await_frame()
            number, answer = decode_answer(frame.header, payload_size=0)
            answers[number] = answer
    assert all(answer == ReplicaList([(sealed.uid_bytes, 3, True, 1000)], more=False) for answer in answers.values())
    eventually(lambda: not any(thread.name == "penstock-plog-list" for thread in threading.enumerate()))
