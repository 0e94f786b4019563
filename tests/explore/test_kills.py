"""Processes that are killed at any moment: the next one finds all that was acknowledged, whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock.embedded import open_store
from penstock.errors import NoSuchTransaction
from tests.explore import killed_life
from tests.explore.killed_life import SIZES, STREAM, as_number

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from penstock.stream import Engine
    from tests.explore.conftest import Lives


pytestmark = pytest.mark.long

KILLS: Final = 4  # of each folder


class Told:
    """What a folder's processes have told, in all their lives."""

    def __init__(self) -> None:
        self.durable, self.unsure, self.gone = set[int](), set[int](), set[int]()
        self.transactions: dict[str, list[int]] = {}
        self.streams, self.unsure_streams = {STREAM}, set[str]()
        self.highest = 0
        self.is_truncating = False  # it is not known whether what came before is there

    def hear(self, kind: str, step: str, numbers: list[int], name: str = "") -> None:
        """Take in one line."""
        self.highest = max([self.highest, *numbers])
        is_done = kind == "done"
        if step == "truncate":
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
        self.is_truncating = False


def lived(folder: Path, dice: Random, told: Told) -> None:
    """Let a process live for a moment, kill it, and take in what it told."""
    command = [sys.executable, killed_life.__file__, str(folder), str(dice.randrange(1 << 32)), str(told.highest + 1)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(dice.uniform(0.0, 0.25))  # at any moment: that is what is tried
        process.kill()
        lines: list[list[Any]] = [json.loads(line) for line in [first, *process.stdout] if line.endswith("\n")]
    assert lines, "it never began"
    for line in lines:
        told.hear(*line)


def check(store: Engine, told: Told) -> None:
    """See that the folder holds what was told."""
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
    told.settle(there, names)


def is_committed(store: Engine, transaction: str) -> bool:
    try:
        return store.transactions.get(transaction).status == "committed"
    except NoSuchTransaction:
        return False


def test_a_process_that_is_killed_leaves_what_it_told(lives: Lives, tmp_path: Path) -> None:
    """Writes, commits, scales and truncations with small plogs, one process after another on the same folder."""
    for number, dice in enumerate(lives(sampled=1, explored=25)):
        told, folder = Told(), tmp_path / str(number)
        for _ in range(KILLS):
            lived(folder, dice, told)
            with open_store(folder, sizes=SIZES) as store:
                check(store, told)
