"""Grants: what a user may do, with which streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

import msgspec

from penstock.errors import BadArgument
from penstock.model import check_kind, check_stream_name, shown
from penstock.wire.operations import Permission

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Grant", "User"]

_GRANTED_BY: Final[Mapping[Permission, frozenset[Permission]]] = {
    "read": frozenset({"read", "consume", "admin"}),
    "consume": frozenset({"consume", "admin"}),
    "write": frozenset({"write", "admin"}),
    "admin": frozenset({"admin"}),
}


class Grant(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A permission for the streams that a pattern names: ``*``, ``scope/*`` or ``scope/name``."""

    permission: Permission
    pattern: str

    def __post_init__(self) -> None:
        """Refuse what :meth:`covers` would take for something else, also in a file that was changed by hand."""
        if self.permission not in get_args(Permission):
            raise BadArgument(f"invalid permission {self.permission!r}: use read, consume, write or admin")
        check_kind("pattern", self.pattern, str)
        scope, _, name = self.pattern.partition("/")
        if self.pattern != "*":
            try:
                check_stream_name(f"{scope}/all" if name == "*" else self.pattern)
            except BadArgument:
                advice = "use '*' for all streams, 'plant/*' for those of a scope, or the name of a stream"
                raise BadArgument(f"invalid pattern {shown(self.pattern)}: {advice}") from None

    def overlaps(self, other: Grant) -> bool:
        """Whether it permits something of what another grant permits."""
        scopes = [grant.pattern.removesuffix("*") for grant in (self, other)]
        is_open = [scope != grant.pattern for scope, grant in zip(scopes, (self, other), strict=True)]
        meets = (
            (is_open[0] and scopes[1].startswith(scopes[0]))
            or (is_open[1] and scopes[0].startswith(scopes[1]))
            or self.pattern == other.pattern
        )
        return meets and self.permission in _GRANTED_BY[other.permission]

    def covers(self, permission: Permission, stream: str) -> bool:
        """Whether it permits this; consuming a stream includes reading it, and administering it everything."""
        if self.permission not in _GRANTED_BY[permission]:
            return False
        scope = self.pattern.removesuffix("*")
        return stream.startswith(scope) if scope != self.pattern else stream == self.pattern


class User(msgspec.Struct, frozen=True):
    """A user and its grants, at one moment."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, permission: Permission, stream: str) -> bool:
        """Whether something was granted that permits this."""
        return any(grant.covers(permission, stream) for grant in self.grants)
