"""Plogs in an object store against a model: whatever the order of calls, they do what bytes in a dict would."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test

from penstock.errors import StoreFenced
from penstock.plog.objects import ObjectPlogs
from penstock.testing import MemoryObjects
from tests.plog.conftest import crowded
from tests.plog.test_plogs_model import PlogMachine
from tests.sampling import examples

if TYPE_CHECKING:
    from penstock.plog import Plogs


def copy_of(bucket: MemoryObjects) -> MemoryObjects:
    """Return a bucket with the same objects."""
    copy = MemoryObjects()
    copy._objects, copy._versions = bucket._objects.copy(), bucket._versions
    return copy


class ObjectMachine(PlogMachine):
    """The same calls, on objects; a killed owner goes on elsewhere."""

    def __init__(self) -> None:
        self.bucket = MemoryObjects()
        super().__init__()

    def open(self) -> Plogs:
        return ObjectPlogs(self.bucket, settings=crowded(part_size_min=300, journal_size_max=1500))

    @rule()
    def kill(self) -> None:
        """Go on with what the bucket holds now, as after kill -9."""
        killed, self.bucket = self.plogs, copy_of(self.bucket)
        self.plogs = self.open()
        killed.close()
        self.take_what_was_durable()

    @rule()
    def take_over(self) -> None:
        """Open the same bucket while another owner has it."""
        before, self.plogs = self.plogs, self.open()
        self.take_what_was_durable()
        with suppress(StoreFenced):
            before.close()


def test_plogs_in_objects_do_what_bytes_in_a_dict_would() -> None:
    """Appends, seals, deletions, compaction and take-overs in any order."""
    run_state_machine_as_test(ObjectMachine, settings=settings(max_examples=examples(40), stateful_step_count=40))
