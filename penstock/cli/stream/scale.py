"""``penstock stream scale``: split and merge segments."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.cli._store import STORE_DEFAULT, StoreOption, existing_store
from penstock.cli._values import parse_ranges, parse_segments
from penstock.cli.stream._info import NameArgument, print_change, segments_of
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import StreamInfo

EXAMPLE = "penstock stream scale plant/readings --split 0"


def scale(
    name: NameArgument,
    *,
    split: Annotated[str | None, typer.Option(metavar="0", help="Split each of these segments in two.")] = None,
    merge: Annotated[str | None, typer.Option(metavar="1,2", help="Merge these neighbours into one segment.")] = None,
    seal: Annotated[
        str | None, typer.Option(metavar="0,1", help="Replace these segments with those of --ranges.")
    ] = None,
    ranges: Annotated[
        str | None, typer.Option(metavar="0-0.5,0.5-1", help="The key ranges of the new segments, with --seal.")
    ] = None,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Split or merge the segments of a stream; --seal and --ranges together make any other change."""
    if [split is not None, merge is not None, seal is not None or ranges is not None].count(True) != 1:
        raise BadArgument("give one of --split, --merge, or --seal together with --ranges")
    if (seal is None) != (ranges is None):
        raise BadArgument("--seal and --ranges go together: give both")
    given = {"--split": split, "--merge": merge, "--seal": seal}
    option, value = next((name, text) for name, text in given.items() if text is not None)
    segments = parse_segments(option, value)
    new = parse_ranges("--ranges", ranges) if ranges is not None else None
    with existing_store(store) as opened:
        if new is None:
            low_high = _ranges_of(opened.stream(name), segments)
            new = _halves(low_high) if split is not None else _whole(low_high)
        info = opened.scale_stream(name, segments, new)
    print_change(info, segments_of(info), as_json=as_json)


def _ranges_of(info: "StreamInfo", segments: "Sequence[int]") -> list[tuple[float, float]]:
    """Return the ranges of segments; the store refuses those that the stream does not have."""
    return [(segment.low, segment.high) for segment in info.segments if segment.segment_id in segments]


def _halves(ranges: "Sequence[tuple[float, float]]") -> list[tuple[float, float]]:
    middles = [(low + high) / 2 for low, high in ranges]
    return [half for (low, high), mid in zip(ranges, middles, strict=True) for half in ((low, mid), (mid, high))]


def _whole(ranges: "Sequence[tuple[float, float]]") -> list[tuple[float, float]]:
    return [(min(low for low, _ in ranges), max(high for _, high in ranges))] if ranges else []
