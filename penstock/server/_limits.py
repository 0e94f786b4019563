"""What one client may cost: how much it has under way, how large a message is, how long it may be silent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.server._config import Config

__all__ = ["UNLIMITED", "Limits", "share_of_user"]

_CALLS_LEAST: Final = 100
_CONNECTIONS_FULL: Final = 4  # so many connections may have as many calls under way as one may
_USER_SHARE: Final = 0.5  # of clients and calls, so that one user does not keep all others out


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The settings of those names."""

    max_connections: float = math.inf
    max_message_bytes: float = math.inf
    max_inflight_bytes: float = math.inf
    idle_timeout_s: float = math.inf
    header_timeout_s: float = math.inf

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return those of a server."""
        return cls(**{name: getattr(config, name) for name in cls.__slots__})

    @property
    def calls_of_one_max(self) -> float:
        """How many calls of one connection may be under way: each open writer has one, and each waits in a thread."""
        return max(_CALLS_LEAST, self.max_connections)

    @property
    def calls_max(self) -> float:
        """How many calls may be under way in all."""
        return _CONNECTIONS_FULL * self.calls_of_one_max

    @property
    def calls_of_user_max(self) -> float:
        """How many calls of one user may be under way."""
        return self.calls_max * _USER_SHARE

    def check_message(self, size: int) -> None:
        """Refuse a message that is too large."""
        if size > self.max_message_bytes:
            raise BadArgument(
                f"a message of {size} bytes: this server takes at most {self.max_message_bytes}, its max_message_bytes"
            )


def share_of_user(clients: int) -> int:
    """Return how many clients one user may have, of so many in all."""
    return max(1, int(clients * _USER_SHARE))


UNLIMITED: Final = Limits()
"""For processes of the same user on the same machine, which could have it all in other ways."""
