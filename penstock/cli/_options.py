"""Errors in the words of the command line: a wrong value is told with the option that it was given for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["option_names"]


@contextmanager
def option_names(**names: str) -> Iterator[None]:
    """Let a ``BadArgument`` of the block name an option instead of the Python argument that its value went to.

    Such an error begins with the argument's name: ``size_bytes cannot be 0: give an int, 1 or more``.
    """
    try:
        yield
    except BadArgument as error:
        argument, _, rest = str(error).partition(" ")
        if argument not in names:
            raise
        raise BadArgument(f"{names[argument]} {rest}") from error
