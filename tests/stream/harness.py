"""What several tests of streams share: a store on any disk, and events that can be told apart."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from penstock.log import MetadataManager, PlogSizes
from penstock.plog import FilePlogs
from penstock.stream import Engine
from penstock.testing import ManualClock, SeededRandom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cpo import Cpo
    from penstock.ports import Clock, Disk

STREAM: Final = "plant/readings"
SIZES: Final = PlogSizes(first=512, largest=512)


@contextmanager
def store_on(
    disk: Disk, cpo: Cpo, partition: str, *, seed: int, direct_size_min: int = 700, clock: Clock | None = None
) -> Iterator[Engine]:
    """Open a store whose journal is so small that checkpoints are part of its life."""
    with ExitStack() as resources:
        plogs = FilePlogs(disk, journal_size=4096, direct_size_min=direct_size_min, random=SeededRandom(seed))
        resources.enter_context(plogs)
        manager = resources.enter_context(MetadataManager.open(plogs, cpo, partition, sizes=SIZES))
        with Engine(manager, clock=clock or ManualClock(), resources=resources) as store:
            yield store


def event_of(number: int, key: str) -> bytes:
    return f"{key}:{number}:".encode().ljust(90, b".")


def numbers_of(store: Engine) -> list[tuple[str, int]]:
    events = [event for batch in store.read(STREAM) for event in batch["event"].to_pylist()]
    assert store.stream(STREAM).events == len(events), "a count that no crash may spoil"
    return [(key.decode(), int(number)) for key, number, _ in (event.split(b":") for event in events)]


def inside(store: Engine) -> Engine:
    """Return the store itself, also if this one is over the wire: to prepare what a test is about."""
    found: Engine = vars(store).get("inside", store)
    return found


def is_embedded(store: Engine) -> bool:
    """Whether the store is in this process."""
    return inside(store) is store


def embedded_only(store: Engine, reason: str) -> None:
    """Skip the test for a store over the wire."""
    if not is_embedded(store):
        pytest.skip(reason)
