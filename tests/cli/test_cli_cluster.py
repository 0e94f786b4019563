"""``penstock cluster``."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from penstock.cli import _store
from penstock.client._servers import ServersFinder
from penstock.cpo import PersistenceCluster, open_cpo
from penstock.errors import CpoError, ServerError
from penstock.plog.replicated import open_cluster_plogs
from penstock.server import USERS_FILE, Config, Server, Users
from penstock.testing import ManualClock
from penstock.wire import unpack_members
from tests.plog_servers import PlogServers
from tests.server.apart import eventually, free_port
from tests.server.cluster import config_of, status_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Call, CallOnTerminal

FUTURE = ManualClock(start=4e9)


def test_status_shows_the_owner_and_those_that_stand_by(call: Call, tmp_path: Path) -> None:
    """The operator sees who serves since when, and whether somebody could take over."""
    url = f"sqlite:{tmp_path}/cpo.db"
    with open_cpo(url, clock=FUTURE) as cpo:
        for address in ("a:1", "b:2"):
            cpo.acquire(f"server/{address}", f"{address} id 1000.5", seconds=9)
        cpo.acquire("partition/main", "b:2 id 2000.25", seconds=9)
        cpo.acquire("partition/other", "a program", seconds=9)
    assert call("cluster", "status", "--cpo", url).lines == [
        "b:2\towner\tmain\t2000250\t4000000009000\t1\t-\t-\t-\t-",
        "a\towner\tother\t0\t4000000009000\t1\t-\t-\t-\t-",
        "a:1\tstandby\t-\t1000500\t4000000009000\t-\t-\t-\t-\t-",
    ]
    assert json.loads(call("cluster", "status", "--cpo", url, "--json").out)[2] == {
        "server": "a:1",
        "role": "standby",
        "partition": None,
        "since": 1_000_500,
        "until": 4_000_000_009_000,
        "epoch": 0,
        "repair": None,
        "scrub": None,
        "damaged": None,
        "note": None,
    }


def test_status_asks_a_server_that_knows_the_oracle(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password of the database is not for everybody who looks after a store; users of the server are enough."""
    config = config_of(tmp_path, "a", anonymous=False, tls=False)
    (tmp_path / "a").mkdir()
    users = Users.open(tmp_path / "a" / USERS_FILE)
    for name, grants in {"reader": "*", "guest": "plant/*"}.items():
        users.add(name, "password")
        users.grant(name, "read", grants)
    monkeypatch.setenv("PENSTOCK_PASSWORD", "password")
    with Server(config) as server:
        eventually(lambda: status_of(server.http_port) == "ok")
        asked = ("cluster", "status", "--store", server.address, "--user")
        line = call(*asked, "reader").lines[0].split("\t")
        assert line[:3] == [f"127.0.0.1:{server.port}", "owner", "main"]
        by_oracle = call("cluster", "status", "--cpo", f"sqlite:{tmp_path}/cpo.db").lines[0].split("\t")
        assert (line[:4], line[5:]) == (by_oracle[:4], by_oracle[5:]), "until changes with every renewal"
        refused = call(*asked, "guest")
        assert (refused.code, "penstock user grant guest read '*'" in refused.err) == (1, True), refused.err
        both = call(*asked, "reader", "--cpo", f"sqlite:{tmp_path}/cpo.db")
        assert (both.code, "name the servers or the oracle, not both" in both.err) == (2, True)
        monkeypatch.setenv("PENSTOCK_CPO", f"sqlite:{tmp_path}/none.db")
        assert call(*asked, "reader").code == 0, "what is on the command line counts"
        monkeypatch.delenv("PENSTOCK_CPO")
    folder = call("cluster", "status", "--store", str(tmp_path / "folder"))
    assert (folder.code, "a folder has no cluster" in folder.err) == (2, True)
    assert not (tmp_path / "folder").exists()


def test_status_of_a_server_without_a_cluster_says_so(call: Call, tmp_path: Path) -> None:
    """An empty table would look like a cluster whose servers are all away."""
    with Server(Config(store=str(tmp_path / "a"), port=0, http_port=0, anonymous=True)) as server:
        result = call("cluster", "status", "--store", server.address)
    assert (result.code, "started with --plogs and --cpo" in result.err) == (1, True), result.err


def test_an_answer_that_lists_no_servers_is_not_believed() -> None:
    """A server may be of another version, or no server of Penstock at all."""
    for answer in (None, [None], [["a:1"]], [["a:1", "king", None]], [["a:1", "owner", None, "noon"]]):
        with pytest.raises(ServerError, match="invalid list of servers"):
            unpack_members(answer)


def test_status_of_an_oracle_that_is_not_there_is_refused(call: Call, tmp_path: Path) -> None:
    """A mistyped name must neither create a file nor look like a cluster without servers."""
    result = call("cluster", "status", "--cpo", f"sqlite:{tmp_path}/none.db")
    assert result.code == 1
    assert "there is no such file" in result.err
    assert not (tmp_path / "none.db").exists()
    assert call("cluster", "status", "--cpo", "redis://:secret@host").code == 2


def test_a_cluster_has_groups_of_three_servers_and_status_shows_what_they_lack(call: Call, tmp_path: Path) -> None:
    """A group of two would lose data that was acknowledged; a server that is away has to be seen by the operator."""
    url = f"sqlite:{tmp_path}/cpo.db"
    for group in ("east=a:1,b:1", "east=a:1,b:1,c", "east", "=a:1,b:1,c:1"):
        assert call("cluster", "create", "plant", group, "--cpo", url).code == 2, group
    groups = ("east=a:1,b:1,c:1", "west=a:2,b:2,c:2")
    for _ in range(2):
        assert call("cluster", "create", "plant", *groups, "--cpo", url).lines == ["cluster plant: 2 groups"]
    assert call("cluster", "create", "plant", groups[0], "--cpo", url).code == 1
    with open_cpo(url, clock=FUTURE) as cpo:
        cpo.acquire("plog-server/plant/east/id", "b:1 instance", seconds=9)
        cpo.cas(f"seal/main/plant/west/{'0' * 32}", b"", expected=0)
        cpo.cas("scrub/plant/east/b:1", msgspec.msgpack.encode([40, 2]), expected=0)
        cpo.cas("scrub/plant/east/a:1", b"of a later version", expected=0)
    lines = call("cluster", "status", "--cpo", url).lines
    assert lines[:2] == [
        "a:1\taway\tplant/east\t-\t-\t-\t?\t-\t-\t-",
        "b:1\tplog-server\tplant/east\t-\t4000000009000\t-\t?\t40%\t2\t-",
    ]
    assert lines[5] == "c:2\taway\tplant/west\t-\t-\t-\t1\t-\t-\t-"


@pytest.mark.parametrize(
    "servers", ["a:1,A:1,b:1", "127.0.0.1:1,127.0.0.1:01,b:1", "localhost:1,127.0.0.1:1,b:1", "[::1]:1,[0::1]:1,b:1"]
)
def test_a_server_in_two_spellings_is_refused(call: Call, tmp_path: Path, servers: str) -> None:
    """It would count as two servers of the three, and hold two of the three copies."""
    url = f"sqlite:{tmp_path}/cpo.db"
    first, second, third = servers.split(",")
    same_group = call("cluster", "create", "plant", f"east={servers}", "--cpo", url)
    assert (same_group.code, f"name {second}, which is {first}, once" in same_group.err) == (2, True), same_group.err
    two_groups = (f"east={first},{third},c:1", f"west={second},d:1,e:1")
    refused = call("cluster", "create", "plant", *two_groups, "--cpo", url)
    assert (refused.code, f"{second}, which is {first}, is in two groups" in refused.err) == (2, True), refused.err
    assert call("cluster", "create", "plant", two_groups[0], "--cpo", url).code == 0
    refused = call("cluster", "add-group", "plant", two_groups[1], "--cpo", url)
    assert (refused.code, "is in two groups" in refused.err) == (2, True), refused.err
    for new in (first, second):
        refused = call("cluster", "replace-server", "plant", first, new, "--force", "--cpo", url)
        assert (refused.code, f"server {first} cannot take its own place" in refused.err) == (2, True), refused.err


def test_a_plog_server_that_is_not_registered_does_not_start_and_binds_no_folder(call: Call, tmp_path: Path) -> None:
    """No owner would ever come to it, and the corrected command has to work with the same folder."""
    url, address = f"sqlite:{tmp_path}/cpo.db", f"127.0.0.1:{free_port()}"
    command = ("plog-server", "--dir", str(tmp_path / "p"), "--listen", address, "--cpo", url)
    absent = call(*command, "--cluster", "plant")
    assert (absent.code, "there is no such file" in absent.err) == (1, True)
    assert call("cluster", "create", "plant", f"east={address},b:1,c:1", "west=d:1,e:1,f:1", "--cpo", url).code == 0
    mistakes = {
        ("--cluster", "plnt", "--group", "east"): (1, "register it with 'penstock cluster create'"),
        ("--cluster", "plant", "--group", "eats"): (2, "has no group 'eats': use --group with one of east, west"),
        ("--cluster", "plant", "--group", "west"): (2, f"has the servers d:1, e:1, f:1, not {address}"),
    }
    for options, (code, message) in mistakes.items():
        result = call(*command, *options)
        assert (result.code, message in result.err) == (code, True), result.err
        assert not (tmp_path / "p").exists()
    assert call(*command, "--cluster", "plant", "--group", "east").lines == [f"plog-server\t{address}"]


def test_status_breaks_no_value_on_a_terminal(
    call_on_terminal: CallOnTerminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time in two lines can be neither read nor copied."""
    monkeypatch.setenv("COLUMNS", "80")
    url = f"sqlite:{tmp_path}/cpo.db"
    with open_cpo(url, clock=FUTURE) as cpo:
        cpo.acquire("server/127.0.0.1:36053", "127.0.0.1:36053 id 1000.5", seconds=9)
        cpo.acquire("partition/main", "127.0.0.1:36053 id 2000.25", seconds=9)
        cpo.register_cluster("plant", {"east": ["127.0.0.1:46053", "127.0.0.1:46054", "127.0.0.1:46055"]})
    lines = call_on_terminal("cluster", "status", "--cpo", url).splitlines()
    assert len(lines) == 5
    assert lines[1].split() == [
        "127.0.0.1:36053",
        "owner",
        "main",
        "1970-01-01T00:33:20Z",
        "07:06:49Z",
        "1",
        "-",
        "-",
        "-",
        "-",
    ]


def test_a_command_says_that_it_looks_for_the_owner(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for ten seconds, and a silent command seems to hang."""
    monkeypatch.setattr(_store, "_SEARCH_S", 0.0)
    monkeypatch.setattr(ServersFinder, "patience_s", 0.3)
    servers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    result = call("stream", "ls", "--store", f"penstock://{','.join(servers)}")
    notice, failure = result.err.splitlines()
    assert notice == f"penstock: looking for the owner of the store among {', '.join(servers)} ..."
    assert (result.code, failure.count("no server listens there")) == (1, 2)


def test_a_group_is_added_to_a_cluster_and_used_by_the_next_owner(call: Call, tmp_path: Path) -> None:
    """A cluster grows without being registered under another name, which would be another store."""
    url = f"sqlite:{tmp_path}/cpo.db"
    with closing(PlogServers(tmp_path, "east", "west")) as servers, open_cpo(url) as cpo:
        cpo.register_cluster("local", {"east": servers.addresses("east")})
        with closing(open_cluster_plogs("local", cpo)) as plogs:
            old = plogs.create()
        west = f"west={','.join(servers.addresses('west'))}"
        for _ in range(2):
            assert call("cluster", "add-group", "local", west, "--cpo", url).lines == [
                "group west added to cluster local: its owner uses it when it opens the store again"
            ]
        other, twice = f"west={','.join(servers.addresses('east'))}", west.replace("west", "north")
        for arguments, code, message in (
            (("local", other), 1, "has a group 'west' with other servers"),
            (("local", twice), 2, "is in two groups"),
            (("lcal", west), 1, "no persistence cluster 'lcal'"),
            (("local", "west=a:1,b:1"), 2, "invalid group"),
        ):
            result = call("cluster", "add-group", *arguments, "--cpo", url)
            assert (result.code, message in result.err) == (code, True), result.err
        with closing(open_cluster_plogs("local", cpo)) as plogs:
            assert {plogs.create().group for _ in range(2)} == {"east", "west"}
            assert plogs.info(old).length == 0


def test_a_server_is_replaced_and_repair_fills_the_new_one(call: Call, tmp_path: Path) -> None:
    """A machine that is gone for good; but never two of a group before repair is done: they may have the last copy."""
    url = f"sqlite:{tmp_path}/cpo.db"
    with closing(PlogServers(tmp_path, "main")) as servers, open_cpo(url) as cpo:
        first, second, third = servers.addresses("main")
        cpo.register_cluster("local", {"main": [first, second, third]})
        with closing(open_cluster_plogs("local", cpo)) as plogs:
            plog_id = plogs.create()
            plogs.append(plog_id, 0, b"acknowledged")
            plogs.seal(plog_id, 12)
        servers.stop("main", 0)
        servers.start("main", 3)
        servers.start("main", 4)
        new, newer = (f"127.0.0.1:{servers.running['main', place].port}" for place in (3, 4))
        replace = ("cluster", "replace-server", "local")
        away = call(*replace, second, new, "--cpo", url)
        assert (away.code, f"its server {first} does not answer" in away.err) == (1, True), away.err
        assert call(*replace, first, new, "--cpo", url).lines == [
            f"{new} is in group main of cluster local: its owner uses it when it opens the store again"
        ]
        early = call(*replace, second, newer, "--cpo", url)
        assert (early.code, "do not both have a complete replica of 1 of its plogs" in early.err) == (1, True), (
            early.err
        )
        assert call(*replace, first, newer, "--cpo", url).code == 2, "it is not in the cluster any more"
        assert call(*replace, second, third, "--cpo", url).code == 2, "it is in the group already"
        assert call(*replace, second, "host", "--cpo", url).code == 2
        with closing(open_cluster_plogs("local", cpo)) as plogs:
            filled = servers.running["main", 3].folder.partitions()["main"].replicas
            eventually(lambda: len(filled.replicas(b"", 9)) == 1)
            eventually(lambda: not cpo.keys("seal/"))
            assert bytes(plogs.read(plog_id, 0, 12)) == b"acknowledged"
        assert call(*replace, second, newer, "--cpo", url).code == 0
        with pytest.raises(CpoError, match="was changed by another process"):
            cpo.change_cluster(PersistenceCluster.of("local", {"main": [first]}), cpo.cluster("local"))
