"""The address of a bucket: ``s3://bucket/prefix`` or ``az://container/prefix``, with settings in its query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from penstock.errors import BadArgument

__all__ = ["BucketAddress"]

_ADDRESS: Final = re.compile(
    r"(?P<scheme>s3|az)://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)(/(?P<prefix>[^?#]*))?(\?(?P<query>[^#]*))?"
)
_PREFIX: Final = re.compile(r"[\w.=+-]+(/[\w.=+-]+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class BucketAddress:
    """A bucket, the prefix of all names in it, and the settings that its address carries."""

    scheme: str
    bucket: str
    prefix: str
    settings: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> BucketAddress:
        """Parse an address. No message repeats an invalid one, which may hold credentials."""
        address = _ADDRESS.fullmatch(text)
        if address is None:
            raise BadArgument(
                "invalid address of an object store: use s3://bucket/prefix or az://container/prefix, and give "
                "credentials in the environment"
            )
        prefix = (address["prefix"] or "").rstrip("/")
        if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/"))):
            raise BadArgument(f"invalid prefix {prefix!r}: use letters, digits and '._-=+' between the slashes")
        return cls(address["scheme"], address["bucket"], prefix, _settings(address["query"] or ""))

    @property
    def url(self) -> str:
        """The address without settings."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def _settings(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise BadArgument("invalid settings in the address of an object store: use ?name=value&name=value") from None
    settings = dict(pairs)
    if len(settings) < len(pairs):
        raise BadArgument("the address of an object store names a setting twice")
    return settings
