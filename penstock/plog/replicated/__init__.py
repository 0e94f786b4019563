"""Plogs on three servers: the decisions, without sockets, disks and clocks.

Theory of operation: a plog has a replica on each of the three servers of a persistence group, and one owner writes it.
An append is acknowledged when all three have made it durable (:class:`AppendWindow`). When one of them fails, the owner
decides the length of the plog once and for all, seals it, and continues in another group (:func:`decide_length`). The
session of an owner fences the owners before it (:class:`ReplicaHost`, the server's side). Repair brings back three
equal replicas (:func:`repair_plog`).

Protocols are generators of actions; a shell runs them, or the simulator in ``penstock.testing.simulate``. The shell
carries out the protocols of one plog one after another, with a lock for each plog, and gives its requests to a server
growing numbers, over all sessions.
"""

from penstock.plog.replicated._actions import (
    Ask,
    AwaitQuiet,
    NoteCopied,
    ReadRow,
    RemoveRow,
    ReplicaSteps,
    SealRow,
    ServerAnswer,
    VersionedRow,
    WriteRow,
)
from penstock.plog.replicated._damage import list_damaged, note_damaged
from penstock.plog.replicated._decide import create_plog, decide_length, delete_plog
from penstock.plog.replicated._groups import GroupChoice
from penstock.plog.replicated._host import HostSession, HostSteps, ReplicaHost, ServerIdentity
from penstock.plog.replicated._link import ServerAccess
from penstock.plog.replicated._messages import (
    LIST_COUNT_MAX,
    PROTOCOL,
    Answer,
    AppendReplica,
    DamagedList,
    Hello,
    ListDamaged,
    ListReplicas,
    Refusal,
    ReplicaList,
    ReplicaRequest,
    Welcome,
    decode_answer,
    decode_request,
    encode_header,
)
from penstock.plog.replicated._open import access_from, open_cluster_plogs, open_group_plogs
from penstock.plog.replicated._owned import OwnedPlogs
from penstock.plog.replicated._plogs import ReplicatedPlogs
from penstock.plog.replicated._reads import read_blocks
from penstock.plog.replicated._refusals import refusal_of
from penstock.plog.replicated._repair import list_replicas, note_missing, repair_plog
from penstock.plog.replicated._rows import ListedGroup, listed_groups
from penstock.plog.replicated._survey import check_replaceable
from penstock.plog.replicated._window import REPLICAS, AppendWindow, SentAppend

__all__ = [
    "LIST_COUNT_MAX",
    "PROTOCOL",
    "REPLICAS",
    "Answer",
    "AppendReplica",
    "AppendWindow",
    "Ask",
    "AwaitQuiet",
    "DamagedList",
    "GroupChoice",
    "Hello",
    "HostSession",
    "HostSteps",
    "ListDamaged",
    "ListReplicas",
    "ListedGroup",
    "NoteCopied",
    "OwnedPlogs",
    "ReadRow",
    "Refusal",
    "RemoveRow",
    "ReplicaHost",
    "ReplicaList",
    "ReplicaRequest",
    "ReplicaSteps",
    "ReplicatedPlogs",
    "SealRow",
    "SentAppend",
    "ServerAccess",
    "ServerAnswer",
    "ServerIdentity",
    "VersionedRow",
    "Welcome",
    "WriteRow",
    "access_from",
    "check_replaceable",
    "create_plog",
    "decide_length",
    "decode_answer",
    "decode_request",
    "delete_plog",
    "encode_header",
    "list_damaged",
    "list_replicas",
    "listed_groups",
    "note_damaged",
    "note_missing",
    "open_cluster_plogs",
    "open_group_plogs",
    "read_blocks",
    "refusal_of",
    "repair_plog",
]
