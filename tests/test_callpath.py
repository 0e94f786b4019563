"""How many files a call leads through, as tools/callpath.py counts it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LIMITS: Final = {  # files, and changes of file
    "a durable write_event().result()": (19, 32),
    "a remote read_next_event(), client": (13, 39),
    "a remote read_next_event(), server": (0, 0),
}


def test_the_paths_of_a_write_and_of_a_read_stay_short() -> None:
    """A path grows by one wrapper at a time, which no review of a single change sees."""
    command = [sys.executable, "tools/callpath.py"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    found = re.findall(r"^(.*): \d+ calls in (\d+) files, (\d+) changes of file$", printed, re.MULTILINE)
    assert {name for name, *_ in found} == LIMITS.keys()
    for name, files, changes in found:
        assert int(files) <= LIMITS[name][0], printed
        assert int(changes) <= LIMITS[name][1], printed
