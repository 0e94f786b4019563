"""Leases: who may act in a name, for how long, and with which epoch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cpo import Lease, open_cpo
from penstock.errors import BadArgument, LeaseHeld, LeaseLost
from penstock.testing import ManualClock

if TYPE_CHECKING:
    from penstock.cpo import Cpo


def test_the_first_lease_has_epoch_one_and_ends_on_time(cpo: Cpo) -> None:
    """Epoch 0 stays free for 'no owner yet' in whatever compares epochs."""
    lease = cpo.acquire("folder", "one", seconds=10)
    assert lease == Lease("folder", "one", 1, 1_010.0)
    assert cpo.lease("folder") == lease


def test_a_name_that_was_never_acquired_has_no_lease(cpo: Cpo) -> None:
    """Looking must not create."""
    assert cpo.lease("folder") is None


def test_a_lease_that_another_holds_is_refused_with_who_and_how_long(cpo: Cpo, clock: ManualClock) -> None:
    """The one who waits needs to know for what, and when to come back."""
    cpo.acquire("folder", "one", seconds=10)
    clock.advance(4)
    with pytest.raises(LeaseHeld) as raised:
        cpo.acquire("folder", "two", seconds=10)
    assert (raised.value.owner, raised.value.seconds_left) == ("one", 6.0)


def test_leases_of_different_names_do_not_meet(cpo: Cpo) -> None:
    """One partition's owner says nothing about another's."""
    cpo.acquire("p0", "one", seconds=10)
    assert cpo.acquire("p1", "two", seconds=10).epoch == 1


def test_leases_are_listed_while_they_are_held(cpo: Cpo, clock: ManualClock) -> None:
    """A server that was killed leaves the list without anybody removing it."""
    cpo.acquire("server/a", "one", seconds=10)
    kept = cpo.acquire("server/b", "two", seconds=20)
    other = cpo.acquire("partition/main", "two", seconds=20)
    cpo.release(cpo.acquire("server/c", "three", seconds=20))
    clock.advance(10)
    assert cpo.leases("server/") == [kept]
    assert cpo.leases() == [other, kept]


def test_a_lease_is_over_at_the_moment_it_expires(cpo: Cpo, clock: ManualClock) -> None:
    """Owner and successor must agree about the last moment: it is the successor's."""
    cpo.acquire("folder", "one", seconds=10)
    clock.advance(10)
    assert cpo.lease("folder") is None
    assert cpo.acquire("folder", "two", seconds=10) == Lease("folder", "two", 2, 1_020.0)


def test_after_release_the_next_owner_need_not_wait_and_gets_a_new_epoch(cpo: Cpo) -> None:
    """An orderly hand-over takes no time, and is fenced like any other."""
    cpo.release(cpo.acquire("folder", "one", seconds=10))
    assert cpo.lease("folder") is None
    assert cpo.acquire("folder", "two", seconds=10).epoch == 2


def test_the_same_owner_after_expiry_gets_a_new_epoch(cpo: Cpo, clock: ManualClock) -> None:
    """Somebody else may have owned it in between, so what was started before is not to be trusted."""
    cpo.acquire("folder", "one", seconds=10)
    clock.advance(11)
    assert cpo.acquire("folder", "one", seconds=10).epoch == 2


def test_an_owner_that_acquires_what_it_holds_fences_its_former_self(cpo: Cpo) -> None:
    """A restarted process goes on at once, and the old one, should it only have been slow, is turned away."""
    former = cpo.acquire("folder", "one", seconds=10)
    new = cpo.acquire("folder", "one", seconds=10)
    assert new.epoch == former.epoch + 1
    with pytest.raises(LeaseLost):
        cpo.renew(former, seconds=10)
    assert cpo.lease("folder") == new


def test_renewing_counts_from_now_and_keeps_the_epoch(cpo: Cpo, clock: ManualClock) -> None:
    """What was started under the lease goes on under it."""
    lease = cpo.acquire("folder", "one", seconds=10)
    clock.advance(6)
    renewed = cpo.renew(lease, seconds=10)
    assert renewed == Lease("folder", "one", 1, 1_016.0)
    assert cpo.lease("folder") == renewed


def test_a_lease_can_be_renewed_from_any_copy_of_it(cpo: Cpo) -> None:
    """The epoch is the proof, not the time that a copy happens to carry."""
    lease = cpo.acquire("folder", "one", seconds=10)
    cpo.renew(lease, seconds=20)
    assert cpo.renew(lease, seconds=30).expires == 1_030.0


def test_a_lease_that_ran_out_cannot_be_renewed_even_if_it_was_not_taken(cpo: Cpo, clock: ManualClock) -> None:
    """Somebody may be taking it this moment: the way back is to acquire, with a new epoch."""
    lease = cpo.acquire("folder", "one", seconds=10)
    clock.advance(10)
    with pytest.raises(LeaseLost) as raised:
        cpo.renew(lease, seconds=10)
    assert (raised.value.name, raised.value.epoch) == ("folder", 1)


def test_a_released_lease_cannot_be_renewed(cpo: Cpo) -> None:
    """A keeper that still renews while its owner lets go must not bring the lease back."""
    lease = cpo.acquire("folder", "one", seconds=10)
    cpo.release(lease)
    with pytest.raises(LeaseLost):
        cpo.renew(lease, seconds=10)


def test_a_lease_that_never_was_cannot_be_renewed(cpo: Cpo) -> None:
    """The oracle may have been replaced by an empty one, which knows no owner."""
    with pytest.raises(LeaseLost):
        cpo.renew(Lease("folder", "one", 1, 2_000.0), seconds=10)


def test_releasing_twice_is_harmless(cpo: Cpo) -> None:
    """Clean-up code runs more than once."""
    lease = cpo.acquire("folder", "one", seconds=10)
    cpo.release(lease)
    cpo.release(lease)
    assert cpo.acquire("folder", "two", seconds=10).epoch == 2


def test_releasing_a_lost_lease_leaves_the_new_owners_alone(cpo: Cpo, clock: ManualClock) -> None:
    """A slow former owner that shuts down must not let a third one own it."""
    lost = cpo.acquire("folder", "one", seconds=10)
    clock.advance(11)
    held = cpo.acquire("folder", "two", seconds=10)
    cpo.release(lost)
    assert cpo.lease("folder") == held


def test_releasing_what_never_was_is_harmless(cpo: Cpo) -> None:
    """As with one that is lost."""
    cpo.release(Lease("folder", "one", 1, 2_000.0))
    assert cpo.lease("folder") is None


def test_a_clock_set_back_does_not_take_the_lease_from_its_holder(cpo: Cpo, clock: ManualClock) -> None:
    """Time decides how long a dead owner blocks; it must not decide who is right."""
    lease = cpo.acquire("folder", "one", seconds=10)
    clock.advance(-500)
    with pytest.raises(LeaseHeld):
        cpo.acquire("folder", "two", seconds=10)
    assert cpo.renew(lease, seconds=10).epoch == 1


def test_epochs_go_on_after_reopening(url: str) -> None:
    """A restart of everything must not give an old epoch again."""
    with open_cpo(url) as cpo:
        cpo.release(cpo.acquire("folder", "one", seconds=10))
    with open_cpo(url) as cpo:
        assert cpo.lease("folder") is None
        assert cpo.acquire("folder", "one", seconds=10).epoch == 2


@pytest.mark.parametrize("url", ["memory:", "postgresql"], indirect=True)
def test_the_system_clock_is_used_when_none_is_given(url: str) -> None:
    """Leases of different processes need a time they share."""
    with open_cpo(url) as cpo:
        cpo.acquire("folder", "one", seconds=60)
        with pytest.raises(LeaseHeld) as raised:
            cpo.acquire("folder", "two", seconds=60)
    assert 50 < raised.value.seconds_left <= 60


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, 86_401, 10**400, "10"])
def test_a_lease_for_no_time_or_for_ever_is_refused(cpo: Cpo, seconds: float) -> None:
    """A dead owner's lease must end, and a lease that is over at once protects nothing."""
    with pytest.raises(BadArgument):
        cpo.acquire("folder", "one", seconds=seconds)
    lease = cpo.acquire("folder", "one", seconds=10)
    with pytest.raises(BadArgument):
        cpo.renew(lease, seconds=seconds)
    assert cpo.lease("folder") == lease


@pytest.mark.parametrize("text", ["", "a" * 600, "a\nb", "\ud800"])
def test_names_and_owners_that_no_message_could_show_are_refused(cpo: Cpo, text: str) -> None:
    """Both are shown to the processes that have to wait."""
    with pytest.raises(BadArgument):
        cpo.acquire("folder", text, seconds=10)
    with pytest.raises(BadArgument):
        cpo.acquire(text, "one", seconds=10)
    with pytest.raises(BadArgument):
        cpo.lease(text)
    with pytest.raises(BadArgument):
        cpo.release(Lease(text, "one", 1, 0.0))


steps = st.lists(st.tuples(st.sampled_from(["acquire", "renew", "release"]), st.sampled_from("ab"), st.integers(0, 15)))


@given(steps)
def test_no_two_owners_ever_hold_the_same_epoch(steps: list[tuple[str, str, int]]) -> None:
    """Everything that is fenced by an epoch rests on this."""
    clock = ManualClock(start=0.0)
    owner_of: dict[int, str] = {}
    leases: dict[str, Lease] = {}
    with open_cpo("memory:", clock=clock) as cpo:
        for step, owner, pause in steps:
            clock.advance(pause)
            try:
                if step == "acquire":
                    lease = leases[owner] = cpo.acquire("x", owner, seconds=10)
                    assert lease.epoch == len(owner_of) + 1
                    owner_of[lease.epoch] = owner
                elif owner in leases and step == "renew":
                    assert cpo.renew(leases[owner], seconds=10).epoch == len(owner_of)
                elif owner in leases:
                    cpo.release(leases[owner])
            except (LeaseHeld, LeaseLost):
                continue
            held = cpo.lease("x")
            assert held is None or held.owner == owner_of[held.epoch]
