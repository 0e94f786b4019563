"""What goes over the wire besides events: calls, their answers, and errors.

A call is an action: its name, and a MessagePack array of its arguments. Values of the model are extensions, each with
its own code, so that the other side gets the same values. An error goes back as its class, its text and its fields;
the client raises the same class. Nothing here is ever evaluated: what is unknown is refused.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from penstock import errors, model
from penstock.errors import BadArgument, PenstockError, ServerError
from penstock.model import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.ports import Bytes

__all__ = [
    "APPENDS",
    "ARE_YOU_THERE",
    "BLOCKS",
    "BLOCKS_MAX",
    "BUSY",
    "ENDED",
    "LOCATE_MAX",
    "NOT_BEGUN",
    "PROTOCOL",
    "cell",
    "column_of",
    "pack",
    "pack_error",
    "pack_plain",
    "pack_refusal",
    "unpack",
    "unpack_call",
    "unpack_error",
]

PROTOCOL: Final = 5
ARE_YOU_THERE: Final = "here?"  # the notification that asks for that call
BUSY: Final = b"busy"  # goes with a refusal: nothing was done, and a moment later it may be
NOT_BEGUN: Final = b"not begun"  # goes with a refusal: nothing was done of what was called
_CODES: Final[Mapping[type, int]] = {  # sent, so a code is never given a new meaning
    model.EventPointer: 1,
    model.StreamCut: 2,
    model.Position: 3,
    model.SegmentRange: 4,
    model.StreamConfig: 5,
    model.StreamInfo: 6,
    model.SegmentInfo: 7,
    model.Checkpoint: 8,
    model.Lag: 9,
    model.Watermark: 10,
    model.TimeWindow: 11,
    model.NextCut: 12,
}
_UNFIT: Final = 127
_KINDS: Final = {code: kind for kind, code in _CODES.items()}
_ERRORS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, PenstockError)
}
APPENDS: Final = pa.schema(
    [
        ("segment", pa.int64()),
        ("header", pa.binary()),
        ("words", pa.binary()),
        ("data", pa.binary()),
        ("columns", pa.binary()),
    ]
)
BLOCKS: Final = pa.schema([("start", pa.int64()), ("block", pa.binary()), ("commit_ms", pa.int64())])
ENDED: Final = -1  # in place of where a block begins: its segment takes no more
LOCATE_MAX: Final = 64 << 20
"""Bytes of a segment whose places a client is told in one call."""
BLOCKS_MAX: Final = 64  # that are acknowledged together
_MESSAGE_SIZE_MAX: Final = 500  # for other clients than ours; up to three bytes each on the wire
_TEXT_SIZE_MAX: Final = 1_500
_FIELDS_SIZE_MAX: Final = 2_500  # of all together; gRPC hangs up when its headers have more than 8 KiB
_BOUNDS: Final = struct.Struct("<ii")
_encoder: Final = msgspec.msgpack.Encoder()


def pack(value: object) -> bytes:
    """Return a value as bytes: None, figures, texts, bytes, values of the model, and lists and dictionaries of them.

    In place of what is none of these, or a figure that is too large, goes something that every operation refuses.
    """
    try:
        return _encoder.encode(_as_sent(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:  # inside of a value of the model
        raise BadArgument(f"this cannot be sent to the store: {error}") from error


def pack_plain(value: object) -> bytes:
    """Return figures, texts and bytes as bytes, and lists of them: what :func:`pack` does, and sooner."""
    return _encoder.encode(value)


def unpack(data: bytes | memoryview, form: Any = Any) -> Any:  # noqa: ANN401 - a type for msgspec
    """Read what :func:`pack` wrote; ``ServerError`` if these are other bytes, or they have not this form."""
    try:
        return _decoder(form).decode(data)
    except (*UNDECODABLE, PenstockError, KeyError) as error:
        raise ServerError(
            f"cannot decode the message ({error}): is the other side of another version of Penstock?"
        ) from error


def unpack_call(data: bytes | memoryview, form: Any = Any) -> Any:  # noqa: ANN401 - a type for msgspec
    """Read a call of this form; a value of the model that is none is something that the operation refuses."""
    try:
        return _call_decoder(form).decode(data)
    except UNDECODABLE as error:
        raise ServerError(
            f"cannot decode the message ({error}): is the other side of another version of Penstock?"
        ) from error


class _Unfit:
    """In place of an argument that cannot be sent: looks the same in messages, and no operation accepts it."""

    def __init__(self, looks: str) -> None:
        self._looks = looks

    def __repr__(self) -> str:
        return self._looks


def _as_sent(value: object) -> object:
    code = _CODES.get(type(value))
    if code is not None:
        return msgspec.msgpack.Ext(code, _encoder.encode(value))
    if value is None or isinstance(value, bool | bytes | str | int | float):
        return _as_plain(value)
    if isinstance(value, list | tuple):
        return [_as_sent(element) for element in value]
    if isinstance(value, dict):
        return {key: _as_sent(element) for key, element in value.items()}
    return _unfit(value)


def _as_plain(value: object) -> object:
    if isinstance(value, str) and not model.is_encodable(value):
        return _unfit(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return _unfit(value)
    return float(value) if isinstance(value, float) else value  # numpy's, too


def _unfit(value: object) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(_UNFIT, model.shown(value).encode(errors="replace"))


def _from_sent(code: int, data: memoryview) -> object:
    return msgspec.msgpack.decode(data, type=_KINDS[code])


def _from_call(code: int, data: memoryview) -> object:
    if code == _UNFIT:
        return _Unfit(bytes(data).decode(errors="replace"))
    try:
        return _from_sent(code, data)
    except (*UNDECODABLE, PenstockError, KeyError) as error:
        return _Unfit(f"something that is none ({error})")


@cache
def _decoder(form: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: ANN401
    return msgspec.msgpack.Decoder(form, ext_hook=_from_sent)


@cache
def _call_decoder(form: Any) -> msgspec.msgpack.Decoder[Any]:  # noqa: ANN401
    return msgspec.msgpack.Decoder(form, ext_hook=_from_call)


def column_of(data: Bytes) -> pa.Array:
    """Return a column of one row, without a copy."""
    bounds = pa.py_buffer(bytes(4) + len(data).to_bytes(4, "little"))
    return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(data)])


def cell(column: pa.Array) -> memoryview:
    """Return the bytes in the only row of a column, without a copy, and without trust in what was sent.

    Arrow's own way makes a copy, and looks wherever the column says.
    """
    _, bounds, data = (memoryview(b"" if buffer is None else buffer).cast("B") for buffer in column.buffers())
    assert not column.offset, "it comes from a message"
    low, high = _BOUNDS.unpack_from(bounds)
    if not 0 <= low <= high <= len(data):
        raise BadArgument("invalid column: its offsets lie outside of its data")
    return data[low:high]


def pack_error(error: PenstockError) -> bytes:
    """Return an error as bytes; its text includes the cause."""
    fields = {name: field for name, field in vars(error).items() if _can_be_sent(field)}
    return pack([type(error).__name__, str(error), fields])


def pack_refusal(error: PenstockError) -> tuple[str, bytes]:
    """Return the text of an error, and the error as bytes, both short: gRPC sends a refusal among its headers.

    A long text is cut off, and large fields, like the cut of a stream with very many segments, are None.
    """
    sizes = {name: len(pack(value)) for name, value in vars(error).items() if _can_be_sent(value)}
    kept, left = dict.fromkeys(sizes), _FIELDS_SIZE_MAX
    for name in sorted(sizes, key=lambda name: sizes[name]):
        left -= sizes[name]
        if left >= 0:
            kept[name] = vars(error)[name]
    text = str(error)
    return _cut_off(text, _MESSAGE_SIZE_MAX), pack([type(error).__name__, _cut_off(text, _TEXT_SIZE_MAX), kept])


def _cut_off(text: str, size: int) -> str:
    data = text.encode(errors="replace")
    return text if len(data) <= size else data[:size].decode(errors="ignore") + "..."


def _can_be_sent(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_can_be_sent, value))
    return value is None or isinstance(value, bool | int | float | str | bytes) or type(value) in _CODES


def unpack_error(data: bytes) -> PenstockError:
    """Return the error that was packed, of the same class, or of one that says so if that is not known here."""
    match unpack(data):
        case [str(name), str(text), dict(fields)]:
            kind = _ERRORS.get(name, ServerError)
            error = kind.__new__(kind)
            error.args = (text,)
            vars(error).update({key: value for key, value in fields.items() if isinstance(key, str)})
            return error
    raise ServerError("the server sent an error that is not understood: is it a Penstock of another version?")
