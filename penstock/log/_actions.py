"""Actions: the requests of a protocol to plogs and oracle.

A protocol is a generator that yields actions, is sent their results, and returns when it is complete. It knows no disk
and no network: a :class:`~penstock.log._host.Host` runs it against real plogs, a test against simulated ones, and a
test may end it after any step, as a crash would.
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
    """Make a new unique id; result: a PlogId."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a plog of this size."""

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
    """Wait until every append under way to the log is durable."""


@dataclass(frozen=True, slots=True)
class Seal:
    """Seal a plog; result: the offset at which it is sealed."""

    plog_id: PlogId
    offset: int


@dataclass(frozen=True, slots=True)
class Inspect:
    """Ask for the state of a plog; result: a PlogInfo, None if there is no such plog."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Read all of a plog; result: a list of views, one for each append."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a plog; do nothing if there is none."""

    plog_id: PlogId


@dataclass(frozen=True, slots=True)
class FindMetadata:
    """Ask the oracle for the newest metadata plog; result: its id and the version, None if there is none."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Make a metadata plog the newest one if the version is ``expected``; result: the new version."""

    plog_id: PlogId
    expected: int


@dataclass(frozen=True, slots=True)
class Where:
    """Ask for the path of a plog's file, or of the oracle's with None, for a message; result: a str."""

    plog_id: PlogId | None


Action = NewId | Create | Append | Drain | Seal | Inspect | ReadAll | Delete | FindMetadata | Publish | Where
Steps = Generator[Action, Any, T]
