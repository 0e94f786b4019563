"""The sources of the repository, parsed once for all tests that look at them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "python_files", "tree_of"]

ROOT: Final = Path(__file__).parents[1]


def python_files(folder: str) -> list[Path]:
    """Return the Python files below a folder of the repository."""
    return sorted(ROOT.joinpath(folder).rglob("*.py"))


@cache
def tree_of(file: Path) -> ast.Module:
    """Return the syntax tree of a file; the caller does not change it."""
    return ast.parse(file.read_text())
