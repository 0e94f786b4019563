"""Processes that are killed at any moment: the next one finds all that was acknowledged, whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.errors import DataTruncated, NoSuchTransaction
from tests.explore import killed_life
from tests.explore.harmed_servers import HarmedServers
from tests.explore.killed_life import STREAM, as_number, opened, read_some
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

    from penstock.stream import Engine
    from tests.explore.conftest import Lives


pytestmark = pytest.mark.long

KILLS: Final = 4  # of each store
CLUSTER_KILLS: Final = 10 if EXPLORES else 2
CROWDED: Final = "checkpoint_objects=24&compact_size_min=20000&journal_size_max=200000&journal_objects_max=40"


class Told:
    """What the processes of a store have told, in all their lives."""

    def __init__(self) -> None:
        self.durable, self.unsure, self.gone = set[int](), set[int](), set[int]()
        self.transactions: dict[str, list[int]] = {}
        self.streams, self.unsure_streams = {STREAM}, set[str]()
        self.highest = 0
        self.is_truncating = False  # it is not known whether what came before is there
        self.time = 0  # that of the last watermark
        self.read, self.is_reading = set[int](), False  # what the reader group has read, and whether it read more

    def hear(self, kind: str, step: str, numbers: list[int], name: str = "") -> None:
        """Take in one line."""
        self.highest = max([self.highest, *numbers])
        is_done = kind == "done"
        if step == "time":
            self.time = max([self.time, *(numbers if is_done else [])])
        elif step == "read":
            self.is_reading = not is_done
            self.read |= set(numbers)
        elif step == "truncate":
            self.is_truncating = not is_done
            self.unsure |= self.durable
            self.durable = set()
            if is_done:
                self.gone |= self.unsure
                self.unsure, self.transactions = set(), {}
        elif step == "create":
            (self.streams if is_done else self.unsure_streams).add(name)
        elif is_done:
            self.durable |= set(numbers)
            self.unsure -= set(numbers)
        else:
            self.unsure |= set(numbers)
        if step == "commit":
            self.transactions[name] = numbers

    def settle(self, there: set[int], streams: set[str]) -> None:
        """Note what was found: from here on it is certain."""
        self.gone |= self.unsure - there
        self.durable, self.unsure = set(there), set()
        self.transactions = {one: numbers for one, numbers in self.transactions.items() if set(numbers) <= there}
        self.streams, self.unsure_streams = set(streams), set()
        self.is_truncating = self.is_reading = False


def lived(
    places: tuple[str, str], dice: Random, told: Told, seconds: float, wait: Callable[[float], None] = time.sleep
) -> None:
    """Let a process live for up to so many seconds, kill it, and take in what it told; ``wait`` may harm its store."""
    command = [sys.executable, killed_life.__file__, *places, str(dice.randrange(1 << 32)), str(told.highest + 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        wait(dice.uniform(0.0, seconds))  # at any moment: that is what is tried
        process.kill()
        lines: list[list[Any]] = [json.loads(line) for line in [first, *process.stdout] if line.endswith("\n")]
    assert lines, "it never began"
    for line in lines:
        told.hear(*line)


def check(store: Engine, told: Told) -> None:
    """See that the store holds what was told."""
    found = [as_number(event) for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
    there = set(found)
    assert len(there) == len(found), "doubled"
    assert told.durable <= there, f"lost: {sorted(told.durable - there)[:5]}"
    assert not told.gone & there, "truncated, and there again"
    assert there <= told.durable | told.unsure, "it was never written"
    for transaction, numbers in told.transactions.items():
        is_there = {number in there for number in numbers}
        assert len(is_there) == 1, f"half of {transaction}"
        if told.durable >= set(numbers) or is_there == {True}:
            assert is_committed(store, transaction), f"{numbers} are there, and {transaction} is unknown"
        elif told.unsure >= set(numbers) and not told.is_truncating:
            assert not is_committed(store, transaction), f"{numbers} are not there, and {transaction} is committed"
    names = {info.name for info in store.streams()}
    assert told.streams <= names <= told.streams | told.unsure_streams
    check_times(store, told)
    read = read_some(store, len(found) + 1)
    assert len(set(read)) == len(read), "the group has read it twice"
    assert not told.read & set(read), "the group has read it before"
    assert told.is_reading or there <= told.read | set(read), "the group has not read it"
    told.read |= there
    told.settle(there, names)


def check_times(store: Engine, told: Told) -> None:
    """See that watermarks are there that were, and promise nothing that does not hold."""
    times = [mark.lower for mark in store.watermarks(STREAM)]
    assert times == sorted(set(times))
    last = store.watermark(STREAM)
    assert (0 if last is None else last.lower) >= told.time, "a watermark is lost"
    for mark in store.watermarks(STREAM)[-2:]:
        with suppress(DataTruncated):
            late = [as_number(event) for batch in store.read(STREAM, mark.cut) for event in batch["event"].to_pylist()]
            assert min(late, default=mark.lower) >= mark.lower, "an event lies behind its watermark"


def is_committed(store: Engine, transaction: str) -> bool:
    try:
        return store.transactions.get(transaction).status == "committed"
    except NoSuchTransaction:
        return False


def live(places: tuple[str, str], dice: Random, *, seconds: float, kills: int = KILLS) -> None:
    """Kill one process after another that has the same store."""
    told = Told()
    for _ in range(kills):
        lived(places, dice, told, seconds)
        with opened(*places) as store:
            check(store, told)


def test_a_process_that_is_killed_leaves_what_it_told(lives: Lives, tmp_path: Path) -> None:
    """Events, transactions, scales, truncations, times and readers with small plogs, in the same folder."""
    for number, dice in enumerate(lives(sampled=1, explored=25)):
        live((f"file:{tmp_path}/{number}", f"sqlite:{tmp_path}/{number}.db"), dice, seconds=0.25)


def test_a_process_that_is_killed_leaves_what_it_told_in_a_bucket(
    lives: Lives, tmp_path: Path, s3_address: str
) -> None:
    """The same in S3, where compaction and checkpoints are under way at any moment."""
    seconds, kills = (1.5, KILLS) if EXPLORES else (0.5, 2)
    for number, dice in enumerate(lives(sampled=1, explored=25)):
        place = f"{s3_address}/{number}?{CROWDED}", f"sqlite:{tmp_path}/{number}.db"
        live(place, dice, seconds=seconds, kills=kills)


def test_a_process_that_is_killed_leaves_what_it_told_on_plog_servers(lives: Lives, tmp_path: Path) -> None:
    """The same on two groups of plog servers, which are killed, suspended, started again and robbed of their disks.

    At the end repair has made three equal replicas of everything.
    """
    for number, dice in enumerate(lives(sampled=1, explored=25)):
        places, told = ("cluster:plant", f"sqlite:{tmp_path}/{number}/cpo.db"), Told()
        with HarmedServers(tmp_path / str(number), dice, cpo=places[1]) as servers:
            for _ in range(CLUSTER_KILLS):
                lived(places, dice, told, 1.0, wait=servers.harm)
                servers.leave_enough()
                with opened(*places) as store:
                    check(store, told)
                servers.mend()
            with opened(*places) as store:
                servers.await_repair()
                check(store, told)
            servers.check_equal()
