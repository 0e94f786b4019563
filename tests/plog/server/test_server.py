"""Plog servers and their owners over real sockets: what is acknowledged stays, whatever ends in between."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING

import pytest

from penstock.errors import (
    BadArgument,
    FormatUnknown,
    GroupUnavailable,
    PlogSealed,
    PlogServerRefused,
    ReplicaLost,
    StoreFenced,
    StoreLocked,
)
from penstock.plog import PlogInfo
from penstock.plog.replicated import ServerAccess, open_group_plogs
from penstock.plog.server import PlogServer, ServerFolder
from penstock.ports import SystemClock
from penstock.server._addresses import listen
from penstock.server._plog_server import _user_check
from penstock.server._tls import own_certificate
from penstock.server._users import Users
from tests.cutting_proxy import CuttingProxy
from tests.plog_servers import PlogServers
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[PlogServers]:
    with closing(PlogServers(tmp_path)) as servers:
        yield servers


def test_appends_are_on_all_three_servers_and_survive_the_next_owner(servers: PlogServers) -> None:
    """This is what three servers are for: any of them has everything that was acknowledged."""
    with servers.open() as plogs:
        plog_id = plogs.create(size=1 << 20)
        offset = plogs.append(plog_id, 0, b"first", b" and ")
        pending = [plogs.submit(plog_id, offset + 6 * number, b"number") for number in range(100)]
        assert pending[-1].result() == offset + 600
        assert plogs.info(plog_id).length == offset + 600
        assert bytes(plogs.read(plog_id, 6, 9)) == b"and numbe"
    with servers.open() as plogs:
        assert plogs.info(plog_id) == PlogInfo(offset + 600, sealed=True, size=1 << 20)
        assert [bytes(plogs.read(plog_id, 0, 5)) for _ in range(3)] == [b"first"] * 3
        with pytest.raises(PlogSealed):
            plogs.append(plog_id, offset + 600, b"more")


def test_a_new_owner_fences_the_one_before_it_also_after_all_servers_have_restarted(servers: PlogServers) -> None:
    """An owner that was suspended must not write any more, and the fence must not be forgotten."""
    with servers.open() as old:
        plog_id = old.create(size=1000)
        with servers.open() as new:
            with pytest.raises(StoreFenced):
                old.append(plog_id, 0, b"late")
            assert new.info(plog_id).length == 0
        for place in range(3):
            servers.stop("main", place)
            servers.start("main", place)
        with pytest.raises(StoreFenced):
            old.create(size=1000)
        with pytest.raises(StoreFenced):
            old.check_running()


def test_a_server_that_is_away_fails_the_append_and_the_log_continues_in_another_group(tmp_path: Path) -> None:
    """Without its third copy an append is not acknowledged; the oracle remembers what has to be repaired."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_id = plogs.create(size=1000)
        assert plogs.append(plog_id, 0, b"acknowledged") == 12
        servers.stop(plog_id.group, 1)
        with pytest.raises(ReplicaLost):
            plogs.append(plog_id, 12, b"in doubt")
        assert plogs.seal(plog_id, 1000) == 12, "of its own plog, an owner keeps what it has acknowledged, and no more"
        other = plogs.create(size=1000)
        assert other.group != plog_id.group
        assert bytes(plogs.read(plog_id, 0, 12)) == b"acknowledged"
        assert len(plogs.replication_use.away) == 1
        servers.start(plog_id.group, 1)
        eventually(lambda: not cpo.keys("seal/"))
        assert plogs.replication_use.under_replicated == 0


def test_a_server_that_has_lost_its_folder_gets_its_replicas_back(tmp_path: Path) -> None:
    """A disk dies one day; after the repair the other two servers are not needed to read."""
    with closing(PlogServers(tmp_path)) as servers, servers.oracle() as cpo, servers.open(cpo) as plogs:
        plog_ids = [plogs.create(size=1 << 20) for _ in range(3)]
        for plog_id in plog_ids:
            plogs.append(plog_id, 0, b"x" * 5000, b"y")
            plogs.seal(plog_id, 5001)
        servers.rob("main", 2)
        servers.start("main", 2)
        partition = servers.folder("main", 2) / "partition-main"
        eventually(lambda: len(list(partition.glob("*.plog"))) == 3 and not cpo.keys("seal/"))
        eventually(lambda: plogs.replication_use.copied_size == 3 * 5001)
        for place in (0, 1):
            servers.stop("main", place)
        assert bytes(plogs.read(plog_ids[0], 4999, 2)) == b"xy"


def test_without_an_oracle_a_length_is_not_guessed(servers: PlogServers) -> None:
    """Two servers do not know whether the third has more, and there is no row to decide it once and for all.

    When it is back, the owner keeps what was acknowledged and no more, although two servers have the other append.
    """
    with servers.open() as plogs:
        plog_id = plogs.create(size=1000)
        plogs.append(plog_id, 0, b"abc")
        servers.stop("main", 0)
        with pytest.raises(ReplicaLost):
            plogs.append(plog_id, 3, b"def")
        with pytest.raises(GroupUnavailable):
            plogs.seal(plog_id, 1000)
        with pytest.raises(GroupUnavailable):
            plogs.create(size=1000)
        with pytest.raises(GroupUnavailable):
            servers.open()
        servers.start("main", 0)
        eventually(lambda: not plogs.replication_use.away)
        assert plogs.seal(plog_id, 1000) == 3


def test_a_connection_that_is_cut_costs_nothing_but_time(servers: PlogServers) -> None:
    """A network that fails for a moment must not make the owner give a group up."""
    addresses = servers.addresses("main")
    with (
        closing(CuttingProxy(int(addresses[0].rpartition(":")[2]))) as proxy,
        open_group_plogs(",".join([f"127.0.0.1:{proxy.port}", *addresses[1:]])) as plogs,
    ):
        plog_id, offset, pending = plogs.create(size=1 << 20), 0, []
        for number in range(300):
            if number % 100 == 50:
                proxy.cut_all()
            pending.append(plogs.submit(plog_id, offset, b"%06d" % number))
            offset += 6
        assert pending[-1].result() == offset
        assert bytes(plogs.read(plog_id, 0, offset)) == b"".join(b"%06d" % number for number in range(300))


def test_garbage_and_silence_on_the_port_end_with_the_connection(tmp_path: Path) -> None:
    """Port scanners find every port; they must neither stay nor disturb."""
    with closing(PlogServers(tmp_path, hello_s=0.05)) as servers:
        server = servers.running["main", 0]
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PPL1" + b"\xff" * 12, b"PPL1"):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(garbage)
                client.settimeout(20)
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""
        eventually(lambda: server.connections() == 0)
        with servers.open() as plogs:
            plogs.append(plogs.create(size=100), 0, b"still there")


def test_folders_that_are_not_this_server_s_are_refused(tmp_path: Path) -> None:
    """A server must never take the replicas of another one, or of a version that it does not know, for its own."""
    with closing(ServerFolder(tmp_path / "a", cluster="c", group="g")), pytest.raises(StoreLocked):
        ServerFolder(tmp_path / "a", cluster="c", group="g")
    with pytest.raises(BadArgument, match="belongs to a server of group g in cluster c"):
        ServerFolder(tmp_path / "a", cluster="c", group="h")
    identity = tmp_path / "a" / "SERVER"
    identity.write_text(json.dumps(json.loads(identity.read_text()) | {"format": 2, "new": True}))
    with pytest.raises(FormatUnknown, match="format 2"):
        ServerFolder(tmp_path / "a", cluster="c", group="g")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "photo.jpg").write_bytes(b"")
    with pytest.raises(FormatUnknown, match="other files"):
        ServerFolder(tmp_path / "b", cluster="c", group="g")


def test_servers_that_are_not_the_three_of_a_group_are_refused(servers: PlogServers, tmp_path: Path) -> None:
    """One server twice, or a copy of a server's folder, would hold one copy where two are believed to be."""
    addresses = servers.addresses("main")
    with pytest.raises(BadArgument, match="name three"):
        open_group_plogs(",".join(addresses[:2]))
    with pytest.raises(PlogServerRefused, match="twice"):
        open_group_plogs(",".join([addresses[0], *addresses[:2]]))
    with (
        closing(PlogServers(tmp_path / "others", "other")) as others,
        pytest.raises(PlogServerRefused, match="group other"),
    ):
        open_group_plogs(",".join([*addresses[:2], others.addresses("other")[0]]))
    servers.rob("main", 1)
    servers.stop("main", 0)
    shutil.copytree(servers.folder("main", 0), servers.folder("main", 1))
    servers.start("main", 0)
    servers.start("main", 1)
    with pytest.raises(PlogServerRefused, match="twice"):
        servers.open()


def test_the_highest_epoch_stays_whichever_session_saves_last(tmp_path: Path) -> None:
    """Two owners may open sessions at the same time: after a restart the former one must still be fenced."""
    with closing(ServerFolder(tmp_path, cluster="c", group="g")) as folder, ThreadPoolExecutor(8) as pool:
        replicas = folder.partition("p", count_max=1).replicas
        list(pool.map(lambda epoch: replicas.save_epoch(epoch, b"owner %d" % epoch), [5, 5, 7, 6, 7, 3, 1, 2]))
    with closing(ServerFolder(tmp_path, cluster="c", group="g")) as folder:
        assert folder.partition("p", count_max=1).host.epoch == 7


def test_wrong_passwords_and_wrong_certificates_open_no_session(tmp_path: Path) -> None:
    """The replicas are all events of all streams: only owners that are known may touch them."""
    users = Users.open(tmp_path / "users.json")
    users.add("owner", "right password")
    users.grant("owner", "admin", "*")
    users.add("reader", "right password")
    users.grant("reader", "read", "*")
    certificate = own_certificate(tmp_path, ["127.0.0.1"], clock=SystemClock())
    with ExitStack() as stack:
        addresses = []
        for place in range(3):
            folder = ServerFolder(tmp_path / str(place), cluster="local", group="main")
            server = PlogServer(
                folder,
                listen("127.0.0.1", 0),
                tls=certificate.context(),
                check_user=_user_check(tmp_path / "users.json"),
            )
            addresses.append(f"127.0.0.1:{stack.enter_context(server).port}")
        group = ",".join(addresses)
        trusting = ssl.create_default_context(cafile=str(tmp_path / "server.crt"))
        with pytest.raises(PlogServerRefused):
            open_group_plogs(group, access=ServerAccess("owner", "wrong password", trusting))
        with pytest.raises(PlogServerRefused, match="may not own plogs"):
            open_group_plogs(group, access=ServerAccess("reader", "right password", trusting))
        assert "right password" not in repr(ServerAccess("reader", "right password"))
        with pytest.raises(GroupUnavailable, match="certificate"):
            open_group_plogs(group, access=ServerAccess("owner", "right password", ssl.create_default_context()))
        with pytest.raises(GroupUnavailable, match="the server uses TLS: set PENSTOCK_PLOG_CA"):
            open_group_plogs(group, access=ServerAccess("owner", "right password"))
        with open_group_plogs(group, access=ServerAccess("owner", "right password", trusting)) as plogs:
            plog_id, data = plogs.create(size=4 << 20), bytes(range(256)) * 4096
            pending = [plogs.submit(plog_id, len(data) * number, data) for number in range(4)]
            assert pending[-1].result() == 4 * len(data)
            assert bytes(plogs.read(plog_id, len(data), len(data))) == data


def test_an_owner_with_tls_is_told_that_a_server_does_not_use_it(servers: PlogServers) -> None:
    """TLS itself only says that the connection has ended, as it does for many reasons."""
    with pytest.raises(GroupUnavailable, match="does not seem to use TLS, which PENSTOCK_PLOG_CA asks for"):
        open_group_plogs(",".join(servers.addresses("main")), access=ServerAccess(tls=ssl.create_default_context()))
