"""Serializers: what turns the values that a program has into the bytes of an event, and back.

A stream stores bytes, and without a serializer that is what writers take and readers give. Anything with the two
methods of :class:`Serializer` can be used in its place.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar, is_typeddict, overload

import msgspec

from penstock.errors import BadArgument, NotDecodable
from penstock.model import UNDECODABLE

__all__ = ["JsonSerializer", "Serializer", "StrSerializer"]

T = TypeVar("T")


class Serializer(Protocol[T]):
    """Turns values into bytes and back. Threads may share one."""

    def serialize(self, value: T) -> bytes:
        """Return the bytes of an event; raise ``BadArgument`` for what cannot be one."""

    def deserialize(self, data: bytes) -> T:
        """Return the value that the bytes stand for; raise ``NotDecodable`` if there is none."""


class StrSerializer:
    """Texts, as UTF-8."""

    def serialize(self, value: str) -> bytes:
        """Return the text as UTF-8."""
        if not isinstance(value, str):
            raise BadArgument(f"invalid event {value!r}: use a str, or another serializer")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadArgument(f"invalid event {value!r}: it is not valid UTF-8 ({error})") from error

    def deserialize(self, data: bytes) -> str:
        """Return the text."""
        try:
            return str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise NotDecodable("UTF-8", reason=str(error)) from error


class JsonSerializer(Generic[T]):
    """Values as JSON. With a ``type``, whatever msgspec knows as one, only such values are written and read.

    JSON has no NaN and no infinity: they become null.
    """

    @overload
    def __init__(self: JsonSerializer[Any], type: None = None) -> None: ...

    @overload
    def __init__(self, type: type[T]) -> None: ...

    def __init__(self, type: Any = None) -> None:  # noqa: A002 - what msgspec calls it
        wanted = Any if type is None else type
        try:
            self._encode = msgspec.json.Encoder().encode
            self._decode = msgspec.json.Decoder(wanted).decode
        except TypeError as error:
            raise BadArgument(f"JSON cannot be read as {wanted!r}: {error}") from error
        self._classes, self._name = _classes(wanted), getattr(wanted, "__name__", str(wanted))

    def serialize(self, value: T) -> bytes:
        """Return the value as JSON."""
        if not isinstance(value, self._classes):
            raise BadArgument(f"invalid event {value!r}: use a {self._name}, or another serializer")
        try:
            return self._encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadArgument(f"invalid event {value!r}: JSON cannot express it ({error})") from error

    def deserialize(self, data: bytes) -> T:
        """Return the value."""
        try:
            value: T = self._decode(data)
        except UNDECODABLE as error:
            raise NotDecodable(f"JSON ({self._name})", reason=str(error)) from error
        return value


def _classes(wanted: object) -> tuple[type, ...]:
    """Return the classes of which every value of a type is one; ``object`` where that is too hard to tell."""
    if wanted is Any or is_typeddict(wanted) or not isinstance(wanted, type):
        return (object,)
    return (int, float) if wanted is float else (wanted,)
