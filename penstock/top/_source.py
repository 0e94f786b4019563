"""Where the figures come from: the owner of the store, in this process or in another one.

An owner in another process has ``ANSWER_S`` to answer, and a moment more (:mod:`penstock.deadlines`). After that, the
question has failed, and the next one looks for an owner again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from penstock.client import RemoteStore, remote_figures, remote_overview
from penstock.console import overviews_of, stream_figures
from penstock.deadlines import ANSWER_SLACK_S, DeadlineExceeded, within
from penstock.errors import BadArgument, StoreUnreachable
from penstock.stream import Engine
from penstock.top._figures import Overview, StreamFigures, as_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store import Store
    from penstock.stream.catalog import GroupState
    from penstock.wire.operations import Permission

__all__ = ["ANSWER_S", "Order", "Query", "Source", "source_of"]

Order = Literal["name", "events", "bytes", "time", "lag", "transactions"]
ANSWER_S: Final = 1.0


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which streams are wanted: those whose names contain a text, in an order, from the first on."""

    contains: str = ""
    order: Order = "name"
    first: int = 0
    limit: int = 50


class Source(Protocol):
    """Has the figures of a store."""

    def overview(self, query: Query) -> Overview:
        """Return the rows that are wanted."""

    def stream(self, name: str) -> StreamFigures:
        """Return the details of a stream."""


def source_of(store: Store, address: str) -> Source:
    """Return where the figures of a store come from; ``address`` is for messages."""
    if isinstance(store, RemoteStore):
        return _RemoteSource(store, address)
    if isinstance(store, Engine):
        return _LocalSource(store)
    raise BadArgument(f"invalid store {store!r}: use one that penstock.connect returned")


class _RemoteSource:
    """Another process has the store open, and knows what its user may see."""

    def __init__(self, store: RemoteStore, address: str) -> None:
        self._store, self._address = store, address

    def overview(self, query: Query) -> Overview:
        """Ask for the rows."""
        wanted = {"contains": query.contains, "order": query.order, "first": query.first, "limit": query.limit}
        return as_figures(self._asked(lambda: remote_overview(self._store, **wanted)), Overview)  # type: ignore[arg-type]

    def stream(self, name: str) -> StreamFigures:
        """Ask for the details of a stream."""
        return as_figures(self._asked(lambda: remote_figures(self._store, name)), StreamFigures)

    def _asked(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - whatever was sent
        try:
            with within(time.monotonic() + ANSWER_S):
                return ask()
        except DeadlineExceeded:
            reason = f"no answer came within {ANSWER_S + ANSWER_SLACK_S:g} seconds"
            raise StoreUnreachable(self._address, reason=reason) from None


class _Everyone:
    """The user of a store in this process, who may see everything."""

    name: Final = "anonymous"

    def may(self, permission: Permission, stream: str) -> bool:
        """Permit everything."""
        del permission, stream
        return True

    def may_see(self, principal: object, group: GroupState) -> bool:
        """Show every group."""
        del principal, group
        return True


class _LocalSource:
    """The store is open in this process."""

    def __init__(self, store: Engine) -> None:
        self._store, self._user = store, _Everyone()
        self._overviews = overviews_of(store)

    def overview(self, query: Query) -> Overview:
        """Compute the rows."""
        page = self._overviews.page(
            self._store,
            self._user,
            self._user,
            contains=query.contains,
            order=query.order,
            first=query.first,
            limit=query.limit,
        )
        return as_figures(page, Overview)

    def stream(self, name: str) -> StreamFigures:
        """Compute the details of a stream."""
        return as_figures(
            stream_figures(self._store, self._overviews.rates, self._user, self._user, name), StreamFigures
        )
