"""The web console's view of this server: its users and limits, its health, and the servers of its cluster.

A session of the console is a token of its user, as ``penstock user token`` makes them. So it outlives a restart of the
server, ``penstock user tokens`` lists it, and it ends when the user is removed, gets another password, or loses the
token; every call asks the file of users again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.console import ClusterRow, Figures, SignedIn
from penstock.errors import BadArgument, NotAuthenticated
from penstock.server._leases import cluster_servers
from penstock.server._limits import QuotaKind
from penstock.server._permissions import ANONYMOUS, check_stream, may_see
from penstock.server._plog_server import plog_server_rows
from penstock.server._quotas import Quota
from penstock.server._scrub_report import role_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from penstock.cpo import Cpo
    from penstock.server._health import AnyHealth
    from penstock.server._limits import Limits, QuotaUse
    from penstock.server._log_counts import LogCounter
    from penstock.server._login import Logins
    from penstock.server._permissions import Principal
    from penstock.server._users import Users
    from penstock.stream.catalog import GroupState
    from penstock.wire.operations import Permission

__all__ = ["SESSION_S", "ConsoleAccess", "ConsoleFigures"]

SESSION_S: Final = 12 * 3600
_CALLS: Final = QuotaKind("max_calls", "calls of the console")
_CALLS_MAX: Final = 32  # of all users; one has its share of them


class ConsoleAccess:
    """The users of the server; None if it has none."""

    def __init__(self, logins: Logins | None, limits: Limits) -> None:
        self._logins = logins
        self._calls = Quota(_CALLS, replace(limits, max_calls=min(limits.max_calls, _CALLS_MAX)))

    @property
    def is_anonymous(self) -> bool:
        """Whether the server has no users."""
        return self._logins is None

    def has_users(self) -> bool:
        """Whether anybody could sign in."""
        return self._checked_logins.has_users()

    @property
    def _users(self) -> Users:
        return self._checked_logins.users

    @property
    def _checked_logins(self) -> Logins:
        if self._logins is None:
            raise BadArgument("this server has no users: every client may do everything")
        return self._logins

    @property
    def sign_ins_max(self) -> int:
        """The number of sign-ins that may wait at once."""
        return 0 if self._logins is None else self._logins.waiting_max

    def sign_in(self, user: str, password: str, peer: str) -> SignedIn:
        """Begin a session."""
        return SignedIn(self._checked_logins.begin_session(user, password, peer, lifetime_s=SESSION_S), SESSION_S)

    def sign_out(self, token: str, peer: str) -> None:
        """End a session; one that has ended is ended already."""
        if self._logins is None:
            return
        try:
            user = self._logins.check(f"Bearer {token}", peer)
        except NotAuthenticated:
            return
        self._users.revoke_tokens(user.name, token.partition(".")[0])

    def principal(self, token: str | None, peer: str) -> Principal:
        """Return the user of a session with the grants of this moment."""
        if self._logins is None:
            return ANONYMOUS
        if token is None:
            raise NotAuthenticated("sign in first")
        return self._logins.check(f"Bearer {token}", peer)

    def check(self, principal: Principal, permission: Permission, stream: str) -> None:
        """Refuse a user without the permission."""
        check_stream(principal, permission, stream)

    def administers_any(self, principal: Principal) -> bool:
        """Whether a user may administer any stream."""
        grants = getattr(principal, "grants", None)
        return grants is None or any(grant.permission == "admin" for grant in grants)

    def may_see(self, principal: Principal, group: GroupState) -> bool:
        """Whether a user may know of a reader group."""
        return may_see(principal, group)

    def owner(self, principal: Principal) -> str | None:
        """Return to whom belongs what the user creates."""
        return None if principal is ANONYMOUS else principal.name

    def take_call(self, principal: Principal) -> Callable[[], None]:
        """Count a call for its user until the returned function is called."""
        owner = self.owner(principal)
        self._calls.take(owner)
        return partial(self._calls.give, owner)

    def users(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Return all users with their grants."""
        return [(user.name, [(grant.permission, grant.pattern) for grant in user.grants]) for user in self._users]

    def grant(self, user: str, permission: Permission, pattern: str) -> None:
        """Let a user do something."""
        self._users.grant(user, permission, pattern)

    def revoke(self, user: str, permission: Permission, pattern: str) -> bool:
        """Take back what was granted in these very words."""
        return self._users.revoke(user, permission, pattern)[0]


class ConsoleFigures:
    """The figures of the server; ``cpo`` is the oracle of a store that several servers share."""

    def __init__(
        self,
        health: AnyHealth,
        connections: Mapping[str, Callable[[], int]],
        uses: Callable[[], Iterable[QuotaUse]],
        logins: Logins | None,
        *,
        sent_bytes: Callable[[], int],
        logged: LogCounter,
        cpo: Cpo | None,
    ) -> None:
        self._health, self._connections, self._uses, self._logins = health, connections, uses, logins
        self._sent_bytes, self._logged, self._cpo = sent_bytes, logged, cpo

    @property
    def is_cluster(self) -> bool:
        """Whether the server shares its store with others."""
        return self._cpo is not None

    def figures(self) -> Figures:
        """Return the figures of this moment."""
        trouble, logged = self._health.trouble(), self._logged.counts
        return Figures(
            status=self._health.status,
            trouble=None if trouble is None else (trouble.kind, trouble.detail),
            stream_troubles=self._health.stream_troubles(),
            connections={kind: count() for kind, count in self._connections.items()},
            limits=[(use.kind, use.limit, use.used, use.refused) for use in self._uses()],
            failed_logins=0 if self._logins is None else self._logins.failed,
            sent_bytes=self._sent_bytes(),
            errors_logged=logged.errors,
            warnings_logged=logged.warnings,
            last_error=logged.last_error,
        )

    def cluster(self) -> list[ClusterRow] | None:
        """Return the servers of the cluster."""
        if self._cpo is None:
            return None
        servers = [
            ClusterRow(
                address=server.address,
                role="standby" if server.partition is None else "owner",
                part=server.partition,
                since=server.since,
                until=server.until,
                repair=None,
            )
            for server in cluster_servers(self._cpo)
        ]
        plogs = [
            ClusterRow(
                address=server.address,
                role=role_of(server.scrub, is_running=server.is_running),
                part=f"{server.cluster}/{server.group}",
                since=None,
                until=server.until if server.is_running else None,
                repair=server.repair,
            )
            for server in plog_server_rows(self._cpo)
        ]
        return [*servers, *plogs]
