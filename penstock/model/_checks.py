"""What arguments are asked for: one check for each kind of value, with an error that names the argument.

Any object may be asked about, so a caller without a type checker is told, too. A bool is no number here, although
Python takes it for one; and a text is no list, although Python takes it for one of letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from penstock.errors import BadArgument

__all__ = [
    "FIGURE_MAX",
    "as_list",
    "check_kind",
    "check_many",
    "check_method",
    "check_positive",
    "check_timeout",
    "check_whole",
    "shown",
]

T = TypeVar("T")
FIGURE_MAX: Final = (1 << 63) - 1
_SHOWN_MAX: Final = 200


def shown(value: object) -> str:
    """Return a value as a message shows it: not all of a large one, and something even of one that has no text."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an int of too many digits has none, nor need other people's objects
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def check_whole(what: str, figure: object, *, least: int = 0, most: int = FIGURE_MAX) -> None:
    """Refuse what is no int from ``least`` to ``most``; nothing else is read back where one was stored."""
    if type(figure) is not int or not least <= figure <= most:
        wanted = f"an int, {least} or more" if most == FIGURE_MAX else f"an int from {least} to {most}"
        raise BadArgument(f"{what} cannot be {shown(figure)}: give {wanted}")


def check_positive(what: str, figure: object) -> None:
    """Refuse what is no int or float above 0."""
    if type(figure) not in (int, float) or not 0 < figure <= FIGURE_MAX:  # type: ignore[operator]
        raise BadArgument(f"{what} cannot be {shown(figure)}: give a figure above 0, an int or a float")


def check_timeout(what: str, seconds: object) -> None:
    """Refuse what is no time to wait; any number is one, and so is None, for as long as it takes."""
    if seconds is not None and (type(seconds) not in (int, float) or seconds != seconds):  # noqa: PLR0124 - NaN
        raise BadArgument(f"{what} cannot be {shown(seconds)}: give seconds, an int or a float, or None")


def check_kind(what: str, value: object, kind: type) -> None:
    """Refuse what is not of a class."""
    if not isinstance(value, kind):
        raise BadArgument(f"{what} cannot be {shown(value)}: it is no {kind.__name__}")


def check_method(what: str, value: object, method: str) -> None:
    """Refuse what does not have a method; a class has it, and its objects are meant."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise BadArgument(f"{what} cannot be {shown(value)}: give an object with the method {method}()")


def check_many(what: str, values: object, of: str) -> None:
    """Refuse what is no list, nor anything else that gives values one by one; ``of`` says what they are."""
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(values, Iterable):
        raise BadArgument(f"{what} cannot be {shown(values)}: give a list of {of}")


def as_list(what: str, values: Iterable[T], of: str) -> list[T]:
    """Return values that came in any form as a list; ``of`` says what they are."""
    check_many(what, values, of)
    return list(values)
