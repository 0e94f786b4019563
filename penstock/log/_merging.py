"""The choice of plogs to merge: many small neighbours, as commits and large events leave them.

Plogs are classed by size. A plog is merged when it has enough neighbours of its class or a lower one, so that the
merged plog is of a higher class. Thus a byte is copied a few times at most, however many commits there are. A few plogs
of each class remain, and the plogs that are not small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["RUN_MIN", "SMALL_SIZE_MAX", "find_run"]

RUN_MIN: Final = 8  # merging fewer is not worth its cost
SMALL_SIZE_MAX: Final = 256 << 10  # above this, a file's overhead is small in proportion to its content
_CLASSES: Final = (
    (0, SMALL_SIZE_MAX >> 6),
    (SMALL_SIZE_MAX >> 6, SMALL_SIZE_MAX >> 3),
    (SMALL_SIZE_MAX >> 3, SMALL_SIZE_MAX),
)


def find_run(
    lengths: Sequence[int], starts: Sequence[int], *, largest: int, group: Callable[[int], int] | None = None
) -> range | None:
    """Return the neighbours to merge next, those of the smallest class first; None if every class has too few.

    ``starts`` are the plogs' offsets. The lengths to merge add up to at most ``largest``, and are of one group.
    """
    for least, most in _CLASSES:
        for run in _small_runs(lengths, most):
            for part in _cut(run, lengths, starts, largest=largest, group=group):
                if sum(lengths[place] >= least for place in part) >= RUN_MIN:
                    return part
    return None


def _small_runs(lengths: Sequence[int], limit: int) -> Iterator[range]:
    """Return the longest runs of neighbours up to the limit, if they are long enough."""
    first = 0
    for place in range(len(lengths) + 1):
        if place == len(lengths) or lengths[place] > limit:
            if place - first >= RUN_MIN:
                yield range(first, place)
            first = place + 1


def _cut(
    run: range, lengths: Sequence[int], starts: Sequence[int], *, largest: int, group: Callable[[int], int] | None
) -> Iterator[range]:
    """Cut a run into parts of at most ``largest`` bytes, each of one group."""
    first, size, kind = run.start, 0, None
    for place in run:
        other = None if group is None or not lengths[place] else group(starts[place])
        is_apart = other is not None and kind is not None and other != kind
        if is_apart or size + lengths[place] > largest:
            yield range(first, place)
            first, size = place, 0
        size, kind = size + lengths[place], kind if other is None else other
    yield range(first, run.stop)
