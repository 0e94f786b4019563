"""How the doctor reads what the package needs."""

from __future__ import annotations

import importlib.metadata
import sys

import pytest
from packaging.specifiers import SpecifierSet

from penstock.cli._requirements import Requirement, extra_with, parse_requirements, requirements


def requirement(name: str, bounds: str, extra: str | None = None) -> Requirement:
    return Requirement(name=name, bounds=SpecifierSet(bounds), extra=extra)


def test_the_metadata_has_what_is_always_needed_and_every_extra() -> None:
    """An extra that is not found is one that the doctor says nothing about."""
    assert len(requirements()) >= 7
    assert {need.extra for need in requirements()} >= {None, "spark", "server", "bench", "dev"}
    assert (extra_with("uvicorn.config"), extra_with("numpy"), extra_with("nonsense")) == ("server", None, None)


def test_an_extra_is_named_before_its_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that tells a server to install the console would be puzzling."""
    needs = [requirement("uvicorn", ">=0.54", extra) for extra in ("bench", "console", "examples", "server")]
    monkeypatch.setattr("penstock.cli._requirements.requirements", lambda: needs)
    assert extra_with("uvicorn.config") == "server"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy>=2.4", [requirement("numpy", ">=2.4")]),
        ("pandas<3,>=2.3; extra == 'spark'", [requirement("pandas", "<3,>=2.3", "spark")]),
        ("x-y~=1.4; (python_version < '9.0') and extra == 'spark'", [requirement("x-y", "~=1.4", "spark")]),
        ("x-y>=1; python_version < '9.0'", [requirement("x-y", ">=1")]),
        ("x-y>=1; (python_version < '3.1') and extra == 'spark'", []),
    ],
)
def test_line_is_parsed(line: str, expected: list[Requirement]) -> None:
    """What this Python does not need is not asked for."""
    assert parse_requirements([line], ["server", "spark"]) == expected


def test_package_is_imported_and_its_version_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old, absent, broken and fine are told apart, since each needs another step."""
    version = importlib.metadata.version("numpy")
    assert requirement("numpy", ">=1").check() == (True, version)
    assert requirement("numpy", ">=999").check() == (False, f"{version} is not >=999")
    assert requirement("no-such-package", "").check() == (False, "missing")
    monkeypatch.setitem(sys.modules, "numpy", None)
    will_do, found = requirement("numpy", ">=1").check()
    assert not will_do
    assert found.startswith(f"{version} cannot be imported")


@pytest.mark.parametrize(("installed", "will_do"), [("2.2.9", False), ("2.10.0", True), ("3.0.0", False)])
def test_bounds_compare_numbers_not_text(monkeypatch: pytest.MonkeyPatch, installed: str, *, will_do: bool) -> None:
    """2.10 comes after 2.3."""
    monkeypatch.setattr(importlib.metadata, "version", lambda _: installed)
    assert requirement("numpy", "<3,>=2.3").check()[0] is will_do
