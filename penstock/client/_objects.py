"""Objects of plogs that this process reads itself, in the bucket that its user has named.

The server says in which objects blocks are, and never in which bucket. It may be hostile, so nothing else is read than
objects of the journal and of the plog in question, below the user's prefix, and every block is checked. Copies of
objects are kept in a folder, by default in one of a few that processes of this user share, one process at a time each:
a process that is killed leaves its copies to the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument, NoSuchObject, PlogCorrupt
from penstock.model import check_kind
from penstock.plog import read_extents
from penstock.ports import Bucket, BucketAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.plog import LocatedBlocks

__all__ = ["PlogObjects", "open_objects"]

_UID_SIZE: Final = 16
_JOURNAL: Final = re.compile(r"journal/[0-9]{20}")
_OWN: Final = re.compile(r"[0-9]{1,20}(-[0-9]{1,20}-[0-9]{1,20}\.part|-at-[0-9]{1,20}\.part|\.plog)")
_FOLDERS_MAX: Final = 16  # of one user
_FOLDER_SIZE: Final = 256 << 20


class PlogObjects:
    """Reads blocks from objects, through a cache. Threads may share it."""

    def __init__(self, address: str, options: Mapping[str, str] | None = None) -> None:
        from penstock.plog.objects import check_store, open_cache  # noqa: PLC0415 - few clients read a bucket

        parsed = BucketAddress.parse(address)
        self._bucket = Bucket(parsed, options=options)
        try:
            check_store(self._bucket)
        except NoSuchObject:
            where = self._bucket.where()
            raise BadArgument(f"no store at {where}: name the plogs with which its server runs") from None
        self._cache = open_cache(self._bucket, parsed.settings, folder=_free_folder, size_max=_FOLDER_SIZE)

    def where(self) -> str:
        """Return the address of the bucket, for messages."""
        return self._bucket.where()

    def read(self, located: LocatedBlocks) -> list[tuple[int, memoryview]]:
        """Return blocks with their offsets.

        ``NoSuchObject`` if they are elsewhere by now, or are in no objects; ``PlogCorrupt`` if they are not those that
        the server means.
        """
        self._check(located)
        try:
            return list(read_extents(located, self._cache.read))
        except PlogCorrupt:  # the copy may be damaged, or be that of another store which was at this address
            for name, *_ in located.extents:
                self._cache.drop(name)
            return list(read_extents(located, self._cache.read))

    def prefetch(self, located: LocatedBlocks) -> None:
        """Fetch blocks in the background that will be read next."""
        self._check(located)
        for name, position, _, size in located.extents:
            self._cache.prefetch(name, position, size)

    def _check(self, located: LocatedBlocks) -> None:
        """Refuse names other than those of the journal, and of objects of the plog whose blocks are wanted."""
        if not located.extents and located.begin < located.end:
            raise NoSuchObject(located.path)
        uid, birth = located.key[:_UID_SIZE].hex(), located.key[_UID_SIZE:].hex()
        for name, *_ in located.extents:
            own = name.removeprefix(f"plogs/{uid}.{birth}/")
            if not (_JOURNAL.fullmatch(name) or (own != name and _OWN.fullmatch(own))):
                raise PlogCorrupt(self.where(), offset=None, reason="the server named an object that no plog has")

    def close(self) -> None:
        """Let go of the folder and the connections."""
        self._cache.close()
        self._bucket.close()


def open_objects(address: object, options: Mapping[str, str] | None) -> PlogObjects | None:
    """Open the bucket that the user has named, if any."""
    if address is None:
        if options is not None:
            raise BadArgument("plogs_options are those of a bucket: name it as plogs, or leave them out")
        return None
    check_kind("plogs", address, str)
    if options is not None:
        check_kind("plogs_options", options, dict)
    return PlogObjects(str(address), options)


def _free_folder() -> Path | None:
    """Return a folder for copies that no process uses at the moment; None if there is none, or it is not safe."""
    parent = Path(tempfile.gettempdir(), f"penstock-cache-{os.geteuid()}")
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        status = parent.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None  # another user may change what is in it
        return next((folder for number in range(_FOLDERS_MAX) if _is_free(folder := parent / str(number))), None)
    except OSError:
        return None


def _is_free(folder: Path) -> bool:
    folder.mkdir(mode=0o700, exist_ok=True)
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
