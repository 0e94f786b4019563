"""Figures of the store for clients such as ``penstock top``: what the console shows, of what their users may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.console import overviews_of, stream_figures
from penstock.server._permissions import may_see

if TYPE_CHECKING:
    from penstock.server._permissions import Principal
    from penstock.server._session import Session
    from penstock.stream.catalog import GroupState

__all__ = ["overview", "stream_figures_of"]


class _Grants:
    """The grants decide which groups a user may see."""

    def may_see(self, principal: Principal, group: GroupState) -> bool:
        """Whether a user may know of a reader group."""
        return may_see(principal, group)


_GRANTS: Final = _Grants()


def overview(session: Session, contains: str, order: str, first: int, limit: int) -> dict[str, Any]:
    """Return figures of some of the streams that the user may read."""
    return overviews_of(session.store).page(
        session.store, _GRANTS, session.principal, contains=contains, order=order, first=first, limit=limit
    )


def stream_figures_of(session: Session, name: str) -> dict[str, Any]:
    """Return the figures of a stream."""
    rates = overviews_of(session.store).rates
    return stream_figures(session.store, rates, _GRANTS, session.principal, name)
