"""Errors of repositories, of their streams and of bundles."""

from __future__ import annotations

from typing import Final

from penstock.errors._base import PenstockError
from penstock.errors._store import CorruptData

__all__ = [
    "BadRecord",
    "BundleCorrupt",
    "BundleUnreadable",
    "ContentConflict",
    "ForeignNames",
    "MissingBasis",
    "MissingRevision",
    "NoSuchKey",
    "NotABundle",
    "NotARepository",
    "RefsDiverged",
    "RepositoryCorrupt",
    "RepositoryError",
    "UnavailableRepresentation",
]

_Key = tuple[bytes, ...]
_NAMES_SHOWN: Final = 5


def _name(key: _Key) -> str:
    *prefix, revision = (element.decode(errors="backslashreplace") for element in key)
    return f"{'/'.join(prefix)}@{revision}" if prefix else revision


def _names(names: list[bytes]) -> str:
    """Return the first names, and how many others there are."""
    shown = ", ".join(name.decode(errors="backslashreplace") for name in names[:_NAMES_SHOWN])
    others = len(names) - _NAMES_SHOWN
    return shown if others <= 0 else f"{shown} and {others} {'others' if others > 1 else 'other'}"


class RepositoryError(PenstockError):
    """A repository, a bundle or an item of a repository stream refused the call; nothing was changed."""


class NotARepository(RepositoryError):
    """The stream holds other events than those of a repository."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} is not a repository: name the stream of one, or a new one to create")
        self.stream = stream


class NoSuchKey(RepositoryError):
    """The repository has nothing under this key."""

    def __init__(self, key: _Key) -> None:
        super().__init__(f"no {_name(key)} in the repository")
        self.key = key


class UnavailableRepresentation(RepositoryError):
    """The item cannot be had in this representation from where it is."""

    def __init__(self, key: _Key, wanted: str, available: str) -> None:
        super().__init__(
            f"{_name(key)} is stored as {available} and cannot be had as {wanted} from here: "
            "adapt the stream with a store of the texts that it builds on"
        )
        self.key, self.wanted, self.available = key, wanted, available


class MissingBasis(RepositoryError):
    """A delta builds on a text that is not there."""

    def __init__(self, key: _Key, basis: _Key) -> None:
        super().__init__(
            f"{_name(key)} is a delta on {_name(basis)}, which is missing: insert that first, or stack on it"
        )
        self.key, self.basis = key, basis


class MissingRevision(RepositoryError):
    """What is to be copied builds on a revision that neither the source nor the target has."""

    def __init__(self, stream: str, revision: bytes) -> None:
        name = _name((revision,))
        super().__init__(f"{stream} lacks revision {name}, on which the source builds: copy that revision first")
        self.stream, self.revision = stream, revision


class ContentConflict(RepositoryError):
    """The key is taken by other content."""

    def __init__(self, key: _Key, *, stored: str, given: str) -> None:
        super().__init__(
            f"{_name(key)} has the sha1 {stored} in the repository and {given} here: a key never changes its content"
        )
        self.key, self.stored, self.given = key, stored, given


class BadRecord(RepositoryError):
    """An item of a stream is damaged, or not what its metadata says."""

    def __init__(self, key: _Key, reason: str) -> None:
        super().__init__(f"invalid record of {_name(key)}: {reason}")
        self.key, self.reason = key, reason


class RefsDiverged(RepositoryError):
    """Branches have revisions on both sides that the other side lacks."""

    def __init__(self, names: list[bytes]) -> None:
        super().__init__(
            f"the target has other revisions than the source in {_names(names)}: merge them, or force the copy"
        )
        self.names = names


class ForeignNames(RepositoryError):
    """An import would move or remove branches and tags whose commits the git repository does not have."""

    def __init__(self, stream: str, names: list[bytes]) -> None:
        super().__init__(
            f"the git repository does not have the commits of {_names(names)} in {stream}: it is another one, or is "
            "behind; check the names of both, or force the import, which moves and removes these names"
        )
        self.stream, self.names = stream, names


class NotABundle(RepositoryError):
    """The file neither begins nor ends like a bundle."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} is not a bundle: name a file that penstock repo bundle create has written")
        self.where = where


class BundleUnreadable(RepositoryError):
    """The file of a bundle cannot be opened, or not be reached."""

    def __init__(self, where: str, *, reason: str) -> None:
        super().__init__(f"cannot read the bundle {where}: {reason}")
        self.where, self.reason = where, reason


class RepositoryCorrupt(CorruptData):
    """Stored bytes of a repository fail their check."""


class BundleCorrupt(CorruptData):
    """The bundle is damaged."""
