"""A process that appends is killed again and again: what it said was stored is stored."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from penstock.cpo import open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import open_plogs
from tests.log.harness import contents
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS: Final = 50 if EXPLORES else 5
ACKS_MAX: Final = 400
"""How many acknowledgements a round sees at most before its process is killed."""

CHILD: Final = """
import os, sys, threading
from penstock.cpo import open_cpo
from penstock.log import MetadataManager, PlogSizes
from penstock.plog import open_plogs

folder, run = sys.argv[1], int(sys.argv[2])
cpo, plogs = open_cpo(f"sqlite:{folder}/cpo.db"), open_plogs(f"file:{folder}/plogs")
manager = MetadataManager.open(plogs, cpo, "p0", sizes=PlogSizes(first=64, largest=512))

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def write(writer):
    for number in range(1_000_000):
        log = manager.log(f"log{(writer + number) % 3}")
        log.append(f"<{run}:{writer}:{number}:{'.' * (number % 40)}>".encode())
        say("append", log.name, run, writer, number)

def splice():
    for number in range(1_000_000):
        part = manager.log(f"part{number % 2}")
        for piece in range(5):
            part.append(f"<{run}:9:{number * 5 + piece}:{'x' * 30}>".encode())
        manager.log("log0").splice(part)
        for piece in range(5):
            say("append", "log0", run, 9, number * 5 + piece)

threads = [threading.Thread(target=write, args=(writer,), daemon=True) for writer in range(4)]
threads.append(threading.Thread(target=splice, daemon=True))
for thread in threads:
    thread.start()
threads[0].join()
"""

Place = tuple[int, int]  # the run and the writer


def run_and_kill(folder: Path, run: int, *, after: int) -> dict[tuple[str, Place], list[int]]:
    """Let a process append until it has acknowledged so much, kill it, and return what it acknowledged."""
    command = [sys.executable, "-c", CHILD, str(folder), str(run)]
    acknowledged: dict[tuple[str, Place], list[int]] = defaultdict(list)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for count, line in enumerate(child.stdout):
            if line.endswith("\n"):
                _, log, run_text, writer, number = line.split()
                acknowledged[log, (int(run_text), int(writer))].append(int(number))
            if count == after:
                child.kill()
    assert child.returncode == -9, "it ended by itself"
    return acknowledged


def found(folder: Path) -> dict[tuple[str, Place], list[int]]:
    """Return what the logs hold, by log and writer, in the order of the log."""
    pieces: dict[tuple[str, Place], list[int]] = defaultdict(list)
    with (
        open_cpo(f"sqlite:{folder}/cpo.db") as cpo,
        open_plogs(f"file:{folder}/plogs") as plogs,
        MetadataManager.open(plogs, cpo, "p0", sizes=PlogSizes(first=64, largest=512)) as manager,
    ):
        for name, held in contents(manager).items():
            for piece in filter(None, held.split(b"<")):
                run, writer, number, rest = piece.split(b":")
                assert rest.endswith(b">"), "no append is there in part"
                pieces[name, (int(run), int(writer))].append(int(number))
    return pieces


def test_nothing_acknowledged_is_lost_or_doubled_however_often_the_process_is_killed(tmp_path: Path) -> None:
    """The recorded disk proves power losses; this proves that nothing was left in the process's own memory."""
    chance = random.Random(2)
    acknowledged: dict[tuple[str, Place], list[int]] = {}
    for run in range(ROUNDS):
        acknowledged |= run_and_kill(tmp_path, run, after=chance.randrange(ACKS_MAX))
        held = found(tmp_path)
        for place, numbers in acknowledged.items():
            assert set(numbers) <= set(held[place]), place
        for numbers in held.values():
            assert numbers == sorted(set(numbers)), "in order, none twice"
    assert sum(map(len, acknowledged.values())) > ROUNDS * 20, "hardly anything was written"
