"""Owners: on a server with users, what one user has made is not for the others.

Writer ids, reader groups, consumers and transactions have an owner. Another user may change them only with the
permission ``admin`` for their streams, and the log says so. A group or a consumer without an owner, from the folder or
from an older store, belongs to the first user who opens a reader of it or registers it; until then it is changed by
administrators alone. A consumer of FutoIn belongs to the user in its name. The anonymous client of a folder, or of a
server without users, may do everything.

Groups and consumers may be deleted and made anew, so their owners are checked by the thread that changes them, while it
holds the catalog's lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from penstock.errors import NotPermitted
from penstock.events.consumers import user_of_consumer
from penstock.events.times import TIME_TAG, TIME_WRITER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.server._session import Session
    from penstock.stream.catalog import GroupState

__all__ = ["check_consumer", "check_group", "check_new_reader", "check_transaction", "check_writer_id"]

_logger: Final = logging.getLogger("penstock.server")


def check_writer_id(session: Session, stream: str, writer_id: str | None) -> None:
    """Refuse the writer id of another user; an id without an owner belongs to this user from now on.

    The id by which the server notes the times of FutoIn events belongs to no user.
    """
    if session.owner is not None and writer_id is not None:
        tags = session.store.catalog.open_stream(stream).config.tags
        is_servers = writer_id == TIME_WRITER and TIME_TAG in tags
        owner = None if is_servers else session.store.writer_ids.claim(stream, writer_id, session.owner)
        _check_owner(
            session,
            owner,
            [stream],
            "writer id",
            f"{writer_id} of {stream}",
            claim="choose another name",
            stream=stream,
            writer=writer_id,
        )


def check_group(session: Session, operation: str, group: GroupState) -> None:
    """Refuse to change the group of another user, or of none; the caller holds the catalog's lock."""
    _check_owner(
        session,
        group.owner,
        group.streams or ["*"],
        "reader group",
        group.name,
        claim="open a reader of it first",
        group=group.name,
        operation=operation,
    )


def check_new_reader(session: Session, operation: str, group: GroupState) -> None:
    """Refuse a reader in the group of another user; the caller holds the catalog's lock."""
    if group.owner is not None:
        check_group(session, operation, group)


def check_consumer(session: Session, stream: str, consumer: str, operation: str, *, claims: bool) -> None:
    """Refuse to change the consumer of another user, or of none unless it is claimed.

    The caller holds the catalog's lock.
    """
    known = session.store.catalog.open_stream(stream).consumers.get(consumer)
    owner = user_of_consumer(consumer) or (None if known is None else known.owner)
    if (owner if claims else known) is not None:
        _check_owner(
            session,
            owner,
            [stream],
            "consumer",
            f"{consumer} of {stream}",
            claim="register it first",
            stream=stream,
            consumer=consumer,
            operation=operation,
        )


def check_transaction(session: Session, transaction: str, operation: str, *, stream: str | None = None) -> None:
    """Refuse the transaction of another user, or of none; of one that has ended the answer only says how.

    With ``stream``, a transaction of another one is left to the operation, which refuses it without naming its stream.
    """
    with session.store.catalog.lock:
        known = session.store.transactions.open.get(transaction) or session.store.catalog.prepared.get(transaction)
    if known is not None and stream in (None, known.stream):
        _check_owner(
            session,
            known.owner,
            [known.stream],
            "transaction",
            f"{transaction} of {known.stream}",
            stream=known.stream,
            transaction=transaction,
            operation=operation,
        )


def _check_owner(
    session: Session,
    owner: str | None,
    streams: Iterable[str],
    kind: str,
    name: str,
    *,
    claim: str = "begin another",
    **logged: str,
) -> None:
    """Refuse what belongs to another user or to none, unless this user may administer its streams.

    ``claim`` is how a user comes to own it if it has no owner.
    """
    if session.owner is None or owner == session.owner:
        return
    principal = session.principal
    if not all(principal.may("admin", stream) for stream in streams):
        whose, advice = ("no user", claim) if owner is None else ("another user", "choose another name")
        act = f"use the {kind} {name}, which belongs to {whose}"
        raise NotPermitted(principal.name, act=act, advice=f"{advice}, or ask an administrator")
    if owner is not None:
        _logger.info(
            "an administrator uses the %s of another user",
            kind,
            extra={"user": principal.name, "owner": owner, **logged},
        )
