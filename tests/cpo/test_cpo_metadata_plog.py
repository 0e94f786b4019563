"""The newest metadata plog of each partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import MetadataPlog
from penstock.errors import BadArgument, CasConflict, LeaseLost
from penstock.model import PlogId

if TYPE_CHECKING:
    from penstock.cpo import Cpo

FIRST: Final = PlogId("main", "g1", "0" * 32)
SECOND: Final = PlogId("main", "g2", "1" * 32)


def test_a_new_partition_has_no_metadata_plog(cpo: Cpo) -> None:
    """This is how a metadata manager knows that it has to create, not to recover."""
    assert cpo.metadata_plog("p0") is None


def test_the_metadata_plog_reads_back_with_its_version(cpo: Cpo) -> None:
    """Recovery starts from it, and the next switch from its version."""
    version = cpo.set_metadata_plog("p0", FIRST, expected=0)
    assert cpo.metadata_plog("p0") == MetadataPlog(FIRST, version)
    assert cpo.metadata_plog("p1") is None


def test_an_owner_whose_lease_has_a_newer_epoch_publishes_nothing(cpo: Cpo) -> None:
    """The new owner may have deleted the plog that was announced, to create it again; all metadata would be lost."""
    old = cpo.acquire("plogs", "a", seconds=30)
    version = cpo.set_metadata_plog("p0", FIRST, expected=0, lease=old)
    cpo.release(old)
    cpo.acquire("plogs", "b", seconds=30)
    with pytest.raises(LeaseLost):
        cpo.set_metadata_plog("p0", SECOND, expected=version, lease=old)
    assert cpo.metadata_plog("p0") == MetadataPlog(FIRST, version)


def test_of_two_managers_that_switch_at_once_one_learns_that_it_lost(cpo: Cpo) -> None:
    """Two newest metadata plogs would be two histories of one partition."""
    version = cpo.set_metadata_plog("p0", FIRST, expected=0)
    newer = cpo.set_metadata_plog("p0", SECOND, expected=version)
    with pytest.raises(CasConflict) as raised:
        cpo.set_metadata_plog("p0", FIRST, expected=version)
    assert raised.value.actual == newer > version
    assert cpo.metadata_plog("p0") == MetadataPlog(SECOND, newer)


def test_what_would_not_lead_recovery_anywhere_is_refused(cpo: Cpo) -> None:
    """A partition whose pointer is wrong is lost, so the pointer is checked when it is set."""
    with pytest.raises(BadArgument):
        cpo.set_metadata_plog("p0", "main/g1/0", expected=0)  # type: ignore[arg-type]
    with pytest.raises(BadArgument):
        cpo.set_metadata_plog("p/0", FIRST, expected=0)
    with pytest.raises(BadArgument):
        cpo.set_metadata_plog("p0", FIRST, expected=-1)
    assert cpo.metadata_plog("p0") is None
