"""Operations about streams: what they are, where their events are, and who needs them."""

from typing import Literal

from penstock.wire.operations._arguments import (
    Challenge,
    Cut,
    Cuts,
    KeyRanges,
    Limit,
    Name,
    Number,
    Place,
    Pointer,
    Seconds,
    SegmentCount,
    SegmentIds,
    Settings,
    StreamName,
    Time,
    Times,
)
from penstock.wire.operations._operation import Operation, declare


class _OfStream(Operation):
    name: StreamName


@declare("create_stream", "admin")
class CreateStream(_OfStream):
    """Create a stream; repeated, it might find the one that it has created itself."""

    segments: SegmentCount | None
    config: Settings | None
    exist_ok: bool

    @property
    def may_repeat(self) -> bool:
        """Whether one that is there is what was asked for."""
        return self.exist_ok


@declare("streams", "read", "unchecked", repeats=True)
class ListStreams(Operation):
    """List the streams that the user may read."""

    scope: Name | None


@declare("stream", "read", repeats=True)
class Info(_OfStream):
    """Describe a stream."""


@declare("stream_segments", "read", repeats=True)
class ListSegments(_OfStream):
    """List the segments of a stream, from its head to its tail."""


@declare("update_stream", "admin", repeats=True)
class Update(_OfStream):
    """Replace the configuration of a stream."""

    config: Settings


@declare("scale_stream", "admin")
class Scale(_OfStream):
    """End some segments and go on in new ones."""

    seal: SegmentIds
    ranges: KeyRanges


@declare("seal_stream", "admin", repeats=True)
class SealStream(_OfStream):
    """Let a stream take no more events."""


@declare("delete_stream", "admin")
class DeleteStream(_OfStream):
    """Delete a sealed stream."""


@declare("truncate_stream", "admin")
class TruncateStream(_OfStream):
    """Delete what lies before a place."""

    cut: Place


@declare("maintain", "admin", "store", repeats=True)
class Maintain(Operation):
    """Scale and truncate all streams as their configuration says."""


# Places and times


@declare("head", "read", repeats=True)
class Head(_OfStream):
    """Return where a stream begins."""


@declare("tail", "read", repeats=True)
class Tail(_OfStream):
    """Return where a stream ends."""


@declare("segment_ranges", "read", repeats=True)
class SegmentRanges(_OfStream):
    """Divide a stream among parallel readers."""

    start: Place | None
    end: Place | None
    approx_bytes: Limit | None


@declare("next_cut", "read", repeats=True)
class FindNextCut(_OfStream):
    """Return how far to read next."""

    start: Cut
    end: Cut | None
    max_bytes: Limit | None
    max_events: Limit | None
    align: bool
    skip_truncated: bool


@declare("watermarks", "read", repeats=True)
class GetWatermarks(_OfStream):
    """Return the watermarks between two times, or cuts."""

    start: Cut | Time | None
    end: Cut | Time | None


@declare("watermark", "read", repeats=True)
class LastWatermark(_OfStream):
    """Return the last watermark."""


@declare("add_watermarks", "admin", repeats=True)
class AddWatermarks(_OfStream):
    """Write watermarks behind the last one."""

    lower: Times
    upper: Times
    cuts: Cuts


@declare("cut_at_time", "read", repeats=True)
class CutAtTime(_OfStream):
    """Return where a stream was at a time."""

    time: Time
    bound: Literal["lower", "upper"]
    by: Literal["watermark", "append"] | None


@declare("time_window", "read", "pointer", repeats=True)
class GetTimeWindow(Operation):
    """Return between which times an event is."""

    pointer: Pointer


@declare("times", "read", repeats=True)
class GetTimes(Operation):
    """Return the times of a segment's events, from one offset to another."""

    stream: StreamName
    segment: Number
    first: Number
    last: Number


# Consumers


@declare("register_consumer", "consume", repeats=True)
class RegisterConsumer(_OfStream):
    """Register a consumer, for which retention by consumption waits."""

    consumer: Name
    cut: Place | None
    lease_s: Seconds | None


@declare("consumers", "read", repeats=True)
class ListConsumers(_OfStream):
    """Return the consumers of a stream, and how far each has come."""


@declare("consumer_times", "read", repeats=True)
class ListConsumerTimes(_OfStream):
    """Return the consumers of a stream, and when each has moved."""


@declare("unregister_consumer", "consume", repeats=True)
class UnregisterConsumer(_OfStream):
    """Forget a consumer."""

    consumer: Name


# Segments and their blocks


@declare("segment_at", "read", "pointer", repeats=True)
class SegmentAt(Operation):
    """Return the state of the segment in which an event is."""

    pointer: Pointer


@declare("watch", "read", repeats=True)
class Watch(Operation):
    """Notify the client whenever a segment changes."""

    stream: StreamName
    segment: Number


@declare("unwatch", "read", repeats=True)
class Unwatch(Operation):
    """End the notifications of a segment."""

    stream: StreamName
    segment: Number


@declare("locate", "read", repeats=True)
class Locate(Operation):
    """Return in which files or objects the blocks of a segment are, for a client with direct access to them."""

    stream: StreamName
    segment: Number
    offset: Number
    end: Number


@declare("blocks", "read", repeats=True)
class GetBlocks(Operation):
    """Send the blocks of a segment, as the ticket of a DoGet."""

    stream: StreamName
    segment: Number
    offset: Number
    end: Number


@declare("access.probe", "read", repeats=True)
class Probe(Operation):
    """Make an access probe: a file that shows whether the client has direct access."""

    stream: StreamName
    segment: Number
    offset: Number
    challenge: Challenge


@declare("access.end", "read", "unchecked", repeats=True)
class EndProbe(Operation):
    """Remove an access probe."""

    number: Number
