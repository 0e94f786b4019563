"""The leases of servers that share a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.cpo import open_cpo
from penstock.errors import CpoUnavailable
from penstock.server import _leases
from penstock.server._leases import LEASE_S, ServerLeases, cluster_servers
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cpo import Cpo

A, B = "a:7367", "b:7367"


@pytest.fixture(autouse=True)
def no_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the tests renew leases."""
    monkeypatch.setattr(_leases, "RENEW_S", 3600.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_000.0)


@pytest.fixture
def cpo(clock: ManualClock) -> Iterator[Cpo]:
    with open_cpo("memory:", clock=clock) as cpo:
        yield cpo


def leases(cpo: Cpo, address: str, clock: ManualClock) -> ServerLeases:
    return ServerLeases(cpo, address, clock=clock)


def test_one_server_owns_the_partition_and_the_others_are_listed(cpo: Cpo, clock: ManualClock) -> None:
    """An operator sees who serves, since when, and whether a server is left that could take over."""
    first, second = leases(cpo, A, clock), leases(cpo, B, clock)
    clock.advance(1.0)
    assert first.acquire()
    assert not second.acquire()
    assert second.owner == A
    assert cluster_servers(cpo) == [
        (A, "main", 1, 1_001.0, 1_001.0 + LEASE_S),
        (B, None, 0, 1_000.0, 1_000.0 + LEASE_S),
    ]
    first.close()
    assert second.acquire(), "a server that ends does not let the others wait"
    assert [server.address for server in cluster_servers(cpo)] == [B]
    second.close()
    assert cluster_servers(cpo) == []


def test_an_owner_whose_lease_ran_out_goes_on_if_no_other_server_had_it(cpo: Cpo, clock: ManualClock) -> None:
    """As after a minute without the oracle: ending the service would help nobody."""
    owner = leases(cpo, A, clock)
    assert owner.acquire()
    clock.advance(60.0)
    owner.renew()
    assert owner.lost is None
    assert [server.epoch for server in cluster_servers(cpo)] == [2]


def test_an_owner_is_not_lost_while_it_acquires_its_lease_again(
    cpo: Cpo, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that serves looks at any moment, and an oracle that starts is slow, or away once more."""
    owner = leases(cpo, A, clock)
    assert owner.acquire()
    seen: list[str | None] = []

    def away_again(*_: object, **__: object) -> None:
        seen.append(owner.lost)
        raise CpoUnavailable("memory:", reason="it is away")

    clock.advance(60.0)
    with monkeypatch.context() as away:
        away.setattr(cpo, "acquire", away_again)
        owner.renew()
    assert [*seen, owner.lost] == [None, None, None]  # for the partition, for the server, and then
    owner.renew()
    assert (owner.lost, owner.trouble) == (None, None)


@pytest.mark.parametrize("is_held", [True, False])
def test_an_owner_gives_up_if_another_server_had_the_lease(cpo: Cpo, clock: ManualClock, is_held: bool) -> None:
    """Also if that one has ended since: it may have taken the partition over."""
    owner = leases(cpo, A, clock)
    assert owner.acquire()
    clock.advance(LEASE_S)
    other = leases(cpo, B, clock)
    assert other.acquire()
    if not is_held:
        other.release()
    owner.renew()
    assert owner.lost is not None
    owner.release()
    assert owner.acquire() is not is_held


def test_an_owner_goes_on_while_the_oracle_is_away(
    cpo: Cpo, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plogs decide who may write; the oracle is not needed for that. Health says that it is away."""
    owner, other = leases(cpo, A, clock), leases(cpo, B, clock)
    assert owner.acquire()

    def fail(*_: object, **__: object) -> None:
        raise CpoUnavailable("memory:", reason="it is away")

    with monkeypatch.context() as away:
        for call in ("renew", "acquire", "lease", "release"):
            away.setattr(cpo, call, fail)
        owner.renew()
        assert not other.acquire()
        assert owner.lost is None
        assert "it is away" in str(owner.trouble)
        assert "it is away" in str(other.trouble)
        clock.advance(60.0)
    assert not other.acquire(), "the owner gets a chance to acquire the lease again"
    owner.renew()
    clock.advance(LEASE_S - 0.1)
    assert not other.acquire()
    assert (owner.lost, owner.trouble, other.trouble) == (None, None, None)
    clock.advance(LEASE_S)
    other.renew()
    assert other.acquire(), "but not for ever"


def test_a_lease_ends_although_the_clock_of_the_oracle_was_set_back(clock: ManualClock) -> None:
    """Or nobody could take over for an hour, nor the killed server start again, if it happens with a kill."""
    of_oracle = ManualClock(start=7_200.0)
    with open_cpo("memory:", clock=of_oracle) as cpo:
        assert leases(cpo, A, clock).acquire()  # and is killed
        of_oracle.advance(-3600.0)
        other, again = leases(cpo, B, clock), leases(cpo, A, clock)
        for _ in range(8):
            for server in (other, again):
                server.renew()
                assert not server.acquire()
            clock.advance(LEASE_S / 4)
            of_oracle.advance(LEASE_S / 4)
        clock.advance(LEASE_S / 4)
        again.renew()
        again.renew()
        assert again.trouble is None
        assert not other.acquire()
        assert other.acquire()


def test_a_server_with_the_address_of_another_does_not_take_over(cpo: Cpo, clock: ManualClock) -> None:
    """Clients would be sent to the wrong one. It says what is wrong, and goes on by itself when it is alone."""
    first, second = leases(cpo, A, clock), leases(cpo, A, clock)
    assert not second.acquire()
    assert f"another server advertises {A}" in str(second.trouble)
    first.close()
    second.renew()
    assert second.trouble is None
    assert second.acquire()
