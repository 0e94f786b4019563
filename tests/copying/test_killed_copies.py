"""Copies whose process is killed at any moment, and begun again."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from penstock import ByTime, StreamConfig, Watermark
from penstock.embedded import open_store
from tests.copying import killed_copy
from tests.copying.harness import STREAM, check_copy
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

KILLS = 12 if EXPLORES else 3


def test_a_copy_goes_on_after_kill_9_without_gaps_or_doubles(tmp_path: Path) -> None:
    """A copy of a large store takes hours, in which its machine may be restarted."""
    dice = random.Random(19)
    with open_store(tmp_path / "a") as source:
        source.create_stream(STREAM, 2, StreamConfig(retention=ByTime(1e9)))
        with source.writer(STREAM) as writer:
            for part in range(15):
                writer.write_batch([b"%d:%d" % (part, number) * 9 for number in range(60)], ["a", "b", "c"] * 20)
                writer.flush()
                if part in {3, 7, 11}:
                    first, second, *_ = source.stream(STREAM).segments
                    ids, high = [first.segment_id, second.segment_id], second.high
                    source.scale_stream(
                        STREAM, ids, [(0.0, high)] if part == 11 else [(0.0, high / 3), (high / 3, high)]
                    )
                source.add_watermarks(STREAM, [Watermark(part, part + 5, source.tail(STREAM))])
            with writer.begin_write_event("cam") as output:
                output.write(bytes(3 << 20))
    killed = 0
    while True:
        command = [sys.executable, killed_copy.__file__, str(tmp_path / "a"), str(tmp_path / "b")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = list(islice(process.stdout, dice.randrange(1, 15) if killed < KILLS else None))
            process.kill()
        if "done\n" in lines:
            break
        killed += 1
    assert killed, "the copy goes on until the signal comes, and may end before the last kill, but not before the first"
    with open_store(tmp_path / "a") as source, open_store(tmp_path / "b") as target:
        check_copy(source, target, [source.head(STREAM), source.tail(STREAM)])
