"""The identity of a job: an id that is stored with its checkpoint, and one process at a time that runs it.

Without its checkpoint, a job starts as a new one.
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
    """A job as its checkpoint records it: the ``streams`` it reads and writes, by name and uid, and its consumer."""

    name: str
    kind: str
    streams: dict[str, int]
    consumer: str


class Job:
    """A job with the folder of its checkpoint."""

    def __init__(self, checkpoint: str, record: _Record) -> None:
        self._checkpoint, self._record = Path(checkpoint), record
        self.name: Final = record.name
        self.consumer: Final = record.consumer

    @classmethod
    def at(cls, checkpoint: str, kind: str, address: Address, *streams: str, consumer: str | None = None) -> Self:
        """Return the job of a checkpoint, or a new one; raise an error if the checkpoint belongs to another job."""
        with open_at(address) as store:
            known = {stream: store.stream(stream).uid for stream in streams}
        name = uuid.uuid4().hex[:12]
        new = _Record(name, kind, known, consumer or f"{kind}-{name}")
        found = _known(Path(checkpoint), new)
        if found is not None and consumer not in (None, found.consumer):
            raise BadArgument(
                f"the job in {checkpoint} is registered as consumer {found.consumer!r}: its name cannot change"
            )
        return cls(checkpoint, found or new)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the job against other processes during the block, and record it."""
        with ExitStack() as stack:
            try:
                self._checkpoint.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self._checkpoint / _LOCK).open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobRunning(str(self._checkpoint)) from None
            except OSError as error:
                why = error.strerror
                raise BadArgument(f"cannot create a checkpoint in {self._checkpoint}: {why}") from None
            self._record_job()
            yield

    def _record_job(self) -> None:
        """Record the job, unless it is recorded."""
        known = _known(self._checkpoint, self._record)
        if known is None:
            new = self._checkpoint / f"{_FILE}.part"
            new.write_bytes(msgspec.json.encode(self._record))
            sync(new)
            new.replace(self._checkpoint / _FILE)
            sync(self._checkpoint, self._checkpoint.parent)
        elif known != self._record:  # another process was faster
            raise JobRunning(str(self._checkpoint))


def _known(checkpoint: Path, wanted: _Record) -> _Record | None:
    """Return the job of a checkpoint, if any; raise an error if its kind or its streams differ."""
    try:
        data = (checkpoint / _FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        known = msgspec.json.decode(data, type=_Record)
    except (ValueError, RecursionError):  # msgspec's own errors, and texts that are not UTF-8
        raise BadArgument(f"{checkpoint / _FILE} is damaged: start again with another checkpoint") from None
    if (known.kind, known.streams.keys()) != (wanted.kind, wanted.streams.keys()):
        done = f"{known.kind} with {', '.join(known.streams)}"
        raise BadArgument(f"the checkpoint in {checkpoint} belongs to another job, {done}: name another checkpoint")
    if known.streams != wanted.streams:
        raise BadArgument(
            f"the checkpoint in {checkpoint} belongs to a stream that was deleted: name another checkpoint"
        )
    return known
