"""Print the size figures of a Python package: its files, its functions, its duplicates, and its tests.

Usage: ``python tools/codestat.py penstock --tests tests [--json]``. It reads source only, and imports nothing. Files of
fewer than five lines are not counted. A line is a duplicate if a run of six lines of code around it also occurs
elsewhere in the package.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FILE_LINES_MIN: Final = 5
_FUNCTION_LINES_LONG: Final = 70
_RUN_LINES: Final = 6
_NO_CODE: Final = ("#", "import ", "from ", '"""', "@")
_TRIVIAL: Final = frozenset({"", ")", "}", "]", "),", "else:", "try:"})


def figures(package: Path, tests: Sequence[Path]) -> dict[str, float]:
    """Return the figures by name."""
    texts = [path.read_text() for path in sorted(package.rglob("*.py"))]
    files = [lines for text in texts if (lines := text.count("\n")) >= _FILE_LINES_MIN]
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    test_lines = sum(path.read_text().count("\n") for folder in tests for path in folder.rglob("*.py"))
    return {
        "files": len(files),
        "lines": sum(files),
        "file_median": median(files),
        "file_p90": _p90(files),
        "file_max": max(files),
        "functions": len(functions),
        "function_median": median(functions),
        "function_p90": _p90(functions),
        f"functions_over_{_FUNCTION_LINES_LONG}": sum(lines > _FUNCTION_LINES_LONG for lines in functions),
        "duplicate_percent": round(_duplicate_percent(texts), 1),
        "test_ratio": round(test_lines / sum(files), 2),
    }


def _p90(sizes: Iterable[int]) -> int:
    ordered = sorted(sizes)
    return ordered[round(0.9 * (len(ordered) - 1))]


def _duplicate_percent(texts: Iterable[str]) -> float:
    runs: defaultdict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    total = 0
    for file, text in enumerate(texts):
        lines = [" ".join(line.split()) for line in text.splitlines()]
        code = [line for line in lines if line not in _TRIVIAL and not line.startswith(_NO_CODE)]
        total += len(code)
        for start in range(len(code) - _RUN_LINES + 1):
            runs[tuple(code[start : start + _RUN_LINES])].append((file, start))
    places = (place for copies in runs.values() if len(copies) > 1 for place in copies)
    duplicates = {(file, start + line) for file, start in places for line in range(_RUN_LINES)}
    return 100 * len(duplicates) / total


def main() -> None:
    """Print the figures of the package named on the command line."""
    parser = argparse.ArgumentParser(description="Print the size figures of a Python package.")
    parser.add_argument("package", type=Path)
    parser.add_argument("--tests", type=Path, nargs="*", default=[])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = figures(arguments.package, arguments.tests)
    print(json.dumps(result) if arguments.json else "\n".join(f"{name:20}{value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
