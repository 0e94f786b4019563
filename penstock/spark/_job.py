"""What a job is: a name that is kept with its checkpoint, and one process at a time that runs it.

Without the checkpoint, what comes is another job.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from penstock.errors import BadArgument, JobRunning
from penstock.spark._stores import open_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark._options import SourceOptions

__all__ = ["Job"]

_FILE: Final = "_penstock"


class _Record(msgspec.Struct, frozen=True):
    """A job as its checkpoint knows it: ``streams`` by name and uid."""

    name: str
    kind: str
    streams: dict[str, int]


class Job:
    """A job at a place where its checkpoint is, or is going to be."""

    def __init__(self, checkpoint: str, record: _Record) -> None:
        self._checkpoint, self._record = Path(checkpoint), record
        self.name: Final = record.name
        self.consumer: Final = f"{record.kind}-{record.name}"

    @classmethod
    def at(cls, checkpoint: str, kind: str, *sources: SourceOptions) -> Self:
        """Return the job that was begun there, or a new one; an error if that one was another."""
        with open_at(sources[0].address) as store:
            streams = {source.stream: store.stream(source.stream).uid for source in sources}
        new = _Record(uuid.uuid4().hex[:12], kind, streams)
        return cls(checkpoint, _known(Path(checkpoint), new) or new)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no other process run it during the block; its name is on record from here on."""
        try:
            self._checkpoint.mkdir(parents=True, exist_ok=True)
            folder = os.open(self._checkpoint, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise BadArgument(f"there is no place for a checkpoint in {self._checkpoint}: {error.strerror}") from None
        try:
            self._lock(folder)
            yield
        finally:
            os.close(folder)

    def _lock(self, folder: int) -> None:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobRunning(str(self._checkpoint)) from None
        known = _known(self._checkpoint, self._record)
        if known is None:
            new = self._checkpoint / f"{_FILE}.part"
            new.write_bytes(msgspec.json.encode(self._record))
            new.replace(self._checkpoint / _FILE)
        elif known != self._record:  # somebody else was faster
            raise JobRunning(str(self._checkpoint))


def _known(checkpoint: Path, wanted: _Record) -> _Record | None:
    """Return the job that was begun at a checkpoint, if any; an error if it is not of this kind and these streams."""
    try:
        data = (checkpoint / _FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        known = msgspec.json.decode(data, type=_Record)
    except msgspec.DecodeError:
        raise BadArgument(f"{checkpoint / _FILE} is damaged: begin anew with another checkpoint") from None
    if (known.kind, known.streams.keys()) != (wanted.kind, wanted.streams.keys()):
        done = f"{known.kind} of {', '.join(known.streams)}"
        raise BadArgument(f"the checkpoint in {checkpoint} is that of another job, {done}: name another one")
    if known.streams != wanted.streams:
        raise BadArgument(f"the checkpoint in {checkpoint} is of a stream that was deleted: name another one")
    return known
