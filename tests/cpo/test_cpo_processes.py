"""One file, several processes: none loses what another was told is stored."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from penstock.cpo import Versioned, open_cpo

if TYPE_CHECKING:
    from pathlib import Path

INCREMENT: Final = """
import sys
from penstock.cpo import open_cpo
from penstock.errors import CasConflict

url, times = sys.argv[1], int(sys.argv[2])
with open_cpo(url) as cpo:
    while times:
        found = cpo.get("n")
        value = int(found.value) if found else 0
        try:
            cpo.cas("n", b"%d" % (value + 1), expected=found.version if found else 0)
            times -= 1
        except CasConflict:
            pass
"""

ACKNOWLEDGE: Final = """
import sys
from penstock.cpo import open_cpo

cpo, first = open_cpo(sys.argv[1]), int(sys.argv[2])
for n in range(first, first + 100_000):
    cpo.cas(f"key/{n}", b"%d" % n, expected=0)
    print(n, flush=True)
"""

FILL: Final = """
import resource, sys
from pathlib import Path
from penstock.cpo import open_cpo
from penstock.errors import CpoUnavailable

path = Path(sys.argv[1])
cpo = open_cpo(f"sqlite:{path}")
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 300_000, hard))
stored = 0
try:
    while True:
        cpo.cas(f"key/{stored}", bytes(60_000), expected=0)
        stored += 1
except CpoUnavailable as error:
    assert error.url == f"sqlite:{path}", error.url
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert len(cpo.keys()) == stored > 0
cpo.cas(f"key/{stored}", bytes(60_000), expected=0)
print(stored + 1)
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_increment_at_once_lose_no_increment(path: Path) -> None:
    """All of them also create the file at once: the database is made exactly once."""
    processes = [start(INCREMENT, f"sqlite:{path}", 40) for _ in range(3)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    for process in processes:
        process.communicate()
    with open_cpo(f"sqlite:{path}") as cpo:
        assert cpo.get("n") == Versioned(b"120", 120)


def test_what_was_acknowledged_is_there_after_kill(path: Path) -> None:
    """A process is killed at any moment; what it was told is stored stays stored, and nothing is stored by half."""
    rng = random.Random(1)
    stored = 0
    for _ in range(4):
        process = start(ACKNOWLEDGE, f"sqlite:{path}", stored)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(rng.randrange(1, 40))]
        process.kill()
        lines += process.communicate()[0].splitlines()
        acknowledged = int(lines[-1]) + 1
        with open_cpo(f"sqlite:{path}") as cpo:
            stored = len(cpo.keys())
            assert stored in {acknowledged, acknowledged + 1}
            assert all(cpo.get(f"key/{n}") == Versioned(b"%d" % n, n + 1) for n in range(stored))


def test_a_disk_without_room_refuses_the_change_and_keeps_the_rest(path: Path) -> None:
    """Full disks are emptied again: until then all that was stored can be read, afterwards work goes on."""
    process = start(FILL, path)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    with open_cpo(f"sqlite:{path}") as cpo:
        assert len(cpo.keys()) == int(output)
