"""What the console needs of the store and of the server that it is part of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from penstock.model import (
        EventPointer,
        NextCut,
        SegmentRange,
        StreamConfig,
        StreamCut,
        StreamInfo,
        StreamPosition,
        Watermark,
    )
    from penstock.plog import SyncTimes
    from penstock.ports import Clock
    from penstock.store import ReaderGroup
    from penstock.stream.catalog import Catalog, GroupState
    from penstock.stream.read import EventInputStream
    from penstock.stream.segment import Segments
    from penstock.stream.time import WriterMarks
    from penstock.stream.transaction import Transactions
    from penstock.wire.operations import Permission

__all__ = [
    "Access",
    "ClusterRow",
    "ConsoleStore",
    "ConsoleUser",
    "Figures",
    "SeesGroups",
    "ServerFigures",
    "SignedIn",
    "StreamChanges",
]


class ConsoleUser(Protocol):
    """The user that calls, or the anonymous one."""

    @property
    def name(self) -> str:
        """The name of the user."""

    def may(self, permission: Permission, stream: str) -> bool:
        """Whether the permission is granted for a stream; ``*`` stands for all streams."""


class SignedIn(NamedTuple):
    """A session that has begun: its secret, and the seconds that it lasts."""

    token: str
    lifetime_s: int


class SeesGroups(Protocol):
    """Knows which users may see a reader group."""

    def may_see(self, principal: ConsoleUser, group: GroupState) -> bool:
        """Whether a user may know of a reader group."""


class Access(SeesGroups, Protocol):
    """The users of the server: who calls, what they may do, and how much at once."""

    @property
    def is_anonymous(self) -> bool:
        """Whether the server has no users: every client may do everything."""

    @property
    def sign_ins_max(self) -> int:
        """The number of sign-ins that may wait at once; those above it are refused without a wait."""

    def has_users(self) -> bool:
        """Whether anybody could sign in: the server asks for users, and may not have one yet."""

    def sign_in(self, user: str, password: str, peer: str) -> SignedIn:
        """Begin a session, once it is its turn; ``NotAuthenticated``, or ``LoginsBusy`` where too many wait."""

    def sign_out(self, token: str, peer: str) -> None:
        """End a session; one that has ended is ended already."""

    def principal(self, token: str | None, peer: str) -> ConsoleUser:
        """Return the user of a session with the grants of this moment; ``NotAuthenticated`` if it has ended."""

    def check(self, principal: ConsoleUser, permission: Permission, stream: str) -> None:
        """Refuse a user without the permission for a stream, or for all of them, which is ``*``."""

    def administers_any(self, principal: ConsoleUser) -> bool:
        """Whether a user may administer any stream, which may not exist yet."""

    def owner(self, principal: ConsoleUser) -> str | None:
        """Return to whom belongs what the user creates; None on a server without users."""

    def take_call(self, principal: ConsoleUser) -> Callable[[], None]:
        """Count a call for its user until the returned function is called; ``LimitReached`` if there are too many."""

    def users(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return all users with their grants: permission and pattern."""

    def grant(self, user: str, permission: Permission, pattern: str) -> None:
        """Let a user read, consume, write or administer the streams that a pattern names."""

    def revoke(self, user: str, permission: Permission, pattern: str) -> bool:
        """Take back what was granted in these very words; return whether it was granted."""


class Figures(NamedTuple):
    """What there is to say about a server at one moment."""

    status: str
    trouble: tuple[str, str] | None  # of which kind, and in detail
    stream_troubles: Mapping[str, str]
    connections: Mapping[str, int]
    limits: Sequence[tuple[str, float, int, int]]  # kind, limit, used, refused
    failed_logins: int
    sent_bytes: int
    errors_logged: int
    warnings_logged: int
    last_error: tuple[float, str] | None  # when, in seconds since 1970, and the beginning of what was logged


class ClusterRow(NamedTuple):
    """A server of the cluster; times are seconds since 1970."""

    address: str
    role: Literal["owner", "standby", "plog-server", "unwritable", "away"]
    part: str | None
    since: float | None
    until: float | None
    repair: int | None


class ServerFigures(Protocol):
    """The server, as its health page shows it."""

    @property
    def is_cluster(self) -> bool:
        """Whether the server shares its store with others."""

    def figures(self) -> Figures:
        """Return the figures of this moment."""

    def cluster(self) -> list[ClusterRow] | None:
        """Return the servers of the cluster; None if the server shares its store with no other."""


class StreamChanges(Protocol):
    """Creates streams that have an owner."""

    def create(
        self,
        name: str,
        segments: int | None = None,
        config: StreamConfig | None = None,
        *,
        exist_ok: bool = False,
        owner: str | None = None,
    ) -> StreamInfo:
        """Create a stream."""

    def names(self, scope: str | None = None) -> list[str]:
        """Return the names of all streams."""

    def infos(self, names: Iterable[str]) -> Iterator[StreamInfo]:
        """Yield what there is to know of streams, but of those that were deleted meanwhile."""


class _LargeEventSizes(Protocol):
    """Knows the large events that are being written."""

    def large_events(self, uid: int) -> list[int]:
        """Return how many bytes are stored of each large event of a stream."""


class _ReaderLags(Protocol):
    """Knows what each reader of a group has not read."""

    def reader_lags(self, group: str, stream: str) -> dict[str, dict[int, int]]:
        """Return the segments of a stream that each reader holds, with the bytes that it has not read."""


class ConsoleStore(Protocol):
    """What is shown and changed of a store."""

    @property
    def catalog(self) -> Catalog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def segments(self) -> Segments: ...
    @property
    def transactions(self) -> Transactions: ...
    @property
    def marks(self) -> WriterMarks: ...
    @property
    def host(self) -> _LargeEventSizes: ...
    @property
    def groups(self) -> _ReaderLags: ...
    @property
    def stream_changes(self) -> StreamChanges: ...
    @property
    def syncs(self) -> SyncTimes: ...

    def stream(self, name: str) -> StreamInfo:
        """Describe a stream."""

    def scale_stream(self, name: str, seal: Sequence[int], ranges: Sequence[tuple[float, float]]) -> StreamInfo:
        """Seal segments and continue in new ones."""

    def seal_stream(self, name: str) -> StreamInfo:
        """Let a stream accept no more events."""

    def truncate_stream(self, name: str, cut: StreamPosition) -> StreamInfo:
        """Delete the events before a position."""

    def consumers(self, name: str) -> dict[str, StreamCut]:
        """Return the consumers of a stream."""

    def consumer_times(self, name: str) -> dict[str, int | None]:
        """Return when each consumer has moved."""

    def head(self, name: str) -> StreamCut:
        """Return where a stream begins."""

    def tail(self, name: str) -> StreamCut:
        """Return where a stream ends."""

    def cut_at_time(self, name: str, time: int, *, by: Literal["watermark", "append"] | None = None) -> StreamCut:
        """Return where a stream was at a time."""

    def watermarks(
        self, name: str, start: int | StreamCut | None = None, end: int | StreamCut | None = None
    ) -> list[Watermark]:
        """Return the watermarks between two times."""

    def watermark(self, name: str) -> Watermark | None:
        """Return the last watermark of a stream."""

    def fetch_event_as_stream(self, pointer: EventPointer) -> EventInputStream:
        """Return the event at a pointer as a file."""

    def segment_ranges(
        self,
        name: str,
        start: StreamPosition | None = None,
        end: StreamPosition | None = None,
        approx_bytes: int | None = None,
    ) -> list[SegmentRange]:
        """Return the parts of segments between two positions."""

    def read_range(self, part: SegmentRange, *, max_event_size: int) -> Iterator[pa.RecordBatch]:
        """Return the events of a part of one segment."""

    def next_cut(
        self,
        name: str,
        start: StreamCut,
        end: StreamCut | None = None,
        *,
        max_bytes: int | None = None,
        max_events: int | None = None,
    ) -> NextCut:
        """Return how far to read next."""

    def reader_groups(self) -> list[str]:
        """Return the names of all reader groups."""

    def reader_group(self, name: str) -> ReaderGroup:
        """Return a reader group."""
