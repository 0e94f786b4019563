"""One PostgreSQL server, several processes: none loses a change of another, and one of them has a lease."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from penstock.cpo import open_cpo
from penstock.errors import LeaseHeld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cpo.conftest import ServerClock

# Adds to a counter by cas; and to another one under a lease, where no cas of another process can come between.
WORK: Final = """
import sys
from penstock.cpo import open_cpo
from penstock.errors import CasConflict, LeaseHeld

def add(key):
    row = cpo.get(key)
    value, version = (int(row.value), row.version) if row else (0, 0)
    print(key, cpo.cas(key, b"%d" % (value + 1), expected=version))

url, owner, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_cpo(url) as cpo:
    while times:
        try:
            add("contended")
        except CasConflict:
            pass
        try:
            lease = cpo.acquire("leader", owner, seconds=60)
        except LeaseHeld as error:
            assert error.owner != owner
            continue
        add("led")
        assert cpo.renew(lease, seconds=60).epoch == lease.epoch
        assert cpo.lease("leader").epoch == lease.epoch
        cpo.release(lease)
        print("epoch", lease.epoch)
        times -= 1
    try:
        cpo.acquire("kept", owner, seconds=60)
        print("kept 1", flush=True)
        sys.stdin.read()
    except LeaseHeld:
        print("kept 0", flush=True)
"""


def lines_of(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    """Yield what a process prints, up to the line that says whether it keeps the lease."""
    assert process.stdout is not None
    while (line := process.stdout.readline().split())[0] != "kept":
        yield line
    yield line


def test_processes_share_an_oracle_on_postgresql(timed_postgresql: str, server_clock: ServerClock) -> None:
    """All create the table at once; the lease of a process that is killed ends when the server's clock says so."""
    pipe, times = subprocess.PIPE, 12
    commands = [[sys.executable, "-c", WORK, timed_postgresql, owner, str(times)] for owner in ("one", "two", "three")]
    processes = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for command in commands]
    printed = [(word, int(number)) for process in processes for word, number in lines_of(process)]
    kept = [number for word, number in printed if word == "kept"]
    versions = [number for word, number in printed if word in ("contended", "led")]
    assert sorted(number for word, number in printed if word == "epoch") == list(range(1, 3 * times + 1))
    assert len(set(versions)) == len(versions)
    assert sorted(kept) == [0, 0, 1], "one process has the lease"
    holder = processes[kept.index(1)]
    with open_cpo(timed_postgresql) as cpo:
        holder.kill()
        for process in processes:
            process.communicate()
        with pytest.raises(LeaseHeld) as raised:
            cpo.acquire("kept", "next", seconds=60)
        assert raised.value.seconds_left == 60
        server_clock.advance(60)
        assert cpo.acquire("kept", "next", seconds=60).epoch == 2
        led, contended = cpo.get("led"), cpo.get("contended")
    assert led is not None
    assert contended is not None
    assert (int(led.value), int(led.value) + int(contended.value)) == (3 * times, len(versions))
