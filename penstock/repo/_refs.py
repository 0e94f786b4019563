"""Names of revisions: branches, tags and ``HEAD``, in versions.

A key never changes its content, so every change of the names is a new text: ``(b"refs", b"0")``, ``(b"refs", b"1")``
and so on; the last one counts. It is found without reading the others. Two processes that change the names at once
want the same key, one of them gets a ``ContentConflict``, and tries again with the next. ::

    5f1d7a84db00d2fce00b31a7fc73224f9e6ae61f - HEAD
    5f1d7a84db00d2fce00b31a7fc73224f9e6ae61f - refs/heads/main
    5f1d7a84db00d2fce00b31a7fc73224f9e6ae61f 09c2… refs/tags/v1

A line has the revision, the id of an annotated tag or ``-``, and the name, sorted by name. The text of the tag, as git
has it, is stored under ``(b"tags", id, revision)``, and if it tags another tag, so is the text of that one. Searches by
revision do not find names; ``Everything`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.errors import BadRecord
from penstock.repo._quoting import quote, quote_word, unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.repo._items import Items
    from penstock.repo._keys import Key

__all__ = [
    "REFS",
    "TAGS",
    "Ref",
    "decode_refs",
    "encode_refs",
    "last_refs_key",
    "next_refs_key",
    "refs_keys",
    "tag_chain",
]

REFS: Final = b"refs"
TAGS: Final = b"tags"
_NONE: Final = b"-"


@dataclass(frozen=True, slots=True)
class Ref:
    """What a name stands for: a revision, and the id of the annotated tag if it is one."""

    revision: bytes
    tag: bytes | None = None

    @property
    def tag_key(self) -> Key | None:
        """The key of the annotated tag."""
        return None if self.tag is None else (TAGS, self.tag, self.revision)


def last_refs_key(items: Items) -> Key | None:
    """Return the key of the last version of the names, not of those that these items are stacked on; None without."""
    if not items.is_own(_key(0)):
        return None
    above = 1
    while items.is_own(_key(above)):
        above *= 2
    there = above // 2
    while above - there > 1:
        middle = (above + there) // 2
        there, above = (middle, above) if items.is_own(_key(middle)) else (there, middle)
    return _key(there)


def refs_keys(items: Items) -> Iterator[Key]:
    """Return the keys of all versions of the names, the last one first."""
    last = last_refs_key(items)
    if last is not None:
        yield from map(_key, range(int(last[-1]), -1, -1))


def next_refs_key(last: Key | None) -> Key:
    """Return the key of the version behind another one."""
    return _key(0 if last is None else int(last[-1]) + 1)


def encode_refs(refs: Mapping[bytes, Ref]) -> bytes:
    """Return the text of names and what they stand for."""
    return b"".join(
        b"%b %b %b\n" % (quote_word(ref.revision), quote_word(ref.tag or _NONE), quote(name))
        for name, ref in sorted(refs.items())
    )


def decode_refs(key: Key, text: bytes) -> dict[bytes, Ref]:
    """Return what names stand for; ``BadRecord`` if the text is invalid."""
    refs = {}
    try:
        for line in text.split(b"\n")[:-1]:
            revision, tag, name = map(unquote, line.split(b" ", 2))
            refs[name] = Ref(revision, None if tag == _NONE else tag)
    except ValueError:
        refs.clear()
    if encode_refs(refs) != text:
        raise BadRecord(key, "it is no list of names")
    return refs


def tag_chain(ref: Ref, get_tag: Callable[[Key], bytes | None]) -> Iterator[tuple[Key, bytes]]:
    """Return the annotated tag of a name, the tag that this one tags, and so on, as far as ``get_tag`` knows them."""
    seen: set[Key] = set()
    key = ref.tag_key
    while key is not None and key not in seen and (text := get_tag(key)) is not None:
        seen.add(key)
        yield key, text
        target, kind, *_ = [*text.split(b"\n", 2), b"", b""]
        key = (TAGS, target.removeprefix(b"object "), ref.revision) if kind == b"type tag" else None


def _key(number: int) -> Key:
    return REFS, b"%d" % number
