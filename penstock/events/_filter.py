"""A filter by event data: a function of the operator's, which decides which user gets which event.

It is called with the name of a user and an :class:`Event`, in threads of the server. Only ``True`` lets a user get the
event: an event that the function fails on, or decides on in another way, is hidden, and the failure is logged.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument
from penstock.events._codings import JSON
from penstock.events._event import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.events._event import WireEvent

__all__ = ["load_filter"]

_logger: Final = logging.getLogger("penstock.events")


def load_filter(name: str) -> Callable[[str, WireEvent], bool]:
    """Return the filter ``module:function``; ``BadArgument`` if there is no such function."""
    module, _, function = name.partition(":")
    try:
        hook = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadArgument(f"invalid filter {name!r}: {error}") from error
    if not callable(hook):
        raise BadArgument(f"invalid filter {name!r}: it is not a function")

    def accepts(user: str, event: WireEvent) -> bool:
        try:
            decision: object = hook(user, Event(event.id, event.type, JSON.load(bytes(event.data)), event.ts))
        except Exception:
            _logger.exception("the filter of events failed", extra={"user": user, "event": event.id})
            return False
        return decision is True

    return accepts
