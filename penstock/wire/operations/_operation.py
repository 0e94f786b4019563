"""What there is to know of an operation before it is carried out, for the client and for the server alike."""

from __future__ import annotations

import re
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from penstock.errors import BadArgument
from penstock.model import shown
from penstock.wire.operations._arguments import as_group_place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

__all__ = ["OPERATIONS", "About", "Operation", "Permission", "declare", "parse"]

Permission = Literal["read", "consume", "write", "admin"]
About = Literal["stream", "streams", "group", "transaction", "pointer", "open", "store", "unchecked"]
"""The first argument names a stream, a group, a transaction, an event, or something open; the second names streams;
the call is about the whole store; or its permission is unchecked: the handler filters the answer, or only closes
something of the session."""

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
            raise BadArgument(cls._refusal(args, str(error))) from None

    @classmethod
    def _refusal(cls, args: Any, error: str) -> str:  # noqa: ANN401 - whatever was sent
        path = _PATH.search(error)
        if path is None:
            return f"invalid arguments of {cls.operation}: it takes {', '.join(cls.__struct_fields__) or 'none'}"
        index = int(path[1])
        name = cls.__struct_fields__[index]
        advice = _described(get_type_hints(cls, include_extras=True)[name])
        return f"invalid {name} {shown(args[index])} of {cls.operation}: use {advice}"


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


def _described(hint: Any) -> str:  # noqa: ANN401 - any annotation
    """Return what an argument may be."""
    metadata = getattr(hint, "__metadata__", ())
    if metadata:
        return str(metadata[0].description)
    if get_args(hint) and getattr(hint, "__origin__", None) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return _WORDS.get(hint) or " or ".join(map(_described, get_args(hint)))
