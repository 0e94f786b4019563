"""Run tests with several versions of Python and PySpark, and print which of them pass: ``make matrix``.

Each Python gets an environment of its own, by ``tools/setup.sh``. A PySpark that is not the pinned one lies in a folder
beside it, which comes first on the path: that costs a download, and no second environment. With the pinned PySpark, the
quick tests run; with each PySpark, those of Spark. A Python that this machine lacks is skipped, and named; with
``--strict`` that is a failure.

usage: python tools/matrix.py [--python 3.12] [--pyspark 4.2.1] [--only unit|spark] [--strict] [--list] [-- PYTEST ...]
"""

from __future__ import annotations

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13")
PYSPARKS = ("4.2.1", "4.3.0")  # the newest of each that is supported; the last is the one in constraints.txt
PARTS = ("unit", "spark")
MORE = (
    "tests/aio",
    "tests/backup",
    "tests/cli",
    "tests/console",
    "tests/copying",
    "tests/local",
    "tests/patterns",
    "tests/server",
    "tests/top",
    "tests/test_deadlines.py",
    "tests/test_docstrings.py",
    "tests/test_forked_blocks.py",
    "tests/test_forks.py",
    "tests/test_interop.py",
    "tests/test_retry.py",
    "tests/test_store.py",
    "tests/test_tracing.py",
)
"""What the quick tests are here beside those of ``make check``."""
LEFT_OUT = {
    "tests/backup/test_backup_buckets.py": "takes long",
    "tests/backup/test_backup_model.py": "takes long",
    "tests/backup/test_interrupted_backups.py": "takes long",
    "tests/cli/test_cli_demo.py": "starts Spark",
    "tests/cli/test_cli_jobs.py": "starts Spark",
    "tests/console/test_browser*.py": "starts a browser, which is the same with each Python",
    "tests/console/test_cluster_page.py": "starts a browser, which is the same with each Python",
    "tests/copying/test_killed_copies.py": "takes long",
    "tests/local/test_prepared_transactions.py": "takes long",
    "tests/patterns/test_examples_killed.py": "takes long",
    "tests/server/test_flood.py": "takes long",
    "tests/server/test_hand_over.py": "takes long",
    "tests/server/test_starvation.py": "takes long",
}
ON_SPARK = "tests/cli/test_cli_commands.py::test_example_runs"  # the examples of all commands, some of which start it
SETUP_S_MAX, TESTS_S_MAX = 1800, 3600
_SUMMARY = re.compile(r"^(?:=+ )?((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)


class Cell(NamedTuple):
    """One run: a part of the tests with a Python and a PySpark."""

    python: str
    pyspark: str
    part: str


class Outcome(NamedTuple):
    """How a run ended."""

    cell: Cell
    status: str  # passed, failed or skipped
    detail: str
    seconds: float


def cells(pythons: list[str], pysparks: list[str], parts: list[str]) -> list[Cell]:
    """Return the runs: the quick tests once for each Python, those of Spark with each PySpark."""
    runs = []
    for python in pythons:
        if "unit" in parts:
            runs.append(Cell(python, PYSPARKS[-1], "unit"))
        if "spark" in parts:
            runs += [Cell(python, pyspark, "spark") for pyspark in pysparks]
    return runs


def find_python(version: str) -> str | None:
    """Return an interpreter of a version that can make environments: on the path, of pyenv, or of uv."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = [
        shutil.which(f"python{version}"),
        *sorted(glob.glob(f"{pyenv}/versions/{version}.*/bin/python{version}"), reverse=True),
    ]
    if uv := shutil.which("uv"):
        asked = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        found.append(asked.stdout.strip() or None)
    return next((path for path in found if path and _is_usable(path, version)), None)


def _is_usable(python: str, version: str) -> bool:
    code = f"import ensurepip, sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def environment_of(version: str, python: str) -> Path:
    """Make the environment of a Python, unless it is there, and newer than what it is made from."""
    venv = ROOT / f".venv-python{version}"
    ready = venv / ".ready"
    sources = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "tools/setup.sh")]
    if not ready.exists() or ready.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        environment = {**os.environ, "VENV": venv.name, "PYTHON": python}
        subprocess.run([str(ROOT / "tools/setup.sh")], cwd=ROOT, env=environment, check=True, timeout=SETUP_S_MAX)
    return venv


def pyspark_folder(venv: Path, version: str) -> Path | None:
    """Return the folder of a PySpark that is not the pinned one, which is downloaded if it is missing."""
    if version == PYSPARKS[-1]:
        return None
    folder = ROOT / f".venv-spark-{version}"
    if not folder.exists():
        new = ROOT / f".venv-spark-{version}.new"
        shutil.rmtree(new, ignore_errors=True)
        install = [str(venv / "bin/python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        command = [*install, "--no-deps", "--target", str(new), f"pyspark=={version}"]
        subprocess.run(command, check=True, timeout=SETUP_S_MAX)
        new.rename(folder)
    return folder


def tests_of(part: str) -> list[str]:
    """Return the arguments of pytest: the quick tests are those of ``make check``, and more."""
    if part == "spark":
        return ["tests/spark"]
    lists = {
        name: re.search(rf"^{name} := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
        for name in ("UNIT", "QUICK")
    }
    words = {name: found[1].replace("\\\n", " ") for name, found in lists.items() if found is not None}
    left_out = [f"--ignore-glob={ROOT / pattern}" for pattern in LEFT_OUT]
    return ["-k", words["QUICK"], *left_out, f"--deselect={ON_SPARK}", *words["UNIT"].split(), *MORE]


def run(cell: Cell, python: str, more: list[str]) -> Outcome:
    """Run the tests of a cell; their output goes where ours goes."""
    begun = time.monotonic()
    try:
        venv = environment_of(cell.python, python)
        folder = pyspark_folder(venv, cell.pyspark)
        environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "SPARK_HOME"}}
        if folder is not None:
            environment["PYTHONPATH"] = str(folder)
        command = [str(venv / "bin/python"), "-m", "pytest", "-q", "-n", "2", *tests_of(cell.part), *more]
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        found = _SUMMARY.findall("".join(lines[-5:]))
        detail = found[-1] if found else f"exit code {process.returncode}"
        status = "passed" if process.returncode == 0 else "failed"
    except (subprocess.SubprocessError, OSError) as error:
        status, detail = "failed", f"cannot be set up: {error}"
    return Outcome(cell, status, detail, time.monotonic() - begun)


def table(outcomes: list[Outcome]) -> str:
    """Return a line for each run."""
    lines = [f"{'Python':<8}{'PySpark':<9}{'tests':<7}{'result':<9}{'time':>7}  detail"]
    lines += [
        f"{cell.python:<8}{cell.pyspark:<9}{cell.part:<7}{status:<9}{seconds:>5.0f} s  {detail}"
        for cell, status, detail, seconds in outcomes
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run what is asked for; return 1 if a test failed, if nothing ran at all, or for a skip with ``--strict``."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only this Python; may be repeated")
    parser.add_argument("--pyspark", action="append", choices=PYSPARKS, help="only this PySpark; may be repeated")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part of the tests")
    parser.add_argument("--strict", action="store_true", help="fail if a Python is missing")
    parser.add_argument("--list", action="store_true", help="print the runs, and what would be skipped")
    given = parser.parse_args(arguments[:split])
    wanted = cells(given.python or list(PYTHONS), given.pyspark or list(PYSPARKS), given.only or list(PARTS))
    pythons = {version: find_python(version) for version in dict.fromkeys(cell.python for cell in wanted)}
    outcomes = []
    for cell in wanted:
        python = pythons[cell.python]
        if python is None:
            outcomes.append(Outcome(cell, "skipped", f"this machine has no Python {cell.python} with venv", 0.0))
        elif given.list:
            outcomes.append(Outcome(cell, "listed", python, 0.0))
        else:
            print(f"matrix: Python {cell.python}, PySpark {cell.pyspark}, {cell.part} tests", flush=True)
            outcomes.append(run(cell, python, arguments[split + 1 :]))
    print(table(outcomes))
    results = {outcome.status for outcome in outcomes}
    bad = {"failed", "skipped"} if given.strict else {"failed"}
    return 1 if results & bad or not results & {"passed", "listed"} else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
