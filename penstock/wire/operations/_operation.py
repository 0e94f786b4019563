"""What there is to know of an operation before it is carried out, for the client and for the server alike."""

from __future__ import annotations

import re
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from penstock.errors import BadArgument
from penstock.model import UNDECODABLE, shown
from penstock.wire.operations._arguments import as_group_place, wire_form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

__all__ = ["OPERATIONS", "SHORT_SIZE", "About", "Operation", "Permission", "check_form", "declare", "parse"]

Permission = Literal["read", "consume", "write", "admin"]
About = Literal["stream", "streams", "group", "transaction", "pointer", "open", "store", "unchecked"]
"""The first argument names a stream, a group, a transaction, an event, or something open; the second names streams;
the call is about the whole store; or its permission is unchecked: the handler filters the answer, checks what comes
later by itself, or only closes something of the session."""

SHORT_SIZE: Final = 16 << 10
"""A message of so many bytes takes milliseconds to be read, whatever is in it."""

_PATH: Final = re.compile(r"at `\$\[(\d+)\]")
_WORDS: Final[Mapping[object, str]] = {NoneType: "None", bool: "True or False"}
_operations: Final[dict[str, type[Operation]]] = {}
OPERATIONS: Final[Mapping[str, type[Operation]]] = _operations
AnyOperation = TypeVar("AnyOperation", bound="Operation")


class Operation(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """A call of an operation. The class describes the operation, its fields are the arguments in their order.

    A client may pass anything for an argument; the server checks all of them with :func:`parse`, before anything else.
    """

    operation: ClassVar[str]  # its name on the wire
    needs: ClassVar[Permission]
    about: ClassVar[About]
    repeats: ClassVar[bool]

    @property
    def subject(self) -> Any:  # noqa: ANN401 - as the field says
        """The first argument, which names what the call is about."""
        return getattr(self, self.__struct_fields__[0])

    @property
    def may_repeat(self) -> bool:
        """Whether a client that does not know whether the call was carried out may make it once more."""
        return self.repeats

    @classmethod
    def of(cls, args: object) -> Self:
        """Return a call with these arguments; ``BadArgument`` names the one that is none."""
        try:
            return msgspec.convert(args, cls, builtin_types=(bytes,), dec_hook=as_group_place)
        except msgspec.ValidationError as error:
            raise BadArgument(cls.refusal(str(error), args)) from None

    @classmethod
    def refusal(cls, error: str, args: Any = None) -> str:  # noqa: ANN401 - whatever was sent
        """Return which argument an error of msgspec is about, and what to use; with the value if it is known."""
        path = _PATH.search(error)
        if path is None:
            return f"invalid arguments of {cls.operation}: it takes {', '.join(cls.__struct_fields__) or 'none'}"
        index = int(path[1])
        name = cls.__struct_fields__[index]
        advice = _described(get_type_hints(cls, include_extras=True)[name])
        value = "" if args is None else f" {shown(args[index])}"
        return f"invalid {name}{value} of {cls.operation}: use {advice}"


def declare(
    name: str, needs: Permission, about: About = "stream", *, repeats: bool = False
) -> Callable[[type[AnyOperation]], type[AnyOperation]]:
    """Name an operation, with the permission that it needs, what it is about, and whether it may be repeated."""

    def declared(kind: type[AnyOperation]) -> type[AnyOperation]:
        assert name not in _operations, "each has a name of its own"
        kind.operation, kind.needs, kind.about, kind.repeats = name, needs, about, repeats
        _operations[name] = kind
        return kind

    return declared


def parse(name: str, args: object) -> Operation:
    """Return a call as it was sent; ``BadArgument`` if there is no such operation, or an argument is none of its."""
    kind = _operations.get(name)
    if kind is None:
        raise BadArgument(f"there is no operation {shown(name)}")
    return kind.of(args)


def check_form(name: str, message: bytes | memoryview) -> None:
    """Refuse a long message that is not of the form of its operation: a text, the session, and the arguments.

    Reading whatever comes may take minutes, or gigabytes: of a map whose keys collide, or of millions of empty lists.
    Here nothing is read but what the operation takes. A short message costs little, and is refused with its values.
    """
    if len(message) <= SHORT_SIZE:
        return
    kind = _operations.get(name)
    if kind is None:
        raise BadArgument(f"there is no operation {shown(name)}")
    try:
        _form_decoder(kind).decode(message)
    except UNDECODABLE as error:
        raise BadArgument(kind.refusal(str(error).replace("$[1]", "$"))) from None


@cache
def _form_decoder(kind: type[Operation]) -> msgspec.msgpack.Decoder[Any]:
    fields = [(field.name, wire_form(field.type), _default(field)) for field in msgspec.structs.fields(kind)]
    form = msgspec.defstruct(kind.__name__, fields, array_like=True, forbid_unknown_fields=True)
    return msgspec.msgpack.Decoder(tuple[str, form])  # type: ignore[valid-type]


def _default(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - of the field, or none
    return msgspec.field(default=field.default, default_factory=field.default_factory)  # type: ignore[call-overload]


def _described(hint: Any) -> str:  # noqa: ANN401 - any annotation
    """Return what an argument may be."""
    metadata = getattr(hint, "__metadata__", ())
    if metadata:
        return str(metadata[0].description)
    if get_args(hint) and getattr(hint, "__origin__", None) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return _WORDS.get(hint) or " or ".join(map(_described, get_args(hint)))
