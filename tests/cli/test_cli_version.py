"""``penstock --version``."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING

import penstock

if TYPE_CHECKING:
    from tests.cli.conftest import Run


def test_version_prints_the_version_of_the_package(run: Run) -> None:
    """It is the first question about every bug report."""
    result = run("penstock --version")
    assert (result.returncode, result.stdout) == (0, f"penstock {penstock.__version__}\n")


def test_python_m_penstock_is_the_command_line(run: Run) -> None:
    """In a container or a virtual environment the script may not be on the path, but the package is."""
    result = run("python -m penstock --version")
    assert (result.returncode, result.stdout) == (0, f"penstock {penstock.__version__}\n")


def test_version_has_one_source() -> None:
    """The build reads the file that the program prints, so the two cannot differ."""
    assert importlib.metadata.version("penstock-stream") == penstock.__version__
