"""The operations of a recorded disk, as values.

A file is identified by its inode, because its name may change, and a removed file may still be written to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Inode(NamedTuple):
    """The identity of a file, independent of its present name."""

    number: int
    first_name: str


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written into a file."""

    file: Inode
    offset: int
    data: bytes

    @property
    def end(self) -> int:
        """The offset of the first byte after it."""
        return self.offset + len(self.data)

    def __str__(self) -> str:
        return f"pwritev {self.file.first_name} {self.offset}..{self.end}"


@dataclass(frozen=True, slots=True)
class Reserve:
    """A file made at least this long."""

    file: Inode
    size: int

    def __str__(self) -> str:
        return f"reserve {self.file.first_name} to {self.size}"


@dataclass(frozen=True, slots=True)
class TruncateFile:
    """A file made exactly this long."""

    file: Inode
    size: int

    def __str__(self) -> str:
        return f"truncate {self.file.first_name} to {self.size}"


@dataclass(frozen=True, slots=True)
class Datasync:
    """A file flushed, or not: a failed sync gives its changes up for good."""

    file: Inode
    failed: bool = False

    def __str__(self) -> str:
        return f"datasync {self.file.first_name}{' (failed)' if self.failed else ''}"


@dataclass(frozen=True, slots=True)
class CreateFile:
    """A new file, under a name."""

    name: str
    file: Inode

    def __str__(self) -> str:
        return f"create {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A name removed."""

    name: str
    file: Inode

    def __str__(self) -> str:
        return f"remove {self.name}"


@dataclass(frozen=True, slots=True)
class RenameFile:
    """A file renamed, perhaps replacing another."""

    old: str
    new: str
    file: Inode
    replaced: Inode | None

    def __str__(self) -> str:
        return f"rename {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class FolderSync:
    """The names flushed, or not."""

    failed: bool = False

    def __str__(self) -> str:
        return f"folder sync{' (failed)' if self.failed else ''}"


@dataclass(frozen=True, slots=True)
class Note:
    """An event outside of the disk."""

    payload: object

    def __str__(self) -> str:
        return f"note {self.payload!r}"


Change: TypeAlias = Write | Reserve | TruncateFile
Naming: TypeAlias = CreateFile | RemoveFile | RenameFile
Operation: TypeAlias = Change | Naming | Datasync | FolderSync | Note
