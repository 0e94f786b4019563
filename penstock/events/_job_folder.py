"""The folder in which a job without Spark keeps its identity and its progress; one process at a time runs it."""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from penstock.errors import BadArgument, JobRunning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penstock.store import Store

__all__ = ["JobFolder", "JobRecord", "load_progress", "replace_file", "sync"]

T = TypeVar("T")
_FILE: Final = "_penstock"  # as the jobs on Spark call theirs: so neither takes the other's folder
_LOCK: Final = "_lock"
_PROGRESS: Final = "progress"
_UNDECODABLE: Final = (ValueError, RecursionError)  # msgspec's own errors, and texts that are not UTF-8


class JobRecord(msgspec.Struct, frozen=True):
    """A job: its kind, the streams that it reads and writes by name and uid, and the consumer that it is."""

    name: str
    kind: str
    streams: dict[str, int]
    consumer: str


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
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / _LOCK).open("ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise JobRunning(str(folder)) from None
                yield cls(folder, _record(folder, kind, uids, consumer))
        except (FileExistsError, NotADirectoryError, PermissionError) as error:
            raise BadArgument(f"cannot create a checkpoint in {folder}: {error.strerror}") from None

    @staticmethod
    def read(folder: Path) -> JobRecord | None:
        """Return the job of a folder, which another process may run, also on Spark; None if there is none."""
        try:
            return msgspec.json.decode((folder / _FILE).read_bytes(), type=JobRecord)
        except (OSError, *_UNDECODABLE):
            return None

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
    except _UNDECODABLE:
        raise BadArgument(f"{folder / _PROGRESS} is damaged: start again with another checkpoint") from None


def _record(folder: Path, kind: str, streams: dict[str, int], consumer: str | None) -> JobRecord:
    try:
        known = msgspec.json.decode((folder / _FILE).read_bytes(), type=JobRecord)
    except FileNotFoundError:
        name = uuid.uuid4().hex[:12]
        record = JobRecord(name, kind, streams, consumer or f"{kind}-{name}")
        replace_file(folder / _FILE, msgspec.json.encode(record))
        return record
    except _UNDECODABLE:
        raise BadArgument(f"{folder / _FILE} is damaged: start again with another checkpoint") from None
    if (known.kind, known.streams) != (kind, streams):
        done = f"{known.kind} with {', '.join(known.streams)}"
        raise BadArgument(f"the checkpoint in {folder} belongs to another job, {done}: name another checkpoint")
    if consumer not in (None, known.consumer):
        raise BadArgument(f"the job in {folder} is registered as consumer {known.consumer!r}: its name cannot change")
    return known


def replace_file(place: Path, data: bytes) -> None:
    """Make a file durable with new content, as a whole."""
    new = place.with_name(f"{place.name}.part")
    new.write_bytes(data)
    sync(new)
    new.replace(place)
    sync(place.parent)


def sync(*places: Path) -> None:
    """Make files and folders durable."""
    for place in places:
        file = os.open(place, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
