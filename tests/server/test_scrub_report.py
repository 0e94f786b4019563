"""What a plog server tells the oracle about its disk, when the oracle does not answer."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.cpo import _sqlite, open_cpo
from penstock.server._scrub_report import ScrubReport, scrub_rows
from tests.plog_servers import PlogServers

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_report_that_the_oracle_does_not_take_is_a_warning_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A traceback of the database in the log looks like a mistake in the server, every ten seconds."""
    monkeypatch.setattr(_sqlite, "BUSY_SECONDS_MAX", 0.1)
    file = tmp_path / "cpo.db"
    with closing(PlogServers(tmp_path)) as servers, open_cpo(f"sqlite:{file}") as cpo:
        server = servers.running["main", 0]
        report = ScrubReport(cpo, server, server.folder.identity, "a:1")
        with closing(sqlite3.connect(file)) as other:
            other.execute("BEGIN EXCLUSIVE")
            report.write()
            other.execute("ROLLBACK")
        [warning] = [record for record in caplog.records if "the state of this server's disk" in record.message]
        assert (warning.levelname, warning.exc_info) == ("WARNING", None)
        report.write()
        assert list(scrub_rows(cpo)) == [("local", "main", "a:1")]
