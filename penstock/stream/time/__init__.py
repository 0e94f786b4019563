"""Time: the marks that writers note, the watermarks that they add up to, and the time windows of readers.

A mark is a writer's promise that everything up to a time is written. A watermark is what all writers together promise.
``CutFinder`` turns a time into a cut.
"""

from penstock.stream.time._marks import bound_of
from penstock.stream.time._watermark_times import NO_TIMES, Steps, WatermarkTimes, times_column
from penstock.stream.time._watermarks import CutFinder, Watermarks
from penstock.stream.time._writer_marks import WriterMarks

__all__ = [
    "NO_TIMES",
    "CutFinder",
    "Steps",
    "WatermarkTimes",
    "Watermarks",
    "WriterMarks",
    "bound_of",
    "times_column",
]
