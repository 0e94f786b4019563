"""A writing process is killed again and again; what it had said was durable is there, once, and in order."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penstock.embedded import open_store
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.stream import Engine

STREAM = "plant/readings"
KILLS = 25 if EXPLORES else 4

# Writes numbered events of a source that replays, scales the stream now and then, and prints what is durable.
WRITER = """
import os, random, sys
from penstock.embedded import open_store
from penstock.log import PlogSizes

folder, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
store = open_store(folder, sizes=PlogSizes(first=4096, largest=64 << 10))
store.create_stream("plant/readings", segments=2, exist_ok=True)
writer = store.writer("plant/readings", "source")
first = 0 if writer.last_number is None else writer.last_number + 1
os.write(1, b"from %d\\n" % first)
for number in range(max(0, first - 20), first + 100_000):
    event = b"k%d:%d:" % (number % 7, number) + bytes(chance.randrange(300))
    ack = writer.write_event(event, key="k%d" % (number % 7), number=number)
    ack.add_done_callback(lambda _, number=number: os.write(1, b"%d\\n" % number))
    if chance.random() < 0.02:
        ack.result()
    if chance.random() < 0.001:
        segments = store.stream("plant/readings").segments
        if len(segments) > 4:
            low, high = segments[:2]
            store.scale_stream("plant/readings", [low.segment_id, high.segment_id], [(low.low, high.high)])
        else:
            one = chance.choice(segments)
            middle = (one.low + one.high) / 2
            store.scale_stream("plant/readings", [one.segment_id], [(one.low, middle), (middle, one.high)])
"""


def run_and_kill(folder: Path, seed: int) -> tuple[int, set[int]]:
    """Let the writer run until it has printed some lines; return where it began and what it said was durable."""
    with subprocess.Popen([sys.executable, "-c", WRITER, folder, str(seed)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        head = process.stdout.readline().split()
        assert head[:1] == [b"from"], "the writer did not start"
        lines = [process.stdout.readline() for _ in range(random.Random(seed).randrange(1, 4000))]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        assert process.returncode == -signal.SIGKILL
    return int(head[1]), {int(line) for line in lines if line.endswith(b"\n")}


def numbers_by_key(store: Engine) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for batch in store.read(STREAM):
        for event in batch["event"].to_pylist():
            key, number, _ = event.split(b":")
            found.setdefault(key, []).append(int(number))
    return found


@pytest.mark.parametrize("seed", [1])
def test_a_killed_writer_loses_doubles_and_reorders_nothing(folder: Path, seed: int) -> None:
    """The promise of an acknowledgement, at any moment: while writing, while scaling, while opening."""
    durable: set[int] = set()
    for kill in range(KILLS):
        first, printed = run_and_kill(folder, 100 * seed + kill)
        assert set(range(first)) >= {number for number in durable if number < first}
        assert first > max(durable, default=-1) - 20_000
        durable |= printed
    with open_store(folder) as store:
        found = numbers_by_key(store)
        with store.writer(STREAM, "source") as writer:
            last = writer.last_number
    counts = Counter(number for numbers in found.values() for number in numbers)
    assert not [number for number, count in counts.items() if count > 1], "doubled"
    assert durable <= counts.keys(), "lost"
    assert last is not None
    assert set(range(last + 1)) <= counts.keys(), "a gap"
    for numbers in found.values():
        assert numbers == sorted(numbers), "out of order"
