"""The lease: the right of an owner to act on a name until a time, and the epoch that fences earlier owners.

Stored under ``lease/NAME`` as one MessagePack array::

    owner    str      the present owner, or the last one
    epoch    int      1 at the first acquisition, one more at each later one; never decreases
    expires  float64  seconds since 1970 at which it ends; 0.0 once released

The record stays after the lease is over, because the next epoch is counted from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from penstock.errors import LeaseHeld, LeaseLost

_RELEASED: Final = 0.0
_decoder: Final = msgspec.msgpack.Decoder(tuple[str, int, float])


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of ``owner`` to act on ``name`` until ``expires``; ``epoch`` is sent with every action."""

    name: str
    owner: str
    epoch: int
    expires: float

    def holds(self, *, now: float) -> bool:
        """Return whether it has not expired."""
        return now < self.expires


def encode(lease: Lease) -> bytes:
    """Return the stored form; the name is the row's key."""
    return msgspec.msgpack.encode((lease.owner, lease.epoch, lease.expires))


def decode(name: str, value: bytes) -> Lease:
    """Decode the stored form."""
    return Lease(name, *_decoder.decode(value))


def granted(last: Lease | None, *, name: str, owner: str, now: float, seconds: float) -> Lease:
    """Return the lease that ``owner`` gets after ``last``, or raise ``LeaseHeld``."""
    if last is None:
        return Lease(name, owner, 1, now + seconds)
    if last.holds(now=now) and last.owner != owner:
        raise LeaseHeld(name, owner=last.owner, seconds_left=last.expires - now)
    return Lease(name, owner, last.epoch + 1, now + seconds)


def superseding(last: Lease | None, *, name: str, owner: str) -> Lease:
    """Return a lease with the next epoch that is over at once, whether ``last`` holds or not."""
    return Lease(name, owner, 1 if last is None else last.epoch + 1, _RELEASED)


def renewed(last: Lease | None, lease: Lease, *, now: float, seconds: float) -> Lease:
    """Return ``lease`` extended from now, or raise ``LeaseLost``."""
    if last is None or not _is_same(last, lease) or not last.holds(now=now):
        raise LeaseLost(lease.name, epoch=lease.epoch)
    return replace(last, expires=now + seconds)


def released(last: Lease | None, lease: Lease) -> Lease | None:
    """Return the lease to store when ``lease`` is released; None if it is lost."""
    if last is None or not _is_same(last, lease):
        return None
    return replace(last, expires=_RELEASED)


def check_newest(last: Lease | None, lease: Lease) -> None:
    """Raise ``LeaseLost`` if the lease was acquired again since, whether ``lease`` has run out or not."""
    if last is None or not _is_same(last, lease):
        raise LeaseLost(lease.name, epoch=lease.epoch)


def _is_same(last: Lease, lease: Lease) -> bool:
    return (last.epoch, last.owner) == (lease.epoch, lease.owner)
