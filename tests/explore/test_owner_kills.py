"""Servers on three plog servers, of which the owner is killed again and again while a client goes on."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

import penstock
from penstock.cpo import open_cpo
from penstock.errors import NoSuchTransaction
from tests.explore.busy_client import KINDS, LARGE_MAX, STREAM, BusyClient
from tests.explore.busy_life import parse
from tests.plog_servers import PlogServers
from tests.sampling import EXPLORES
from tests.server.cluster import Servers

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from penstock import OpenTransaction, Store
    from penstock.cpo import Cpo
    from tests.explore.busy_client import Kind
    from tests.explore.conftest import Lives

pytestmark = pytest.mark.long
KILLS: Final = 8 if EXPLORES else 3  # of each store
CLUSTER: Final = "plant"


def test_a_client_finds_what_was_acknowledged_however_often_the_owner_is_killed(lives: Lives, tmp_path: Path) -> None:
    """In the middle of commits, of large events that are closed, and of writes: each event once, transactions whole."""
    for number, dice in enumerate(lives(sampled=1, explored=20)):
        live(tmp_path / str(number), dice)


def live(folder: Path, dice: Random) -> None:
    """Kill the owner so many times; then read everything from the last one."""
    with (
        closing(PlogServers(folder / "plog-servers", "east", cluster=CLUSTER)) as plog_servers,
        open_cpo(f"sqlite:{folder}/cpo.db") as cpo,
    ):
        cpo.register_cluster(CLUSTER, {"east": plog_servers.addresses("east")})
        with Servers(folder, 2, plogs=f"cluster:{CLUSTER}") as servers, penstock.connect(servers.address) as store:
            store.create_stream(STREAM, 2)
            with BusyClient(store, dice) as client:
                for number in range(KILLS):
                    client.await_more()
                    kind = KINDS[number] if number < len(KINDS) else dice.choice(KINDS)
                    owner = servers.owner()
                    client.in_the_middle(kind, dice, servers.processes[owner].kill)
                    take_over(servers, cpo, owner)
                client.await_more()
            with penstock.connect(servers.address) as other:
                check(client, numbers_in(other))


def take_over(servers: Servers, cpo: Cpo, killed: int) -> None:
    """Let the lease of an owner that was killed end at once; start it again, so that it stands by."""
    servers.processes[killed].wait()
    lease = cpo.lease("partition/main")
    if lease is not None:
        cpo.release(lease)
    servers.start_again(killed)


def numbers_in(store: Store) -> dict[Kind, list[int]]:
    """Return the numbers of the events that are there, by the thread that has written them, in their order."""
    found: dict[Kind, list[int]] = {kind: [] for kind in KINDS}
    for batch in store.read(STREAM, max_event_size=LARGE_MAX + 1000):
        for event in batch["event"].to_pylist():
            worker, number = parse(event)
            [kind] = [kind for kind in KINDS if kind == worker]
            found[kind].append(number)
    return found


def check(client: BusyClient, found: dict[Kind, list[int]]) -> None:
    """Compare what is there with what was acknowledged."""
    assert found["write"] == client.acknowledged["write"], "one writer, one key: each event once, and in order"
    for kind in KINDS:
        there = set(found[kind])
        assert len(there) == len(found[kind]), f"{kind}: doubled"
        assert there >= set(client.acknowledged[kind]), f"{kind}: lost"
        assert there <= set(client.acknowledged[kind]) | client.unsure[kind], f"{kind}: never committed, and there"
    assert found["close"] == sorted(found["close"]), "large events of one key: in order"
    for transaction, numbers in client.failed:
        is_there = {number in set(found["commit"]) for number in numbers}
        assert is_there == {is_committed(transaction)}, f"{numbers[0]} to {numbers[-1]} of a transaction"


def is_committed(transaction: OpenTransaction) -> bool:
    try:
        return transaction.status == "committed"
    except NoSuchTransaction:
        return False
