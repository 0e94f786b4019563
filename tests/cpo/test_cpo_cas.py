"""Keys: get, cas, delete, keys."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.cpo import Versioned, open_cpo
from penstock.errors import BadArgument, CasConflict, LeaseLost

if TYPE_CHECKING:
    from penstock.cpo import Cpo


def test_a_key_never_set_is_none(cpo: Cpo) -> None:
    """Absence is an ordinary answer: everything starts with it."""
    assert cpo.get("a") is None


def test_a_key_reads_back_as_it_was_set(cpo: Cpo) -> None:
    """The value and the version together are what the next change is made from."""
    version = cpo.cas("a", b"\x00one\xff", expected=0)
    assert cpo.get("a") == Versioned(b"\x00one\xff", version)


def test_versions_of_a_key_grow(cpo: Cpo) -> None:
    """A version that came back would let a stale writer win."""
    first = cpo.cas("a", b"one", expected=0)
    second = cpo.cas("a", b"one", expected=first)
    assert second > first > 0


def test_versions_grow_over_delete_and_creation(cpo: Cpo) -> None:
    """A process that saw the key before it was deleted must not be able to change its successor."""
    first = cpo.cas("a", b"one", expected=0)
    cpo.delete("a", expected=first)
    second = cpo.cas("a", b"two", expected=0)
    assert second > first
    with pytest.raises(CasConflict):
        cpo.cas("a", b"three", expected=first)


def test_versions_go_on_growing_after_reopening(url: str) -> None:
    """The counter is stored, not kept by a process."""
    with open_cpo(url) as cpo:
        first = cpo.cas("a", b"one", expected=0)
        cpo.delete("a", expected=first)
    with open_cpo(url) as cpo:
        assert cpo.cas("a", b"two", expected=0) > first


@pytest.mark.parametrize("expected", [0, 2, 7])
def test_cas_of_another_version_changes_nothing_and_says_which_it_is(cpo: Cpo, expected: int) -> None:
    """The loser of a race learns that it lost, and from which version to go on."""
    version = cpo.cas("a", b"one", expected=0)
    assert version == 1
    with pytest.raises(CasConflict) as raised:
        cpo.cas("a", b"two", expected=expected)
    assert (raised.value.key, raised.value.expected, raised.value.actual) == ("a", expected, 1)
    assert cpo.get("a") == Versioned(b"one", 1)


def test_cas_of_a_key_that_is_gone_says_version_zero(cpo: Cpo) -> None:
    """Zero is what to expect next, so the message and the argument agree."""
    version = cpo.cas("a", b"one", expected=0)
    cpo.delete("a", expected=version)
    with pytest.raises(CasConflict) as raised:
        cpo.cas("a", b"two", expected=version)
    assert raised.value.actual == 0


def test_delete_removes_the_key(cpo: Cpo) -> None:
    """What is not needed any more must not be listed for ever."""
    version = cpo.cas("a", b"one", expected=0)
    cpo.delete("a", expected=version)
    assert cpo.get("a") is None
    assert cpo.keys() == []


def test_delete_of_another_version_leaves_the_key(cpo: Cpo) -> None:
    """A delete is a change like any other: it must not undo one that it has not seen."""
    version = cpo.cas("a", b"one", expected=0)
    with pytest.raises(CasConflict):
        cpo.delete("a", expected=version + 1)
    assert cpo.get("a") == Versioned(b"one", version)


def test_delete_of_a_key_that_is_not_there_is_a_conflict(cpo: Cpo) -> None:
    """The caller believes that it is there, and should learn otherwise."""
    with pytest.raises(CasConflict) as raised:
        cpo.delete("a", expected=1)
    assert raised.value.actual == 0


def test_keys_are_sorted_and_chosen_by_prefix(cpo: Cpo) -> None:
    """A prefix is how a user groups keys; '%' and '_' in it are nothing special, whatever SQL thinks."""
    for key in ("b", "a/2", "a/10", "a_1", "a%"):
        cpo.cas(key, b"", expected=0)
    assert cpo.keys() == ["a%", "a/10", "a/2", "a_1", "b"]
    assert cpo.keys("a/") == ["a/10", "a/2"]
    assert cpo.keys("a_") == ["a_1"]
    assert cpo.keys("c") == []


def test_keys_are_the_users_alone(cpo: Cpo) -> None:
    """No key of a user's can be taken for, or get at, a lease or a cluster."""
    cpo.register_cluster("main", {"g": ["h:1"]})
    lease = cpo.acquire("job", "me", seconds=10)
    cpo.cas("lease/job", b"not a lease", expected=0)
    assert cpo.keys() == ["lease/job"]
    assert cpo.lease("job") == lease


@pytest.mark.parametrize("key", ["", "a" * 513, "a\nb", "a\0", "\ud800"])
def test_a_key_that_no_message_could_show_is_refused(cpo: Cpo, key: str) -> None:
    """Keys end in messages, logs and other databases: each must be able to hold them."""
    with pytest.raises(BadArgument):
        cpo.cas(key, b"", expected=0)
    with pytest.raises(BadArgument):
        cpo.get(key)
    with pytest.raises(BadArgument):
        cpo.delete(key, expected=1)


@pytest.mark.parametrize("key", ["a" * 512, "ключ 1", "a b"])
def test_any_other_key_is_taken(cpo: Cpo, key: str) -> None:
    """The limit itself is inside, and so are all languages."""
    cpo.cas(key, b"one", expected=0)
    assert cpo.keys() == [key]


def test_a_value_up_to_the_limit_is_taken_and_above_it_refused(cpo: Cpo) -> None:
    """The oracle is read whole when opened: data belong in plogs."""
    cpo.cas("a", bytes(64 << 10), expected=0)
    with pytest.raises(BadArgument, match="65537"):
        cpo.cas("b", bytes((64 << 10) + 1), expected=0)
    assert cpo.keys() == ["a"]


def test_a_change_under_a_lease_is_refused_once_the_lease_has_a_newer_epoch(cpo: Cpo) -> None:
    """An owner that was suspended must not change rows that the next owner relies on; time does not matter for that."""
    old = cpo.acquire("partition", "a", seconds=0.000001)
    version = cpo.cas("row", b"of a", expected=0, lease=old)
    new = cpo.acquire("partition", "a", seconds=10)
    with pytest.raises(LeaseLost):
        cpo.cas("row", b"late", expected=version, lease=old)
    with pytest.raises(LeaseLost):
        cpo.delete("row", expected=version, lease=old)
    cpo.delete("row", expected=version, lease=new)


def test_a_value_that_is_not_bytes_is_refused(cpo: Cpo) -> None:
    """A database that takes any type would give back another one."""
    with pytest.raises(BadArgument, match="str"):
        cpo.cas("a", "text", expected=0)  # type: ignore[arg-type]


def test_an_expected_version_that_cannot_be_is_refused(cpo: Cpo) -> None:
    """Minus one from elsewhere means 'any': here it would always conflict, which hides the mistake."""
    with pytest.raises(BadArgument):
        cpo.cas("a", b"", expected=-1)
    with pytest.raises(BadArgument):
        cpo.delete("a", expected=0)
    with pytest.raises(BadArgument):
        cpo.cas("a", b"", expected=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["memory:", "sqlite", "postgresql"], indirect=True)
def test_threads_that_share_an_oracle_lose_no_increment(url: str) -> None:
    """Writers, readers and the lease's keeper of one store all use one oracle."""
    with open_cpo(url) as cpo:
        version = cpo.cas("n", b"0", expected=0)
        assert version == 1
        threads = [threading.Thread(target=increment, args=(cpo, 10)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cpo.get("n") == Versioned(b"40", 41)


def increment(cpo: Cpo, times: int) -> None:
    while times:
        found = cpo.get("n")
        assert found is not None
        try:
            cpo.cas("n", b"%d" % (int(found.value) + 1), expected=found.version)
            times -= 1
        except CasConflict:
            pass
