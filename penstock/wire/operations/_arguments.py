"""The types and ranges of arguments. A type's description completes the sentence "invalid ...: use ..."."""

from __future__ import annotations

from abc import ABC
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.msgpack import Ext

from penstock.model import (
    NAME_SIZE_MAX,
    NUMBER_MAX,
    SEGMENTS_MAX,
    TIME_MAX,
    Checkpoint,
    EventPointer,
    Position,
    StreamCut,
)
from penstock.model import StreamConfig as Config
from penstock.stream.format import BLOCK_HEADER_SIZE
from penstock.wire._access_probe import CHALLENGE_SIZE

__all__ = [
    "FIND_MAX",
    "WATERMARKS_MAX",
    "Blocks",
    "Bytes",
    "Challenge",
    "Columns",
    "Cut",
    "Cuts",
    "Digest",
    "GroupName",
    "GroupPlace",
    "Header",
    "Headers",
    "Ids",
    "Key",
    "KeyPosition",
    "KeyRanges",
    "Limit",
    "Name",
    "Number",
    "Numbers",
    "Place",
    "Places",
    "Pointer",
    "ReaderPosition",
    "Seconds",
    "SegmentCount",
    "SegmentIds",
    "Settings",
    "StreamName",
    "Time",
    "Timeout",
    "Times",
    "as_group_place",
    "wire_form",
]

_SECONDS_MAX: Final = 1e9
_MODEL: Final = (Checkpoint, Config, EventPointer, Position, StreamCut)
_LIST_MAX: Final = 100_000  # as many as a server has segments by default; reading a list takes a tenth of a second
FIND_MAX: Final = 1_000
"""Blocks that are looked for in one call."""
WATERMARKS_MAX: Final = 1_000
"""Watermarks that are added in one call."""
_TRANSACTIONS_MAX: Final = 10_000  # a store has never more that are prepared

Name = Annotated[str, Meta(max_length=NAME_SIZE_MAX, description=f"a text of at most {NAME_SIZE_MAX} characters")]
StreamName = Annotated[str, Meta(max_length=NAME_SIZE_MAX, description="a stream name of the form scope/name")]
GroupName = Annotated[str, Meta(max_length=NAME_SIZE_MAX, description="a reader group name of at most 255 characters")]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX, description="a whole number from 0 to 2**63 - 1")]
Limit = Annotated[int, Meta(ge=1, le=NUMBER_MAX, description="a whole number from 1 to 2**63 - 1")]
Numbers = Annotated[
    list[Number],
    Meta(max_length=_LIST_MAX, description=f"a list of at most {_LIST_MAX:,} whole numbers from 0 on"),
]
SegmentIds = Annotated[
    list[Number],
    Meta(max_length=SEGMENTS_MAX, description=f"a list of at most {SEGMENTS_MAX:,} whole numbers from 0 on"),
]
SegmentCount = Annotated[int, Meta(ge=1, le=SEGMENTS_MAX, description=f"a whole number from 1 to {SEGMENTS_MAX:,}")]
Time = Annotated[int, Meta(ge=0, le=TIME_MAX, description=f"whole milliseconds from 0 to {TIME_MAX}")]
Seconds = Annotated[
    float, Meta(gt=0, le=_SECONDS_MAX, description=f"a number of seconds above 0, up to {_SECONDS_MAX:g}")
]
Timeout = Annotated[float, Meta(ge=-1e300, le=1e300, description="a number of seconds")]
KeyPosition = Annotated[float, Meta(ge=0, lt=1, description="a number from 0 up to 1")]
_KeyBorder = Annotated[float, Meta(ge=0, le=1)]
KeyRanges = Annotated[
    list[tuple[_KeyBorder, _KeyBorder]], Meta(max_length=SEGMENTS_MAX, description="pairs like (0.0, 0.5)")
]
Bytes = Annotated[bytes, Meta(description="bytes")]
Challenge = Annotated[
    bytes, Meta(min_length=CHALLENGE_SIZE, max_length=CHALLENGE_SIZE, description=f"{CHALLENGE_SIZE} bytes")
]
Digest = Annotated[bytes, Meta(min_length=16, max_length=16, description="16 bytes")]
Header = Annotated[
    bytes,
    Meta(min_length=BLOCK_HEADER_SIZE, max_length=BLOCK_HEADER_SIZE, description=f"{BLOCK_HEADER_SIZE} bytes"),
]
Columns = Annotated[int, Meta(ge=0, le=255, description="the flags of a block, from 0 to 255")]
Key = Bytes | None
Headers = Annotated[list[tuple[str, bytes]], Meta(description="pairs of a text and bytes")] | None
Ids = Annotated[
    list[Name],
    Meta(max_length=_TRANSACTIONS_MAX, description=f"a list of at most {_TRANSACTIONS_MAX:,} ids, texts"),
]
Times = Annotated[
    list[Time],
    Meta(max_length=WATERMARKS_MAX, description=f"a list of at most {WATERMARKS_MAX:,} times, whole milliseconds"),
]
Cuts = Annotated[
    list[StreamCut], Meta(max_length=WATERMARKS_MAX, description=f"a list of at most {WATERMARKS_MAX:,} StreamCuts")
]
Settings = Annotated[Config, Meta(description="a StreamConfig")]
Cut = Annotated[StreamCut, Meta(description="a StreamCut")]
Pointer = Annotated[EventPointer, Meta(description="an EventPointer")]
ReaderPosition = Annotated[Position, Meta(description="a Position")]
Place = Annotated[
    StreamCut | Time | Literal["head", "tail"],
    Meta(description=f"a StreamCut, 'head', 'tail', a datetime, or whole milliseconds from 0 to {TIME_MAX}"),
]
Places = Annotated[
    list[tuple[StreamName, Number, Number]],
    Meta(
        max_length=_LIST_MAX,
        description=f"a list of at most {_LIST_MAX:,} positions: a stream, a segment and an offset",
    ),
]
Blocks = Annotated[
    list[tuple[Number, Number, Number, Digest]],
    Meta(
        max_length=FIND_MAX,
        description=f"a list of at most {FIND_MAX:,} blocks: a segment, the last number, how many, and a digest",
    ),
]


class _GroupPlace(ABC):  # noqa: B024 - what it has are members, see below
    """Any of these classes: msgspec can tell only one class of a union apart."""


for _kind in (Checkpoint, Position, StreamCut, list, int, str):
    _GroupPlace.register(_kind)

GroupPlace = Annotated[
    _GroupPlace,
    Meta(
        description="a Checkpoint, a StreamCut or a list of them, a Position, 'head', 'tail', a datetime, or whole "
        f"milliseconds from 0 to {TIME_MAX}"
    ),
]
_Cuts = StreamCut | list[StreamCut] | Time | Literal["head", "tail"]


def wire_form(hint: Any) -> Any:  # noqa: ANN401 - any annotation
    """Return the type of an argument as it is sent: values of the model are extensions."""
    if hint is _GroupPlace:
        return Ext | list[Ext] | int | str
    if hint in _MODEL:
        return Ext
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Annotated[wire_form(args[0]), *args[1:]]
    if origin in (Union, UnionType):
        return Union[tuple(map(wire_form, args))]  # noqa: UP007 - made of a tuple
    return origin[tuple(map(wire_form, args))] if origin in (list, tuple) else hint


def as_group_place(kind: type, value: Any) -> Any:  # noqa: ANN401 - a hook of msgspec
    """Check a place of a group; ``ValueError`` if it is none, to which msgspec adds which argument it was."""
    assert kind is _GroupPlace, "msgspec knows all other types"
    try:
        return value if isinstance(value, Checkpoint | Position) else msgspec.convert(value, _Cuts)
    except msgspec.ValidationError as error:
        raise ValueError("not a position of a group") from error
