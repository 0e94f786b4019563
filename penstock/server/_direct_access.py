"""Direct access of clients to the files of plogs: the server's side of the access probe."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import BadArgument, NoSuchStream
from penstock.plog import folder_place
from penstock.wire import probe_content, probe_name

if TYPE_CHECKING:
    from penstock.server._session import Session

__all__ = ["AccessProbe", "end_probe", "make_probe"]

_OTHERS: Final = 0o044  # the permissions by which other users read a file


class AccessProbe:
    """A file for one session, next to the plogs; there is one at most. Users that may list the folder may read it."""

    def __init__(self, folder: Path, session_id: str, challenge: bytes) -> None:
        self.path: Final = folder / probe_name(session_id)
        mode = 0o600 | folder.stat().st_mode & _OTHERS
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            os.write(fd, probe_content(session_id, challenge))
        finally:
            os.close(fd)

    def abandon(self) -> None:
        """Remove it: the client has seen it, or is gone."""
        with suppress(OSError):
            self.path.unlink()


def make_probe(session: Session, stream: str, segment: int, offset: int, challenge: bytes) -> list[Any] | None:
    """Make a probe next to the files of a stream; return its number, its folder, and the place of that.

    None where the store has no files.
    """
    try:
        located = session.store.segments.get(stream, segment).locate(offset, offset + 1)
    except (KeyError, NoSuchStream):
        located = []
    if not located:
        raise BadArgument(f"there is no segment {segment} of stream {stream} with a byte at {offset} any more")
    folder = Path(located[0][-1].path).parent
    if not folder.is_absolute():
        return None  # the store is in memory
    try:
        place = folder_place(folder)
        probe = AccessProbe(folder, session.id, challenge)
    except OSError:
        return None
    try:
        number = session.add(probe)
    except BaseException:
        probe.abandon()  # the session is over, and does not do it
        raise
    return [number, str(folder), place]


def end_probe(session: Session, number: int) -> None:
    """Remove the probe of a client."""
    session.get(number, AccessProbe).abandon()
    session.drop(number)
