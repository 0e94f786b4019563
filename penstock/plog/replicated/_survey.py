"""Whether a server of a group can be replaced: the two others must have a good replica of every plog.

A server that is replaced takes its replicas with it, as one does that loses its disk. Two such servers, one after the
other and before repair is done, could take the last replica of a plog. So the servers are asked what they have, as a
reader does: nothing is fenced.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from penstock.errors import GroupUnavailable
from penstock.frames import pack_frame
from penstock.plog.replicated._actions import decode_row, row_key
from penstock.plog.replicated._link import open_session
from penstock.plog.replicated._messages import (
    LIST_COUNT_MAX,
    PROTOCOL,
    Hello,
    ListReplicas,
    ReplicaList,
    decode_answer,
    encode_header,
)
from penstock.plog.replicated._open import access_from

if TYPE_CHECKING:
    from penstock.cpo import Cpo
    from penstock.frames import FrameConnection
    from penstock.plog.replicated._link import ServerAccess

__all__ = ["check_replaceable"]

_ANSWER_S: Final = 10.0
_AGAIN_S: Final = 0.5  # between two looks: a plog may be created, sealed or deleted meanwhile
_LOOKS: Final = 4


def check_replaceable(cpo: Cpo, cluster: str, group: str, server: str, *, partition: str = "main") -> None:
    """Raise ``GroupUnavailable`` unless the other servers of a group have every plog of the group, undamaged."""
    servers = cpo.cluster(cluster).groups[group]
    others = [other for other in servers if other != server]
    _check_undamaged(cpo, cluster, group, place=servers.index(server), partition=partition)
    access = access_from(os.environ)
    differing: set[bytes] = set()
    for looks_left in reversed(range(_LOOKS)):
        held = [_replicas(other, cluster, group, partition, access) for other in others]
        differing = {uid for uid in held[0].keys() | held[1].keys() if held[0].get(uid) != held[1].get(uid)}
        if not differing:
            return
        if looks_left:
            time.sleep(_AGAIN_S)
    raise GroupUnavailable(
        group,
        reason=f"{' and '.join(others)} do not both have a complete replica of {len(differing)} of its plogs, so "
        f"{server} may have one that is needed: 'penstock cluster status' shows when repair is done",
    )


def _check_undamaged(cpo: Cpo, cluster: str, group: str, *, place: int, partition: str) -> None:
    for key in cpo.keys(f"{row_key(partition)}{cluster}/{group}/"):
        row = cpo.get(key)
        if row is not None and set(decode_row(row.value, where=cpo.where()).damaged) - {place}:
            reason = "a replica on another server of it is damaged, and is not repaired yet"
            raise GroupUnavailable(group, reason=reason)


def _replicas(address: str, cluster: str, group: str, partition: str, access: ServerAccess) -> dict[bytes, bool]:
    """Return the plogs that a server has a good replica of, and whether they are sealed there."""
    hello = Hello(PROTOCOL, cluster, group, partition, None, os.urandom(16), 1, access.user, access.password)
    found: dict[bytes, bool] = {}
    try:
        connection, _ = open_session(address, hello, access)
        with closing(connection):
            number, more, after = 1, True, b""
            while more:
                number += 1
                connection.send(
                    pack_frame(encode_header(number, ListReplicas(after, LIST_COUNT_MAX))), timeout_s=_ANSWER_S
                )
                listed = _answer(connection)
                found |= {uid: sealed for uid, _, sealed, _ in listed.replicas}
                more, after = listed.more, max(found, default=b"")
    except (OSError, EOFError) as error:
        raise GroupUnavailable(
            group, reason=f"its server {address} does not answer ({error}), and may have the only other replica"
        ) from error
    return found


def _answer(connection: FrameConnection) -> ReplicaList:
    deadline = time.monotonic() + _ANSWER_S
    while (frame := connection.receive()) is None:
        if not connection.wait(deadline - time.monotonic()):
            raise TimeoutError(f"no answer within {_ANSWER_S:g} s")
    answer = decode_answer(frame.header, payload_size=len(frame.payload))[1]
    if not isinstance(answer, ReplicaList):
        raise OSError(f"it answers {answer}")
    return answer
