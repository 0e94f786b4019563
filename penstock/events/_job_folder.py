"""A job without Spark: its checkpoint, its progress, and its batches one after the other."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

import msgspec

from penstock.checkpoints import held_checkpoint, known_job, new_job, record_job, replace_file
from penstock.errors import BadArgument
from penstock.model import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penstock.checkpoints import JobRecord
    from penstock.store import Store

__all__ = ["Copied", "JobFolder", "copy_batches", "load_progress", "replace_file"]

T = TypeVar("T")
_PROGRESS: Final = "progress"


class JobFolder:
    """A job that is held by this process."""

    def __init__(self, folder: Path, record: JobRecord) -> None:
        self._folder = folder
        self.name: Final = record.name
        self.consumer: Final = record.consumer

    @classmethod
    @contextmanager
    def held(
        cls, folder: Path, kind: str, store: Store, streams: Sequence[str], *, consumer: str | None = None
    ) -> Iterator[Self]:
        """Hold the job of a folder during the block, or a new one; an error if the folder is that of another job."""
        uids = {stream: store.stream(stream).uid for stream in streams}
        with held_checkpoint(folder):
            job = known_job(folder, kind, uids, consumer)
            if job is None:
                job = new_job(kind, uids, consumer)
                record_job(folder, job)
            yield cls(folder, job)

    def load(self, kind: type[T]) -> T | None:
        """Return the progress of the job; None at its start."""
        return load_progress(self._folder, kind)

    def store(self, progress: object) -> None:
        """Make the progress of the job durable."""
        replace_file(self._folder / _PROGRESS, msgspec.json.encode(progress))


def load_progress(folder: Path, kind: type[T]) -> T | None:
    """Return the progress of the job of a folder, which another process may run; None at its start."""
    try:
        return msgspec.json.decode((folder / _PROGRESS).read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except UNDECODABLE:
        raise BadArgument(f"{folder / _PROGRESS} is damaged: start again with another checkpoint") from None


class Copied(NamedTuple):
    """How much a run has copied."""

    events: int = 0
    batches: int = 0


def copy_batches(
    copy: Callable[[], int | None], *, follow: bool, poll_s: float, watch: Callable[[Copied], object]
) -> Copied:
    """Copy batches until there are no more events; with ``follow``, until it is interrupted.

    ``copy`` copies the next batch and returns how many events it had, or None if there are none. ``poll_s`` is how long
    to wait then.
    """
    done = Copied()
    with suppress(KeyboardInterrupt) if follow else nullcontext():
        while (events := copy()) is not None or follow:
            if events is not None:
                done = Copied(done.events + events, done.batches + 1)
            watch(done)
            if events is None:
                time.sleep(poll_s)
    return done
