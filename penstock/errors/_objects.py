"""Errors of an object store: a bucket of S3, or a container of Azure."""

from __future__ import annotations

from penstock.errors._base import PenstockError

__all__ = ["NoSuchObject", "ObjectChanged", "ObjectError", "ObjectExists", "StorageUnavailable", "StorageUnusable",
           "StoreFenced"]  # fmt: skip


class ObjectError(PenstockError):
    """The object store refused the call; nothing was changed."""


class NoSuchObject(ObjectError):
    """No object has this name."""

    def __init__(self, where: str) -> None:
        super().__init__(f"no object {where}: it was never put there, or it was deleted")
        self.where = where


class ObjectExists(ObjectError):
    """An object has this name already, and this call must not replace it."""

    def __init__(self, where: str) -> None:
        super().__init__(f"the object {where} exists: another process has put it there")
        self.where = where


class ObjectChanged(ObjectError):
    """The object is not the one that this call was to replace."""

    def __init__(self, where: str) -> None:
        super().__init__(f"the object {where} has changed: another process has replaced it")
        self.where = where


class StorageUnavailable(PenstockError):
    """The object store does not answer, or is overloaded. It may have carried out the call."""

    def __init__(self, where: str, *, reason: str) -> None:
        super().__init__(f"the object store at {where} is not available: {reason}")
        self.where, self.reason = where, reason


class StorageUnusable(PenstockError):
    """The object store refuses these credentials, lacks the bucket, or cannot do what a store needs."""

    def __init__(self, where: str, *, reason: str) -> None:
        super().__init__(f"the object store at {where} cannot be used: {reason}")
        self.where, self.reason = where, reason


class StoreFenced(PenstockError):
    """Another process has taken over the store; this one can never change it again."""

    def __init__(self, where: str, *, owner: str) -> None:
        super().__init__(f"the store at {where} was taken over by {owner}: open it again to continue")
        self.where, self.owner = where, owner
