"""What is in examples/ works, each in an empty folder and a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds
import pytest

from tests.repo.git_history import awkward_history
from tests.sampling import EXPLORES

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("python_of_spark")]

EXAMPLES: Final = Path(__file__).parent.parent / "examples"
WINDOWS: Final = ("2026-11-01 08:00:00|      60", "2026-11-01 08:00:30|      60", "2026-11-01 08:01:00|      60")
AGAIN: Final = ("2026-11-01 08:01:30|      60", "2026-11-01 08:02:00|      60", "2026-11-01 08:02:30|      60")
MISSING: Final = [name for name in ("grpc", "grpc_status", "yaml", "zstandard") if not find_spec(name)]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = EXAMPLES.parent
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_scripts_and_notebook_do_what_they_say(tmp_path: Path) -> None:
    """They are what people change first to try their own data; here they share a process, because Spark starts slowly.

    The pipeline is run twice, as people do, and goes on where it was. It fits on a screen. The notebook's cells run
    from top to bottom; it is kept without output.
    """
    script = (EXAMPLES / "pipeline.py").read_text()
    assert len(script.splitlines()) <= 40
    notebook = json.loads((EXAMPLES / "pipeline.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    awkward_history().write(tmp_path / "project.git")
    churn = (EXAMPLES / "churn.py").read_text()
    code = "\n".join([script, script, *("".join(cell["source"]) for cell in cells), churn])
    result = run(sys.executable, "-c", code, "project.git", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "0 windows\n" in result.stdout, "no writer has promised anything yet"
    for line in WINDOWS:
        assert result.stdout.count(line) == 2, result.stdout
    for line in AGAIN:
        assert result.stdout.count(line) == 1, result.stdout
    assert result.stdout.count("180 events archived") == 3, result.stdout
    assert "14 new revisions\n" in result.stdout, result.stdout
    assert re.search(r" 4[0-9] lines  a.txt\n", result.stdout), result.stdout
    assert "<td>dir/b.txt" in (tmp_path / "churn.html").read_text()


@pytest.mark.parametrize("arguments", [(), ("nowhere",)], ids=["no argument", "no repository"])
def test_churn_without_a_project_says_what_it_needs(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """A newcomer leaves the argument out, or mistypes it, and must find neither a traceback nor a store."""
    result = run(sys.executable, str(EXAMPLES / "churn.py"), *arguments, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (1, 1), result.stderr
    assert "folder" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(bool(MISSING), reason=f"pip install '.[pipelines]' for {', '.join(MISSING)}")
def test_the_declarative_pipeline_fills_its_tables(tmp_path: Path) -> None:
    """A stream is a source like any other there; the windows are closed by its writers' promise."""
    project = tmp_path / "declarative"
    shutil.copytree(EXAMPLES / "declarative", project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/penstock-declarative", (tmp_path / "storage").as_uri()))
    runs = 2 if EXPLORES else 1
    for _ in range(runs):
        assert run(sys.executable, "write.py", cwd=project).returncode == 0
        remember = ("--conf", "spark.sql.catalogImplementation=hive") if runs > 1 else ()  # tables for the next run
        result = run(str(Path(sys.executable).with_name("spark-pipelines")), *remember, "run", cwd=project)
        told = result.stdout + result.stderr
        assert "Run is COMPLETED" in told, told
        # PySpark 4.3.0 trips over what any Python source sends once all is done; examples/README.md tells of it.
        assert result.returncode == 0 or "[UNKNOWN_RESPONSE]" in told.partition("Run is COMPLETED")[2], told
    tables = project / "spark-warehouse"
    assert ds.dataset(tables / "readings").count_rows() == 120 * runs, "the second run goes on where the first ended"
    rows = ds.dataset(tables / "half_minutes").to_table().to_pylist()
    assert sorted((row["start"].minute, row["start"].second, row["readings"]) for row in rows) == [
        (0, 0, 30), (0, 30, 30), (1, 0, 30), (1, 30, 30), (2, 0, 30), (2, 30, 30), (3, 0, 30), (3, 30, 30),
    ][: 4 * runs]  # fmt: skip
