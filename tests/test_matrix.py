"""``make matrix``: which versions are tested, what is skipped, and that a failure is seen."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.sources import ROOT

if TYPE_CHECKING:
    from types import ModuleType


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("matrix", ROOT / "tools" / "matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


matrix: Final[Any] = _load()


def test_the_versions_are_those_that_are_declared() -> None:
    """What is promised is what is tested: the bounds of pyproject.toml, and the pin of constraints.txt."""
    project = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={matrix.PYTHONS[0]}"' in project
    assert f'"pyspark>={matrix.PYSPARKS[0].rpartition(".")[0]},<5"' in project
    assert f"\npyspark=={matrix.PYSPARKS[-1]}\n" in (ROOT / "constraints.txt").read_text()
    page = (ROOT / "docs" / "testing.md").read_text()
    for version in (*matrix.PYTHONS, *matrix.PYSPARKS):
        assert re.search(rf"\b{re.escape(version)}\b", page), version


def test_the_quick_tests_run_once_for_each_python_and_spark_with_each_pyspark() -> None:
    """Everything with everything would take a day."""
    runs = matrix.cells(list(matrix.PYTHONS), list(matrix.PYSPARKS), list(matrix.PARTS))
    assert [cell.python for cell in runs if cell.part == "unit"] == list(matrix.PYTHONS)
    assert len([cell for cell in runs if cell.part == "spark"]) == len(matrix.PYTHONS) * len(matrix.PYSPARKS)
    arguments = matrix.tests_of("unit")
    places = [argument for argument in arguments[2:] if not argument.startswith("--")]
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert "not crash" in arguments[1]


def test_the_quick_tests_have_every_part_that_users_call_and_start_neither_spark_nor_a_browser() -> None:
    """A Python breaks the command line as easily as the engine; a file that is left out is one that exists."""
    arguments = matrix.tests_of("unit")
    called = {"backup", "cli", "console", "copying", "local", "patterns", "server", "test_interop.py"}
    assert {f"tests/{name}" for name in called} < set(arguments)
    for pattern, reason in matrix.LEFT_OUT.items():
        assert reason
        assert f"--ignore-glob={ROOT}/{pattern}" in arguments
        assert list(ROOT.glob(pattern)), pattern
    left_out = {file for pattern in matrix.LEFT_OUT for file in ROOT.glob(pattern)}
    for folder in matrix.MORE:
        for file in {*(ROOT / folder).glob("**/test_*.py")} - left_out:
            text = file.read_text()
            assert "pytestmark = pytest.mark.long" not in text, file
            fixtures = set(re.findall(r"one_spark|short_demo|browser: Browser|page: Page", text))
            assert fixtures <= ({"short_demo"} if file.name == "test_cli_commands.py" else set()), file
    assert "--deselect=tests/cli/test_cli_commands.py::test_example_runs" in arguments, "it uses short_demo"


def test_what_the_matrix_leaves_out_is_named_in_the_documentation() -> None:
    """A table in which everything has passed is read as if it was everything."""
    page = (ROOT / "docs" / "testing.md").read_text()
    [section] = re.findall(r"^## Which versions are tested\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    named = {cell for line in section.splitlines() if line.startswith("| `") for cell in re.findall(r"`([^`]+)`", line)}
    run = {*matrix.tests_of("unit"), *matrix.tests_of("spark")}
    tests = [*ROOT.glob("tests/test_*.py"), *(path for path in ROOT.glob("tests/*/") if any(path.glob("**/test_*.py")))]
    places = {str(path.relative_to(ROOT)) for path in tests}
    left_out = (places - run) | matrix.LEFT_OUT.keys()
    assert left_out - named == set(), "left out without a word"
    assert named - left_out == set(), "it is not left out"


def test_a_python_that_is_missing_is_skipped_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Few machines have all versions; but if nothing ran, nothing was tested."""
    found = {"3.11": sys.executable, "3.12": None}
    monkeypatch.setattr(matrix, "find_python", found.__getitem__)
    monkeypatch.setattr(matrix, "run", lambda cell, *_: matrix.Outcome(cell, "passed", "7 passed", 1.0))
    assert matrix.main(["--python", "3.11", "--python", "3.12", "--only", "unit"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split()[:4] == ["3.11", matrix.PYSPARKS[-1], "unit", "passed"]
    assert lines[-1].endswith("skipped      0 s  this machine has no Python 3.12 with venv")
    assert matrix.main(["--python", "3.12"]) == 1
    assert matrix.main(["--python", "3.11", "--python", "3.12", "--only", "unit", "--strict"]) == 1
    assert matrix.main(["--python", "3.11", "--only", "unit", "--strict"]) == 0
    assert matrix.main(["--python", "3.12", "--python", "3.11", "--list", "--strict"]) == 1


@pytest.mark.parametrize(("outcome", "code"), [("assert True", 0), ("assert False", 1)])
def test_a_failure_is_in_the_table_and_in_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, outcome: str, code: int
) -> None:
    """A script looks at nothing else."""
    (tmp_path / "test_it.py").write_text(f"def test_it():\n    {outcome}\n")
    monkeypatch.setattr(matrix, "environment_of", lambda *_: Path(sys.prefix))
    monkeypatch.setattr(matrix, "tests_of", lambda _: [str(tmp_path), "-c", "/dev/null", "-p", "no:cacheprovider"])
    monkeypatch.setattr(matrix, "find_python", lambda _: sys.executable)
    assert matrix.main(["--python", "3.11", "--only", "unit", "--", "-n", "0"]) == code
    last = capsys.readouterr().out.splitlines()[-1]
    assert ("1 passed" if code == 0 else "1 failed") in last
    assert last.split()[3] == ("passed" if code == 0 else "failed")


def test_what_cannot_be_set_up_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A machine without a way to the packages has tested nothing."""
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "tools/setup.sh").chmod(0o755)
    monkeypatch.setattr(matrix, "find_python", lambda _: sys.executable)
    assert matrix.main(["--python", "3.11", "--only", "unit"]) == 1
    assert "cannot be set up" in capsys.readouterr().out


def test_a_python_that_is_another_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim of pyenv is there for versions that are not."""
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert matrix.find_python("3.12") is None
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / f"python{own}").unlink(missing_ok=True)
    (tmp_path / f"python{own}").symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    assert matrix.find_python(own) == str(tmp_path / f"python{own}")
