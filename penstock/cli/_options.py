"""Errors in the words of the command line: a message names the option whose value is invalid."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["option_names"]

_ARGUMENT: Final = re.compile(r"invalid (\w+)\b")


@contextmanager
def option_names(**names: str) -> Iterator[None]:
    """Let a ``BadArgument`` raised in the block name an option instead of the Python argument that took its value.

    Such an error begins like this: ``invalid size_bytes 0: use a whole number of at least 1``.
    """
    try:
        yield
    except BadArgument as error:
        argument = _ARGUMENT.match(str(error))
        if argument is None or argument[1] not in names:
            raise
        raise BadArgument(f"invalid {names[argument[1]]}{str(error)[argument.end() :]}") from error
