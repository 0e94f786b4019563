"""The output of the stream commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import count_of, duration, figure, print_json, print_rows, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.model import Retention, Scaling, StreamCut, StreamInfo

__all__ = ["NameArgument", "as_dict", "config_of", "print_change", "print_stream"]

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stream: scope/name.")]


def as_dict(info: StreamInfo) -> dict[str, object]:
    """Return the JSON object of a stream."""
    import msgspec

    return {
        "name": info.name,
        "state": info.state,
        "epoch": info.epoch,
        "segments": [{"segment_id": part.segment_id, "low": part.low, "high": part.high} for part in info.segments],
        "config": msgspec.to_builtins(info.config),
        "events": info.events,
        "size_bytes": info.size_bytes,
        "head": str(info.head),
        "tail": str(info.tail),
    }


def print_change(info: StreamInfo, change: str, *, as_json: bool) -> None:
    """Print a change of a stream."""
    if as_json:
        print_json(as_dict(info))
    else:
        typer.echo(f"{info.name}: {change}")


def print_stream(info: StreamInfo, watermark: str, consumers: Mapping[str, StreamCut]) -> None:
    """Print the details of a stream."""
    print_rows(
        ("", ""),
        [
            ("name", info.name),
            ("state", info.state),
            ("events", figure(info.events)),
            ("size", size(info.size_bytes)),
            ("scaling", _scaling(info.config.scaling)),
            ("retention", _retention(info.config.retention)),
            ("keys", "stored" if info.config.keep_keys else "not stored"),
            ("tags", ",".join(info.config.tags)),
            ("head", str(info.head)),
            ("tail", str(info.tail)),
            ("watermark", watermark),
            ("epoch", str(info.epoch)),
            *((f"segment {part.segment_id}", f"{part.low!r}-{part.high!r}") for part in info.segments),
            *((f"consumer {name}", str(cut)) for name, cut in consumers.items()),
        ],
    )


def segments_of(info: StreamInfo) -> str:
    """Return the number of segments as text."""
    return count_of(len(info.segments), "segment")


def created_as(info: StreamInfo) -> str:
    """Return the number of segments and the retention, if there is any, as one line."""
    retention = "" if info.config.retention is None else f", retention {_retention(info.config.retention)}"
    return segments_of(info) + retention


def config_of(info: StreamInfo) -> str:
    """Return the configuration of a stream as one line."""
    tags = f", tags {','.join(info.config.tags)}" if info.config.tags else ""
    keys = "" if info.config.keep_keys else ", keys not stored"
    return f"scaling {_scaling(info.config.scaling)}, retention {_retention(info.config.retention)}{keys}{tags}"


def _scaling(scaling: Scaling) -> str:
    from penstock.model import ByDataRate, ByEventRate

    match scaling:
        case ByEventRate():
            return f"above {scaling.target:g} events/s per segment"
        case ByDataRate():
            return f"above {size(int(scaling.target))}/s per segment"
        case _:
            return "fixed"


def _retention(retention: Retention | None) -> str:
    from penstock.model import ByConsumption, BySize, ByTime

    match retention:
        case ByTime():
            return f"time {duration(retention.seconds)}"
        case BySize():
            return f"size {size(retention.size_bytes)}"
        case ByConsumption():
            return "consumption"
        case _:
            return "none"
