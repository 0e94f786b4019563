"""What the examples of ``penstock event`` need: an event stream, and a database with an outbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from penstock.events import StoreEvents
from penstock.events.outbox import add_xfer_event, create_outbox

if TYPE_CHECKING:
    from pathlib import Path

    from penstock import Store

__all__ = ["open_shop"]


def open_shop(store: Store, folder: Path) -> None:
    """Create the stream ``shop/orders`` with an event, and ``shop.db`` with an event to be moved."""
    store.create_stream("shop/orders")
    StoreEvents(store, "shop/orders").add("ORDER_PAID", {"order": 16})
    engine = sa.create_engine(f"sqlite:///{folder}/shop.db")
    with engine.begin() as connection:
        create_outbox(connection)
        add_xfer_event(connection, "ORDER_PAID", {"order": 15})
    engine.dispose()
