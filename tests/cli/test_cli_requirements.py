"""How the doctor reads what the package needs."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from penstock.cli._requirements import Requirement, parse_requirement, requirements


def test_every_line_of_the_metadata_is_understood() -> None:
    """A new form of requirement in pyproject.toml is to be noticed here, not by a user."""
    assert len(requirements()) >= 7
    assert {need.extra for need in requirements()} >= {None, "spark", "server", "repo", "bench", "dev"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy>=2.4", Requirement(name="numpy", bounds=">=2.4", extra=None)),
        ("pandas<3,>=2.3; extra == 'spark'", Requirement(name="pandas", bounds="<3,>=2.3", extra="spark")),
        ("x-y>=1; (python_version < '9.0') and extra == 'repo'", Requirement(name="x-y", bounds=">=1", extra="repo")),
        ("x-y>=1; (python_version < '3.1') and extra == 'repo'", None),
    ],
)
def test_line_is_parsed(line: str, expected: Requirement | None) -> None:
    """What this Python does not need is not asked for."""
    assert parse_requirement(line) == expected


@pytest.mark.parametrize(
    ("version", "accepted"), [("2.2.9", False), ("2.3", True), ("2.3.3", True), ("2.10.0", True), ("3.0.0", False)]
)
def test_bounds_compare_numbers_not_text(version: str, *, accepted: bool) -> None:
    """2.10 comes after 2.3."""
    assert Requirement(name="pandas", bounds="<3,>=2.3", extra="spark").accepts(version) is accepted


def test_package_is_imported_and_its_version_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old, absent, broken and fine are told apart, since each needs another step."""
    version = importlib.metadata.version("numpy")
    assert Requirement(name="numpy", bounds=">=1", extra=None).look() == (True, version)
    assert Requirement(name="numpy", bounds=">=999", extra=None).look() == (False, f"{version} is not >=999")
    assert Requirement(name="no-such-package", bounds="", extra=None).look() == (False, "missing")
    monkeypatch.setitem(sys.modules, "numpy", None)
    will_do, found = Requirement(name="numpy", bounds=">=1", extra=None).look()
    assert not will_do
    assert found.startswith(f"{version} cannot be imported")
