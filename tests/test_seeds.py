"""docs/seeds.md says what answers for each promise of the seeds; here is checked that it speaks the truth."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.sources import ROOT, tree_of

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENT: Final = ROOT / "docs" / "seeds.md"
SEEDS: Final = "ABCDE"
ANSWER: Final = re.compile(r"`([^`]*)`")
TEST: Final = re.compile(r"(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)")
DECISION: Final = re.compile(r"docs/decisions/\d{4}-[\w-]+\.md")


class Row(NamedTuple):
    line: int
    promise: str
    answers: list[str]


def rows_of(text: str) -> list[Row]:
    """Return the rows of all tables, without their two lines of heading."""
    rows = []
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        heading = number < len(lines) and lines[number].startswith("|---")
        if line.startswith("|") and not line.startswith("|---") and not heading:
            promise, _, answer = line.strip("|").partition("|")
            rows.append(Row(number, promise.strip(), ANSWER.findall(answer)))
    return rows


def defined_in(file: Path) -> set[str]:
    """Return the tests that a file defines, parametrised or not, without importing it."""
    if not file.is_file():
        return set()
    nodes = tree_of(file).body
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def fault_of(answer: str, root: Path) -> str | None:
    """Return what is wrong with an answer, None if nothing is."""
    test = TEST.fullmatch(answer)
    if test is not None:
        return None if test["name"] in defined_in(root / test["file"]) else "there is no such test"
    if DECISION.fullmatch(answer):
        return None if (root / answer).is_file() else "there is no such decision record"
    return "it is neither a test nor a decision record"


def faults_of(text: str, root: Path) -> list[str]:
    """Return everything that is wrong with the document."""
    rows = rows_of(text)
    found = [f"line {row.line}: no promise" for row in rows if not row.promise]
    found += [f"line {row.line}: no answer" for row in rows if not row.answers]
    found += [
        f"line {row.line}: {answer}: {fault}"
        for row in rows
        for answer in row.answers
        if (fault := fault_of(answer, root)) is not None
    ]
    named = {answer for row in rows for answer in row.answers}
    for file in sorted(root.glob("tests/seeds/*.py")):
        tests = {f"{file.relative_to(root)}::{name}" for name in defined_in(file)}
        found += [f"{test}: answers for no promise" for test in sorted(tests - named)]
    return found


def test_every_promise_is_answered_by_something_that_exists() -> None:
    """A promise whose test was renamed or removed would be a promise without a test."""
    text = DOCUMENT.read_text()
    assert rows_of(text)
    faults = faults_of(text, ROOT)
    assert not faults, "\n".join(faults)


def test_every_seed_has_a_section() -> None:
    """What is not there yet is said, not left out."""
    assert re.findall(r"^## (\w)\. ", DOCUMENT.read_text(), re.MULTILINE) == list(SEEDS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of one test and one decision."""
    (tmp_path / "tests" / "seeds").mkdir(parents=True)
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "tests" / "seeds" / "test_x.py").write_text(
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_there(n): ...\n\n\ndef helper():\n    def test_inner(): ...\n"
    )
    (tmp_path / "docs" / "decisions" / "0001-why.md").write_text("# Why\n")
    return tmp_path


HEADING: Final = "# Seeds\n\n| promise | answered by |\n|---|---|\n"
GOOD: Final = "| it flows | `tests/seeds/test_x.py::test_there`, later: `docs/decisions/0001-why.md` |\n"


def test_good_document_has_no_fault(root: Path) -> None:
    """The checker asks for nothing more than it says."""
    assert rows_of(HEADING + GOOD) == [
        Row(5, "it flows", ["tests/seeds/test_x.py::test_there", "docs/decisions/0001-why.md"])
    ]
    assert faults_of(HEADING + GOOD, root) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| it flows | |", "line 6: no answer"),
        ("| it flows |", "line 6: no answer"),
        ("| it flows | soon |", "line 6: no answer"),
        ("| | `docs/decisions/0001-why.md` |", "line 6: no promise"),
        ("| it flows | `tests/seeds/test_x.py::test_gone` |", "no such test"),
        ("| it flows | `tests/seeds/test_x.py::test_inner` |", "no such test"),
        ("| it flows | `tests/seeds/test_y.py::test_there` |", "no such test"),
        ("| it flows | `docs/decisions/0002-gone.md` |", "no such decision record"),
        ("| it flows | `tests/seeds/test_x.py` |", "neither a test nor a decision record"),
        ("| it flows | `tests/seeds/test_x.py::helper` |", "neither a test nor a decision record"),
        ("| it flows | `README.md` |", "neither a test nor a decision record"),
    ],
)
def test_bad_row_is_found(root: Path, row: str, fault: str) -> None:
    """A checker that cannot fail proves nothing."""
    (found,) = faults_of(HEADING + GOOD + row + "\n", root)
    assert fault in found


def test_test_that_answers_for_nothing_is_found(root: Path) -> None:
    """A test of a seed that no row names is a promise that was forgotten in the document."""
    (found,) = faults_of(HEADING + "| it flows | `docs/decisions/0001-why.md` |\n", root)
    assert found == "tests/seeds/test_x.py::test_there: answers for no promise"


def test_rows_of_every_table_are_seen() -> None:
    """One table a section; the rows of none may be skipped."""
    assert [row.line for row in rows_of(HEADING + GOOD + GOOD + "\n## B\n\n" + HEADING + GOOD)] == [5, 6, 14]
