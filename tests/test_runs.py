"""How the tests themselves are run: see tests/conftest.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

HANGS: Final = """
import threading

def test_before(): ...
def test_hangs(): threading.Event().wait()
def test_behind(): ...
def test_last(): ...
"""


def pytest_of(tmp_path: Path, tests: str, *, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run tests of their own with our settings, in one process of xdist."""
    (tmp_path / "test_it.py").write_text(tests)
    settings = f"-c {ROOT}/pyproject.toml --rootdir={tmp_path} -p tests.conftest -p no:cacheprovider"
    command = f"{before} exec {sys.executable} -m pytest {settings} -n 1 -o faulthandler_timeout=2 {tmp_path}"
    return subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_a_test_that_hangs_is_ended_with_its_stack_and_the_others_run(tmp_path: Path) -> None:
    """Otherwise a deadlock costs a whole run, and does not show where it was."""
    result = pytest_of(tmp_path, HANGS)
    assert "1 failed, 3 passed" in result.stdout
    assert "crashed while running 'test_it.py::test_hangs'" in result.stdout
    assert "in test_hangs" in result.stderr


def test_interrupts_reach_tests_where_the_shell_ignores_them(tmp_path: Path) -> None:
    """A script that runs ``make test`` in the background ignores SIGINT, and so would every process that it starts."""
    tests = "import signal\ndef test_it(): assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN\n"
    assert "1 passed" in pytest_of(tmp_path, tests, before="trap '' INT;").stdout
