"""What ``penstock demo`` does: a writer in a process of its own, which is killed; and a store on a recording disk."""

import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cpo import open_cpo
from penstock.log import LogStream, MetadataManager, PlogSizes
from penstock.plog import FilePlogs, PlogId, open_plogs
from penstock.testing import RecordingDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

_THREADS: Final = 4
_LOG: Final = "demo"
_SMALL: Final = PlogSizes(first=16 << 10, largest=64 << 10)  # so that there are many plogs, and many switches
_WRITER: Final = "import sys; from penstock.cli._demo import write_forever; write_forever(sys.argv[1])"


class Round(NamedTuple):
    """What was found after one kill, all rounds so far together."""

    acknowledged: int
    found: int
    lost: int
    disordered: int
    plogs: int
    seconds: float


class Acked(NamedTuple):
    """An append that was acknowledged, and where its data end."""

    plog_id: PlogId
    end: int
    data: bytes


class PowerLosses(NamedTuple):
    """What became of a store after every power loss it might have suffered."""

    points: int
    states: int
    lost: int


def run_rounds(folder: Path, *, rounds: int, appends: int) -> "Iterator[Round]":
    """Let a writer work, kill it, see what is left; again and again on the same folder."""
    acknowledged: dict[int, int] = defaultdict(int)
    for _ in range(rounds):
        _write_until_killed(folder, appends, acknowledged)
        start = time.perf_counter()
        with _partition(folder) as manager:
            seconds = time.perf_counter() - start
            yield _look(manager.log(_LOG), acknowledged, seconds)


def _write_until_killed(folder: Path, appends: int, acknowledged: dict[int, int]) -> None:
    """Note what the writer says was acknowledged, each thread's last number, and kill it in the middle of its work."""
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(folder)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for count, line in enumerate(writer.stdout, start=1):
            if line.endswith("\n"):
                thread, number = map(int, line.split())
                acknowledged[thread] = number
            if count == appends:
                writer.kill()  # what it still says until it is dead counts, too
    if writer.returncode >= 0:
        raise RuntimeError(f"the writer ended by itself with {writer.returncode}")


def _look(log: LogStream, acknowledged: dict[int, int], seconds: float) -> Round:
    """Compare what is in the log with what was acknowledged."""
    found = _numbers(log)
    lost = sum(len(set(range(1, last + 1)) - set(found[thread])) for thread, last in acknowledged.items())
    disordered = sum(numbers != sorted(set(numbers)) for numbers in found.values())
    total = sum(map(len, found.values()))
    return Round(sum(acknowledged.values()), total, lost, disordered, len(log.plogs()), seconds)


def _numbers(log: LogStream) -> dict[int, list[int]]:
    """Return the numbers in the log, thread by thread, in the order in which they stand there."""
    found: dict[int, list[int]] = defaultdict(list)
    for view in log.read(log.plogs()[0][0], 0, log.length):
        thread, number = map(int, bytes(view).split())
        found[thread].append(number)
    return found


def write_forever(folder: str) -> None:
    """Append numbers from several threads and print each once it is acknowledged; ends by being killed."""
    with _partition(Path(folder)) as manager:
        log = manager.log(_LOG)
        last = {thread: max(numbers) for thread, numbers in _numbers(log).items()}
        threads = [
            threading.Thread(target=_write_numbers, args=(log, thread, last.get(thread, 0) + 1))
            for thread in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _write_numbers(log: LogStream, thread: int, number: int) -> None:
    while True:
        log.append(f"{thread} {number}".ljust(100).encode())
        sys.stdout.write(f"{thread} {number}\n")
        sys.stdout.flush()
        number += 1


@contextmanager
def _partition(folder: Path) -> "Iterator[MetadataManager]":
    with ExitStack() as stack:
        plogs = stack.enter_context(open_plogs(f"file:{folder / 'plogs'}"))
        cpo = stack.enter_context(open_cpo(f"sqlite:{folder / 'cpo.db'}"))
        yield stack.enter_context(MetadataManager.open(plogs, cpo, "demo", sizes=_SMALL))


def pull_the_plug() -> PowerLosses:
    """Write a few plogs on a recording disk and open what every possible power loss would have left of them."""
    disk = RecordingDisk()
    with FilePlogs(disk, journal_size=2048, direct_size_min=400) as plogs:
        for number in range(3):
            plog_id = plogs.create(size=2000)
            offset = 0
            for size in (20, 500, 30, 20):
                data = bytes([65 + number]) * size
                offset = plogs.append(plog_id, offset, data)
                disk.note(Acked(plog_id, offset, data))
    states = lost = 0
    for state in disk.every_crash_state(power_set_max=3):
        states += 1
        with FilePlogs(state.disk, journal_size=2048, direct_size_min=400) as plogs:
            acked = [note for note in state.notes if isinstance(note, Acked)]
            lost += any(plogs.read(plog_id, end - len(data), len(data)) != data for plog_id, end, data in acked)
    return PowerLosses(len(disk.crash_points()), states, lost)
