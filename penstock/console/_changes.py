"""What the console changes: streams are created, scaled, truncated and sealed, and permissions granted and revoked.

The bodies of the calls are described here. What deletes events, or ends a stream, needs its name once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from penstock.console._positions import find_position
from penstock.errors import BadArgument
from penstock.model import ByConsumption, BySize, ByTime, StreamConfig, shown

if TYPE_CHECKING:
    from penstock.console._ports import Access, ConsoleStore, ConsoleUser
    from penstock.model import Retention

__all__ = ["CHANGES", "Change"]

_Name = Annotated[str, msgspec.Meta(max_length=600)]
_Permission = Literal["read", "consume", "write", "admin"]


class Change(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of a call that changes something; see the subclasses."""

    def check(self, access: Access, user: ConsoleUser) -> None:
        """Refuse a user who may not do it."""
        raise NotImplementedError

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Do it, and return what to tell the user."""
        raise NotImplementedError


class _StreamChange(Change):
    name: _Name

    def check(self, access: Access, user: ConsoleUser) -> None:
        """Require the permission to administer the stream."""
        access.check(user, "admin", self.name)


class CreateChange(_StreamChange):
    """Create a stream."""

    segments: int = 1
    retention: Literal["unlimited", "time", "size", "consumption"] = "unlimited"
    limit: float | None = None  # seconds or bytes

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Create it, for the user."""
        config = StreamConfig(retention=self._retention())
        store.stream_changes.create(self.name, self.segments, config, owner=access.owner(user))
        return {"message": f"created {self.name}"}

    def _retention(self) -> Retention | None:
        if self.retention == "unlimited":
            return None
        if self.retention == "consumption":
            return ByConsumption()
        if self.limit is None:
            raise BadArgument("the limit is missing: give seconds for a retention by time, or bytes for one by size")
        if self.retention == "time":
            return ByTime(self.limit)
        if self.limit != int(self.limit):
            raise BadArgument(f"invalid limit {self.limit}: use whole bytes")
        return BySize(int(self.limit))


class ScaleChange(_StreamChange):
    """Seal segments, and continue in new ones."""

    seal: Annotated[list[int], msgspec.Meta(max_length=10_000)]
    ranges: Annotated[list[tuple[float, float]], msgspec.Meta(max_length=10_000)]

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Split, or merge."""
        del access, user
        info = store.scale_stream(self.name, self.seal, self.ranges)
        return {"message": f"{self.name} has {len(info.segments)} segments now"}


class _Confirmed(_StreamChange):
    confirm: _Name

    def check(self, access: Access, user: ConsoleUser) -> None:
        """Require the permission, then the name of the stream."""
        super().check(access, user)
        if self.confirm != self.name:
            raise BadArgument(f"not confirmed: {shown(self.confirm)} is not the name of the stream, {self.name}")


class TruncateChange(_Confirmed):
    """Delete the events before a position."""

    to: Annotated[str, msgspec.Meta(max_length=1 << 16)]

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Move the head of the stream."""
        del access, user
        info = store.truncate_stream(self.name, find_position(store, self.name, self.to))
        return {"message": f"{self.name} begins at {info.head} now"}


class SealChange(_Confirmed):
    """Let a stream accept no more events."""

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Seal it for good."""
        del access, user
        store.seal_stream(self.name)
        return {"message": f"{self.name} is sealed"}


class _UserChange(Change):
    user: _Name
    permission: _Permission
    pattern: _Name

    def check(self, access: Access, user: ConsoleUser) -> None:
        """Require the permission to administer all streams: others could grant it to themselves."""
        _check_has_users(access)
        access.check(user, "admin", "*")


class GrantChange(_UserChange):
    """Let a user do something."""

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Grant the permission; to grant it again changes nothing."""
        del store, user
        access.grant(self.user, self.permission, self.pattern)
        return {"message": f"{self.user} may {self.permission} {self.pattern}"}


class RevokeChange(_UserChange):
    """Take a permission back."""

    def run(self, store: ConsoleStore, access: Access, user: ConsoleUser) -> dict[str, Any]:
        """Revoke the permission, or say that the user did not have it."""
        del store, user
        if not access.revoke(self.user, self.permission, self.pattern):
            raise BadArgument(f"{self.user} was not granted {self.permission} for {self.pattern}")
        return {"message": f"revoked {self.permission} for {self.pattern} from {self.user}"}


def _check_has_users(access: Access) -> None:
    if access.is_anonymous:
        raise BadArgument("this server has no users: every client may do everything")


CHANGES: Final[dict[str, type[Change]]] = {
    "streams": CreateChange,
    "scale": ScaleChange,
    "truncate": TruncateChange,
    "seal": SealChange,
    "grant": GrantChange,
    "revoke": RevokeChange,
}
"""The calls that change something, by their path."""
