"""The id of a plog: cluster, group and a random uid."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.errors import BadArgument
from penstock.model._names import check_name

if TYPE_CHECKING:
    from penstock.ports import Random

_UID: Final = re.compile(r"[0-9a-f]{32}")
UID_SIZE: Final = 16


class PlogId(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """The id of a plog: the cluster and the group of servers that store it, and a random uid of its own.

    The id alone tells a client which servers to ask. ``str()`` gives ``cluster/group/uid``, :meth:`parse` reads it.
    """

    cluster: str
    group: str
    uid: str

    def __post_init__(self) -> None:
        check_name("cluster", self.cluster)
        check_name("group", self.group)
        if not _UID.fullmatch(str(self.uid)):
            raise BadArgument(f"invalid plog uid {self.uid!r}: use 32 lower-case hexadecimal digits")

    @classmethod
    def new(cls, *, cluster: str, group: str, random: Random) -> PlogId:
        """Return a new id, unique because it is random."""
        return cls(cluster, group, random.token(UID_SIZE).hex())

    @classmethod
    def parse(cls, text: str) -> PlogId:
        """Parse the text that ``str()`` gives."""
        parts = text.split("/")
        if len(parts) != 3:
            raise BadArgument(f"invalid plog id {text!r}: use the form cluster/group/uid")
        return cls(*parts)

    @property
    def uid_bytes(self) -> bytes:
        """The uid as stored: 16 bytes."""
        return bytes.fromhex(self.uid)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.group}/{self.uid}"
