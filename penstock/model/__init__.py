"""Frozen values that every layer shares."""

from penstock.model._checks import (
    as_list,
    check_kind,
    check_many,
    check_method,
    check_positive,
    check_timeout,
    check_whole,
    shown,
)
from penstock.model._config import (
    SEGMENTS_MAX,
    ByConsumption,
    ByDataRate,
    ByEventRate,
    BySize,
    ByTime,
    Fixed,
    Retention,
    Scaling,
    StreamConfig,
    check_segments,
)
from penstock.model._infos import Checkpoint, Lag, SegmentInfo, StreamInfo
from penstock.model._names import check_name, check_stream_name
from penstock.model._places import EventPointer, Position, SegmentRange, StreamCut
from penstock.model._plog_id import PlogId
from penstock.model._times import TIME_MAX, NextCut, Place, TimeWindow, Watermark, as_time, check_time

__all__ = [
    "SEGMENTS_MAX",
    "TIME_MAX",
    "ByConsumption",
    "ByDataRate",
    "ByEventRate",
    "BySize",
    "ByTime",
    "Checkpoint",
    "EventPointer",
    "Fixed",
    "Lag",
    "NextCut",
    "Place",
    "PlogId",
    "Position",
    "Retention",
    "Scaling",
    "SegmentInfo",
    "SegmentRange",
    "StreamConfig",
    "StreamCut",
    "StreamInfo",
    "TimeWindow",
    "Watermark",
    "as_list",
    "as_time",
    "check_kind",
    "check_many",
    "check_method",
    "check_name",
    "check_positive",
    "check_segments",
    "check_stream_name",
    "check_time",
    "check_timeout",
    "check_whole",
    "shown",
]
