"""What a repository returns: parts for parallel readers, and what became of an insert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.repo._keys import Key

__all__ = ["InsertResult", "RepositoryPart"]


@dataclass(frozen=True, slots=True)
class RepositoryPart:
    """Some blocks of a repository: the share of one of many parallel readers."""

    addresses: tuple[int, ...]
    stream_uid: int  # of another stream with the same name, the addresses mean something else


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What became of a stream: nothing was inserted if something is missing."""

    added: int
    existing: int
    missing: tuple[Key, ...] = ()
