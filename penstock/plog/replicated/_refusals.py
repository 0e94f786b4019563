"""The errors of a server's storage as refusals, and the refusal that ends an owner as its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from penstock.errors import (
    AppendTooLarge,
    DiskFull,
    NoSuchPlog,
    PenstockError,
    PlogCorrupt,
    PlogExists,
    PlogFull,
    PlogSealed,
    ReadOutOfRange,
    StoreFenced,
    WrongOffset,
)
from penstock.plog.replicated._messages import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.plog.replicated._messages import Answer

__all__ = ["check_fence", "fenced_by", "refusal_of"]

_TEXT_SIZE_MAX: Final = 2000
_Reason = Literal[
    "no-such-plog", "exists", "sealed", "too-large", "wrong-offset", "full", "out-of-range", "corrupt", "disk-full"
]
_REASONS: Final[Mapping[type[PenstockError], tuple[_Reason, str]]] = {  # and the attribute that is the value
    NoSuchPlog: ("no-such-plog", ""),
    PlogExists: ("exists", ""),
    PlogSealed: ("sealed", "sealed_offset"),
    AppendTooLarge: ("too-large", "limit"),
    WrongOffset: ("wrong-offset", "expected"),
    PlogFull: ("full", "free"),
    ReadOutOfRange: ("out-of-range", "length"),
    PlogCorrupt: ("corrupt", ""),
    DiskFull: ("disk-full", ""),
}


def refusal_of(error: PenstockError) -> Refusal:
    """Return the answer for an error of the storage."""
    known = _REASONS.get(type(error))
    if known is None:
        return Refusal("disk-failed", 0, str(error)[:_TEXT_SIZE_MAX])
    reason, attribute = known
    value = getattr(error, attribute) if attribute else 0
    text = str(error)[:_TEXT_SIZE_MAX] if isinstance(error, PlogCorrupt | DiskFull) else ""
    return Refusal(reason, value, text)


def fenced_by(epoch: int) -> StoreFenced:
    """Return the error of an owner whose partition has a newer one."""
    return StoreFenced("these plog servers", owner=f"the owner with epoch {epoch}")


def check_fence(answer: Answer) -> None:
    """Raise ``StoreFenced`` if the answer says that there is a newer owner."""
    if isinstance(answer, Refusal) and answer.reason == "fenced":
        raise fenced_by(answer.value)
