"""The three codings of FutoIn messages: JSON, MessagePack and CBOR.

A message shows its coding by how it begins: JSON with ``{``, the others with four letters of their name. Whatever a
message holds can be written as JSON: NaN, infinity, byte strings, lone surrogates and keys that are not text are
refused, because event data is stored as JSON, and read by peers of every coding.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import cbor2
import msgspec

from penstock.events._errors import invalid
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CBOR", "CODINGS", "JSON", "MSGPACK", "Coding", "coding_of", "to_json"]

_decode_json: Final = msgspec.json.Decoder().decode
_encode_json: Final = msgspec.json.Encoder().encode
_decode_msgpack: Final = msgspec.msgpack.Decoder().decode
_encode_msgpack: Final = msgspec.msgpack.Encoder().encode
_UNDECODABLE: Final = (ValueError, TypeError, RecursionError, cbor2.CBORDecodeError, EOFError, OverflowError)


class Coding(NamedTuple):
    """How messages of one coding begin, what HTTP calls them, and how they become values and back."""

    name: str
    prefix: bytes
    content_type: str
    load: Callable[[bytes], Any]
    dump: Callable[[Any], bytes]

    def decode(self, message: bytes) -> Any:  # noqa: ANN401 - any JSON value
        """Return the value of a message; ``InvalidRequest`` if it is malformed, or not a JSON value."""
        try:
            value = self.load(message[len(self.prefix) :])
            if self.prefix:
                value = _decode_json(to_json(value))
        except _UNDECODABLE as error:
            raise invalid(f"the message is not valid {self.name}: {error}") from None
        return value

    def encode(self, value: object) -> bytes:
        """Return a message; ``value`` is made of JSON values."""
        return self.prefix + self.dump(value)


def to_json(value: object) -> bytes:
    """Return a decoded value as JSON; ``ValueError`` or ``TypeError`` if it is not a JSON value."""
    try:
        encoded = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        _check_keys(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return encoded


def _check_keys(value: object) -> None:
    """Refuse keys that are not text: encoders of JSON make text of them, and ``1`` and ``"1"`` would be the same."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} is not text: use text for all keys")
            _check_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_keys(inner)


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("references to other parts of the message are not JSON")


_REFUSED_TAGS: Final = dict.fromkeys((25, 28, 29, 256), _refuse_tag)
"""Tags with which a part of a message stands for another: a few hundred bytes could become gigabytes."""


def _load_cbor(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    stream = io.BytesIO(data)
    value = cbor2.load(stream, semantic_decoders=_REFUSED_TAGS, allow_duplicate_keys=False, strict_hashable_types=True)
    if stream.tell() != len(data):
        raise ValueError("bytes follow the value")
    return value


JSON: Final = Coding("JSON", b"", "application/futoin+json", _decode_json, _encode_json)
MSGPACK: Final = Coding("MessagePack", b"MPCK", "application/futoin+msgpack", _decode_msgpack, _encode_msgpack)
CBOR: Final = Coding("CBOR", b"CBOR", "application/futoin+cbor", _load_cbor, cbor2.dumps)
CODINGS: Final = (MSGPACK, CBOR, JSON)


def coding_of(message: bytes) -> Coding:
    """Return the coding of a message; JSON if it shows none."""
    return next(coding for coding in CODINGS if message.startswith(coding.prefix))
