"""The text of a revision: who made it, when, and why, as git writes it.

::

    tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904
    parent 5f1d7a84db00d2fce00b31a7fc73224f9e6ae61f
    author Anna <anna@example.org> 1700000000 +0100
    committer Anna <anna@example.org> 1700000000 +0100

    Say why

The text is that of git's commit, byte by byte, but for its signature: where that is the last header, as git writes it,
it is stored under ``(b"signatures", revision)``. So the commit can be made again with its id, and the id of a revision
proves its text, its tree and its ancestors. A revision that does not come from git needs author, committer, an empty
line and a message.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from penstock.errors import BadRecord
from penstock.repo._keys import REVISIONS

__all__ = ["Person", "RevisionText", "commit_id", "join_signature", "split_signature"]

_PERSON: Final = re.compile(rb"(?P<name>.*?) ?(?P<time>-?\d{1,18}) (?P<zone>[+-]\d{4,9})", re.DOTALL)
_SIGNATURE: Final = b"gpgsig"
_SLOW_CODECS: Final = frozenset({"idna", "punycode"})  # for names of hosts; a long message would take minutes


@dataclass(frozen=True, slots=True)
class Person:
    """The author or the committer: name and address as they are written, the time in seconds since 1970, the zone."""

    name: bytes
    time: int
    zone: bytes


@dataclass(frozen=True, slots=True)
class RevisionText:
    """What the text of a revision says; ``headers`` has all of them in order, with their lines joined."""

    headers: tuple[tuple[bytes, bytes], ...]
    message: bytes

    @classmethod
    def parse(cls, revision: bytes, text: bytes) -> RevisionText:
        """Read the text of a revision; ``BadRecord`` if it is invalid."""
        head, is_split, message = text.partition(b"\n\n")
        if not is_split:
            head, message = head.removesuffix(b"\n"), b""
        headers: list[tuple[bytes, bytes]] = []
        for line in head.split(b"\n"):
            name, _, value = line.partition(b" ")
            if name:
                headers.append((name, value))
            elif headers:
                name, before = headers[-1]
                headers[-1] = name, before + b"\n" + value
        found = cls(tuple(headers), message)
        if found.header(b"author") is None or found.header(b"committer") is None:
            raise BadRecord((REVISIONS, revision), "it has no author and no committer")
        return found

    @property
    def author(self) -> Person:
        """The one who made the change."""
        return _person(self.header(b"author"))

    @property
    def committer(self) -> Person:
        """The one who committed it."""
        return _person(self.header(b"committer"))

    @property
    def encoding(self) -> str:
        """The encoding of names and message, UTF-8 if the text does not say."""
        return (self.header(b"encoding") or b"utf-8").decode("ascii", "replace")

    @property
    def parents(self) -> tuple[bytes, ...]:
        """The ids of the parents."""
        return tuple(value for name, value in self.headers if name == b"parent")

    def header(self, name: bytes) -> bytes | None:
        """Return the first header of a name; None if there is none."""
        return next((value for known, value in self.headers if known == name), None)

    def decoded(self, text: bytes) -> str:
        """Return a name or the message as people read it."""
        try:
            if codecs.lookup(self.encoding).name not in _SLOW_CODECS:
                decoded = text.decode(self.encoding)
                decoded.encode()  # some encodings have halves of characters, which nothing could print
                return decoded
        except (LookupError, ValueError):  # unknown, or of other texts than this one
            pass
        return text.decode("utf-8", "backslashreplace")


def commit_id(commit: bytes) -> bytes:
    """Return the id that git has for a commit."""
    return hashlib.sha1(b"commit %d\0%b" % (len(commit), commit), usedforsecurity=False).hexdigest().encode()


def split_signature(commit: bytes) -> tuple[bytes, bytes | None]:
    """Return the text of a revision and its signature, of a commit of git."""
    head, is_split, message = commit.partition(b"\n\n")
    before, is_signed, signature = head.rpartition(b"\n" + _SIGNATURE + b" ")
    lines = signature.split(b"\n")
    if not is_split or not is_signed or not all(line.startswith(b" ") for line in lines[1:]):
        return commit, None
    return before + b"\n\n" + message, b"\n".join([lines[0], *(line[1:] for line in lines[1:])])


def join_signature(text: bytes, signature: bytes | None) -> bytes:
    """Return the commit of git of which :func:`split_signature` has made a revision."""
    if signature is None:
        return text
    head, _, message = text.partition(b"\n\n")
    return b"".join([head, b"\n", _SIGNATURE, b" ", signature.replace(b"\n", b"\n "), b"\n\n", message])


def _person(text: bytes | None) -> Person:
    match = _PERSON.fullmatch(text or b"")
    if match is None:
        return Person(text or b"", 0, b"+0000")
    return Person(match["name"], int(match["time"]), match["zone"])
