"""Errors of a store that another process serves, and of the server itself."""

from __future__ import annotations

from penstock.errors._base import BadArgument, PenstockError

__all__ = [
    "AddressUnusable",
    "BadConfig",
    "CertificateUnusable",
    "ForkedNetwork",
    "FutoinError",
    "LimitReached",
    "LoginsBusy",
    "NoSuchToken",
    "NoSuchUser",
    "NotAuthenticated",
    "NotPermitted",
    "OwnerStopped",
    "ServerBusy",
    "ServerError",
    "StoreUnreachable",
    "UserExists",
]


class ForkedNetwork(PenstockError):
    """This process was forked from a process in which gRPC or obstore ran; it would hang here."""

    def __init__(self, *, ran: str, lost: str) -> None:
        super().__init__(
            f"this process was forked from a process in which {ran} ran, so it cannot use {lost}: "
            "start it by spawn or forkserver, or fork before the store is opened"
        )
        self.ran, self.lost = ran, lost


class StoreUnreachable(PenstockError):
    """No process serves the store, even after waiting."""

    def __init__(self, address: str, *, reason: str) -> None:
        super().__init__(f"cannot reach the store at {address}: {reason}")
        self.address, self.reason = address, reason


class OwnerStopped(StoreUnreachable):
    """The process that owns the folder is suspended, as by Ctrl-Z, and does not answer."""

    def __init__(self, address: str, *, pid: int) -> None:
        reason = (
            f"its owner, process {pid}, is stopped (Ctrl-Z?): "
            f"resume it with kill -CONT {pid}, or end it with kill -KILL {pid}"
        )
        super().__init__(address, reason=reason)
        self.pid = pid


class ServerError(PenstockError):
    """The server failed, or gave an answer that this version does not understand."""


class ServerBusy(ServerError):
    """The server is overloaded, also after several attempts."""


class LimitReached(ServerError):
    """The server, or one user of it, has as much of something as the server's settings allow; nothing was changed."""

    def __init__(self, reason: str, *, setting: str) -> None:
        super().__init__(f"{reason}: close or delete some, or let an administrator raise the setting {setting}")
        self.reason, self.setting = reason, setting


class LoginsBusy(ServerError):
    """The server checks as many passwords at once as it can; it did not check this one."""

    def __init__(self) -> None:
        super().__init__("the server is busy checking other passwords: try again, or use a token")


class NotAuthenticated(PenstockError):
    """The server does not accept the credentials; it does not say whether the user or the password is wrong."""

    def __init__(self, reason: str = "user or password is wrong: correct them, or ask an administrator") -> None:
        super().__init__(reason)
        self.reason = reason


class NotPermitted(PenstockError):
    """The user lacks a permission; ``user`` is None where no user has it."""

    def __init__(self, user: str | None, *, act: str, advice: str) -> None:
        super().__init__(f"nobody may {act}: {advice}" if user is None else f"user {user} may not {act}: {advice}")
        self.user, self.act = user, act


class NoSuchUser(PenstockError):
    """The server has no user of this name."""

    def __init__(self, user: str) -> None:
        super().__init__(f"no user {user!r}: add the user with penstock user add")
        self.user = user


class NoSuchToken(PenstockError):
    """The user has no token with this id: it was revoked, has expired, or belongs to another user."""

    def __init__(self, user: str, token_id: str) -> None:
        super().__init__(f"user {user!r} has no token {token_id!r}: list them with penstock user tokens")
        self.user, self.token_id = user, token_id


class UserExists(PenstockError):
    """The server already has a user of this name."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user!r} exists: choose another name, or replace the password with --replace")
        self.user = user


class BadConfig(BadArgument):
    """A setting of the server is invalid; nothing was started."""

    def __init__(self, where: str, key: str, *, reason: str) -> None:
        super().__init__(f"{where}: {key}: {reason}")
        self.where, self.key, self.reason = where, key, reason


class AddressUnusable(PenstockError):
    """The server cannot listen at this address."""

    def __init__(self, address: str, *, reason: str, setting: str | None = None) -> None:
        advice = "choose another port" if setting is None else f"choose another {setting}"
        super().__init__(f"cannot listen at {address}: {reason}; {advice}, or stop the program that uses it")
        self.address, self.reason = address, reason


class CertificateUnusable(PenstockError):
    """A certificate or its key is missing, damaged, expired or not ours."""

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(f"cannot serve with the certificate or key {path}: {reason}")
        self.path, self.reason = path, reason


class FutoinError(PenstockError):
    """A call of FutoIn was refused or failed; ``name`` is what the specification calls the error."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name, self.reason = name, reason
