"""The health of the server, and the servers of its cluster; details are for users who may read all streams."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from penstock._version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.console._ports import ConsoleStore, ConsoleUser, Figures, ServerFigures
    from penstock.console._rates import Rates

__all__ = ["cluster_of", "health_of", "quantile_s"]


def health_of(store: ConsoleStore, rates: Rates, server: ServerFigures, user: ConsoleUser) -> dict[str, Any]:
    """Return whether the server can do its work and, for those who may read all streams, its figures."""
    figures = server.figures()
    is_detailed = user.may("read", "*")
    trouble = figures.trouble
    health: dict[str, Any] = {
        "version": __version__,
        "now_ms": int(store.clock.now() * 1000),
        "status": figures.status if trouble is None else "failing",
        "reason": None if trouble is None else trouble[1] if is_detailed else trouble[0],
        "streams": {name: why for name, why in figures.stream_troubles.items() if user.may("read", name)},
        "detailed": is_detailed,
    }
    if is_detailed:
        of_streams = rates.of_streams()
        health |= {
            "syncs": _syncs(store),
            "connections": dict(figures.connections),
            "limits": [
                {"kind": kind, "limit": None if limit == math.inf else limit, "used": used, "refused": refused}
                for kind, limit, used, refused in figures.limits
            ],
            "failed_logins": figures.failed_logins,
            "sent_bytes": figures.sent_bytes,
            "logged": _logged(figures),
            "rate": None
            if of_streams is None
            else {
                "events": sum(rate.events for rate in of_streams.values()),
                "bytes": sum(rate.bytes for rate in of_streams.values()),
            },
        }
    return health


def _logged(figures: Figures) -> dict[str, Any]:
    last = figures.last_error
    return {
        "errors": figures.errors_logged,
        "warnings": figures.warnings_logged,
        "last_error": None if last is None else {"at_ms": int(last[0] * 1000), "text": last[1]},
    }


def _syncs(store: ConsoleStore) -> dict[str, Any]:
    counts, total_s = store.syncs.figures()
    number = sum(counts)
    return {
        "count": number,
        "mean_s": total_s / number if number else None,
        "p50_s": quantile_s(counts, store.syncs.BOUNDS_S, 0.5),
        "p99_s": quantile_s(counts, store.syncs.BOUNDS_S, 0.99),
        "bounds_s": list(store.syncs.BOUNDS_S),
        "counts": counts,
    }


def quantile_s(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return the bound below which a share of the syncs was; None without any, infinity above the last bound."""
    wanted = share * sum(counts)
    if not wanted:
        return None
    for bound, below in zip(bounds, accumulate(counts), strict=False):
        if below >= wanted:
            return bound
    return None


def cluster_of(server: ServerFigures) -> dict[str, Any]:
    """Return the servers of the cluster; none if there is no cluster."""
    rows = server.cluster()
    return {"servers": None if rows is None else [row._asdict() for row in rows]}
