"""A plog server that refuses an owner is away, as one that is dead: the store goes on with the other servers."""

from __future__ import annotations

import shutil
import socketserver
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import PlogServerRefused
from penstock.frames import pack_frame
from penstock.log import MetadataManager
from penstock.plog.replicated import Refusal, ServerAccess, encode_header, open_cluster_plogs
from penstock.plog.server import PlogServer, PlogServerLimits, ServerFolder
from penstock.server import cluster_members
from penstock.server._addresses import listen
from penstock.server._plog_server import _user_check
from penstock.server._users import Users
from tests.plog_servers import PlogServers
from tests.sampling import in_case
from tests.server.apart import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from penstock.cpo import Cpo
    from penstock.plog.replicated import ReplicatedPlogs

ACCESS: Final = ServerAccess("owner", "right password")
OTHER: Final = Refusal("bad-request", 2, "this server speaks version 2 of the protocol")


class Answering(socketserver.ThreadingTCPServer):
    """Something else on the port of a plog server: it answers everybody alike."""

    allow_reuse_address = True

    def __init__(self, port: int, answer: bytes) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(10)
                self.request.sendall(answer)

        super().__init__(("127.0.0.1", port), Handler)


@contextmanager
def answering(port: int, answer: bytes) -> Iterator[None]:
    with Answering(port, answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def other_server(servers: PlogServers, port: int, **settings: Any) -> PlogServer:  # noqa: ANN401 - those of a server
    """Return the stopped server east-1 with other settings."""
    folder = ServerFolder(servers.folder("east", 1), cluster="local", group="east")
    return PlogServer(folder, listen("127.0.0.1", port), **settings)


def refusing(kind: str, servers: PlogServers, port: int, folder: Path) -> AbstractContextManager[object]:
    """Return what refuses owners at the port of the stopped server east-1."""
    if kind == "HTTP":
        return answering(port, b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)
    if kind == "a newer protocol":
        return answering(port, b"".join(bytes(part) for part in pack_frame(encode_header(1, OTHER))))
    if kind == "another password":
        users = Users.open(folder / "users.json")
        users.add("owner", "another password")
        users.grant("owner", "admin", "*")
        return other_server(servers, port, check_user=_user_check(folder / "users.json"))
    return other_server(servers, port, limits=PlogServerLimits(partitions_max=0))


KINDS: Final = {
    "HTTP": "this is not the protocol of plog servers",
    "a newer protocol": "speaks version 2 of the protocol",
    "another password": "password",
    "too many partitions": "takes no more",
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_server_that_refuses_does_not_keep_a_new_owner_out(tmp_path: Path, kind: str) -> None:
    """A dead server did not, so one that was upgraded first, or has another password, must not stop the store."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo:
        assert written(cpo, b"first;") == b"first;"
        address = servers.addresses("east")[1]
        servers.stop("east", 1)
        with (
            refusing(kind, servers, int(address.rpartition(":")[2]), tmp_path),
            open_cluster_plogs("local", cpo, access=ACCESS) as plogs,
        ):
            assert KINDS[kind] in plogs.replication_use.away[address]
            assert plogs.replication_use.has_complete_group
            eventually(lambda: list(notes(cpo, plogs)) == [address])  # the other group was looked through
            assert KINDS[kind] in notes(cpo, plogs)[address]
            with MetadataManager.open(plogs, cpo, "main") as manager:
                log = manager.log("log")
                log.append(b"second;")
                assert log.tail.plog_id.group == "west"
        servers.start("east", 1)
        assert written(cpo, b"third;") == b"first;second;third;"


def notes(cpo: Cpo, plogs: ReplicatedPlogs) -> dict[str, str]:
    """Return the notes of ``cluster status`` by server, as the owner of the plogs sends them."""
    return {member.server: member.note for member in cluster_members(cpo, plogs.replication_use) if member.note}


def written(cpo: Cpo, data: bytes) -> bytes:
    """Append to the log as a new owner, and return all of it."""
    with open_cluster_plogs("local", cpo, access=ACCESS) as plogs, MetadataManager.open(plogs, cpo, "main") as manager:
        log = manager.log("log")
        log.append(data)
        return b"".join(bytes(view) for _, view in log.blocks(0, log.length))


def test_a_server_that_refuses_no_more_is_used_again(tmp_path: Path) -> None:
    """The owner does not have to be restarted when an upgrade, or a mistake in the file of users, is over."""
    with closing(PlogServers(tmp_path, "east", "west")) as servers, servers.oracle() as cpo:
        port = int(servers.addresses("east")[1].rpartition(":")[2])
        servers.stop("east", 1)
        with refusing("HTTP", servers, port, tmp_path):
            plogs = servers.open(cpo)
        with plogs:
            servers.start("east", 1)
            eventually(lambda: not plogs.replication_use.away)
            eventually(lambda: plogs.create(size=10).group == "east")


def test_an_owner_that_every_server_refuses_is_told_why(tmp_path: Path) -> None:
    """With a wrong password it would otherwise only hear that groups are not available."""
    users = Users.open(tmp_path / "users.json")
    users.add("owner", "another password")
    users.grant("owner", "admin", "*")
    with closing(PlogServers(tmp_path, "east")) as servers, servers.oracle() as cpo:
        ports = [int(address.rpartition(":")[2]) for address in servers.addresses("east")]
        for place in range(3):
            servers.stop("east", place)
        with (
            other_server(servers, ports[1], check_user=_user_check(tmp_path / "users.json")),
            pytest.raises(PlogServerRefused, match="password"),
        ):
            open_cluster_plogs("local", cpo, access=ACCESS)


def test_what_says_that_the_setup_is_wrong_keeps_an_owner_out(tmp_path: Path) -> None:
    """An owner of another deployment, or with one server for two, would write where it must not, or hold two copies."""
    with (
        closing(PlogServers(tmp_path, "east", "west")) as servers,
        servers.oracle() as cpo,
        open_cpo("memory:") as other,
    ):
        with servers.open(cpo):
            pass
        east, west = servers.addresses("east"), servers.addresses("west")
        for place in (0, 1):
            servers.rob("east", place)
            servers.start("east", place)  # new servers: they would take an owner of any deployment
        other.register_cluster("local", {"east": east, "west": west})
        with in_case("another deployment"), pytest.raises(PlogServerRefused, match="another deployment"):
            open_cluster_plogs("local", other)
    with closing(PlogServers(tmp_path / "more", "east", "west")) as servers, servers.oracle() as cpo:
        servers.rob("east", 1)
        servers.stop("east", 0)
        shutil.copytree(servers.folder("east", 0), servers.folder("east", 1))
        servers.start("east", 0)
        servers.start("east", 1)
        with in_case("one server twice"), pytest.raises(PlogServerRefused, match="twice"):
            servers.open(cpo)
