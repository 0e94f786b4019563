"""A store in a bucket whose process is killed at any moment, while many threads write: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pytest

from tests.explore import busy_life
from tests.explore.busy_life import NUMBERED, STREAM, WORKERS, opened, parse
from tests.faulty_http import faulty_http
from tests.sampling import EXPLORES, only_exploring

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from random import Random

    from tests.explore.conftest import Lives

pytestmark = pytest.mark.long

CROWDED: Final = "checkpoint_objects=24&compact_size_min=20000&journal_size_max=400000&journal_objects_max=40"
EVENT_SIZE_MAX: Final = 4 << 20
ENDPOINTS: Final = {"AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"}


class Model:
    """What the threads have told, in all lives: by thread, the groups of numbers that are there or not together."""

    def __init__(self) -> None:
        self.begun: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        self.done: dict[str, set[int]] = defaultdict(set)

    def hear(self, kind: str, worker: str, *numbers: int) -> None:
        """Take in one line."""
        if kind == "done":
            self.done[worker] |= set(numbers)
        elif numbers:
            self.begun[worker].append(numbers)

    def first(self) -> dict[str, int]:
        """Return where each thread goes on: one that gives numbers repeats all that was not acknowledged."""
        return {
            worker: 1 + max(self.done[worker] if worker in NUMBERED else _flat(self.begun[worker]), default=0)
            for worker in WORKERS
        }

    def check(self, found: list[tuple[str, int]]) -> None:
        """See that the events that are there are those that have to be, each once."""
        by_worker: dict[str, list[int]] = defaultdict(list)
        for worker, number in found:
            by_worker[worker].append(number)
        for worker in WORKERS:
            numbers = by_worker[worker]
            there = set(numbers)
            assert len(there) == len(numbers), f"{worker}: twice"
            assert self.done[worker] <= there, f"{worker}: lost {sorted(self.done[worker] - there)[:5]}"
            assert there <= _flat(self.begun[worker]), f"{worker}: never written"
            assert numbers == sorted(numbers), f"{worker}: out of order"
            if worker in NUMBERED:
                assert numbers == list(range(1, len(numbers) + 1)), f"{worker}: a gap"
            else:
                for together in self.begun[worker]:
                    assert len({number in there for number in together}) == 1, f"{worker}: half of {together}"

    def count(self) -> int:
        """Return how many events were acknowledged."""
        return sum(map(len, self.done.values()))


def _flat(groups: list[tuple[int, ...]]) -> set[int]:
    return {number for group in groups for number in group}


def lived(
    places: tuple[str, str], dice: Random, model: Model, *, seconds: float, environment: Mapping[str, str]
) -> None:
    """Let a process live for up to so many seconds, kill it, and take in what it told."""
    command = [sys.executable, busy_life.__file__, *places, str(dice.randrange(1 << 32)), json.dumps(model.first())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as process:
        assert process.stdout is not None
        first = [process.stdout.readline()]
        while not model.count() and first[-1] and json.loads(first[-1])[0] != "done":
            first.append(process.stdout.readline())  # one event at least is acknowledged, however busy the machine is
        time.sleep(dice.uniform(0.1, 1.0) * seconds)  # at any moment: that is what is tried
        process.kill()
        lines = [json.loads(line) for line in [*first, *process.stdout] if line.endswith("\n")]
    assert lines, "it never began"
    for line in lines:
        model.hear(*line)


def live(
    plogs: str,
    folder: Path,
    dice: Random,
    *,
    seconds: float,
    kills: int,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Kill one process after another that has the same store, and read it each time.

    The processes have these variables of the environment, which may lead through a proxy.
    """
    places, model = (plogs, f"sqlite:{folder}/cpo.db"), Model()
    folder.mkdir()
    for _ in range(kills):
        lived(places, dice, model, seconds=seconds, environment=environment)
        with opened(*places) as store:
            batches = store.read(STREAM, max_event_size=EVENT_SIZE_MAX)
            model.check([parse(event) for batch in batches for event in batch["event"].to_pylist()])
    assert model.count()


def killed(
    lives: Lives,
    folder: Path,
    address: str,
    environment: Mapping[str, str],
    *,
    chance: float,
    explored: int,
    seconds: float,
    kills: int,
) -> None:
    """Kill processes whose requests are on their way for a while, and fail with this chance."""
    [variable] = ENDPOINTS & environment.keys()
    for number, dice in enumerate(lives(sampled=1, explored=explored)):
        with faulty_http(environment[variable], seed=dice.randrange(1 << 32)) as proxy:
            proxy.slow_s, proxy.chance = 0.05, chance
            live(
                f"{address}/{number}?{CROWDED}",
                folder / str(number),
                dice,
                seconds=seconds,
                kills=kills,
                environment={variable: proxy.address},
            )
            assert proxy.fates["well"]


def test_a_store_in_s3_that_is_killed_under_load_loses_nothing(
    lives: Lives, tmp_path: Path, s3_address: str, s3_environment: dict[str, str]
) -> None:
    """Numbered events that are written again after a kill, transactions and large events, through one journal."""
    seconds, kills = (2.0, 6) if EXPLORES else (0.8, 3)
    killed(lives, tmp_path, s3_address, s3_environment, chance=0.0, explored=25, seconds=seconds, kills=kills)


def test_a_store_in_azure_that_is_killed_under_load_loses_nothing(
    lives: Lives, tmp_path: Path, azurite_address: str, azurite_environment: dict[str, str]
) -> None:
    """The same in Azure, whose conditional puts and errors are others."""
    seconds, kills = (2.0, 6) if EXPLORES else (0.8, 1)
    killed(lives, tmp_path, azurite_address, azurite_environment, chance=0.0, explored=10, seconds=seconds, kills=kills)


def test_an_azure_that_fails_and_hides_what_it_did_loses_nothing_of_a_store_that_is_killed(
    lives: Lives, tmp_path: Path, azurite_address: str, azurite_environment: dict[str, str]
) -> None:
    """A put whose answer is lost is looked for, and not repeated: otherwise its events would be there twice."""
    seconds, kills = (4.0, 5) if EXPLORES else (1.2, 1)
    killed(lives, tmp_path, azurite_address, azurite_environment, chance=0.1, explored=10, seconds=seconds, kills=kills)


@only_exploring
def test_an_s3_that_fails_and_hides_what_it_did_loses_nothing_of_a_store_that_is_killed(
    lives: Lives, tmp_path: Path, s3_address: str, s3_environment: dict[str, str]
) -> None:
    """The same in S3."""
    killed(lives, tmp_path, s3_address, s3_environment, chance=0.1, explored=10, seconds=4.0, kills=5)
