"""Direct access of clients to the files of plogs, and the probe by which a client finds out whether it has it.

A path proves nothing. In a container, or on another machine, the same path is another folder, maybe a copy of this one
that has changed since. But a file that is a moment old, with random bytes in it, is in this folder only.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import BadArgument, NoSuchStream
from penstock.local import ACCESS_PROBE_PREFIX
from penstock.plog import folder_place

if TYPE_CHECKING:
    from penstock.server._session import Session

__all__ = ["AccessProbe", "end_probe", "make_probe"]


class AccessProbe:
    """A file for one session, next to the plogs; there is one at most."""

    def __init__(self, folder: Path, session_id: str) -> None:
        self.path: Final = folder / (ACCESS_PROBE_PREFIX + blake2b(session_id.encode(), digest_size=16).hexdigest())
        self.content: Final = secrets.token_bytes(32)
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, self.content)
        finally:
            os.close(fd)

    def abandon(self) -> None:
        """Remove it: the client has seen it, or is gone."""
        with suppress(OSError):
            self.path.unlink()


def make_probe(session: Session, stream: str, segment: int, offset: int) -> list[Any] | None:
    """Make a probe next to the files of a stream; return its number, path and bytes, and the place of its folder.

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
        probe = AccessProbe(folder, session.id)
    except OSError:
        return None
    try:
        number = session.keep(probe)
    except BaseException:
        probe.abandon()  # the session is over, and does not do it
        raise
    return [number, str(probe.path), probe.content, place]


def end_probe(session: Session, number: int) -> None:
    """Remove the probe of a client."""
    session.get(number, AccessProbe).abandon()
    session.drop(number)
