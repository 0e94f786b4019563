"""How the tests themselves are run: see tests/conftest.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from tests.conftest import _Scheduler

ROOT: Final = Path(__file__).parents[1]

HANGS: Final = """
import threading

def test_before(): ...
def test_hangs(): threading.Event().wait()
def test_behind(): ...
def test_last(): ...
"""

NEVER_ENDS: Final = """
import pytest, threading

@pytest.fixture(scope="session")
def shared():
    yield
    never_ends()

def never_ends(): threading.Event().wait()
def test_last(shared):
    for _ in range(120):
        threading.Thread(target=never_ends, daemon=True).start()
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


def test_the_end_of_a_run_that_hangs_shows_the_main_thread(tmp_path: Path) -> None:
    """``faulthandler`` shows only the hundred newest threads, and a process with Spark has more."""
    first = pytest_of(tmp_path, NEVER_ENDS).stderr.partition("Timeout")[0]
    assert "in never_ends" in first
    assert "in shared" in first


class Process:
    """A process of xdist, as far as the scheduler knows it."""

    shutting_down = False

    def __init__(self) -> None:
        self.assigned: list[int] = []
        self.send_runtest_some = self.assigned.extend

    def shutdown(self) -> None:
        self.shutting_down = True


def test_a_process_that_has_not_collected_the_tests_is_not_assigned_any() -> None:
    """Two that hang are replaced at the same time: a run ended when one replacement was ready before the other."""
    option = SimpleNamespace(loadscopereorder=False)
    scheduler = _Scheduler(SimpleNamespace(getvalue=lambda _: ["popen"], option=option))
    tests, first, second = [f"test_it.py::test_{number}" for number in range(9)], Process(), Process()
    scheduler.add_node(first)
    scheduler.add_node_collection(first, tests)
    scheduler.schedule()
    scheduler.add_node(second)
    assert scheduler.remove_node(first) == tests[0]
    assert not second.assigned
    scheduler.add_node_collection(second, tests)
    scheduler.schedule()
    assert second.assigned


def test_interrupts_reach_tests_where_the_shell_ignores_them(tmp_path: Path) -> None:
    """A script that runs ``make test`` in the background ignores SIGINT, and so would every process that it starts."""
    tests = "import signal\ndef test_it(): assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN\n"
    assert "1 passed" in pytest_of(tmp_path, tests, before="trap '' INT;").stdout
