"""Stores for the tests of streams: in this process, and over the wire.

A test that gets a ``store`` is run with both, and with plogs in an object store where PENSTOCK_EXPLORE is set. One that
looks inside the store, or waits for what only a store in this process does at once, is skipped for the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from penstock import embedded
from penstock.embedded import open_store
from penstock.log import PlogSizes
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.testing import ManualClock, MemoryObjects
from tests.sampling import EXPLORES
from tests.stream.wire_harness import over_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


# Compaction, checkpoints and parts after a few appends.
CROWDED: Final = ObjectSettings(
    group_wait_s=0, part_size_min=2000, checkpoint_objects=20, checkpoint_size=20_000, compact_size_min=2000,
    journal_size_max=40_000, journal_objects_max=50, compaction_share=100.0,
)  # fmt: skip


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


KINDS: Final = ["embedded", "remote", *(["objects"] if EXPLORES else [])]


def put_in_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next store have its plogs in an object store."""
    monkeypatch.setattr(embedded, "open_plogs", lambda _: ObjectPlogs(MemoryObjects(), settings=CROWDED))


@pytest.fixture(params=KINDS)
def store(clock: ManualClock, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if request.param == "objects":
        put_in_objects(monkeypatch)
    with open_store("memory:", clock=clock, sizes=PlogSizes(first=4096, largest=64 << 10)) as store:
        if request.param == "remote":
            with over_the_wire(store, clock) as outside:
                yield outside
        else:
            yield store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"
