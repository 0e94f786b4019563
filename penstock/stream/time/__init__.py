"""Writers' time marks, the watermarks that they add up to, and the time windows of readers."""

from penstock.stream.time._cut_finder import CutFinder
from penstock.stream.time._mark_times import NO_TIMES, MarkTimes, Steps, times_column
from penstock.stream.time._marks import MarkStatus, bound_of
from penstock.stream.time._watermarks import Watermarks
from penstock.stream.time._writer_marks import WriterMarks

__all__ = [
    "NO_TIMES",
    "CutFinder",
    "MarkStatus",
    "MarkTimes",
    "Steps",
    "Watermarks",
    "WriterMarks",
    "bound_of",
    "times_column",
]
