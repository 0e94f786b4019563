"""Backups that are taken while writers and transactions run: each point is a moment that there could have been."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Self

import pytest

from penstock.backup import backup_store, check_backup, restore_store
from penstock.embedded import open_store
from tests.backup.harness import SMALL
from tests.sampling import EXPLORES

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store

pytestmark = pytest.mark.long

SEEDS = range(20) if EXPLORES else range(2)
BACKUPS = 5
LEFT, RIGHT = "plant/left", "plant/right"


class Writers:
    """Threads that write, each noting what is acknowledged before the next write begins."""

    def __init__(self, store: Store, dice: random.Random) -> None:
        self._store, self._dice = store, dice
        self._over = threading.Event()
        self.acked = {"chain": 0, "batches": 0, "transactions": 0}
        self._threads = [threading.Thread(target=work) for work in (self._chain, self._batches, self._transactions)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _chain(self) -> None:
        """Write a number to one stream when the number before is durable in the other; some are large."""
        with self._store.writer(LEFT, "chain") as left, self._store.writer(RIGHT, "chain") as right:
            while not self._over.is_set():
                number = self.acked["chain"] + 1
                data = b"c%d" % number + b"." * (200_000 if number % 5 == 0 else 20)
                (left if number % 2 else right).write_event(data, "chain").result()
                self.acked["chain"] = number

    def _batches(self) -> None:
        with self._store.writer(LEFT, "batches") as writer:
            while not self._over.is_set():
                number = self.acked["batches"] + 1
                writer.write_batch([b"b%d" % number] * 10, ["batches"] * 10)
                writer.flush()
                self.acked["batches"] = number

    def _transactions(self) -> None:
        while not self._over.is_set():
            number = self.acked["transactions"] + 1
            with self._store.transactional_writer(RIGHT).begin() as transaction:
                for part in range(3):
                    transaction.write_event(b"t%d.%d" % (number, part) + b"." * 3000, f"k{part}")
            self.acked["transactions"] = number


def events_of(store: Store, stream: str, letter: bytes) -> list[bytes]:
    events = (event for batch in store.read(stream) for event in batch["event"].to_pylist())
    return [event.rstrip(b".")[1:] for event in events if event.startswith(letter)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_point_is_a_consistent_prefix(tmp_path: Path, seed: int) -> None:
    """What is in a backup has its cause in it; what was acknowledged before is in it; transactions are in or out."""
    dice, befores = random.Random(seed), {}
    with open_store(tmp_path / "a", sizes=SMALL, maintenance_interval_s=0.02) as store:
        store.create_stream(LEFT)
        store.create_stream(RIGHT, 3)
        with Writers(store, dice) as writers:
            for number in range(BACKUPS):
                before = dict(writers.acked)
                while writers.acked["chain"] < before["chain"] + dice.randrange(1, 12):
                    threading.Event().wait(0.001)
                if number == 2:
                    store.scale_stream(LEFT, [0], [(0.0, 0.5), (0.5, 1.0)])
                before = dict(writers.acked)
                point = backup_store(store, tmp_path / "b").point
                befores[point] = before, dict(writers.acked)
    for point, (before, after) in befores.items():
        assert check_backup(tmp_path / "b", at=point).is_good
        restore_store(tmp_path / "b", tmp_path / point, at=point)
        with open_store(tmp_path / point) as restored:
            chain = sorted(map(int, events_of(restored, LEFT, b"c") + events_of(restored, RIGHT, b"c")))
            assert chain == list(range(1, len(chain) + 1)), "no number without the one before"
            assert before["chain"] <= len(chain) <= after["chain"] + 1
            batches = list(map(int, events_of(restored, LEFT, b"b")))
            assert batches == sorted(batches)
            assert before["batches"] * 10 <= len(batches) <= (after["batches"] + 1) * 10
            parts = [tuple(map(int, event.split(b"."))) for event in events_of(restored, RIGHT, b"t")]
            numbers = {number for number, _ in parts}
            assert sorted(parts) == [(number, part) for number in sorted(numbers) for part in range(3)], (
                "all or nothing"
            )
            assert numbers == set(range(1, len(numbers) + 1))
            assert before["transactions"] <= len(numbers) <= after["transactions"] + 1
