"""The texts that a record builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import MissingBasis, NoSuchKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.repo._keys import Key

__all__ = ["GetText", "basis_text"]

GetText: TypeAlias = "Callable[[Key], bytes]"


def basis_text(get_text: GetText, basis: Key, *, key: Key) -> bytes:
    """Return the text of ``basis``, on which ``key`` builds."""
    try:
        return get_text(basis)
    except (KeyError, NoSuchKey):
        raise MissingBasis(key, basis) from None
