"""The origin of each line of a text: the version that the line has been there since."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import BadArgument, NoSuchKey
from penstock.repo._keys import key_name
from penstock.repo.kinds._lines import count_lines
from penstock.repo.kinds._matching import matching_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.repo._keys import Key
    from penstock.repo.kinds._basis import GetText

__all__ = ["GetAnnotations", "annotate"]

GetAnnotations: TypeAlias = "Callable[[Key], Sequence[bytes]]"


def annotate(
    text: bytes,
    *,
    key: Key,
    parents: Sequence[Key],
    get_text: GetText,
    get_annotations: GetAnnotations | None = None,
) -> list[bytes]:
    """Return the origin of each line of a text, as the last element of a key.

    A line that a parent has, too, has its origin there, which ``get_annotations`` knows: it returns what this function
    returned for the parent. Without it, the parent itself is the origin. Where several parents have the line, the last
    of them counts, as in Breezy. All other lines come from ``key``. Parents unknown to ``get_text`` are skipped.
    """
    origins = [key[-1]] * count_lines(text)
    for parent in parents:
        try:
            old = get_text(parent)
        except (KeyError, NoSuchKey):
            continue
        known = [parent[-1]] * count_lines(old) if get_annotations is None else get_annotations(parent)
        if len(known) != count_lines(old):
            raise BadArgument(
                f"get_annotations returned {len(known)} origins for the {count_lines(old)} lines of {key_name(parent)}"
            )
        for start, place, length in matching_runs(old, text):
            origins[place : place + length] = known[start : start + length]
    return origins
