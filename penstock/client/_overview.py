"""Figures of a store that another process has open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.wire.operations import overviews

if TYPE_CHECKING:
    from penstock.client._store import RemoteStore
    from penstock.wire.operations.overviews import Order

__all__ = ["remote_figures", "remote_overview"]


def remote_overview(store: RemoteStore, *, contains: str, order: Order, first: int, limit: int) -> Any:  # noqa: ANN401
    """Return figures of some of the streams that the user may read, as the owner of the store sends them."""
    return store.connection.call(overviews.GetOverview(contains, order, first, limit))


def remote_figures(store: RemoteStore, name: str) -> Any:  # noqa: ANN401 - its caller checks it
    """Return the figures of a stream, as the owner of the store sends them."""
    return store.connection.call(overviews.GetStreamFigures(name))
