"""The image of a recorded disk: the changes that certainly survive a power loss, and those that may not.

Images are values: :func:`step` takes an image and an operation and returns the next image. Certain changes are part of
the bytes and names of the image; the others are kept as entries, in order:

    OPEN      not synced: may survive completely, in part or not at all
    GIVEN_UP  its sync failed: as open, and no later sync makes it certain
    SURE      synced, but must be applied after an entry that was given up
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock.testing._operations import (
    Change,
    CreateFile,
    Datasync,
    FolderSync,
    Inode,
    Naming,
    Note,
    Operation,
    RemoveFile,
    RenameFile,
    TruncateFile,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OperationT = TypeVar("OperationT", Change, Naming)


class Standing(Enum):
    """How certain an entry is."""

    OPEN = auto()
    GIVEN_UP = auto()
    SURE = auto()


class PendingOp(NamedTuple, Generic[OperationT]):
    """An operation that is not part of the certain bytes or names."""

    number: int
    operation: OperationT
    standing: Standing = Standing.OPEN


class FileTail:
    """The bytes of a file from ``low`` on, while changes are applied to them; missing ones below ``size`` are zeros."""

    __slots__ = ("_head", "data", "low", "size")

    def __init__(self, file: FileImage) -> None:
        changes = [entry.operation for entry in file.entries]
        starts = [change.offset if isinstance(change, Write) else change.size for change in changes]
        self.low = min([file.size, *starts])
        self.data = bytearray(file.data[self.low :])
        self.size = file.size
        self._head = file.data[: self.low]

    def apply(self, change: Change) -> None:
        """Apply a change that survived."""
        match change:
            case Write(_, offset, data):
                self.put(offset, data)
            case TruncateFile(_, size):
                del self.data[size - self.low :]
                self.size = size
            case _:
                self.size = max(self.size, change.size)

    def put(self, offset: int, data: bytes) -> None:
        """Write; bytes between the end of the file and ``offset`` become zeros."""
        start = offset - self.low
        self.data.extend(bytes(max(0, start - len(self.data))))
        self.data[start : start + len(data)] = data
        self.size = max(self.size, offset + len(data))

    def whole(self) -> bytes:
        """Return the file from its beginning; implied zeros at its end are left out."""
        return self._head.ljust(self.low, b"\0") + self.data if self.data else self._head


@dataclass(frozen=True, slots=True)
class FileImage:
    """A file: its certain bytes (zeros up to ``size`` are left out), then the changes that are not certain."""

    data: bytes = b""
    size: int = 0
    entries: tuple[PendingOp[Change], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskImage:
    """A whole disk after ``point`` operations, the last of which is ``last``."""

    point: int = 0
    last: Operation | None = None
    notes: tuple[object, ...] = ()
    names: Mapping[str, Inode]
    name_entries: tuple[PendingOp[Naming], ...] = ()
    files: Mapping[Inode, FileImage]
    relic: bytes = field(default=b"", repr=False)  # the bytes of the file removed last


def step(image: DiskImage, operation: Operation) -> DiskImage:
    """Return the image after one more operation."""
    image = replace(image, point=image.point + 1, last=operation)
    match operation:
        case Note(payload):
            return replace(image, notes=(*image.notes, payload))
        case FolderSync(failed):
            return _settle_names(replace(image, name_entries=_synced(image.name_entries, failed=failed)))
        case Datasync(inode, failed):
            file = image.files[inode]
            return _with_file(image, inode, _settle_file(replace(file, entries=_synced(file.entries, failed=failed))))
        case CreateFile() | RemoveFile() | RenameFile():
            return _rename(image, operation)
        case _:
            file = image.files[operation.file]
            entries = (*file.entries, PendingOp(image.point, operation))
            return _with_file(image, operation.file, replace(file, entries=entries))


def apply_naming(names: dict[str, Inode], naming: Naming) -> None:
    """Apply a name operation that survived to ``names``; operations before it may have been lost."""
    match naming:
        case CreateFile(name, inode):
            names[name] = inode
        case RemoveFile(name):
            names.pop(name, None)
        case RenameFile(old, new, inode):
            names.pop(old, None)
            names[new] = inode


def _rename(image: DiskImage, naming: Naming) -> DiskImage:
    files, relic = image.files, image.relic
    match naming:
        case CreateFile(_, inode):
            files = {**files, inode: FileImage()}
        case RemoveFile(_, inode) | RenameFile(replaced=Inode() as inode):
            file = files[inode]
            relic = _apply(file, len(file.entries)).data or relic
    return replace(image, files=files, relic=relic, name_entries=(*image.name_entries, PendingOp(image.point, naming)))


def _synced(entries: tuple[PendingOp[OperationT], ...], *, failed: bool) -> tuple[PendingOp[OperationT], ...]:
    standing = Standing.GIVEN_UP if failed else Standing.SURE
    return tuple(entry._replace(standing=standing) if entry.standing is Standing.OPEN else entry for entry in entries)


def _settle_file(file: FileImage) -> FileImage:
    return _apply(file, _sure_count(file.entries))


def _settle_names(image: DiskImage) -> DiskImage:
    count = _sure_count(image.name_entries)
    names = dict(image.names)
    for entry in image.name_entries[:count]:
        apply_naming(names, entry.operation)
    return replace(image, names=names, name_entries=image.name_entries[count:])


def _sure_count(entries: Sequence[PendingOp[OperationT]]) -> int:
    open_places = (place for place, entry in enumerate(entries) if entry.standing is not Standing.SURE)
    return next(open_places, len(entries))


def _apply(file: FileImage, count: int) -> FileImage:
    tail = FileTail(file)
    for entry in file.entries[:count]:
        tail.apply(entry.operation)
    return FileImage(tail.whole(), tail.size, file.entries[count:])


def _with_file(image: DiskImage, inode: Inode, file: FileImage) -> DiskImage:
    return replace(image, files={**image.files, inode: file})
