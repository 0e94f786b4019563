"""Running the command line as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command line in an empty folder, on a wide terminal so that no output is wrapped."""
    environment = os.environ | {"COLUMNS": "500", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run_command(command: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=environment | changes, capture_output=True, text=True, check=False
        )

    return run_command
