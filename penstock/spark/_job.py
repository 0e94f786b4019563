"""The identity of a job on Spark: an id that is stored with its checkpoint, and one process at a time that runs it."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from penstock.checkpoints import held_checkpoint, known_job, new_job, record_job
from penstock.errors import JobRunning
from penstock.spark._stores import open_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.checkpoints import JobRecord
    from penstock.spark._options import Address

__all__ = ["Job"]


class Job:
    """A job with the folder of its checkpoint."""

    def __init__(self, checkpoint: str, record: JobRecord) -> None:
        self._checkpoint, self._record = Path(checkpoint), record
        self.name: Final = record.name
        self.consumer: Final = record.consumer

    @classmethod
    def at(cls, checkpoint: str, kind: str, address: Address, *streams: str, consumer: str | None = None) -> Self:
        """Return the job of a checkpoint, or a new one; raise an error if the checkpoint belongs to another job."""
        with open_at(address) as store:
            uids = {stream: store.stream(stream).uid for stream in streams}
        known = known_job(Path(checkpoint), kind, uids, consumer)
        return cls(checkpoint, known or new_job(kind, uids, consumer))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the job against other processes during the block, and record it unless it is recorded."""
        job = self._record
        with held_checkpoint(self._checkpoint):
            known = known_job(self._checkpoint, job.kind, job.streams, None)
            if known is None:
                record_job(self._checkpoint, job)
            elif known != job:  # another process was faster
                raise JobRunning(str(self._checkpoint))
            yield
