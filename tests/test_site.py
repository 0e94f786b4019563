"""The site of the documentation, and the page of guarantees: what they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import pytest

from tests.sources import ROOT
from tests.test_seeds import TEST, fault_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

REFERENCE: Final = (
    "penstock",
    "penstock.aio",
    "penstock.backup",
    "penstock.copying",
    "penstock.cpo",
    "penstock.errors",
    "penstock.events",
    "penstock.log",
    "penstock.patterns",
    "penstock.plog",
    "penstock.repo",
    "penstock.server",
    "penstock.spark",
    "penstock.testing",
    "penstock.tracing",
)
INTERNAL: Final = {
    f"penstock.{name}"
    for name in ("bench", "cli", "client", "console", "local", "model", "ports", "stream", "top", "wire")
}
"""Commands, and packages whose public names the top level exports."""


def test_every_guarantee_is_proved_by_tests_that_exist() -> None:
    """A guarantee without a test is a wish."""
    rows = rows_of((ROOT / "docs" / "guarantees.md").read_text())
    assert len(rows) > 15
    for row in rows:
        tests = [answer for answer in row.answers if TEST.fullmatch(answer)]
        assert tests, f"line {row.line}: nothing proves it"
        assert [test for test in tests if fault_of(test, ROOT)] == [], f"line {row.line}"


@pytest.mark.long
def test_the_site_is_made_without_a_warning_and_has_every_public_name_and_every_test(tmp_path: Path) -> None:
    """A page that is in no list, or a reference that leads nowhere, is found by a reader else.

    A name that is exported and not described is found by nobody. The tests are no pages, so the site carries them with
    it. This is one test, because the site takes half a minute to make.
    """
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(tmp_path / "trees")]
    site = tmp_path / "site"
    made = subprocess.run([*command, str(ROOT / "docs"), str(site)], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
    assert "penstock stream create" in (site / "_generated" / "commands.html").read_text()
    described = set(re.findall(r'<dt [^>]*\bid="(penstock[\w.]*)"', (site / "python.html").read_text()))
    for package in REFERENCE:
        names = {f"{package}.{name}" for name in import_module(package).__all__}
        assert names - described == set(), package
    links = re.findall(r'href="([^"]*test_\w+\.py)"', (site / "guarantees.html").read_text())
    assert len(links) > 30
    assert [link for link in links if not (site / link).is_file()] == []


def test_the_reference_has_every_package_that_is_not_internal() -> None:
    """A new package is described, or is named here as one that users do not import."""
    packages = {f"penstock.{file.parent.name}" for file in (ROOT / "penstock").glob("*/__init__.py")}
    assert packages - INTERNAL == set(REFERENCE) - {"penstock", "penstock.tracing"}


def test_every_test_of_a_guarantee_is_a_link_to_its_file() -> None:
    """Whoever doubts a promise reads the test: in the site, and in the view of the repository."""
    text = (ROOT / "docs" / "guarantees.md").read_text()
    tests = [answer for row in rows_of(text) for answer in row.answers if TEST.fullmatch(answer)]
    links = dict(re.findall(r"\[`([^`]+)`\]\(\.\./([^)]+)\)", text))
    for test in tests:
        assert links.get(test) == test.partition("::")[0], test
