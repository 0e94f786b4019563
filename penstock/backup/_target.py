"""The target of a backup: a folder, or a prefix in a bucket.

==================== =================================================================
object               holds
==================== =================================================================
``backup``           what this is, and the version of the format
``points/TIME``      a point: a store at one moment
``packs/ID``         pieces of plogs, which points refer to
``lock``, ``lease``  in a folder, in a bucket: which process changes the backup now
==================== =================================================================
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.backup._folder_target import FolderTarget
from penstock.backup._lease import LEASE_S, leased
from penstock.backup._outside import check_outside_stores
from penstock.backup._pack import PACK_HEAD_SIZE, read_index, read_pack_head
from penstock.backup._point import decode_point, encode_point, is_point_name, point_name
from penstock.errors import BackupCorrupt, BadArgument, FormatUnknown, NoSuchObject, NoSuchPoint, NotABackup
from penstock.plog.objects import Requests
from penstock.ports import Bucket, BucketAddress, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from penstock.backup._pack import PackIndex
    from penstock.backup._point import Point
    from penstock.ports import Bytes, Objects

__all__ = ["BackupTarget", "open_target"]

_FORMAT_NAME: Final = "backup"
_FORMAT_TEXT: Final = b"penstock backup, format 1\n"
_POINTS: Final = "points/"
_PACKS: Final = "packs/"
_UNAVAILABLE_MAX_S: Final = 60.0
_PACKS_READ_MAX: Final = 4  # packs of a bucket are in memory while they are used


class BackupTarget:
    """Points and packs in objects; requests to a bucket that does not answer are repeated for a minute."""

    def __init__(
        self, objects: Objects, *, lease_s: float = LEASE_S, unavailable_max_s: float = _UNAVAILABLE_MAX_S
    ) -> None:
        self._objects, self._lease_s = objects, lease_s
        self._pause = threading.Event().wait
        self._requests = Requests(
            objects, clock=SystemClock(), pause=self._pause, unavailable_max_s=unavailable_max_s
        )  # fmt: skip
        self._packs_read: OrderedDict[str, memoryview] = OrderedDict()
        self._check: Callable[[], None] = lambda: None

    def where(self, name: str = "") -> str:
        """Return the path or the address, for messages."""
        return self._objects.where(name)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let no other process change the backup meanwhile; ``BackupRunning`` if one does. A new one is prepared."""
        if isinstance(self._objects, FolderTarget):
            self._prepare()
            with self._objects.locked():
                yield
            return
        self._prepare()
        with leased(self._requests, lease_s=self._lease_s, pause=self._pause) as check:
            self._check = check
            try:
                yield
            finally:
                self._check = lambda: None

    def _prepare(self) -> None:
        """Make sure that this is a backup, or an empty place for one."""
        try:
            self.check_format()
        except NotABackup as error:
            if any(True for _ in self._requests.again(lambda: self._objects.names(""))):
                place = "a new or empty folder" if isinstance(self._objects, FolderTarget) else "an empty prefix"
                raise NotABackup(error.target, reason=error.reason, advice=f"choose {place}") from None
            self._requests.put_own(_FORMAT_NAME, _FORMAT_TEXT)

    def check_format(self) -> None:
        """Raise ``NotABackup`` or ``FormatUnknown`` unless this is a backup that this version can read."""
        try:
            text = bytes(self._requests.again(lambda: self._objects.get_range(_FORMAT_NAME, 0, 256)))
        except NoSuchObject:
            raise NotABackup(self.where(), reason=f"there is no {self.where(_FORMAT_NAME)}") from None
        if text != _FORMAT_TEXT:
            if text.startswith(b"penstock backup, format "):
                known = _FORMAT_TEXT.decode().strip()
                actual = text.decode(errors="replace").strip()
                raise FormatUnknown(self.where(_FORMAT_NAME), actual=actual, known=known)
            raise NotABackup(self.where(), reason=f"{self.where(_FORMAT_NAME)} is not of Penstock, or is damaged")

    # Points

    def points(self) -> list[str]:
        """Return the names of the points, the oldest first."""
        names = self._requests.again(lambda: list(self._objects.names(_POINTS)))
        return sorted(name for path in names if is_point_name(name := path.removeprefix(_POINTS)))

    def point(self, name: str) -> Point:
        """Return a point; ``NoSuchPoint`` if there is none of this name."""
        if not is_point_name(name):
            raise NoSuchPoint(self.where(), point=name)
        try:
            stored = self._requests.again(lambda: self._objects.get(_POINTS + name))
        except NoSuchObject:
            raise NoSuchPoint(self.where(), point=name) from None
        return decode_point(stored.data, where=self.where(_POINTS + name))

    def where_point(self, name: str) -> str:
        """Return the path or the address of a point, for messages."""
        return self.where(_POINTS + name)

    def put_point(self, point: Point) -> str:
        """Write a point, which is a backup from then on; return its name."""
        self._check()
        name = point_name(point.time_ms)
        self._requests.put_own(_POINTS + name, encode_point(point))
        return name

    def replace_point(self, name: str, point: Point) -> None:
        """Replace a point by one that has the same plogs in other packs."""
        self._check()
        stored = self._requests.again(lambda: self._objects.get(_POINTS + name))
        self._requests.replace_own(_POINTS + name, encode_point(point), tag=stored.tag)

    def delete_points(self, names: list[str]) -> None:
        """Delete points; their packs stay."""
        self._check()
        self._requests.again(lambda: self._objects.delete(*(_POINTS + name for name in names)))

    # Packs

    def packs(self) -> dict[str, int]:
        """Return the names of all packs, and their bytes."""
        sizes = self._requests.again(lambda: self._objects.sizes(_PACKS))
        return {name.removeprefix(_PACKS): size for name, size in sizes.items()}

    def where_pack(self, name: str) -> str:
        """Return the path or the address of a pack, for messages."""
        return self.where(_PACKS + name)

    def put_pack(self, parts: list[Bytes]) -> str:
        """Write a pack under a new name, which is returned."""
        name = secrets.token_hex(16)
        self._requests.put_own(_PACKS + name, *parts)
        return name

    def delete_packs(self, names: list[str]) -> None:
        """Delete packs that no point refers to."""
        self._check()
        self._requests.again(lambda: self._objects.delete(*(_PACKS + name for name in names)))

    def read_pack(self, name: str, position: int, size: int) -> memoryview:
        """Return a part of a pack; the whole pack is read, and the packs that were read last are kept."""
        data = self._packs_read.get(name)
        if data is None:
            try:
                data = self._requests.again(lambda: self._objects.get(_PACKS + name)).data
            except NoSuchObject:
                raise BackupCorrupt(self.where_pack(name), offset=None, reason="the pack is missing") from None
            self._packs_read[name] = data
            while len(self._packs_read) > _PACKS_READ_MAX:
                self._packs_read.popitem(last=False)
        else:
            self._packs_read.move_to_end(name)
        return self._part(name, data[position : position + size], position, size)

    def _part(self, name: str, data: memoryview, position: int, size: int) -> memoryview:
        if len(data) != size:
            raise BackupCorrupt(self.where_pack(name), offset=position + len(data), reason="the pack ends here")
        return data

    def index(self, name: str) -> PackIndex:
        """Return what is in a pack, without reading all of it."""
        where = self.where_pack(name)
        head = read_pack_head(self._range(name, 0, PACK_HEAD_SIZE), where=where)
        return read_index(head, self._range(name, PACK_HEAD_SIZE, head.index_size), where=where)

    def _range(self, name: str, position: int, size: int) -> memoryview:
        try:
            data = self._requests.again(lambda: self._objects.get_range(_PACKS + name, position, size))
        except NoSuchObject:
            raise BackupCorrupt(self.where_pack(name), offset=None, reason="the pack is missing") from None
        return self._part(name, data, position, size)

    def close(self) -> None:
        """Release the connections."""
        self._objects.close()


def open_target(address: str | PathLike[str], *, create: bool = False) -> BackupTarget:
    """Open the target at a folder, ``s3://bucket/prefix`` or ``az://container/prefix``; ``create`` makes a folder."""
    text = str(address)
    if not text:
        raise BadArgument(
            "the target of a backup has no name: use a folder, s3://bucket/prefix or az://container/prefix"
        )
    if text.startswith(("s3://", "az://")):
        parsed = BucketAddress.parse(text)
        if parsed.settings:
            raise BadArgument(f"the target {parsed.url} takes no settings after a question mark: leave them out")
        return BackupTarget(Bucket(parsed))
    if "://" in text:
        raise BadArgument(f"invalid target {text}: use a folder, s3://bucket/prefix or az://container/prefix")
    if create:
        check_outside_stores(text)
    return BackupTarget(FolderTarget(text, create=create))
