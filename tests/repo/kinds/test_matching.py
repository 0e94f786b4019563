"""Which lines two texts have in common."""

from __future__ import annotations

import random
import time
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.repo.kinds._matching import matching_runs

if TYPE_CHECKING:
    from collections.abc import Callable

TEXTS: Final = st.builds(
    lambda lines, newline: b"\n".join(lines) + newline,
    st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"", b"\r"]), max_size=25),
    st.sampled_from([b"", b"\n"]),
)


def lines_of(text: bytes) -> list[bytes]:
    return [line + b"\n" for line in text.split(b"\n")[:-1]] + [last for last in text.split(b"\n")[-1:] if last]


def matched(old: bytes, new: bytes) -> int:
    """Return how many lines are matched; they are equal, and in the same order in both."""
    a, b = lines_of(old), lines_of(new)
    total = i = j = 0
    for start, new_start, length in matching_runs(old, new):
        assert start >= i
        assert new_start >= j
        assert a[start : start + length] == b[new_start : new_start + length]
        assert len(a[start : start + length]) == length > 0
        i, j, total = start + length, new_start + length, total + length
    return total


@given(TEXTS, TEXTS)
def test_runs_are_equal_and_in_order(old: bytes, new: bytes) -> None:
    """A run that is not is a text that nobody gets back."""
    matched(old, new)
    assert matched(old, old) == len(lines_of(old))


@pytest.mark.parametrize("longest", [60, 400], ids=["short", "long"])
def test_as_many_lines_are_matched_as_by_difflib(longest: int) -> None:
    """A match that is overlooked makes a delta longer for ever; difflib takes minutes where this takes seconds.

    In long texts, changes are far apart, and most of them are found without hashing the lines between them.
    """
    numbers = random.Random(7)
    ours = theirs = 0
    for _ in range(18_000 // longest):
        old = [b"line %d\n" % numbers.randrange(longest * 2 // 3) for _ in range(numbers.randrange(longest))]
        new = list(old)
        for _ in range(numbers.randrange(6)):
            start = numbers.randrange(len(new) + 1)
            new[start : start + numbers.randrange(4)] = [b"line %d\n" % numbers.randrange(40)] * numbers.randrange(4)
        ours += matched(b"".join(old), b"".join(new))
        theirs += sum(block.size for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    assert ours >= 0.98 * theirs


def test_longer_of_two_swapped_parts_is_the_one_that_stays() -> None:
    """Otherwise a short function that is moved would make the delta as long as the file."""
    short, long = [b"s%d\n" % n for n in range(5)], [b"l%d\n" % n for n in range(100)]
    assert matching_runs(b"".join(short + long), b"".join(long + short)) == [(5, 0, 100)]


@pytest.mark.parametrize("case", ["equal", "distinct", "shuffled", "twice", "two", "alternating"])
def test_no_text_takes_longer_than_its_size(case: str) -> None:
    """A text that somebody else wrote must not stop a server: ten times the lines take about ten times as long."""

    def texts(size: int) -> tuple[bytes, bytes]:
        numbers = random.Random(size)
        lines: dict[str, Callable[[], list[bytes]]] = {
            "equal": lambda: [b"x\n"] * size,
            "distinct": lambda: [b"%d\n" % numbers.getrandbits(64) for _ in range(size)],
            "shuffled": lambda: numbers.sample([b"%d\n" % n for n in range(size)], size),
            "twice": lambda: numbers.sample([b"%d\n" % (n // 2) for n in range(size)], size),
            "two": lambda: numbers.choices([b"x\n", b"y\n"], k=size),
            "alternating": lambda: [
                line for n in range(size // 2) for line in (b"%d\n" % n, numbers.randbytes(4).hex().encode() + b"\n")
            ],
        }
        return b"<\n" + b"".join(lines[case]()) + b">", b"[\n" + b"".join(lines[case]()) + b"]"

    def seconds(size: int) -> float:
        old, new = texts(size)
        found = []
        for _ in range(3):
            started = time.thread_time()
            matching_runs(old, new)
            found.append(time.thread_time() - started)
        return min(found)

    assert seconds(30_000) < 40 * max(seconds(3_000), 0.003)


def test_huge_line_is_compared_and_no_more() -> None:
    """A line of 100 MB is a text like others."""
    line = bytes(100_000_000)
    assert matching_runs(line + b"\nend\n", b"-" + line + b"\nend\n") == [(1, 1, 1)]
