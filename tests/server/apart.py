"""A server in a process of its own, whose memory and threads are its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVE: Final = """
    import json, sys
    from penstock.server import Config, run
    config = Config(port=0, http_port=0, **json.loads(sys.argv[1]))
    run(config, ready=lambda server: print(server.port, flush=True))
"""


@contextmanager
def server_apart(folder: Path, **settings: object) -> Iterator[tuple[int, int]]:
    """Start one: its port, and its process."""
    given = json.dumps({"store": str(folder), **settings})
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVE), given],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()
            process.wait()


def memory_peak(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
