"""An oracle on a full disk: it says so, nothing changes, and it goes on once there is space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import event

from penstock.cpo import open_cpo
from penstock.cpo._limits import VALUE_SIZE_MAX
from penstock.errors import DiskFull

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.cpo import Cpo


def limit_pages(cpo: Cpo, pages: int) -> None:
    """Let the database have so many pages, as if there were no space for more."""
    engine = vars(cpo)["_database"].engine

    @event.listens_for(engine, "begin")
    def limit(connection: object) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")  # type: ignore[attr-defined]


def test_a_full_disk_is_told_as_such_and_passes(path: Path) -> None:
    """An error about the oracle would mislead the user, and space may come back."""
    with open_cpo(f"sqlite:{path}") as cpo:
        version = cpo.cas("a", b"one", expected=0)
        limit_pages(cpo, 5)
        with pytest.raises(DiskFull, match=r"cpo\.db"):
            cpo.cas("a", bytes(VALUE_SIZE_MAX), expected=version)
        found = cpo.get("a")
        assert found is not None
        assert (found.value, found.version) == (b"one", version)
        limit_pages(cpo, 1000)
        cpo.cas("a", bytes(VALUE_SIZE_MAX), expected=version)
