"""Keys: the names of all things in a repository, as tuples of bytes.

The first element says what it is, by custom ``revisions``, ``inventories``, ``signatures`` or ``texts``; the last one
names a revision. A text has the id of its file between them, so ``(b"texts", b"setup.py", b"r7")`` is what ``setup.py``
became in revision ``r7``. A record of a stream carries what its keys have in common, the key prefix; its entries carry
the rest. Everywhere else in this package a key is the whole key.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.errors import BadArgument, BadRecord
from penstock.model import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "INVENTORIES",
    "INVENTORY_SIZE_MAX",
    "KEY_SIZE_MAX",
    "REVISIONS",
    "SIGNATURES",
    "TEXTS",
    "TEXT_SIZE_MAX",
    "Key",
    "check_key",
    "check_parents",
    "check_text_size",
    "common_prefix",
    "key_hash",
    "key_name",
    "revision_hash",
]

Key: TypeAlias = tuple[bytes, ...]

REVISIONS: Final = b"revisions"
INVENTORIES: Final = b"inventories"
SIGNATURES: Final = b"signatures"
TEXTS: Final = b"texts"
KEY_SIZE_MAX: Final = 64 << 10  # of all elements together; paths are shorter
PARENTS_MAX: Final = 10_000
PARENTS_SIZE_MAX: Final = 4 << 20  # of all their elements together
TEXT_SIZE_MAX: Final = 1 << 30  # it is in memory as a whole; a few bytes can stand for many
INVENTORY_SIZE_MAX: Final = 64 << 20  # half a million files: it is made whole from small deltas, again and again


def check_key(key: object) -> None:
    """Require a whole key."""
    if not isinstance(key, tuple) or not key or set(map(type, key)) != {bytes} or b"" in key:
        raise BadArgument(f"invalid key {shown(key)}: use a tuple of bytes, none of them empty")
    if sum(map(len, key)) > KEY_SIZE_MAX:
        raise BadArgument(f"invalid key {shown(key)}: use at most {KEY_SIZE_MAX:,} bytes")


def check_parents(key: Key, parents: object) -> None:
    """Require the whole keys of the parents of ``key``."""
    if not isinstance(parents, tuple) or len(parents) > PARENTS_MAX:
        raise BadArgument(f"invalid parents {shown(parents)} of {key_name(key)}: use a tuple of keys")
    for parent in parents:
        check_key(parent)
    if sum(len(element) for parent in parents for element in parent) > PARENTS_SIZE_MAX:
        raise BadArgument(f"invalid parents of {key_name(key)}: use at most {PARENTS_SIZE_MAX:,} bytes in all")
    if key in parents:
        raise BadArgument(f"invalid parents of {key_name(key)}: it is its own parent")


def check_text_size(key: Key, text: bytes) -> None:
    """Require that a text is not larger than what can be stored under its key."""
    largest = INVENTORY_SIZE_MAX if key[0] == INVENTORIES else TEXT_SIZE_MAX
    if len(text) > largest:
        raise BadRecord(key, f"its text has {len(text):,} bytes, and at most {largest:,} can be stored")


def key_hash(key: Key) -> int:
    """Return 64 bits that stand for a key in an index; the entry that they lead to tells whether it is the one."""
    digest = hashlib.blake2b(digest_size=8)
    for element in key:
        digest.update(len(element).to_bytes(4, "big"))
        digest.update(element)
    return int.from_bytes(digest.digest(), "big")


def revision_hash(revision: bytes) -> int:
    """Return 64 bits that stand for a revision in an index."""
    return key_hash((revision,))


def key_name(key: Key) -> str:
    """Return a key as people read it: ``texts/setup.py@r7``, ``revisions@r7``."""
    *prefix, revision = (element.decode(errors="backslashreplace") for element in key)
    return f"{'/'.join(prefix)}@{revision}" if prefix else revision


def common_prefix(key: Key, parents: Iterable[Key]) -> Key:
    """Return what a key and its parents begin with; all of the key but its last element, where they are alike."""
    prefix = key[:-1]
    for parent in parents:
        while parent[: len(prefix)] != prefix or len(parent) <= len(prefix):
            prefix = prefix[:-1]
    return prefix
