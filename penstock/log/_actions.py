"""Actions: the requests of a protocol to plogs and oracle, and the host that performs them.

A protocol is a generator that yields actions, is sent their results, and returns when it is complete. It knows no disk
and no network: a :class:`Host` runs it against real plogs, a test against simulated ones, and a test may end it after
any step, as a crash would.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.errors import GroupUnavailable, LeaseLost, LogFenced, LogUnavailable, NoSuchPlog, ReplicaLost
from penstock.plog import OrderedPlogs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.cpo import Cpo
    from penstock.errors import PenstockError
    from penstock.model import PlogId
    from penstock.plog import PendingAppend, PlogInfo, Plogs

__all__ = [
    "LOST",
    "TRIES_MAX",
    "Action",
    "Append",
    "Create",
    "CreateAll",
    "Delete",
    "Drain",
    "FindMetadata",
    "Host",
    "Inspect",
    "NewId",
    "ProtocolRun",
    "Publish",
    "ReadAll",
    "Seal",
    "Steps",
    "Where",
    "log_unavailable",
]

T = TypeVar("T")
LOST: Final = (ReplicaLost, GroupUnavailable)  # servers of the plog do not answer: continue in another group


def log_unavailable(name: str, error: PenstockError) -> LogUnavailable:
    """Return the error of a log that no group takes a plog of; its advice is enough."""
    return LogUnavailable(f"log {name!r}", reason=error.problem if isinstance(error, GroupUnavailable) else str(error))


TRIES_MAX: Final = 8  # of something that another group may do, if one group after another does not answer


@dataclass(frozen=True, slots=True)
class NewId:
    """Make a new unique id; result: a PlogId."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create a plog of this size."""

    plog_id: PlogId
    size: int


@dataclass(frozen=True, slots=True)
class CreateAll:
    """Create plogs, each with its size, durably and together; if one cannot be created, some of them may be."""

    sizes: Mapping[PlogId, int]


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


Action = (
    NewId | Create | CreateAll | Append | Drain | Seal | Inspect | ReadAll | Delete | FindMetadata | Publish | Where
)
Steps = Generator[Action, Any, T]
_PROMISES_NOTHING: Final = (NewId, Where, Drain)  # actions that a crash leaves no trace of


class Host:
    """The plogs and the oracle of one partition."""

    def __init__(self, plogs: Plogs, cpo: Cpo, partition: str) -> None:
        self._plogs, self._cpo, self._partition = plogs, cpo, partition
        self._doers: dict[type[Action], Callable[[Any], object]] = {
            NewId: lambda _: plogs.new_id(),
            Create: lambda action: plogs.create(plog_id=action.plog_id, size=action.size),
            CreateAll: lambda action: plogs.create_all(action.sizes),
            Append: lambda action: plogs.append(action.plog_id, action.offset, action.data),
            Seal: lambda action: plogs.seal(action.plog_id, action.offset),
            Inspect: self._inspect,
            ReadAll: lambda action: plogs.views(action.plog_id, 0, plogs.info(action.plog_id).length),
            Delete: self._delete,
            FindMetadata: self._find_metadata,
            Publish: self._publish,
            Where: lambda action: cpo.where() if action.plog_id is None else plogs.where(action.plog_id),
        }

    def perform(self, action: Action, drain: PendingAppend | None) -> object:
        """Perform an action and return its result; ``drain`` is the append that a Drain waits for."""
        if isinstance(action, Drain):
            return drain.result() if drain is not None else None
        return self._doers[type(action)](action)

    def _inspect(self, action: Inspect) -> PlogInfo | None:
        try:
            return self._plogs.info(action.plog_id)
        except NoSuchPlog:
            return None

    def _delete(self, action: Delete) -> None:
        with contextlib.suppress(NoSuchPlog):
            self._plogs.delete(action.plog_id)

    def _publish(self, action: Publish) -> int:
        """Publish a metadata plog, as the newest owner: a later one may have deleted the plog that was announced."""
        lease, publish = self._plogs.lease, self._cpo.set_metadata_plog
        try:
            if lease is None:
                return publish(self._partition, action.plog_id, expected=action.expected)
            return publish(self._partition, action.plog_id, expected=action.expected, lease=lease)
        except LeaseLost as error:
            raise LogFenced(f"partition {self._partition!r}") from error

    def _find_metadata(self, _: FindMetadata) -> tuple[PlogId, int] | None:
        newest = self._cpo.metadata_plog(self._partition)
        return None if newest is None else (newest.plog_id, newest.version)


class ProtocolRun:
    """One run of a protocol on a host; it waits for the plogs that it creates and seals as late as possible.

    Where these changes and the append behind them are records of one journal, the append is durable only if they are:
    so one sync does for all. Before any other action, the run waits for them. ``unsynced`` has those that nobody has
    waited for, at first those of an earlier run.
    """

    def __init__(self, host: Host, plogs: Plogs, *, drain: PendingAppend | None, unsynced: list[PendingAppend]) -> None:
        self._host, self._plogs, self._drain, self._unsynced = host, plogs, drain, unsynced
        self._ordered = plogs if isinstance(plogs, OrderedPlogs) else None

    def perform(self, action: Action) -> object:
        """Perform an action and return its result."""
        if self._ordered is not None:
            match action:
                case Create(plog_id, size):
                    self._unsynced.append(self._ordered.submit_create(plog_id, size))
                    return None
                case CreateAll(sizes):
                    for plog_id, size in sizes.items():
                        self._unsynced.append(self._ordered.submit_create(plog_id, size))
                    return None
                case Seal(plog_id, offset):
                    length, pending = self._ordered.submit_seal(plog_id, offset)
                    if pending is not None:
                        self._unsynced.append(pending)
                    return length
        if self._unsynced and not self._is_behind(action):
            self.finish()
        return self._host.perform(action, self._drain)

    def _is_behind(self, action: Action) -> bool:
        """Return whether all that the action promises is durable only if the changes before it are."""
        if isinstance(action, Append):
            return self._plogs.keeps_order(action.plog_id, len(action.data))
        return isinstance(action, _PROMISES_NOTHING)

    def finish(self) -> None:
        """Wait until all changes are durable."""
        while self._unsynced:
            self._unsynced[0].result()
            del self._unsynced[0]
