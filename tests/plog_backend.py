"""Where tests have their plogs: on a disk, in memory or in a folder, unless they are told to use something else.

PENSTOCK_TEST_PLOGS names the object store, in which then all plogs are that a test opens by their address or through
the fixtures of plogs and logs. Tests in :data:`ON_DISK` are about files and are skipped there. ``groups`` and
``flaky`` stand for groups of servers, over plogs on a disk; those of ``flaky`` lose replicas all the time.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import uuid4

from penstock.plog import FilePlogs, _interface
from penstock.plog.objects import ObjectPlogs, ObjectSettings
from penstock.plog.objects._cache import ObjectCache
from penstock.plog.replicated import open_group_plogs
from penstock.ports import Bucket
from penstock.testing import FaultyObjects, FlakyGroups, MemoryObjects
from tests.plog_servers import PlogServers

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from penstock.plog.replicated import ReplicatedPlogs
    from penstock.ports import Disk, Objects

__all__ = ["BACKEND", "GROUPS", "SAMPLED", "Buckets", "reason_on_disk"]

Backend: TypeAlias = Literal["disk", "objects", "faulty", "s3", "azure", "groups", "flaky", "servers"]
BACKENDS: Final[tuple[Backend, ...]] = ("disk", "objects", "faulty", "s3", "azure", "groups", "flaky", "servers")
SAMPLED: Final[tuple[Backend, ...]] = ("disk", "objects", "s3", "azure")
"""Where tests marked ``buckets`` run in every test run."""
GROUPS: Final[tuple[Backend, ...]] = ("groups", "flaky")
BACKEND: Final[Any] = os.environ.get("PENSTOCK_TEST_PLOGS", "disk")
assert BACKEND in BACKENDS, f"unknown PENSTOCK_TEST_PLOGS {BACKEND!r}: use one of {', '.join(BACKENDS)}"

_FAULTS: Final = 0.03  # of all requests
# Compaction, checkpoints and parts after a few appends; few bytes under way, since some tests measure memory.
_CROWDED: Final = ObjectSettings(
    group_wait_s=0, group_size_max=1 << 20, pending_size_max=1 << 20, part_size_min=2000, checkpoint_objects=20,
    checkpoint_size=20_000, compact_size_min=2000, journal_size_max=40_000, journal_objects_max=50,
    compaction_share=100.0,
)  # fmt: skip

_FILES: Final = "is about the files of plogs, or about disks"
_COPIED: Final = "takes a copy of the folder for what a killed process leaves; a bucket is not copied"
_PROCESS: Final = "starts a process that opens the folder, and knows of no bucket"
_TAKEN_OVER: Final = "a folder refuses a second owner; a bucket lets it take over (tests/plog/objects/test_owners.py)"
_IN_MEMORY: Final = "measures memory, in which this object store has its objects"
_OWN_BUCKET: Final = "has object stores of its own, always the same"
ON_DISK: Final[dict[str, str]] = {
    **dict.fromkeys(
        [
            *(f"tests/plog/test_{name}" for name in ("block", "head", "journal", "located", "replica")),
            *(f"tests/plog/test_plogs_{name}" for name in ("bookkeeping", "crash", "damage", "faults", "interrupts")),
            "tests/plog/server/test_scrub.py::test_what_lies_behind_a_seal_is_no_damage",
            "tests/plog/test_plogs.py::test_disk_is_let_go_when_opening_fails",
            "tests/plog/test_plogs.py::test_open_files_are_few_whatever_is_done",
            "tests/plog/test_plogs.py::test_room_is_allocated_when_a_plog_is_created",
            "tests/plog/test_plogs.py::test_seal_gives_the_unused_room_back",
            "tests/plog/test_plogs.py::test_delete_gives_the_room_back",
            *(f"tests/log/test_log_{name}" for name in ("crash", "damage", "full_disk")),
            *(f"tests/stream/engine/test_{name}" for name in ("crash", "failed_sync", "faults")),
            "tests/stream/engine/test_store.py::test_deleting_frees_the_logs",
            "tests/backup/",
            "tests/plog/test_cut.py",
            "tests/stream/transaction/test_commit_crash.py",
            "tests/stream/transaction/test_prepared_crash.py",
            "tests/seeds/test_seed_c.py::test_create_sets_the_whole_block_aside",
        ],
        _FILES,
    ),
    **dict.fromkeys(
        [
            "tests/stream/group/test_groups.py::test_after_a_kill_",
            "tests/stream/group/test_groups.py::test_checkpoints_survive_a_kill_",
            "tests/stream/group/test_losses.py::test_a_loss_that_a_reader_did_not_come_to_tell_is_told_by_the_next",
            "tests/stream/group/test_positions.py::test_positions_become_durable_while_the_reader_is_not_called",
            "tests/stream/group/test_positions.py::test_what_a_reader_commits_is_durable_at_once",
            "tests/stream/time/test_watermarks.py::test_a_writer_that_had_given_time_before_a_kill_is_waited_for",
            "tests/stream/time/test_watermarks.py::test_what_counted_before_a_kill_is_on_record",
            "tests/stream/time/test_watermarks.py::test_writers_on_record_survive_many_passes_and_snapshots",
            "tests/seeds/test_seed_b.py::test_after_a_crash_the_last_value_is_read_back",
            "tests/seeds/test_seed_b.py::test_marks_of_event_writers_are_checked_and_recorded_durably",
            "tests/stream/segment/test_known_ends.py::test_a_store_that_was_not_closed_is_looked_at",
        ],
        _COPIED,
    ),
    **dict.fromkeys(
        [
            "tests/log/test_log_kill.py",
            "tests/stream/engine/test_kill.py",
            "tests/stream/group/test_positions.py::test_an_owner_that_is_killed_after_a_second",
            "tests/seeds/test_seed_c.py::test_a_log_goes_on_after_its_process_was_killed",
        ],
        _PROCESS,
    ),
    **dict.fromkeys(
        [
            "tests/stream/engine/test_store.py::test_a_folder_has_one_owner",
            "tests/stream/format/test_catalog_records.py::test_there_is_one_who_has_a_folder_alone",
        ],
        _TAKEN_OVER,
    ),
    "tests/plog/objects/": _OWN_BUCKET,
    **dict.fromkeys(
        [
            "tests/stream/transaction/test_transactions.py::test_a_transaction_takes_the_memory_of_what_is_copied",
            "tests/stream/write/test_large_events.py::test_writing_and_reading_take_the_memory_of_a_chunk_or_two",
            "tests/seeds/test_seed_a.py::test_small_buffers_do_for_events_of_any_size",
        ]
        if BACKEND in ("objects", "faulty")
        else [],
        _IN_MEMORY,
    ),
}
"""Tests that say nothing about plogs in an object store, by the beginning of their names, and why."""


_OPEN_PLOGS: Final = "reopens plogs and appends to them; on servers, a plog of another owner is sealed when it is used"
ON_SERVERS: Final[dict[str, str]] = {
    **dict.fromkeys(
        [
            *(
                f"tests/plog/test_plogs.py::test_{name}"
                for name in ("reopened_", "journal_turns_over_many", "journal_size_may", "more_plogs_than_open_files")
            ),
        ],
        _OPEN_PLOGS,
    ),
    **dict.fromkeys(
        [
            "tests/plog/test_plogs.py::test_read_inside_one_append_is_no_copy",
            "tests/log/test_log_merge.py::test_merging_leaves_one_file_for_many",
            "tests/log/test_log_metadata_switch.py::test_plogs_still_to_be_deleted",
            "tests/log/test_log_release.py",
            "tests/log/test_log_stream.py::test_reads_share_the_memory_of_the_file",
            "tests/log/test_log_stream.py::test_a_deleted_log_is_gone_with_its_files",
        ],
        _FILES,
    ),
    "tests/plog/test_plogs.py::test_id_of_another_cluster_or_group": "a group that is not registered may have the plog",
}
"""Tests that say nothing about plogs on three servers, by the beginning of their names, and why."""


def reason_on_disk(nodeid: str) -> str | None:
    """Return why a test has to have its plogs on a disk; None if it need not."""
    reasons = ON_DISK | ON_SERVERS if BACKEND == "servers" else ON_DISK
    return next((reason for name, reason in reasons.items() if nodeid.startswith(name)), None)


class Buckets:
    """The buckets of a test; each connection to one of them goes through ``connect``."""

    def __init__(self, backend: Backend, address: str) -> None:
        self._backend, self._address = backend, address  # the address is that of a real object store
        self._stored: dict[str, MemoryObjects] = {}
        self._servers: PlogServers | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self.opened = 0

    def connect(self, name: str) -> Objects:
        """Connect to the bucket of this name, which is made if there is none."""
        self.opened += 1
        if self._backend in ("s3", "azure"):
            return Bucket(f"{self._address}/{name}")
        memory = self._stored.setdefault(name, MemoryObjects())
        if self._backend != "faulty":
            return memory
        return FaultyObjects(memory, chance=_FAULTS, seed=self.opened, late_names=2)

    def new(self) -> Callable[[], Objects]:
        """Return a function that connects to a bucket of its own, the same every time."""
        name = uuid4().hex
        return lambda: self.connect(name)

    def open(self, objects: Objects, settings: ObjectSettings) -> ObjectPlogs:
        """Open plogs in a bucket: in a real one with the cache of ``open_plogs``, else every read is a request."""
        if self._backend not in ("s3", "azure"):
            return ObjectPlogs(objects, settings=settings)
        cache = ObjectCache(objects, folder=None, memory_max=settings.pending_size_max, disk_max=0)
        return ObjectPlogs(objects, settings=settings, cache=cache)

    def plogs(self, place: object) -> ObjectPlogs:
        """Open plogs in the bucket that stands for a folder, or in a new one instead of a disk in memory."""
        if not isinstance(place, Path):
            return self.open(self.new()(), _CROWDED)
        place.mkdir(parents=True, exist_ok=True)  # where the store of a folder is looked for
        return self.open(self.connect(sha256(bytes(place.absolute())).hexdigest()), _CROWDED)

    def groups(self, plogs: FilePlogs) -> FlakyGroups:
        """Let plogs be in groups that fail."""
        self.opened += 1
        return FlakyGroups(plogs, chance=_FAULTS if self._backend == "flaky" else 0.0, seed=self.opened)

    def _on_disk(self, disk: Disk) -> FlakyGroups:
        return self.groups(FilePlogs(disk))

    def on_servers(self, place: object) -> ReplicatedPlogs:
        """Open plogs on three servers, which run until the test ends; a folder, or a name, is a partition there."""
        self.opened += 1
        if self._servers is None:
            self._folder = TemporaryDirectory(prefix="penstock-servers-")
            self._servers = PlogServers(Path(self._folder.name))
        if isinstance(place, Path):
            place.mkdir(parents=True, exist_ok=True)
            place = sha256(bytes(place.absolute())).hexdigest()[:16]
        name = place if isinstance(place, str) else uuid4().hex
        return open_group_plogs(",".join(self._servers.addresses("main")), partition=f"p{name}")

    def close(self) -> None:
        """Stop the servers, if there are any."""
        if self._servers is not None and self._folder is not None:
            self._servers.close()
            self._folder.cleanup()

    def redirect(self, patch: pytest.MonkeyPatch) -> None:
        """Let ``open_plogs`` open plogs in these buckets, or in groups that fail."""
        if self._backend in GROUPS:
            patch.setattr(_interface, "FilePlogs", self._on_disk)
            return
        patch.setattr(_interface, "OsDisk", Path)
        patch.setattr(_interface, "FilePlogs", self.on_servers if self._backend == "servers" else self.plogs)
