"""The protocol between clients and the server: what both sides send, and how they limit it.

Calls and their answers are Flight actions with MessagePack in them, blocks are Flight messages. A refusal says whether
the server is too busy (``BUSY``) or the session is over (``NOT_BEGUN``); in both cases it has done nothing. Both sides
keep the newest blocks of a followed segment (:class:`Newest`), and bound what is under way (:class:`ByteBudget`).
:mod:`penstock.wire.operations` describes every call.
"""

from penstock.wire._access_probe import (
    ACCESS_PROBE_PREFIX,
    CHALLENGE_SIZE,
    PLOGS_FOLDER,
    probe_content,
    probe_name,
)
from penstock.wire._byte_budget import ByteBudget
from penstock.wire._newest import Newest
from penstock.wire._server_messages import (
    Acknowledgement,
    Answer,
    AskIfHere,
    AttendGroup,
    FenceWriter,
    MissEvents,
    NoteTime,
    Notification,
    Notifications,
    ProbePlace,
    SegmentChanged,
    StopReader,
    Welcome,
)
from penstock.wire._shared_blocks import SHARED_HEAD_SIZE, SHARED_SIZE_MAX, pack_shared, unpack_shared
from penstock.wire._small_block import LEFT_SIZE, SMALL_SIZE_MAX, SmallBlock
from penstock.wire._values import (
    APPENDS,
    ARE_YOU_THERE,
    BLOCKS,
    BLOCKS_MAX,
    BUSY,
    ENDED,
    NOT_BEGUN,
    PROTOCOL,
    cell,
    column_of,
    pack,
    pack_error,
    pack_plain,
    pack_refusal,
    unpack,
    unpack_call,
    unpack_error,
)

__all__ = [
    "ACCESS_PROBE_PREFIX",
    "APPENDS",
    "ARE_YOU_THERE",
    "BLOCKS",
    "BLOCKS_MAX",
    "BUSY",
    "CHALLENGE_SIZE",
    "ENDED",
    "LEFT_SIZE",
    "NOT_BEGUN",
    "PLOGS_FOLDER",
    "PROTOCOL",
    "SHARED_HEAD_SIZE",
    "SHARED_SIZE_MAX",
    "SMALL_SIZE_MAX",
    "Acknowledgement",
    "Answer",
    "AskIfHere",
    "AttendGroup",
    "ByteBudget",
    "FenceWriter",
    "MissEvents",
    "Newest",
    "NoteTime",
    "Notification",
    "Notifications",
    "ProbePlace",
    "SegmentChanged",
    "SmallBlock",
    "StopReader",
    "Welcome",
    "cell",
    "column_of",
    "pack",
    "pack_error",
    "pack_plain",
    "pack_refusal",
    "pack_shared",
    "probe_content",
    "probe_name",
    "unpack",
    "unpack_call",
    "unpack_error",
    "unpack_shared",
]
