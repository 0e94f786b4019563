"""The errors that Penstock raises on purpose, as one tree.

::

    PenstockError
    ├── BadArgument (ValueError)   the call itself is wrong; nothing was changed
    ├── FolderUnusable             the folder cannot be created, read or written
    ├── StoreLocked                another process owns the folder
    ├── JobRunning                 another process runs the job with this checkpoint
    ├── FormatUnknown              a newer Penstock wrote the folder or the table, or it is not one of Penstock's
    ├── DiskFull                   no space left; acknowledged data is safe, nothing else was kept
    ├── DiskFailed                 a write or a sync failed; after a failed sync the store stops
    ├── StorageUnavailable         the object store does not answer; it may have carried out the call
    ├── StorageUnusable            the object store refuses the credentials, or cannot do what a store needs
    ├── StoreFenced                another process has taken over a store in an object store
    ├── ObjectError                the object store refused the call; nothing was changed
    │   ├── NoSuchObject, ObjectExists, ObjectChanged
    ├── StoreClosed                used after close()
    ├── ForkedHandle               a forked child process used a handle of its parent
    ├── WrongEventLoop             a handle of penstock.aio was used in another event loop than its own
    ├── ForkedNetwork              gRPC or obstore was running when this process was forked
    ├── StoreUnreachable           no process serves the store, even after waiting
    │   └── OwnerStopped           the process that owns the folder is suspended, as by Ctrl-Z
    ├── ServerError                the server failed, or gave an answer that this version does not understand
    │   ├── ServerBusy             the server is overloaded, also after several attempts
    │   ├── LimitReached           the server, or one user of it, has as much of something as a setting allows
    │   └── LoginsBusy             the server checks as many passwords at once as it can
    ├── FutoinError                a call of FutoIn was refused or failed; its name is that of the specification
    ├── NotAuthenticated           the server does not accept the credentials
    ├── NotPermitted               the user lacks a permission
    ├── NoSuchUser, UserExists     the server has no such user, or already has one
    ├── NoSuchToken                the user has no token with this id
    ├── BadConfig (BadArgument)    a setting of the server is invalid; the error names its source and its key
    ├── AddressUnusable            the server cannot listen at this address
    ├── CertificateUnusable        a certificate or its key is missing, damaged, expired or not ours
    ├── UsersUnreadable            the file of users cannot be read
    ├── CorruptData                stored bytes fail their check
    │   ├── PlogCorrupt
    │   ├── JournalCorrupt
    │   ├── MetadataCorrupt
    │   ├── CpoCorrupt
    │   ├── StreamCorrupt
    │   ├── UsersCorrupt
    │   ├── RepositoryCorrupt
    │   ├── BundleCorrupt
    │   └── BackupCorrupt
    ├── PlogError                  a plog refused the call; nothing was changed
    │   ├── NoSuchPlog, PlogExists, PlogSealed, AppendTooLarge, WrongOffset, PlogFull, ReadOutOfRange
    ├── ReplicaLost                a server has not made an append durable in time; its outcome is unknown
    ├── GroupUnavailable           too few servers of a persistence group answer
    ├── PlogServerRefused          a plog server does not accept this client, or is not the one asked for
    ├── LogError                   a log stream refused the call or failed
    │   ├── NoSuchLog, WrongPosition, NotInLog, LogFenced, LogUnavailable
    ├── CpoError                   the control plane oracle refused the call
    │   ├── CasConflict, LeaseHeld, LeaseLost, NoSuchCluster, NoCluster, ClusterExists, CpoUnavailable
    ├── BackupError                a backup or a restore was refused or failed; earlier points are still there
    │   ├── SnapshotLost, NotABackup, NoSuchPoint, BackupRunning, FolderInUse
    ├── RepositoryError            a repository, a bundle or an item of a repository stream refused the call
    │   ├── NotARepository, NoSuchKey, UnavailableRepresentation, MissingBasis, ContentConflict, BadRecord,
    │   │   RefsDiverged, ForeignNames, MissingRevision, BundleUnreadable, NotABundle
    └── StreamError                a stream, a writer, a reader or a group refused the call; nothing was changed
        ├── NoSuchStream, StreamExists, StreamSealed, StreamNotSealed, WrongCut, DataTruncated
        ├── CopyFailed, CopyDiffers
        ├── NoSuchEvent, EventTooLarge, NotDecodable, EventMalformed
        ├── WriterFenced, WriterForgotten, WriterFailed
        ├── EventClosed (ValueError), EventAborted
        ├── NoSuchTransaction, TransactionEnded, TransactionPrepared (TransactionEnded), CommitUnfinished
        ├── NotPrepared, TooManyPrepared
        ├── NoSuchGroup, GroupExists, NoSuchReader, ReaderInUse, ReaderBusy, ReaderOffline, CheckpointFailed
"""

from penstock.errors._backup import (
    BackupCorrupt,
    BackupError,
    BackupRunning,
    FolderInUse,
    NoSuchPoint,
    NotABackup,
    SnapshotLost,
)
from penstock.errors._base import BadArgument, PenstockError
from penstock.errors._objects import (
    NoSuchObject,
    ObjectChanged,
    ObjectError,
    ObjectExists,
    StorageUnavailable,
    StorageUnusable,
    StoreFenced,
)
from penstock.errors._plog import (
    AppendTooLarge,
    CasConflict,
    ClusterExists,
    CpoError,
    CpoUnavailable,
    LeaseHeld,
    LeaseLost,
    LogError,
    LogFenced,
    LogUnavailable,
    NoCluster,
    NoSuchCluster,
    NoSuchLog,
    NoSuchPlog,
    NotInLog,
    PlogError,
    PlogExists,
    PlogFull,
    PlogSealed,
    ReadOutOfRange,
    WrongOffset,
    WrongPosition,
)
from penstock.errors._replication import GroupUnavailable, PlogServerRefused, ReplicaLost
from penstock.errors._repo import (
    BadRecord,
    BundleCorrupt,
    BundleUnreadable,
    ContentConflict,
    ForeignNames,
    MissingBasis,
    MissingRevision,
    NoSuchKey,
    NotABundle,
    NotARepository,
    RefsDiverged,
    RepositoryCorrupt,
    RepositoryError,
    UnavailableRepresentation,
)
from penstock.errors._server import (
    AddressUnusable,
    BadConfig,
    CertificateUnusable,
    ForkedNetwork,
    FutoinError,
    LimitReached,
    LoginsBusy,
    NoSuchToken,
    NoSuchUser,
    NotAuthenticated,
    NotPermitted,
    OwnerStopped,
    ServerBusy,
    ServerError,
    StoreUnreachable,
    UserExists,
)
from penstock.errors._store import (
    CorruptData,
    CpoCorrupt,
    DiskFailed,
    DiskFull,
    FolderUnusable,
    ForkedHandle,
    FormatUnknown,
    JobRunning,
    JournalCorrupt,
    MetadataCorrupt,
    PlogCorrupt,
    StoreClosed,
    StoreLocked,
    StreamCorrupt,
    UsersCorrupt,
    UsersUnreadable,
    WrongEventLoop,
)
from penstock.errors._stream import (
    CheckpointFailed,
    CommitUnfinished,
    CopyDiffers,
    CopyFailed,
    DataTruncated,
    EventAborted,
    EventClosed,
    EventMalformed,
    EventTooLarge,
    GroupExists,
    NoSuchEvent,
    NoSuchGroup,
    NoSuchReader,
    NoSuchStream,
    NoSuchTransaction,
    NotDecodable,
    NotPrepared,
    ReaderBusy,
    ReaderInUse,
    ReaderOffline,
    StreamError,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    TooManyPrepared,
    TransactionEnded,
    TransactionPrepared,
    WriterFailed,
    WriterFenced,
    WriterForgotten,
    WrongCut,
)

__all__ = [
    "AddressUnusable",
    "AppendTooLarge",
    "BackupCorrupt",
    "BackupError",
    "BackupRunning",
    "BadArgument",
    "BadConfig",
    "BadRecord",
    "BundleCorrupt",
    "BundleUnreadable",
    "CasConflict",
    "CertificateUnusable",
    "CheckpointFailed",
    "ClusterExists",
    "CommitUnfinished",
    "ContentConflict",
    "CopyDiffers",
    "CopyFailed",
    "CorruptData",
    "CpoCorrupt",
    "CpoError",
    "CpoUnavailable",
    "DataTruncated",
    "DiskFailed",
    "DiskFull",
    "EventAborted",
    "EventClosed",
    "EventMalformed",
    "EventTooLarge",
    "FolderInUse",
    "FolderUnusable",
    "ForeignNames",
    "ForkedHandle",
    "ForkedNetwork",
    "FormatUnknown",
    "FutoinError",
    "GroupExists",
    "GroupUnavailable",
    "JobRunning",
    "JournalCorrupt",
    "LeaseHeld",
    "LeaseLost",
    "LimitReached",
    "LogError",
    "LogFenced",
    "LogUnavailable",
    "LoginsBusy",
    "MetadataCorrupt",
    "MissingBasis",
    "MissingRevision",
    "NoCluster",
    "NoSuchCluster",
    "NoSuchEvent",
    "NoSuchGroup",
    "NoSuchKey",
    "NoSuchLog",
    "NoSuchObject",
    "NoSuchPlog",
    "NoSuchPoint",
    "NoSuchReader",
    "NoSuchStream",
    "NoSuchToken",
    "NoSuchTransaction",
    "NoSuchUser",
    "NotABackup",
    "NotABundle",
    "NotARepository",
    "NotAuthenticated",
    "NotDecodable",
    "NotInLog",
    "NotPermitted",
    "NotPrepared",
    "ObjectChanged",
    "ObjectError",
    "ObjectExists",
    "OwnerStopped",
    "PenstockError",
    "PlogCorrupt",
    "PlogError",
    "PlogExists",
    "PlogFull",
    "PlogSealed",
    "PlogServerRefused",
    "ReadOutOfRange",
    "ReaderBusy",
    "ReaderInUse",
    "ReaderOffline",
    "RefsDiverged",
    "ReplicaLost",
    "RepositoryCorrupt",
    "RepositoryError",
    "ServerBusy",
    "ServerError",
    "SnapshotLost",
    "StorageUnavailable",
    "StorageUnusable",
    "StoreClosed",
    "StoreFenced",
    "StoreLocked",
    "StoreUnreachable",
    "StreamCorrupt",
    "StreamError",
    "StreamExists",
    "StreamNotSealed",
    "StreamSealed",
    "TooManyPrepared",
    "TransactionEnded",
    "TransactionPrepared",
    "UnavailableRepresentation",
    "UserExists",
    "UsersCorrupt",
    "UsersUnreadable",
    "WriterFailed",
    "WriterFenced",
    "WriterForgotten",
    "WrongCut",
    "WrongEventLoop",
    "WrongOffset",
    "WrongPosition",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # a traceback names an error as users import it
