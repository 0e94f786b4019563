"""Calls that an operation's description allows, made from nothing but the description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import BadArgument
from penstock.model import EventPointer, StreamConfig, StreamCut
from penstock.wire import CHALLENGE_SIZE

if TYPE_CHECKING:
    from penstock.wire.operations import Operation

STREAM: Final = "own/nothing"
VALUES: Final[list[Any]] = [
    None,
    False,
    1,
    0.5,
    "lower",
    "watermark",
    "everything",
    "unordered",
    "name",
    STREAM,
    b"",
    bytes(16),
    bytes(CHALLENGE_SIZE),
    bytes(64),
    [],
    EventPointer(STREAM, 0, 0),
    StreamCut.of(STREAM, {0: 0}),
    StreamConfig(),
]


def legal_call(kind: type[Operation], *first: object, **known: object) -> Operation:
    """Return a call whose first arguments, or those of these names, are given; the others are legal values."""
    args = list(first)
    while len(args) < len(kind.__struct_fields__):
        name = kind.__struct_fields__[len(args)]
        args.append(known[name] if name in known else next(value for value in VALUES if fits(kind, args, value)))
    return kind(*args)


def fits(kind: type[Operation], args: list[object], value: object) -> bool:
    """Whether a value is legal behind these arguments: then a refusal names a later one."""
    name = kind.__struct_fields__[len(args)]
    rest = [object()] * (len(kind.__struct_fields__) - len(args) - 1)
    try:
        kind.of([*args, value, *rest])
    except BadArgument as refusal:
        return not str(refusal).startswith(f"invalid {name} ")
    return True
