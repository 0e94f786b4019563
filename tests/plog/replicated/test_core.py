"""The core on real files: three hosts with a folder each, an owner, and rows in a dict; nothing is lost on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from penstock.errors import (
    BadArgument,
    CasConflict,
    GroupUnavailable,
    NoSuchPlog,
    PenstockError,
    PlogCorrupt,
    PlogExists,
    ReplicaLost,
    StoreFenced,
)
from penstock.model import PlogId
from penstock.plog import FilePlogs, PlogInfo
from penstock.plog.replicated import (
    AppendReplica,
    AppendWindow,
    Ask,
    GroupChoice,
    Hello,
    ReadRow,
    Refusal,
    RemoveRow,
    ReplicaHost,
    SealRow,
    ServerAnswer,
    ServerIdentity,
    VersionedRow,
    Welcome,
    WriteRow,
    create_plog,
    decide_length,
    decode_answer,
    decode_request,
    delete_plog,
    encode_header,
    list_replicas,
    note_damaged,
    note_missing,
    read_blocks,
    repair_plog,
)
from penstock.plog.replicated._actions import NoteCut
from penstock.plog.replicated._messages import AppendKept, CreateReplica, InspectReplica
from penstock.testing import MemoryDisk, SeededRandom

if TYPE_CHECKING:
    from penstock.plog.replicated import Answer, HostSession, HostSteps, ReplicaRequest, ReplicaSteps

T = TypeVar("T")
SIZE: Final = 1000


class Folder(FilePlogs):
    """The replicas of a server, and its epoch."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        super().__init__(self.disk, random=SeededRandom(1), journal_size=4096, direct_size_min=512)
        self.epoch = (0, b"")
        self.damaged: set[PlogId] = set()

    def damage(self, plog_id: PlogId) -> None:
        """Have every read of a plog fail, until it is deleted."""
        self.damaged.add(plog_id)

    def blocks(self, plog_id: PlogId, offset: int, size: int) -> list[tuple[int, memoryview]]:
        """Return the appends of an undamaged plog."""
        if plog_id in self.damaged:
            raise PlogCorrupt(str(plog_id), offset=offset, reason="a test has damaged it")
        return super().blocks(plog_id, offset, size)

    def delete(self, plog_id: PlogId) -> None:
        """Delete a plog, with its damage."""
        super().delete(plog_id)
        self.damaged.discard(plog_id)

    def replicas(self, after: bytes, limit: int) -> list[tuple[bytes, PlogInfo]]:
        """Return the replicas, by the names of their files."""
        uids = sorted(bytes.fromhex(name[:32]) for name in self.disk.names() if name.endswith(".plog"))
        return [(uid, self.info(plog(uid))) for uid in uids if uid > after][:limit]

    def save_epoch(self, epoch: int, owner: bytes) -> None:
        """Keep it, as a file would."""
        self.epoch = (epoch, owner)


def plog(uid: bytes) -> PlogId:
    return PlogId("c", "g", uid.hex())


class Servers:
    """Three servers in a group, the rows of an oracle, and an owner whose requests all arrive."""

    def __init__(self) -> None:
        self.folders = [Folder() for _ in range(3)]
        self.hosts = [self.host(place) for place in range(3)]
        self.rows: dict[PlogId, VersionedRow] = {}
        self.away: set[int] = set()
        self.sessions: list[HostSession | None] = [None] * 3
        self.epoch, self.number, self.version = 0, 0, 0
        self.plog_id = plog(bytes(16))
        self.cuts: list[NoteCut] = []

    def host(self, place: int) -> ReplicaHost:
        folder = self.folders[place]
        epoch, owner = folder.epoch
        return ReplicaHost(ServerIdentity("c", "g", f"s{place}", bytes(16)), folder, epoch=epoch, owner=owner)

    def lose_folder(self, place: int) -> None:
        self.folders[place] = Folder()
        self.hosts[place] = self.host(place)
        self.hello(place, self.epoch)

    def take_over(self, epoch: int, *servers: int) -> None:
        self.epoch = epoch
        for place in servers or range(3):
            assert isinstance(self.hello(place, epoch), Welcome)

    def hello(self, place: int, epoch: int, owner: bytes = bytes(16)) -> Answer:
        self.number += 1
        hello = Hello(1, "c", "g", "p", epoch, owner, self.number)
        session, answer = carried_out(self.hosts[place].open_session(hello))
        if session is not None:
            self.sessions[place] = session
        return answer

    def ask(self, place: int, request: ReplicaRequest, payload: bytes = b"") -> ServerAnswer | None:
        """Send a request as bytes, and the answer, too."""
        self.number += 1
        session = self.sessions[place]
        if place in self.away or session is None:
            return None
        number, decoded = decode_request(encode_header(self.number, request), payload_size=len(payload))
        reply = carried_out(self.hosts[place].handle(session, number, decoded, payload, now=0.0))
        if reply is None:
            return None
        answer, parts = reply
        data = b"".join(parts)
        return ServerAnswer(decode_answer(encode_header(number, answer), payload_size=len(data))[1], data)

    def run(self, steps: ReplicaSteps[T]) -> T:
        result: Any = None
        error: PenstockError | None = None
        while True:
            try:
                action = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            result = error = None
            try:
                match action:
                    case Ask():
                        result = [self.ask(place, request, b"".join(data)) for place, request, data in action.requests]
                    case ReadRow():
                        result = self.rows.get(action.plog_id)
                    case WriteRow() | RemoveRow():
                        result = self._change_row(action)
                    case NoteCut():
                        self.cuts.append(action)
            except CasConflict as conflict:
                error = conflict

    def _change_row(self, action: WriteRow | RemoveRow) -> int:
        present = self.rows.pop(action.plog_id, None)
        actual = 0 if present is None else present.version
        assert actual == action.expected
        self.version += 1
        if isinstance(action, WriteRow):
            self.rows[action.plog_id] = VersionedRow(action.row, self.version)
        return self.version

    def create(self) -> AppendWindow:
        self.run(create_plog(self.plog_id, SIZE))
        return AppendWindow(self.plog_id, size=SIZE, servers=("s0", "s1", "s2"))

    def append(self, window: AppendWindow, data: bytes, *servers: int) -> None:
        append = window.submit(window.written, data, now=0.0)
        for place in servers or range(3):
            answer = self.ask(place, AppendReplica(self.plog_id.uid_bytes, append.offset, len(data)), data)
            assert answer is not None
            window.answered(place, answer.message)

    def decide(self, *, quiet: bool = True) -> int:
        return self.run(decide_length(self.plog_id, at_most=SIZE, quiet=quiet)).length

    def content(self, place: int) -> bytes:
        plog_id = self.plog_id
        info = self.folders[place].info(plog_id)
        assert info.sealed
        return bytes(self.folders[place].read(plog_id, 0, info.length))


def carried_out(steps: HostSteps[T]) -> T:
    """Carry out a request of a host, its calls at once."""
    try:
        call = next(steps)
        while True:
            try:
                result = call()
            except PenstockError as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value


@pytest.fixture
def servers() -> Servers:
    """Three servers with an owner of epoch 1."""
    group = Servers()
    group.take_over(1)
    return group


def test_an_append_is_committed_when_all_three_have_it(servers: Servers) -> None:
    """Two of three are no promise: the third may be the only one that the next owner reaches."""
    window = servers.create()
    servers.append(window, b"all three")
    assert window.committed == 9
    servers.append(window, b"two", 0, 2)
    assert (window.committed, window.is_quiet) == (9, False)
    window.expire(window.deadline or 0.0)
    assert isinstance(window.failure, ReplicaLost)
    assert "server s1" in str(window.failure)
    window.answered(1, servers.ask(1, AppendReplica(bytes(16), 9, 3), b"two").message)  # type: ignore[union-attr]
    assert window.committed == 9, "after a failure nothing is acknowledged"
    assert servers.decide(quiet=False) == 12
    assert [servers.content(place) for place in range(3)] == [b"all threetwo"] * 3
    assert not servers.rows


def test_a_plog_is_sealed_at_the_shortest_replica_within_reach_and_repaired(servers: Servers) -> None:
    """The row decides, whichever servers a later owner reaches, and it stays until there are three equal replicas."""
    window = servers.create()
    servers.append(window, b"committed")
    servers.append(window, b"on two", 1, 2)
    servers.away = {2}
    servers.take_over(2, 0, 1)
    assert servers.decide() == 9
    assert servers.rows[servers.plog_id].row == SealRow(9)
    servers.away = {0, 1}
    servers.take_over(3, 2)
    assert servers.decide() == 9
    servers.away = {0}
    servers.take_over(4)
    servers.lose_folder(1)
    assert not servers.run(repair_plog(servers.plog_id))
    servers.away = set()
    assert servers.run(repair_plog(servers.plog_id))
    assert [servers.content(place) for place in range(3)] == [b"committed"] * 3
    assert not servers.rows


def test_a_new_owner_fences_the_one_before_and_the_fence_survives_a_restart(servers: Servers) -> None:
    """An owner that was suspended for a day must not change anything when it wakes up, whatever happened meanwhile."""
    window = servers.create()
    stale = servers.sessions[0]
    servers.take_over(2)
    fresh, servers.sessions[0] = servers.sessions[0], stale
    servers.append(window, b"late", 0)
    assert isinstance(window.failure, StoreFenced)
    with pytest.raises(StoreFenced):
        servers.decide()
    servers.sessions[0] = fresh
    assert servers.hello(0, 2, owner=b"another process!") == Refusal("fenced", 2)
    servers.hosts[0] = servers.host(0)
    assert servers.hello(0, 1) == Refusal("fenced", 2)


def test_early_appends_wait_for_the_gap_to_close_and_repeated_appends_are_acknowledged_again(servers: Servers) -> None:
    """A network may deliver twice or in any order; other bytes at the same place are another writer's."""
    servers.create()
    uid = servers.plog_id.uid_bytes

    def append(offset: int, data: bytes) -> str:
        answer = servers.ask(0, AppendReplica(uid, offset, len(data)), data)
        assert answer is not None
        return str(answer.message)

    assert append(6, b"ghi") == append(6, b"ghi") == append(3, b"def") == "AppendKept(length=0)"
    assert append(3, b"DEF") == "Refusal(reason='wrong-offset', value=0, text='')"
    assert append(0, b"abc") == "ReplicaAppended(length=9)"
    assert append(3, b"def") == "ReplicaAppended(length=6)"
    assert append(3, b"DEF") == append(8, b"xy") == "Refusal(reason='wrong-offset', value=9, text='')"
    assert append(0, bytes(SIZE + 1)) == "Refusal(reason='wrong-offset', value=9, text='')"
    assert append(9, bytes(SIZE)) == f"Refusal(reason='full', value={SIZE - 9}, text='')"


def test_early_appends_are_forgotten_in_time_also_if_no_other_one_comes() -> None:
    """They hold up to 8 MiB: a gap that never closes must not keep that for as long as the session lasts."""
    host = ReplicaHost(ServerIdentity("c", "g", "s", b"i" * 16), Folder())
    session, _ = carried_out(host.open_session(Hello(1, "c", "g", "main", 1, b"o" * 16, 1)))
    assert session is not None
    uid = b"u" * 16
    carried_out(host.handle(session, 2, CreateReplica(uid, SIZE), b"", now=0.0))
    reply = carried_out(host.handle(session, 3, AppendReplica(uid, 5, 3), b"abc", now=0.0))
    assert reply == (AppendKept(0), ())
    for now, kept in ((10.0, 3), (10.1, 0)):
        carried_out(host.handle(session, 4, InspectReplica(uid), b"", now=now))
        assert host._early._size == kept


def test_nothing_is_guessed_when_no_server_has_the_plog(servers: Servers) -> None:
    """A plog that one server lost and another has, but does not answer, is not gone, and not empty."""
    servers.append(servers.create(), b"kept")
    servers.lose_folder(0)
    servers.away = {1, 2}
    with pytest.raises(GroupUnavailable):
        servers.decide()
    servers.away = {2}
    assert servers.decide() == 4
    servers.away = set()
    with pytest.raises(NoSuchPlog):
        servers.run(delete_plog(plog(b"never created..!")))


def test_a_deleted_plog_does_not_come_back_with_a_server_that_was_away(servers: Servers) -> None:
    """Repair would else find a sealed replica on one server, and copy it to the others."""
    servers.append(servers.create(), b"deleted")
    servers.decide()
    servers.away = {2}
    servers.run(delete_plog(servers.plog_id))
    with pytest.raises(NoSuchPlog):
        servers.decide()
    with pytest.raises(GroupUnavailable, match="have deleted plog"):
        servers.create()
    servers.away = set()
    assert servers.run(list_replicas("g")) == {servers.plog_id.uid_bytes: {2}}
    assert servers.run(repair_plog(servers.plog_id))
    assert servers.run(list_replicas("g")) == {}
    assert not servers.rows


def test_damaged_and_missing_replicas_are_replaced(servers: Servers) -> None:
    """A read tells where the damage is; a list of all replicas tells what a new server lacks."""
    servers.append(servers.create(), b"precious")
    servers.decide()
    read = servers.run(read_blocks(servers.plog_id, 0, 8, servers=[0, 1, 2]))
    assert [bytes(view) for _, view in read.blocks] == [b"precious"]
    servers.run(note_damaged(servers.plog_id, frozenset({1})))
    assert servers.rows[servers.plog_id].row == SealRow(8, (1,))
    assert servers.run(repair_plog(servers.plog_id))
    servers.lose_folder(2)
    assert servers.run(list_replicas("g")) == {servers.plog_id.uid_bytes: {0, 1}}
    assert servers.run(note_missing(servers.plog_id))
    assert servers.run(repair_plog(servers.plog_id))
    assert not servers.run(note_missing(servers.plog_id))
    assert [servers.content(place) for place in range(3)] == [b"precious"] * 3


def test_a_length_that_only_a_damaged_replica_has_is_not_decided(servers: Servers) -> None:
    """No server could read such a plog, so that the store would not open, although the others have all that counts."""
    servers.append(servers.create(), b"acknowledged")
    for place in (0, 1):
        servers.hosts[place] = servers.host(place)  # it was restarted: its last append may have been damaged
    servers.ask(2, AppendReplica(servers.plog_id.uid_bytes, 12, 9), b"only here")
    servers.take_over(2)
    servers.folders[2].damage(servers.plog_id)
    assert servers.decide() == 12
    assert servers.rows[servers.plog_id].row == SealRow(12, (2,))
    assert servers.run(repair_plog(servers.plog_id))
    assert [servers.content(place) for place in range(3)] == [b"acknowledged"] * 3


def test_a_cut_that_nobody_can_vouch_for_is_noted(servers: Servers) -> None:
    """It looks the same as two folders that were set back to older copies, and an operator has to hear of that."""
    servers.append(servers.create(), b"acknowledged")
    servers.ask(2, AppendReplica(servers.plog_id.uid_bytes, 12, 9), b"only here")
    for place in range(3):
        servers.hosts[place] = servers.host(place)
    servers.take_over(2)
    assert servers.decide() == 12
    assert servers.cuts == [NoteCut(servers.plog_id, 12, 21)]


def test_an_empty_replica_of_a_late_creation_is_filled(servers: Servers) -> None:
    """A server that has lost its folder may still get an old request; it has the plog then, and none of its bytes."""
    servers.append(servers.create(), b"precious")
    servers.decide()
    servers.lose_folder(0)
    servers.ask(0, CreateReplica(servers.plog_id.uid_bytes, SIZE))
    assert servers.run(list_replicas("g")) == {servers.plog_id.uid_bytes: {1, 2}}
    assert servers.run(note_missing(servers.plog_id))
    assert servers.run(repair_plog(servers.plog_id))
    assert [servers.content(place) for place in range(3)] == [b"precious"] * 3


def test_a_plog_is_created_on_all_three_or_not_at_all(servers: Servers) -> None:
    """A group with a server away gets no new plogs; a creation that is repeated is the same one."""
    servers.away = {1}
    with pytest.raises(GroupUnavailable):
        servers.create()
    servers.away = set()
    servers.append(servers.create(), b"used")
    with pytest.raises(PlogExists):
        servers.create()


def test_a_group_that_failed_gets_plogs_again_after_a_pause() -> None:
    """It is tried less and less often, but never given up, and used at once when no other is left."""
    choice = GroupChoice(["a", "b"])
    assert [choice.choose(now=0.0) for _ in range(3)] == ["a", "b", "a"]
    choice.failed("b", now=0.0)
    assert {choice.choose(now=0.5) for _ in range(3)} == {"a"}
    choice.failed("a", now=0.5)
    assert choice.choose(now=0.6) == "b"
    assert {choice.choose(now=2.0) for _ in range(2)} == {"a", "b"}


@pytest.mark.parametrize("header", [b"", b"\x92\x01\x92\x03\x01", encode_header(1, Refusal("sealed"))])
def test_bytes_that_are_no_request_are_refused(header: bytes) -> None:
    """The port of a server is open to anything."""
    with pytest.raises(BadArgument):
        decode_request(header, payload_size=0)
    with pytest.raises(BadArgument, match="announces 3"):
        decode_request(encode_header(1, AppendReplica(bytes(16), 0, 3)), payload_size=4)
