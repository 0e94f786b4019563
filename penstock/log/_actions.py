"""Actions: what a protocol asks the world to do.

A protocol is a generator that yields actions, is sent their results, and returns when it is through. It knows
no disk and no network: the partition runs it against real plogs, a simulator against pretended ones, and a test
ends it after any step, as a crash would.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from penstock.model import PlogId

__all__ = ["Action", "Append", "Create", "Delete", "Drain", "FindMetadata", "Inspect", "NewId", "Publish", "ReadAll",
           "Seal", "Steps", "Where"]  # fmt: skip

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewId:
    """Think of an id that nobody has had; result: a PlogId."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a plog."""

    plog_id: PlogId
    size: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append durably; result: the new offset."""

    plog_id: PlogId
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until every append to a log that is under way is durable."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Seal a plog; result: where."""

    plog_id: PlogId
    offset: int


@dataclass(frozen=True, slots=True)
class Inspect:
    """Look at a plog; result: a PlogInfo, or None if there is no such plog."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Read all that was appended to a plog; result: a list of views, one an append."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a plog; one that is not there is deleted already."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class FindMetadata:
    """Ask the oracle for the newest metadata plog; result: its id and the version, or None."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Make a metadata plog the newest one if the version is ``expected``; result: the new version."""

    plog_id: PlogId
    expected: int


@dataclass(frozen=True, slots=True)
class Where:
    """Ask for the path of a plog's file, or with None of the oracle's, for a message; result: a str."""

    plog_id: PlogId | None


Action = NewId | Create | Append | Drain | Seal | Inspect | ReadAll | Delete | FindMetadata | Publish | Where
Steps = Generator[Action, Any, T]
