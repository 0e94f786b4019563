"""The six storage kinds, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.errors import BadArgument, BadRecord
from penstock.model import check_kind, shown
from penstock.repo._keys import key_name
from penstock.repo.kinds._annotations import annotate
from penstock.repo.kinds._basis import basis_text
from penstock.repo.kinds._knit import decode_knit_delta, decode_knit_text, encode_knit_delta, encode_knit_text
from penstock.repo.kinds._mpdiff import decode_mpdiff, encode_mpdiff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.repo._keys import Key
    from penstock.repo.kinds._annotations import GetAnnotations
    from penstock.repo.kinds._basis import GetText

__all__ = ["KINDS", "decode", "encode"]

KINDS: Final = ("mpdiff", "knit-annotated-ft", "knit-annotated-delta", "knit-ft", "knit-delta", "fulltext")


def decode(
    kind: str,
    data: bytes | memoryview,
    *,
    key: Key,
    parents: Sequence[Key],
    compressor_data: dict[str, Any] | None,
    get_text: GetText,
) -> bytes:
    """Return the text that ``data`` stands for.

    ``get_text`` returns the text of a parent, and raises ``KeyError`` or `NoSuchKey` for a key that it does not know,
    which is `MissingBasis` then. Knit records carry the sha1 of the text, and the text is checked against it; the
    other kinds do not. Data that are damaged, or not of this kind and key, are `BadRecord`.
    """
    match kind:
        case "knit-ft" | "knit-annotated-ft":
            annotated = kind == "knit-annotated-ft"
            return decode_knit_text(data, key=key, compressor_data=compressor_data, annotated=annotated)
        case "knit-delta" | "knit-annotated-delta":
            return decode_knit_delta(
                data,
                key=key,
                parents=parents,
                compressor_data=compressor_data,
                get_text=get_text,
                annotated=kind == "knit-annotated-delta",
            )
        case "mpdiff" | "fulltext" if compressor_data is not None:
            raise BadRecord(key, f"the kind {kind} has no compressor data, and it has {shown(compressor_data)}")
        case "mpdiff":
            return decode_mpdiff(data, key=key, parents=parents, get_text=get_text)
        case "fulltext":
            return bytes(data)
        case _:
            raise BadRecord(key, f"unknown storage kind {shown(kind)}: the kinds are {', '.join(KINDS)}")


def encode(
    kind: str,
    text: bytes,
    *,
    key: Key,
    parents: Sequence[Key],
    get_text: GetText,
    get_annotations: GetAnnotations | None = None,
) -> tuple[bytes, dict[str, Any] | None]:
    """Return the data that stand for ``text``, and its compressor data.

    The deltas of knits build on the first parent, mpdiffs on all that ``get_text`` knows. The annotated kinds say where
    each line comes from, as `annotate` does with ``get_annotations``.
    """
    check_kind("text", text, bytes)
    match kind:
        case "fulltext":
            return text, None
        case "mpdiff":
            return encode_mpdiff(text, parents=parents, get_text=get_text), None
        case "knit-ft":
            return encode_knit_text(text, key=key, origins=None)
        case "knit-annotated-ft":
            origins = annotate(text, key=key, parents=parents, get_text=get_text, get_annotations=get_annotations)
            return encode_knit_text(text, key=key, origins=origins)
        case "knit-delta" | "knit-annotated-delta" if not parents:
            raise BadArgument(f"{key_name(key)} has no parent: encode it as a full text, not as {kind}")
        case "knit-delta":
            return encode_knit_delta(text, basis_text(get_text, parents[0], key=key), key=key, origins=None)
        case "knit-annotated-delta":
            basis = basis_text(get_text, parents[0], key=key)
            # Lines of the first parent are in no hunk, so only the others can be the origin of a line in one.
            origins = annotate(text, key=key, parents=parents[1:], get_text=get_text, get_annotations=get_annotations)
            return encode_knit_delta(text, basis, key=key, origins=origins)
        case _:
            raise BadArgument(f"unknown storage kind {shown(kind)}: use one of {', '.join(KINDS)}")
