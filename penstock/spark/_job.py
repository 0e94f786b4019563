"""What a job is: a name that is kept with its checkpoint, and one process at a time that runs it.

Without the checkpoint, what comes is another job.
"""

from __future__ import annotations

import fcntl
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from penstock.errors import BadArgument, JobRunning
from penstock.spark._stores import open_at
from penstock.spark._tables import sync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark._options import Address

__all__ = ["Job"]

_FILE: Final = "_penstock"
_LOCK: Final = "_lock"


class _Record(msgspec.Struct, frozen=True):
    """A job as its checkpoint knows it: ``streams`` that it reads, and writes to, by name and uid; and its consumer."""

    name: str
    kind: str
    streams: dict[str, int]
    consumer: str


class Job:
    """A job at a place where its checkpoint is, or is going to be."""

    def __init__(self, checkpoint: str, record: _Record) -> None:
        self._checkpoint, self._record = Path(checkpoint), record
        self.name: Final = record.name
        self.consumer: Final = record.consumer

    @classmethod
    def at(cls, checkpoint: str, kind: str, address: Address, *streams: str, consumer: str | None = None) -> Self:
        """Return the job that was begun there, or a new one; an error if that one was another."""
        with open_at(address) as store:
            known = {stream: store.stream(stream).uid for stream in streams}
        name = uuid.uuid4().hex[:12]
        new = _Record(name, kind, known, consumer or f"{kind}-{name}")
        found = _known(Path(checkpoint), new)
        if found is not None and consumer not in (None, found.consumer):
            raise BadArgument(f"the job in {checkpoint} is consumer {found.consumer!r}, and cannot become another one")
        return cls(checkpoint, found or new)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no other process run it during the block; its name is on record from here on."""
        with ExitStack() as stack:
            try:
                self._checkpoint.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self._checkpoint / _LOCK).open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobRunning(str(self._checkpoint)) from None
            except OSError as error:
                why = error.strerror
                raise BadArgument(f"there is no place for a checkpoint in {self._checkpoint}: {why}") from None
            self._keep()
            yield

    def _keep(self) -> None:
        """Put the job on record, unless it is."""
        known = _known(self._checkpoint, self._record)
        if known is None:
            new = self._checkpoint / f"{_FILE}.part"
            new.write_bytes(msgspec.json.encode(self._record))
            sync(new)
            new.replace(self._checkpoint / _FILE)
            sync(self._checkpoint, self._checkpoint.parent)
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
        done = f"{known.kind} with {', '.join(known.streams)}"
        raise BadArgument(f"the checkpoint in {checkpoint} is that of another job, {done}: name another one")
    if known.streams != wanted.streams:
        raise BadArgument(f"the checkpoint in {checkpoint} is of a stream that was deleted: name another one")
    return known
