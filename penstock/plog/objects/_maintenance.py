"""Maintenance: compaction, the checkpoint, and the deletion of what the checkpoint does not need.

Objects are deleted only after a checkpoint that does not need them, and as that checkpoint says, not as the state says
by then. An owner that is not the owner any more cannot replace the checkpoint, so it deletes nothing that a later owner
needs: all owners since begin with the checkpoint that they found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchObject, ObjectChanged
from penstock.plog.objects._checkpoint import CHECKPOINT_NAME, CheckpointCopy, StoreCheckpoint
from penstock.plog.objects._compact import carry_out, plan
from penstock.plog.objects._read import load_home
from penstock.plog.objects._records import journal_name
from penstock.plog.objects._state import journal_needed
from penstock.plog.objects._take_over import owner_since

if TYPE_CHECKING:
    from penstock.plog.objects._journal import ObjectJournal

__all__ = ["StoreMaintenance"]

_DELETE_MAX: Final = 1000  # names in one request
_CHECKPOINT_SHARE: Final = 4  # bytes of new journal for each byte of the checkpoint


class StoreMaintenance:
    """What an owner does in the background; one thread at a time."""

    def __init__(self, journal: ObjectJournal, *, owner: str) -> None:
        self._journal = journal
        self._owner = owner
        self._checkpoint_size = 0
        self._spent = 0

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether enough has happened since the last checkpoint; a large one is replaced less often."""
        journal, settings = self._journal, self._journal.settings
        enough = max(settings.checkpoint_size, _CHECKPOINT_SHARE * self._checkpoint_size)
        return journal.size_since >= enough or (
            journal.objects_since >= settings.checkpoint_objects * (1 + self._checkpoint_size // (1 << 20))
        )

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return self._journal.sealed_since or self.is_checkpoint_due

    def run(self) -> None:
        """Compact what is to be compacted, and replace the checkpoint if it is due."""
        self.compact()
        if self.is_checkpoint_due:
            self.checkpoint()

    def compact(self) -> None:
        """Compact as much as the settings allow."""
        journal, settings = self._journal, self._journal.settings
        with journal.changed:
            journal.sealed_since = False
            allowance = settings.journal_size_max + settings.compaction_share * journal.appended_size - self._spent
            plogs, retained = dict(journal.state.plogs), dict(journal.retained)
        tasks = plan(plogs, retained, settings, allowance)
        for task in tasks:
            if journal.is_stopped:
                return
            carry_out(journal, task)
            self._spent += task.size

    def checkpoint(self) -> None:
        """Replace the checkpoint, then delete what it does not need."""
        journal = self._journal
        ownership = journal.ownership
        with journal.changed:
            number = journal.number
            objects_since, size_since = journal.objects_since, journal.size_since
            plogs = list(journal.state.plogs.values())
            copy = CheckpointCopy(
                StoreCheckpoint(
                    number, journal.epoch, ownership.serial + 1, journal.token, self._owner, journal.state,
                    journal.retained,
                )
            )  # fmt: skip
        data = copy.pack()
        # Only this thread moves blocks out of the journal, and what is appended meanwhile lies behind the number.
        needed = journal_needed(plogs)
        garbage = [kept for kept in copy.journal if kept < number and kept not in needed]
        try:
            ownership.tag = journal.requests.replace_own(CHECKPOINT_NAME, data, tag=ownership.tag)
        except ObjectChanged as error:
            raise owner_since(journal.requests, journal.token) or error from None
        ownership.serial += 1
        self._checkpoint_size = len(data)
        with journal.changed:
            journal.objects_since -= objects_since
            journal.size_since -= size_since
        self._delete_journal(garbage)
        for folder, names in copy.deleted.items():
            self._delete_plog(folder, names)

    def _delete_journal(self, numbers: list[int]) -> None:
        journal = self._journal
        for first in range(0, len(numbers), _DELETE_MAX):
            chunk = numbers[first : first + _DELETE_MAX]
            self._delete(*map(journal_name, chunk))
            with journal.changed:
                for number in chunk:
                    del journal.retained[number]

    def _delete_plog(self, folder: str, names: tuple[str, ...]) -> None:
        """Delete the objects of a deleted plog: those that are known, and those that owners before have left."""
        journal = self._journal
        known = set(names)
        for name in names:
            if name.endswith(".plog"):
                known |= self._parts_of(name)
        listed = journal.requests.again(lambda: list(journal.requests.objects.names(folder)))
        self._delete(*sorted(known.union(listed)))
        with journal.changed:
            if journal.state.deleted.get(folder) == names:
                del journal.state.deleted[folder]

    def _parts_of(self, name: str) -> set[str]:
        try:
            home = load_home(self._journal.requests, name)
        except NoSuchObject:  # deleted before
            return set()
        return {extent.source for extent in home.extents if isinstance(extent.source, str)}

    def _delete(self, *names: str) -> None:
        for name in names:
            self._journal.cache.drop(name)
        if names:
            self._journal.requests.again(lambda: self._journal.requests.objects.delete(*names))
