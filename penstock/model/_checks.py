"""Checks of arguments: one for each kind of value, with an error that names the argument and says what to use.

The checks take any object, so a caller without a type checker gets a ``BadArgument`` too. A bool is not a number here,
and a str is not a list of letters, although Python treats them so.

A name has letters, digits, '.', '_' and '-', of which a letter or a digit comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from penstock.errors import BadArgument

__all__ = [
    "NAME_SIZE_MAX",
    "NUMBER_MAX",
    "UNDECODABLE",
    "as_list",
    "check_kind",
    "check_many",
    "check_method",
    "check_name",
    "check_positive",
    "check_stream_name",
    "check_timeout",
    "check_whole",
    "is_encodable",
    "shown",
]

T = TypeVar("T")
NUMBER_MAX: Final = (1 << 63) - 1
NAME_SIZE_MAX: Final = 511  # a scope and a name, of 255 each
UNDECODABLE: Final = (ValueError, RecursionError)
"""What msgspec raises for bytes that it cannot decode: its own errors, texts that are not UTF-8, nesting too deep."""
_SHOWN_MAX: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_FORM: Final = "1 to 255 letters, digits, '.', '_' and '-', a letter or a digit first"


def shown(value: object) -> str:
    """Return a value as messages show it: cut off if it is long, its type if it has no ``repr``."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - an int of too many digits has no repr, and neither need a caller's object
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def is_encodable(text: str) -> bool:
    """Whether a text can be stored and sent: half a surrogate pair cannot."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def check_whole(argument: str, number: object, *, least: int = 0, most: int = NUMBER_MAX) -> None:
    """Require an int from ``least`` to ``most``, since nothing else would be read back where one was stored."""
    if type(number) is not int or not least <= number <= most:
        is_above = type(number) is int and number > most
        limits = f"from {least:,} to {most:,}" if is_above or most < NUMBER_MAX else f"of at least {least:,}"
        raise BadArgument(f"invalid {argument} {shown(number)}: use a whole number {limits}")


def check_positive(argument: str, number: object) -> None:
    """Require an int or a float above 0."""
    if type(number) not in (int, float) or not 0 < number <= NUMBER_MAX:  # type: ignore[operator]
        raise BadArgument(f"invalid {argument} {shown(number)}: use a number above 0")


def check_timeout(argument: str, seconds: object) -> None:
    """Require a timeout: any number of seconds, or None to wait without a limit."""
    if seconds is not None and (type(seconds) not in (int, float) or seconds != seconds):  # noqa: PLR0124 - NaN
        raise BadArgument(f"invalid {argument} {shown(seconds)}: use a number of seconds, or None for no limit")


def check_kind(argument: str, value: object, kind: type) -> None:
    """Require an instance of a class."""
    if not isinstance(value, kind):
        is_text = isinstance(value, str) and hasattr(kind, "parse")
        advice = f"{kind.__name__}.parse(text)" if is_text else f"a value of type {kind.__name__}"
        raise BadArgument(f"invalid {argument} {shown(value)}: use {advice}")


def check_method(argument: str, value: object, method: str) -> None:
    """Require an object that has a method; a class that defines the method is not such an object."""
    if isinstance(value, type) or not callable(getattr(value, method, None)):
        raise BadArgument(f"invalid {argument} {shown(value)}: use an object with a method {method}()")


def check_many(argument: str, values: object, of: str) -> None:
    """Require a list or another iterable that is not text, bytes or a mapping; ``of`` names its elements."""
    if isinstance(values, str | bytes | bytearray | memoryview | Mapping) or not isinstance(values, Iterable):
        raise BadArgument(f"invalid {argument} {shown(values)}: use a list of {of}")


def as_list(argument: str, values: Iterable[T], of: str) -> list[T]:
    """Return the values of any iterable as a list; ``of`` names its elements."""
    check_many(argument, values, of)
    return list(values)


def check_name(kind: str, name: object) -> None:
    """Require a name; ``kind`` is the kind of object that it names."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArgument(f"invalid {kind} name {shown(name)}: use {_FORM}")


def check_stream_name(name: object) -> None:
    """Require a stream's name, which is a scope and a name with a slash between them."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2 or not all(map(_NAME.fullmatch, parts)):
        raise BadArgument(f"invalid stream name {shown(name)}: use the form scope/name, each of {_FORM}")
