"""The four knit kinds: full texts and deltas on the first parent, with or without the origin of each line.

A record is made of lines, and names its version, which is the last element of its key, on the first and the last::

    version r2 4 2bcca069649a5762d0687e71baa6fffee3934511     how many lines lie between; the sha1 of the full text
    1,2,1                                                     a hunk: in the first parent, lines from 1 to before 2, ...
    BETA                                                      ... counted from 0, become this one line
    3,3,1
    delta
    end r2

A full text has its lines there, and no hunks. Hunks are in order and do not overlap. Every line of a record ends in a
newline; ``compressor_data`` says ``noeol`` where the last line of the text has none. The annotated kinds have the
version that a line comes from, and a space, before each line of the text.

Breezy reads more than this: hunks past the end of the first parent, numbers such as ``+1``. Here that is `BadRecord`.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import BadArgument, BadRecord
from penstock.model import shown
from penstock.repo._keys import check_key
from penstock.repo.kinds._basis import basis_text
from penstock.repo.kinds._lines import count_lines, line_ends, start_of
from penstock.repo.kinds._matching import differing_hunks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from penstock.repo._keys import Key
    from penstock.repo.kinds._basis import GetText

__all__ = ["decode_knit_delta", "decode_knit_text", "encode_knit_delta", "encode_knit_text"]

_HEADER: Final = re.compile(rb"version (\S+) (\d{1,18}) ([0-9a-f]{40})\n")
_HEADER_SIZE_MAX: Final = len("version  ") + 18 + 1 + 40 + 1  # without the version
_HUNK: Final = re.compile(rb"(\d{1,18}),(\d{1,18}),(\d{1,18})\n")
_NEWLINE: Final = 10


def encode_knit_text(text: bytes, *, key: Key, origins: Sequence[bytes] | None) -> tuple[bytes, dict[str, Any]]:
    """Return a full text as a record, annotated if the origins of its lines are given."""
    noeol = _is_noeol(text)
    body = [text, b"\n"] if noeol else [text]
    if origins is not None:
        body = _annotated(text.split(b"\n"), origins)
    return _record(text, body, count_lines(text), key=key), {"noeol": noeol}


def encode_knit_delta(
    text: bytes, basis: bytes, *, key: Key, origins: Sequence[bytes] | None
) -> tuple[bytes, dict[str, Any]]:
    """Return a text as a record of the hunks in which it differs from the basis."""
    body: list[bytes] = []
    lines = 0
    for start, end, new_start, new_lines in differing_hunks(basis, text):
        count = len(new_lines)
        lines += 1 + count
        if origins is not None:
            body += (
                b"%d,%d,%d\n" % (start, end, count),
                *_annotated(new_lines, origins[new_start : new_start + count]),
            )
        elif count:
            body.append(b"%d,%d,%d\n%b\n" % (start, end, count, b"\n".join(new_lines)))
        else:
            body.append(b"%d,%d,0\n" % (start, end))
    return _record(text, body, lines, key=key), {"noeol": _is_noeol(text)}


def decode_knit_text(data: bytes | memoryview, *, key: Key, compressor_data: object, annotated: bool) -> bytes:
    """Return the text of a record that holds it in full."""
    noeol = _noeol_of(compressor_data, key=key)
    body, _, sha1 = _body_of(data, key=key)
    content = _without_origins(body, key=key) if annotated else body
    return _checked_text(content, sha1, key=key, noeol=noeol)


def decode_knit_delta(
    data: bytes | memoryview,
    *,
    key: Key,
    parents: Sequence[Key],
    compressor_data: object,
    get_text: GetText,
    annotated: bool,
) -> bytes:
    """Return the text of a record that holds the hunks in which it differs from the first parent."""
    noeol = _noeol_of(compressor_data, key=key)
    body, ends, sha1 = _body_of(data, key=key)
    if not parents:
        raise BadRecord(key, "a delta without a parent")
    basis = basis_text(get_text, parents[0], key=key)
    if _is_noeol(basis):
        basis += b"\n"
    basis_ends, basis_view = line_ends(basis), memoryview(basis)
    pieces: list[bytes | memoryview] = []
    row = copied = 0
    while row < ends.size:
        start, end, count = _hunk(body[start_of(ends, row) : ends[row]], row, key=key)
        row += 1
        if not copied <= start <= end:
            raise BadRecord(key, f"hunk {start},{end},{count} is out of order: the one before it ends at {copied}")
        if end > basis_ends.size:
            raise BadRecord(key, f"hunk {start},{end},{count} goes past the {basis_ends.size} lines of the parent")
        if count > ends.size - row:
            raise BadRecord(key, f"hunk {start},{end},{count} has more lines than the record")
        content = body[start_of(ends, row) : start_of(ends, row + count)]
        pieces.append(basis_view[start_of(basis_ends, copied) : start_of(basis_ends, start)])
        pieces.append(_without_origins(content, key=key) if annotated else content)
        row, copied = row + count, end
    pieces.append(basis_view[start_of(basis_ends, copied) :])
    return _checked_text(b"".join(pieces), sha1, key=key, noeol=noeol)


def _hunk(line: memoryview, row: int, *, key: Key) -> tuple[int, int, int]:
    match = _HUNK.fullmatch(line)
    if match is None:
        raise BadRecord(key, f"line {row + 1} is not a hunk, which is start,end,count")
    return int(match[1]), int(match[2]), int(match[3])


def _is_noeol(text: bytes) -> bool:
    return text != b"" and not text.endswith(b"\n")


def _version_of(key: Key) -> bytes:
    check_key(key)
    return _checked_version(key[-1])


def _checked_version(version: bytes) -> bytes:
    """Return the name of a version, if the first line of a record can carry it, which is split at spaces."""
    if version.split() != [version]:
        raise BadArgument(f"invalid version {shown(version)} for a knit record: use bytes without whitespace")
    return version


def _record(text: bytes, body: Iterable[bytes], lines: int, *, key: Key) -> bytes:
    version = _version_of(key)
    header = b"version %b %d %b\n" % (version, lines, _sha1(text))
    return b"".join((header, *body, b"end %b\n" % version))


def _body_of(data: bytes | memoryview, *, key: Key) -> tuple[memoryview, NDArray[np.int64], bytes]:
    """Return what lies between the first line of a record and its last, where its lines end, and the sha1."""
    version, view = _version_of(key), memoryview(data)
    match = _HEADER.match(view[: len(version) + _HEADER_SIZE_MAX])
    if match is None or match[1] != version:
        raise BadRecord(key, f"its header is not {shown(b'version %b COUNT SHA1' % version)}")
    end_line = b"end %b\n" % version
    end = len(view) - len(end_line)
    if end < match.end() or view[end:] != end_line:
        raise BadRecord(key, f"its last line is not {shown(end_line[:-1])}")
    body = view[match.end() : end]
    ends = line_ends(body)
    if ends.size != int(match[2]):
        raise BadRecord(key, f"its header says {int(match[2])} lines, and it has {ends.size}")
    if len(body) and body[-1] != _NEWLINE:
        raise BadRecord(key, f"its last line is not {shown(end_line[:-1])}, on a line of its own")
    return body, ends, match[3]


def _noeol_of(compressor_data: object, *, key: Key) -> bool:
    """Return whether the last line of a text has no newline: all that compressor data say, before a basis is needed."""
    match compressor_data:
        case {"noeol": bool(noeol), **others} if not others:
            return noeol
    raise BadRecord(key, f"its compressor data {shown(compressor_data)} do not say whether noeol is true, and no more")


def _checked_text(content: bytes | memoryview, sha1: bytes, *, key: Key, noeol: bool) -> bytes:
    """Return the text that lines of a record make up, if it is the one that the record was made of."""
    if noeol:
        if not content:
            raise BadRecord(key, "a text without lines cannot be noeol")
        content = memoryview(content)[:-1]
    actual = _sha1(content)
    if actual != sha1:
        raise BadRecord(key, f"the text has the sha1 {actual.decode()}, and the record says {sha1.decode()}")
    return bytes(content)


def _sha1(text: bytes | memoryview) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _annotated(lines: list[bytes], origins: Sequence[bytes]) -> list[bytes]:
    for origin in set(origins):
        _checked_version(origin)
    return [b"%b %b\n" % annotated for annotated in zip(origins, lines, strict=False)]


def _without_origins(content: memoryview, *, key: Key) -> bytes:
    lines = bytes(content).split(b"\n")
    if not all(line.find(b" ") > 0 for line in lines[:-1]):
        raise BadRecord(key, "a line has no origin before it")
    return b"\n".join([line.partition(b" ")[2] for line in lines])
