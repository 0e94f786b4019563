"""Registered consumers of FutoIn: their names among the consumers of a stream, and which user each belongs to.

The name says the user, so it needs no table of its own: ``futoin.<user>.<component>``. A component has no dot, so names
are unique.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CONSUMER_PREFIX", "Consumer", "user_of_consumer"]

CONSUMER_PREFIX: Final = "futoin."


class Consumer(NamedTuple):
    """A component of a user, as a consumer of a stream."""

    stream: str
    user: str
    component: str
    owner: str | None  # None on a server without users

    @property
    def name(self) -> str:
        """The name among the consumers of the stream."""
        return f"{CONSUMER_PREFIX}{self.user}.{self.component}"


def user_of_consumer(name: str) -> str | None:
    """Return the user whom a consumer of this name belongs to; None if it is not a name of FutoIn."""
    if not name.startswith(CONSUMER_PREFIX):
        return None
    return name.removeprefix(CONSUMER_PREFIX).rpartition(".")[0] or None
