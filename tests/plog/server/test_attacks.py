"""Plog servers under attack: users who may not come any more, disks that fail, and owners of another deployment."""

from __future__ import annotations

from contextlib import ExitStack, closing
from random import Random
from typing import TYPE_CHECKING, get_args

import pytest

from penstock.cpo import open_cpo
from penstock.errors import GroupUnavailable, PenstockError, PlogServerRefused, ReplicaLost
from penstock.log import MetadataManager, PlogSizes
from penstock.plog.replicated import ServerAccess, _groups, open_cluster_plogs, open_group_plogs
from penstock.plog.server import PlogServer, Scrubber, ScrubSettings, ServerFolder, _connection, _folder
from penstock.ports import OsDisk
from penstock.server._addresses import listen
from penstock.server._plog_server import _user_check
from penstock.server._users import Users
from penstock.testing import Fault, FaultyDisk, ManualClock
from penstock.testing._faulty import Call
from tests.plog_servers import PlogServers
from tests.sampling import in_case
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cpo import Cpo

OWNER = ServerAccess("owner", "right password")


class GuardedGroup:
    """Three servers with users."""

    def __init__(self, folder: Path, parts: ExitStack) -> None:
        self.file = folder / "users.json"
        self.users = Users.open(self.file)
        self.users.add("owner", "right password")
        self.users.grant("owner", "admin", "*")
        self.servers = []
        for place in range(3):
            stored = ServerFolder(folder / str(place), cluster="local", group="main")
            server = PlogServer(stored, listen("127.0.0.1", 0), check_user=_user_check(self.file))
            self.servers.append(parts.enter_context(server))
        self.addresses = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def change(self, kind: str) -> None:
        """Take from the user what lets it in."""
        match kind:
            case "removed":
                self.users.remove("owner")
            case "another password":
                self.users.add("owner", "another password", replace=True)
                self.users.grant("owner", "admin", "*")
            case "not permitted":
                self.users.revoke("owner", "admin", "*")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedGroup]:
    """A group that looks at its users again with every request."""
    monkeypatch.setattr(_connection, "_CREDENTIALS_S", 0.0)
    with ExitStack() as parts:
        yield GuardedGroup(tmp_path, parts)


@pytest.mark.parametrize("kind", ["removed", "another password", "not permitted"])
def test_a_user_who_may_not_come_any_more_is_disconnected(group: GuardedGroup, kind: str) -> None:
    """A session lasts for months: an owner whose password was stolen must not go on until the server is restarted."""
    with open_group_plogs(group.addresses, access=OWNER) as plogs:
        plog_id = plogs.create(size=1000)
        assert plogs.append(plog_id, 0, b"permitted") == 9
        group.change(kind)
        with pytest.raises((ReplicaLost, GroupUnavailable)):
            plogs.append(plog_id, 9, b"forbidden")
        eventually(lambda: len(plogs.replication_use.away) == 3)
    for server in group.servers:
        replicas = server.folder.partitions()["main"].replicas
        assert replicas.info(plog_id).length == 9
    with pytest.raises((PlogServerRefused, GroupUnavailable)):
        open_group_plogs(group.addresses, access=OWNER)


def test_a_file_of_users_that_cannot_be_read_disconnects_nobody(group: GuardedGroup) -> None:
    """An administrator who makes a mistake in it must not stop all stores at once."""
    with open_group_plogs(group.addresses, access=OWNER) as plogs:
        plog_id = plogs.create(size=1000)
        content = group.file.read_bytes()
        group.file.write_bytes(b"{")
        assert plogs.append(plog_id, 0, b"acknowledged") == 12
        with pytest.raises(PenstockError):
            open_group_plogs(group.addresses, access=OWNER)
        group.file.write_bytes(content)
        assert plogs.append(plog_id, 12, b"again") == 17


def test_names_and_passwords_that_nobody_has_open_no_session(group: GuardedGroup) -> None:
    """A name with a colon would move a part of the password; none of these must be an error of the server's own."""
    attempts = [("owner:right", "password"), ("owner:right password", ""), ("", ""), ("o" * 255, "p" * 1024)]
    attempts += [("owner", ""), ("owner", "right password\0"), ("OWNER", "right password"), ("ö\ud7ff", "\U0010ffff")]
    for user, password in attempts:
        with in_case(f"{user!r} {password!r}"), pytest.raises(PenstockError) as raised:
            open_group_plogs(group.addresses, access=ServerAccess(user, password))
        assert isinstance(raised.value, PlogServerRefused | GroupUnavailable)
    eventually(lambda: all(server.connections() == 0 for server in group.servers))
    eventually(lambda: can_own(group))  # a network from which passwords are tried is made to wait


def can_own(group: GuardedGroup) -> bool:
    try:
        with open_group_plogs(group.addresses, access=OWNER) as plogs:
            return plogs.append(plogs.create(size=10), 0, b"x") == 1
    except GroupUnavailable:
        return False


class FailingServers(PlogServers):
    """Servers one of which has a disk that fails when it is told to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disks: list[FaultyDisk] = []
        self.plan: list[tuple[Fault, Call]] = []  # for disks that are opened while it fails, too

        def disk(path: Path) -> OsDisk | FaultyDisk:
            if "east-1" not in str(path):
                return OsDisk(path)
            faulty = FaultyDisk(OsDisk(path))
            self.disks.append(faulty)
            self._apply(faulty)
            return faulty

        monkeypatch.setattr(_folder, "OsDisk", disk)
        super().__init__(folder, "east", "west")

    def _apply(self, disk: FaultyDisk) -> None:
        for fault, call in self.plan:
            disk.fail(fault, on=call, call=None)

    def fail(self, call: Call) -> None:
        """Let every such call fail from now on."""
        self.plan.append((Fault.EIO, call))
        for disk in self.disks:
            disk.fail(Fault.EIO, on=call, call=None)

    def heal(self) -> None:
        """Let the disk work again."""
        self.plan.clear()
        for disk in self.disks:
            disk.heal()


def test_a_disk_that_fails_in_any_call_costs_its_server_and_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO may come from any call, and go again: the log goes on in the other group, and the server is used again."""
    dice = Random(1)
    for name in ("_PAUSE_S_MIN", "_PAUSE_S_MAX"):
        monkeypatch.setattr(_groups, name, 0.01)  # the group is used again at once, while its disk still fails
    groups_used = set()
    with closing(FailingServers(tmp_path, monkeypatch)) as servers, servers.oracle() as cpo:
        written = b""
        with servers.open(cpo) as plogs:
            sizes = PlogSizes(first=2000, largest=2000)
            with MetadataManager.open(plogs, cpo, "main", sizes=sizes) as manager:
                log = manager.log("log")
                for call in get_args(Call):
                    with in_case(call):
                        servers.fail(call)
                        for number in range(12):
                            part = b"%s %d;" % (call.encode(), number) * dice.randrange(1, 80)
                            log.append(part)
                            written += part
                            groups_used.add(log.tail.plog_id.group)
                        servers.heal()
                        eventually(lambda: not plogs.replication_use.away)
                        assert b"".join(bytes(view) for _, view in log.blocks(0, log.length)) == written
                eventually(lambda: not plogs.replication_use.away)
                eventually(lambda: not cpo.keys("seal/") and not plogs.replication_use.under_replicated)
                chain = log.plogs()
        assert groups_used == {"east", "west"}
        assert all(sum(disk.calls[call] for disk in servers.disks) for call in get_args(Call))
        with servers.open(cpo) as plogs:
            sealed = [plog_id for plog_id, *_ in chain if plogs.info(plog_id).length]
            for plog_id in sealed:
                replicas = [
                    servers.running[plog_id.group, place].folder.partitions()["main"].replicas for place in range(3)
                ]
                lengths = {replica.info(plog_id).length for replica in replicas}
                contents = {
                    b"".join(bytes(view) for _, view in replica.blocks(plog_id, 0, min(lengths)))
                    for replica in replicas
                }
                assert (len(lengths), len(contents)) == (1, 1), plog_id
        for server in servers.running.values():
            scrubber = Scrubber(server.folder, ScrubSettings(rate=1 << 40), clock=ManualClock(start=4e9))
            scrubber._scrub_if_due("main", server.folder.partitions()["main"])
            assert scrubber.figures.plogs
            assert (scrubber.figures.found, scrubber.figures.unreadable) == (0, 0), "a failed write left damage behind"


def oracle_of(servers: PlogServers) -> Cpo:
    """Return the oracle of another deployment that was given the same servers."""
    cpo = open_cpo("memory:")
    cpo.register_cluster("local", {"main": servers.addresses("main")})
    return cpo


def test_owners_of_another_deployment_are_refused_however_often_they_come(tmp_path: Path) -> None:
    """Their oracle counts epochs of its own: in the end it would have the higher one, and fence the true owner."""
    with closing(PlogServers(tmp_path)) as servers, servers.oracle() as cpo, oracle_of(servers) as other:
        with open_cluster_plogs("local", cpo) as plogs:
            plog_id = plogs.create(size=1000)
            plogs.append(plog_id, 0, b"first;")
            for _ in range(5):
                with pytest.raises(PlogServerRefused, match="belongs to another deployment, which has another oracle"):
                    open_cluster_plogs("local", other)
            with pytest.raises(PlogServerRefused, match="another deployment"):
                open_group_plogs(",".join(servers.addresses("main")))
            assert plogs.append(plog_id, 6, b"second;") == 13
        for place in range(3):
            servers.stop("main", place)
            servers.start("main", place)
        with pytest.raises(PlogServerRefused, match="another deployment"):
            open_cluster_plogs("local", other)
        with open_cluster_plogs("local", cpo) as plogs:
            assert bytes(plogs.read(plog_id, 0, 13)) == b"first;second;"


def test_a_damaged_id_of_a_deployment_is_damage_and_not_another_deployment(tmp_path: Path) -> None:
    """The true owner would be told to check the address of its oracle, which is right."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo:
        with servers.open(cpo):
            file = servers.folder("west", 1) / "deployment-main"
        content = bytearray(file.read_bytes())
        assert len(content) == 20
        content[7] ^= 1
        servers.stop("west", 1)
        file.write_bytes(content)
        servers.start("west", 1)
        with servers.open(cpo) as plogs:
            [reason] = plogs.replication_use.away.values()
            assert "the id of its deployment fails its checksum: delete the file if" in reason
            assert plogs.append(plogs.create(size=10), 0, b"x") == 1
            file.unlink()
            eventually(lambda: not plogs.replication_use.away)
        content[7] ^= 1
        assert file.read_bytes() == content


def test_a_deployment_may_have_a_partition_of_its_own_on_the_same_servers(tmp_path: Path) -> None:
    """A server belongs to its cluster, and a partition to one deployment."""
    with (
        closing(PlogServers(tmp_path)) as servers,
        servers.oracle() as cpo,
        oracle_of(servers) as other,
        open_cluster_plogs("local", cpo) as plogs,
        open_cluster_plogs("local", other, partition="theirs") as more,
    ):
        ours, theirs = plogs.create(size=10), more.create(size=10)
        assert (plogs.append(ours, 0, b"ours"), more.append(theirs, 0, b"theirs")) == (4, 6)
        with pytest.raises(PenstockError):
            plogs.read(theirs, 0, 1)
