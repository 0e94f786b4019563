"""Every error that Penstock raises on purpose.

::

    PenstockError
    ├── BadArgument (ValueError)   the call itself is wrong; nothing was touched
    ├── FolderUnusable             the folder cannot be made, read or written
    ├── StoreLocked                another process owns the folder
    ├── JobRunning                 another process runs the job of this checkpoint
    ├── FormatUnknown              the folder is of a newer Penstock, or not ours
    ├── DiskFull                   no room; what was acknowledged is safe, nothing else was kept
    ├── DiskFailed                 the disk refused or failed; after a failed sync the store stops
    ├── StoreClosed                used after close()
    ├── ForkedHandle               used in a forked child, and it is the parent's
    ├── ForkedNetwork              the network was in use when this process was forked
    ├── StoreUnreachable           nobody serves the store, and it was waited for long enough
    │   └── OwnerStopped           the process that owns the folder is stopped; it names which, and what to do
    ├── ServerError                the server failed, or is not one that we understand
    │   ├── ServerBusy             the server has too much to do, and still had after some attempts
    │   └── LoginsBusy             the server checks too many passwords at once
    ├── NotAuthenticated           the server does not know who that is
    ├── NotPermitted               the user may not do that
    ├── NoSuchUser, UserExists     the server has no such user, or has one
    ├── BadConfig (BadArgument)    a setting of the server is wrong; it names where and which
    ├── AddressUnusable            the server cannot listen there
    ├── CertificateUnusable        a certificate or its key is missing, damaged, foreign or expired
    ├── CorruptData                stored bytes fail their check
    │   ├── PlogCorrupt
    │   ├── JournalCorrupt
    │   ├── MetadataCorrupt
    │   ├── CpoCorrupt
    │   ├── StreamCorrupt
    │   └── UsersCorrupt
    ├── PlogError                  a plog refused; nothing was changed
    │   ├── NoSuchPlog, PlogExists, PlogSealed, AppendTooLarge, WrongOffset, PlogFull, ReadOutOfRange
    ├── LogError                   a log stream refused or failed
    │   ├── NoSuchLog, WrongPosition, NotInLog, LogFenced
    ├── CpoError                   the control plane oracle refused
    │   ├── CasConflict, LeaseHeld, LeaseLost, NoSuchCluster, ClusterExists, CpoUnavailable
    └── StreamError                a stream, a writer, a reader or a group refused; nothing was changed
        ├── NoSuchStream, StreamExists, StreamSealed, StreamNotSealed, WrongCut, DataTruncated
        ├── NoSuchEvent, EventTooLarge, NotDecodable, EventMalformed, WriterFenced, WriterFailed
        ├── EventClosed (ValueError), EventAborted
        ├── NoSuchTransaction, TransactionEnded, TransactionPrepared (TransactionEnded), CommitUnfinished
        ├── NotPrepared, TooManyPrepared
        ├── NoSuchGroup, GroupExists, NoSuchReader, ReaderInUse, ReaderOffline, CheckpointFailed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.model import PlogId


class PenstockError(Exception):
    """The root of all errors raised on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Let pools of processes hand it on: they make errors anew from their message, which ours are not made of."""
        return _made_anew, (type(self), self.args, self.__dict__)


def _made_anew(kind: type[PenstockError], args: tuple[object, ...], facts: dict[str, object]) -> PenstockError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class BadArgument(PenstockError, ValueError):
    """The call itself is wrong; nothing was touched."""


class FolderUnusable(PenstockError):
    """The folder cannot be made, read or written."""

    def __init__(self, folder: str, *, reason: str) -> None:
        super().__init__(f"cannot use the folder {folder}: {reason}; name a folder that you may write to")
        self.folder, self.reason = folder, reason


class StoreLocked(PenstockError):
    """Another process owns the folder."""

    def __init__(self, folder: str, *, owner: str) -> None:
        super().__init__(f"the folder {folder} is in use by {owner}: close that one first")
        self.folder, self.owner = folder, owner


class JobRunning(PenstockError):
    """Another process runs this job."""

    def __init__(self, checkpoint: str) -> None:
        super().__init__(f"the job whose checkpoint is in {checkpoint} is running: wait for it, or end it")
        self.checkpoint = checkpoint


class FormatUnknown(PenstockError):
    """The folder was written by a newer Penstock, or is not Penstock's at all."""

    def __init__(self, path: str, *, found: str, known: str) -> None:
        super().__init__(
            f"{path} holds {found!r}, this Penstock knows {known!r}: upgrade Penstock or choose another folder"
        )
        self.path, self.found, self.known = path, found, known


class DiskFull(PenstockError):
    """There is no room; what was acknowledged is safe, and nothing else was kept."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"no room left on the disk for {path}: free some space and try again; nothing acknowledged is lost"
        )
        self.path = path


class DiskFailed(PenstockError):
    """The disk refused a write or failed a sync.

    After a failed sync nothing is known about what was written since the last good one, so the store takes no
    more writes (``stopped``); opening it again replays what it had acknowledged.
    """

    def __init__(self, path: str, *, reason: str, stopped: bool) -> None:
        advice = (
            "the store takes no more writes: close it, look at the disk, open it again"
            if stopped
            else "nothing was kept"
        )
        super().__init__(f"the disk failed at {path}: {reason}; {advice}")
        self.path, self.reason, self.stopped = path, reason, stopped


class StoreClosed(PenstockError):
    """It was used after ``close()``."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed: open it again")


class ForkedHandle(PenstockError):
    """A child that was forked used what its parent has open; nothing was touched."""

    def __init__(self, kind: str, *, owner: int) -> None:
        super().__init__(
            f"this {kind} belongs to process {owner}, from which this one was forked: open the store again in this "
            "process, with penstock.connect(), which goes through its owner"
        )
        self.kind, self.owner = kind, owner


class ForkedNetwork(PenstockError):
    """This process was forked from one in which gRPC ran, which does not survive that: it would hang."""

    def __init__(self) -> None:
        super().__init__(
            "gRPC ran in the process that this one was forked from, so this one cannot use a store over the network, "
            "or through its owner: start it by spawn or forkserver, or close the store before the fork"
        )


class StoreUnreachable(PenstockError):
    """Nobody serves the store, and it was waited for long enough."""

    def __init__(self, address: str, *, reason: str) -> None:
        super().__init__(f"cannot reach the store at {address}: {reason}")
        self.address, self.reason = address, reason


class OwnerStopped(StoreUnreachable):
    """The process that owns the folder is stopped, as by Ctrl-Z, and answers nobody."""

    def __init__(self, address: str, *, pid: int) -> None:
        reason = (
            f"its owner, process {pid}, is stopped (Ctrl-Z?): "
            f"let it go on with kill -CONT {pid}, or end it with kill -KILL {pid}"
        )
        super().__init__(address, reason=reason)
        self.pid = pid


class ServerError(PenstockError):
    """The server failed, or is not one that we understand."""


class ServerBusy(ServerError):
    """The server has too much to do; the client has tried again for a while."""


class LoginsBusy(ServerError):
    """The server checks as many passwords as it can: this one was not checked, and may be a moment later."""

    def __init__(self) -> None:
        super().__init__("the server is busy with the passwords of others: try again, or use a token")


class NotAuthenticated(PenstockError):
    """The server does not know who that is; it does not say whether the name or the password is wrong."""

    def __init__(self, reason: str = "user or password is wrong: give others, or ask an administrator") -> None:
        super().__init__(reason)
        self.reason = reason


class NotPermitted(PenstockError):
    """The user may not do that."""

    def __init__(self, user: str, *, act: str, advice: str) -> None:
        super().__init__(f"user {user} may not {act}: {advice}")
        self.user, self.act = user, act


class NoSuchUser(PenstockError):
    """The server has no user of this name."""

    def __init__(self, user: str) -> None:
        super().__init__(f"there is no user {user!r}: add one with penstock user add")
        self.user = user


class UserExists(PenstockError):
    """The server has a user of this name already."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user!r} is there already: choose another name, or replace the password")
        self.user = user


class BadConfig(BadArgument):
    """A setting of the server is wrong; nothing was started."""

    def __init__(self, where: str, key: str, *, reason: str) -> None:
        super().__init__(f"{where}: {key}: {reason}")
        self.where, self.key, self.reason = where, key, reason


class AddressUnusable(PenstockError):
    """The server cannot listen at this address."""

    def __init__(self, address: str, *, reason: str) -> None:
        super().__init__(f"cannot listen at {address}: {reason}; choose another port, or end what has it")
        self.address, self.reason = address, reason


class CertificateUnusable(PenstockError):
    """A certificate or its key is missing, damaged, foreign or expired."""

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"cannot serve with {path}: {reason}")
        self.path, self.reason = path, reason


class CorruptData(PenstockError):
    """Stored bytes fail their check: they are never returned."""

    def __init__(self, path: str, *, offset: int | None, reason: str) -> None:
        place = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{place} is damaged: {reason}; restore it from a copy")
        self.path, self.offset, self.reason = path, offset, reason


class PlogCorrupt(CorruptData):
    """A plog's file lost or changed bytes that had been acknowledged."""


class JournalCorrupt(CorruptData):
    """The journal lost or changed records that had been acknowledged."""


class MetadataCorrupt(CorruptData):
    """The metadata log holds something that no Penstock writes."""


class CpoCorrupt(CorruptData):
    """The control plane oracle's database is damaged."""


class StreamCorrupt(CorruptData):
    """A segment, or the catalog of streams, holds something that no Penstock writes."""


class UsersCorrupt(CorruptData):
    """The file of users holds something that no Penstock writes."""


class PlogError(PenstockError):
    """A plog refused; nothing was changed."""


class NoSuchPlog(PlogError):
    """No plog has this id: it was never created, or it was deleted."""

    def __init__(self, plog_id: PlogId) -> None:
        super().__init__(f"no plog {plog_id}: it was never created here, or it was deleted")
        self.plog_id = plog_id


class PlogExists(PlogError):
    """The id is taken."""

    def __init__(self, plog_id: PlogId) -> None:
        super().__init__(f"plog {plog_id} exists: create it under another id")
        self.plog_id = plog_id


class PlogSealed(PlogError):
    """The plog takes no more appends; whoever sealed it owns the log now."""

    def __init__(self, plog_id: PlogId, *, sealed_offset: int) -> None:
        super().__init__(f"plog {plog_id} is sealed at {sealed_offset}: reopen the log to go on")
        self.plog_id, self.sealed_offset = plog_id, sealed_offset


class AppendTooLarge(PlogError):
    """One append takes no more than the append limit."""

    def __init__(self, *, size: int, limit: int) -> None:
        super().__init__(f"an append of {size} bytes is above the limit of {limit}: split it")
        self.size, self.limit = size, limit


class WrongOffset(PlogError):
    """The append is not at the plog's current offset: somebody else appended, or one was lost on the way."""

    def __init__(self, plog_id: PlogId, *, offset: int, expected: int) -> None:
        super().__init__(f"plog {plog_id} stands at {expected}, not at {offset}: append there")
        self.plog_id, self.offset, self.expected = plog_id, offset, expected


class PlogFull(PlogError):
    """The append does not fit into the plog's fixed size."""

    def __init__(self, plog_id: PlogId, *, free: int, size: int) -> None:
        super().__init__(f"plog {plog_id} has {free} bytes left, {size} do not fit: go on in a new plog")
        self.plog_id, self.free, self.size = plog_id, free, size


class ReadOutOfRange(PlogError):
    """The read goes past the last acknowledged byte."""

    def __init__(self, plog_id: PlogId, *, offset: int, size: int, length: int) -> None:
        super().__init__(f"plog {plog_id} has {length} bytes, a read of {size} at {offset} goes past its end")
        self.plog_id, self.offset, self.size, self.length = plog_id, offset, size, length


class LogError(PenstockError):
    """A log stream refused or failed."""


class NoSuchLog(LogError):
    """The partition has no log of this name."""

    def __init__(self, name: str, *, partition: str) -> None:
        super().__init__(f"partition {partition} has no log {name!r}")
        self.name, self.partition = name, partition


class WrongPosition(LogError):
    """The log's end is not where the append expected it; nothing was written."""

    def __init__(self, name: str, *, expected: object, tail: object) -> None:
        super().__init__(f"log {name!r} ends at {tail}, not at {expected}: read on and append there")
        self.name, self.expected, self.tail = name, expected, tail


class NotInLog(LogError):
    """The plog is not, or no longer, part of the log."""

    def __init__(self, name: str, plog_id: PlogId) -> None:
        super().__init__(f"plog {plog_id} is not part of log {name!r}: it was truncated away, or is another log's")
        self.name, self.plog_id = name, plog_id


class LogFenced(LogError):
    """Somebody else owns the log, or its whole partition, now; what was not acknowledged is not in it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} has a new owner: open it again to go on")
        self.what = what


class CpoError(PenstockError):
    """The control plane oracle refused."""


class CasConflict(CpoError):
    """The key is not at the expected version: somebody else changed it first."""

    def __init__(self, key: str, *, expected: int, actual: int) -> None:
        super().__init__(f"{key!r} is at version {actual}, not {expected}: somebody else changed it; read it again")
        self.key, self.expected, self.actual = key, expected, actual


class LeaseHeld(CpoError):
    """Another owner holds the lease."""

    def __init__(self, name: str, *, owner: str, seconds_left: float) -> None:
        super().__init__(
            f"the lease {name!r} is {owner!r}'s for {seconds_left:.1f} s more: wait or ask its owner to let go"
        )
        self.name, self.owner, self.seconds_left = name, owner, seconds_left


class LeaseLost(CpoError):
    """The lease ran out or went to another owner: stop what it allowed you to do."""

    def __init__(self, name: str, *, epoch: int) -> None:
        super().__init__(f"the lease {name!r} of epoch {epoch} is over: stop, then acquire it again")
        self.name, self.epoch = name, epoch


class NoSuchCluster(CpoError):
    """No persistence cluster is registered under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no persistence cluster {name!r} is registered: register it first")
        self.name = name


class ClusterExists(CpoError):
    """A different persistence cluster is registered under this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"a persistence cluster {name!r} with other groups is registered: choose another name")
        self.name = name


class CpoUnavailable(CpoError):
    """The database behind the oracle cannot be reached or used."""

    def __init__(self, url: str, *, reason: str) -> None:
        super().__init__(f"cannot use the control plane oracle at {url}: {reason}")
        self.url, self.reason = url, reason


class StreamError(PenstockError):
    """A stream, a writer, a reader or a group refused."""


class NoSuchStream(StreamError):
    """The store has no stream of this name."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"no stream {stream!r}: create it first, or look at the names there are")
        self.stream = stream


class StreamExists(StreamError):
    """The name is taken."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} exists: choose another name, or pass exist_ok=True to keep it as it is")
        self.stream = stream


class StreamSealed(StreamError):
    """The stream takes no more events."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} is sealed: it can be read, truncated and deleted, nothing else")
        self.stream = stream


class StreamNotSealed(StreamError):
    """Only a sealed stream can be deleted."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} still takes events: seal it before you delete it")
        self.stream = stream


class WrongCut(StreamError):
    """The cut is not one of this stream, or lies past its tail."""

    def __init__(self, stream: str, cut: object, *, reason: str) -> None:
        super().__init__(f"{cut} is no cut of stream {stream!r}: {reason}")
        self.stream, self.cut, self.reason = stream, cut, reason


class DataTruncated(StreamError):
    """What was asked for has been truncated away."""

    def __init__(self, place: object, *, head: object) -> None:
        super().__init__(f"{place} has been truncated away: the stream begins at {head} now")
        self.place, self.head = place, head


class NoSuchEvent(StreamError):
    """No event begins where the pointer points."""

    def __init__(self, pointer: object) -> None:
        super().__init__(f"no event begins at {pointer}: use a pointer that a writer or a reader gave you")
        self.pointer = pointer


class EventTooLarge(StreamError):
    """The event is larger than the limit; a reader goes on with the next one."""

    def __init__(self, *, size: int, limit: int, pointer: object = None) -> None:
        place, advice = "an event", "write it as a file, with begin_write_event()"
        if pointer is not None:
            place = f"the event at {pointer}"
            advice = "raise the reader's max_event_size, or read it as a file, with fetch_event_as_stream(pointer)"
        super().__init__(f"{place} has {size} bytes, above the limit of {limit}: {advice}")
        self.size, self.limit, self.pointer = size, limit, pointer


class NotDecodable(StreamError):
    """The bytes of an event do not stand for a value that the serializer knows."""

    def __init__(self, wanted: str, *, reason: str) -> None:
        super().__init__(f"an event is not {wanted} ({reason}): read it with the serializer that it was written with")
        self.wanted, self.reason = wanted, reason


class EventMalformed(StreamError):
    """An event does not have the format that a table wants."""

    def __init__(self, place: str, *, wanted: str, reason: str) -> None:
        super().__init__(
            f"the event at {place} is no {wanted} ({reason}): mend what writes it, or keep such events in a column "
            "of their own with the option on_corrupt=column"
        )
        self.place, self.wanted, self.reason = place, wanted, reason


class WriterFenced(StreamError):
    """Another writer was opened under the same id: this one writes no more."""

    def __init__(self, stream: str, writer_id: str) -> None:
        super().__init__(f"another writer {writer_id!r} was opened on stream {stream!r}: this one writes no more")
        self.stream, self.writer_id = stream, writer_id


class WriterFailed(StreamError):
    """An earlier write failed, and so would whatever came after it be out of order."""

    def __init__(self, stream: str, *, cause: BaseException) -> None:
        super().__init__(f"an earlier write to stream {stream!r} failed ({cause}): open a new writer to go on")
        self.stream, self.cause = stream, cause


class EventClosed(StreamError, ValueError):
    """An event that is a file was used after its end."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the event cannot be used any more: it is {how}; begin or fetch it again")
        self.how = how


class EventAborted(StreamError):
    """Writing to an event failed, so it is not part of the stream, and nothing of it ever was."""

    def __init__(self, *, cause: BaseException) -> None:
        super().__init__(f"the event was aborted, because writing it failed ({cause}): write all of it again")
        self.cause = cause


class NoSuchTransaction(StreamError):
    """Nothing is known of a transaction of this id."""

    def __init__(self, transaction: str) -> None:
        super().__init__(f"no transaction {transaction!r}: it was never begun, or ended long ago, or with its store")
        self.transaction = transaction


class TransactionEnded(StreamError):
    """The transaction was committed or aborted before, or its lease ran out."""

    def __init__(self, transaction: str, *, reason: str) -> None:
        super().__init__(f"transaction {transaction} has ended: {reason}; begin another one")
        self.transaction, self.reason = transaction, reason


class TransactionPrepared(TransactionEnded):
    """The transaction is prepared: it takes no more events."""

    def __init__(self, transaction: str) -> None:
        StreamError.__init__(
            self, f"transaction {transaction} is prepared, and takes no more events: commit it, or abort it"
        )
        self.transaction, self.reason = transaction, "it is prepared"


class NotPrepared(StreamError):
    """Transactions are committed together once all of them are prepared; nothing was committed."""

    def __init__(self, transaction: str, *, reason: str) -> None:
        super().__init__(f"nothing was committed, because transaction {transaction} is not prepared: {reason}")
        self.transaction, self.reason = transaction, reason


class TooManyPrepared(StreamError):
    """The store keeps no more prepared transactions; this one is still open."""

    def __init__(self, transaction: str, *, limit: int) -> None:
        super().__init__(
            f"transaction {transaction} cannot be prepared, the store has {limit} that are: commit or abort some first"
        )
        self.transaction, self.limit = transaction, limit


class CommitUnfinished(StreamError):
    """The commit is on record, and the disk refused the rest of it; it is finished as soon as that is possible."""

    def __init__(self, transaction: str, *, cause: BaseException) -> None:
        advice = "it is shown once the disk lets it; do not write it again"
        super().__init__(f"transaction {transaction} is committed, but not finished ({cause}): {advice}")
        self.transaction, self.cause = transaction, cause


class NoSuchGroup(StreamError):
    """The store has no reader group of this name."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no reader group {group!r}: create it first")
        self.group = group


class GroupExists(StreamError):
    """The name is taken."""

    def __init__(self, group: str, *, differs: str | None = None) -> None:
        text = f"reader group {group!r} exists"
        if differs is not None:
            text += f", and has {differs}"
        super().__init__(f"{text}: choose another name, or use it as it is")
        self.group, self.differs = group, differs


class NoSuchReader(StreamError):
    """The group has no reader of this name."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader group {group!r} has no reader {reader!r}")
        self.group, self.reader = group, reader


class ReaderInUse(StreamError):
    """A reader of this name is reading already."""

    def __init__(self, group: str, reader: str) -> None:
        super().__init__(f"reader {reader!r} of group {group!r} is in use: close it, or choose another name")
        self.group, self.reader = group, reader


class ReaderOffline(StreamError):
    """The reader was silent for too long, taken offline, or its group was reset or deleted."""

    def __init__(self, group: str, reader: str, *, reason: str) -> None:
        super().__init__(f"reader {reader!r} of group {group!r} reads no more ({reason}): open it again to go on")
        self.group, self.reader, self.reason = group, reader, reason


class CheckpointFailed(StreamError):
    """A checkpoint did not come about: a reader did not get there in time, or another checkpoint is under way."""

    def __init__(self, group: str, name: str, *, reason: str) -> None:
        super().__init__(f"checkpoint {name!r} of group {group!r} failed: {reason}")
        self.group, self.name, self.reason = group, name, reason
