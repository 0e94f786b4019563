"""Writers' time marks, the watermarks that they add up to, and the time windows of readers."""

from penstock.stream.time._mark_log import MARK_LOG_SIZES
from penstock.stream.time._mark_times import NO_TIMES, MarkTimes, Steps, times_column
from penstock.stream.time._marks import MarkStatus, bound_of
from penstock.stream.time._watermarks import Watermarks

__all__ = [
    "MARK_LOG_SIZES",
    "NO_TIMES",
    "MarkStatus",
    "MarkTimes",
    "Steps",
    "Watermarks",
    "bound_of",
    "times_column",
]
