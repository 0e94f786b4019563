"""The site of the documentation, and the page of guarantees: what they name exists."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.sources import ROOT
from tests.test_seeds import TEST, fault_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path


def test_every_guarantee_is_proved_by_tests_that_exist() -> None:
    """A guarantee without a test is a wish."""
    rows = rows_of((ROOT / "docs" / "guarantees.md").read_text())
    assert len(rows) > 15
    for row in rows:
        tests = [answer for answer in row.answers if TEST.fullmatch(answer)]
        assert tests, f"line {row.line}: nothing proves it"
        assert [test for test in tests if fault_of(test, ROOT)] == [], f"line {row.line}"


def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    """A page that is in no list, or a reference that leads nowhere, is found by a reader else."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    made = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "site")], capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert "penstock stream create" in (tmp_path / "site" / "_generated" / "commands.html").read_text()
    assert "write_event" in (tmp_path / "site" / "python.html").read_text()
