"""The examples in docstrings, which the generated reference shows, work."""

from __future__ import annotations

import ast
import doctest
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.sources import ROOT, python_files, tree_of
from tests.test_docs import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RUN_ELSEWHERE: Final = {"penstock/spark/__init__.py": "tests/spark/test_reference.py"}
"""Files whose examples need Spark, and the test that runs them."""
LITERAL: Final = re.compile(r"::\n\s*\n +(?P<line>\S.*)")


class Docstring(NamedTuple):
    file: str
    line: int
    text: str


def docstrings() -> Iterator[Docstring]:
    for file in python_files("penstock"):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text is not None:
                    yield Docstring(str(file.relative_to(ROOT)), node.body[0].lineno, text)


EXAMPLES: Final = [docstring for docstring in docstrings() if ">>>" in docstring.text]


def failures(docstring: Docstring, **names: object) -> list[str]:
    """Run the examples of a docstring; return what went wrong."""
    name = f"{docstring.file}:{docstring.line}"
    test = doctest.DocTestParser().get_doctest(docstring.text, dict(names), name, docstring.file, docstring.line)
    assert test.examples, f"{name}: no example is found in it"
    assert not [example.source for example in test.examples if doctest.SKIP in example.options], name
    found: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=found.append)
    return found


@pytest.mark.parametrize("docstring", EXAMPLES, ids=lambda found: f"{found.file}:{found.line}")
def test_examples_of_docstrings_run(docstring: Docstring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the first lines that a reader of the reference copies."""
    if docstring.file not in RUN_ELSEWHERE:
        monkeypatch.chdir(tmp_path)
        assert failures(docstring) == []


def test_examples_that_are_run_elsewhere_are_there() -> None:
    """An example that moved would be run nowhere."""
    assert set(RUN_ELSEWHERE) <= {docstring.file for docstring in EXAMPLES}
    assert all((ROOT / test).is_file() for test in RUN_ELSEWHERE.values())


def test_no_example_of_a_docstring_is_only_text() -> None:
    """What looks like code and has no prompt is never run, and wrong sooner or later."""
    texts = [(found.file, match["line"]) for found in docstrings() for match in LITERAL.finditer(found.text)]
    assert len(texts) > 10
    assert [(file, line) for file, line in texts if COMMANDS.match(line)] == []


@pytest.mark.parametrize("text", [">>> 1 + 1\n3", ">>> raise ValueError"])
def test_an_example_that_fails_is_told(text: str) -> None:
    """The rule is as good as what it finds."""
    assert failures(Docstring("x.py", 1, text)) != []
