"""What Spark's Python processes spend on Penstock besides the work: imports, and garbage collection of them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store

SINK = "penstock.spark._sink"  # the module of the writer, which a task and a commit get
SOURCE = "penstock.spark._source"  # the module of the class, which each process that plans a query gets
READERS = {f"penstock.spark._{name}" for name in ("columns", "json", "futoin", "reader", "stream_reader", "pace")}
JOBS = {f"penstock.spark._{name}" for name in ("jobs", "progress", "register", "tables", "watermark")}


@pytest.mark.parametrize(
    ("module", "unneeded"), [(SINK, READERS | JOBS), (SOURCE, READERS | JOBS | {SINK, "numpy", "pyarrow"})]
)
def test_a_process_imports_only_what_it_needs(module: str, unneeded: set[str]) -> None:
    """Spark starts processes for a write of a second, and the imports took each of them a third of that."""
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not unneeded & set(done.stdout.split())


@pytest.mark.parametrize("program", ["pyspark.daemon", "of_a_user"])
def test_modules_are_not_searched_for_garbage_in_processes_of_spark(store: Store, folder: Path, program: str) -> None:
    """Spark collects garbage after each task: to pass over our modules took a fifth of a task of the sink."""
    del store  # which is there, so the process below is a client
    code = (
        "import gc, sys\n"
        "from importlib.machinery import ModuleSpec\n"
        "from penstock.spark._options import Address\n"
        "from penstock.spark._stores import shared\n"
        f"__spec__ = ModuleSpec({program!r}, None)\n"
        "shared(Address(sys.argv[1]))\n"
        "import unittest.mock\n"  # as Spark imports pandas when the first task returns its result
        "shared(Address(sys.argv[1])).close()\n"
        "print(len(gc.get_objects()) < len(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(program == "pyspark.daemon"), "a user's program collects garbage as it likes"
