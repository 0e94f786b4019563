"""Checkpoints of jobs, with Spark and without: the folder says which job it is of, and one process at a time holds it.

A job is recorded once, as JSON in the file ``_penstock``: ``{"name", "kind", "streams", "consumer"}``. Without its
checkpoint, a job starts as a new one.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument, JobRunning
from penstock.model import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["JobRecord", "held_checkpoint", "known_job", "new_job", "read_job", "record_job", "replace_file", "sync"]

_FILE: Final = "_penstock"
_LOCK: Final = "_lock"


class JobRecord(msgspec.Struct, frozen=True):
    """A job: its kind, the streams that it reads and writes by name and uid, and the consumer that it is."""

    name: str
    kind: str
    streams: dict[str, int]
    consumer: str


def new_job(kind: str, streams: Mapping[str, int], consumer: str | None) -> JobRecord:
    """Return a job with a name of its own, which is not recorded yet."""
    name = uuid.uuid4().hex[:12]
    return JobRecord(name, kind, dict(streams), consumer or f"{kind}-{name}")


def read_job(folder: Path) -> JobRecord | None:
    """Return the job of a checkpoint, whichever it is; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((folder / _FILE).read_bytes(), type=JobRecord)
    except (OSError, *UNDECODABLE):
        return None


def known_job(folder: Path, kind: str, streams: Mapping[str, int], consumer: str | None) -> JobRecord | None:
    """Return the job of a checkpoint, None if there is none yet; an error if it is not of this kind and these streams.

    ``consumer`` is the name that the job should have, if any.
    """
    try:
        data = (folder / _FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        known = msgspec.json.decode(data, type=JobRecord)
    except UNDECODABLE:
        raise BadArgument(f"{folder / _FILE} is damaged: start again with another checkpoint") from None
    if (known.kind, known.streams.keys()) != (kind, streams.keys()):
        done = f"{known.kind} with {', '.join(known.streams)}"
        raise BadArgument(f"the checkpoint in {folder} belongs to another job, {done}: name another checkpoint")
    if known.streams != streams:
        raise BadArgument(f"the checkpoint in {folder} belongs to a stream that was deleted: name another checkpoint")
    if consumer not in (None, known.consumer):
        raise BadArgument(f"the job in {folder} is registered as consumer {known.consumer!r}: its name cannot change")
    return known


@contextmanager
def held_checkpoint(folder: Path) -> Iterator[None]:
    """Hold a checkpoint against other processes during the block; the folder is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("ab")
    except OSError as error:
        raise BadArgument(f"cannot create a checkpoint in {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobRunning(str(folder)) from None
        yield


def record_job(folder: Path, job: JobRecord) -> None:
    """Record a job; the caller holds the checkpoint."""
    replace_file(folder / _FILE, msgspec.json.encode(job))
    sync(folder.parent)


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
