"""The options of ``stream create`` and ``update`` for scaling, retention and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._options import option_names
from penstock.cli._values import parse_duration, parse_size
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.model import Retention, Scaling

__all__ = [
    "KeysOption",
    "RetentionConsumptionOption",
    "RetentionSizeOption",
    "RetentionTimeOption",
    "ScaleBytesOption",
    "ScaleEventsOption",
    "TagOption",
    "given_retention",
    "given_scaling",
    "given_tags",
]

RetentionTimeOption = Annotated[
    str | None, typer.Option("--retention-time", metavar="7d", help="Remove events that are older.")
]
RetentionSizeOption = Annotated[
    str | None, typer.Option("--retention-size", metavar="10GB", help="Remove the oldest events above this size.")
]
RetentionConsumptionOption = Annotated[
    bool, typer.Option("--retention-consumption", help="Remove events that every reader group and consumer has read.")
]
ScaleEventsOption = Annotated[
    float | None,
    typer.Option("--scale-events", metavar="N", help="Split segments that receive more than N events per second."),
]
ScaleBytesOption = Annotated[
    str | None,
    typer.Option(
        "--scale-bytes", metavar="1MB", help="Split segments that receive more than this many bytes per second."
    ),
]
KeysOption = Annotated[
    bool | None,
    typer.Option(
        "--keys/--no-keys", help="Store the keys of events (the default), or use them only to select segments."
    ),
]
TagOption = Annotated[list[str] | None, typer.Option("--tag", metavar="T", help="A tag; may be repeated.")]


def given_scaling(events: float | None, size: str | None, *, fixed: bool = False) -> Scaling | None:
    """Return the scaling policy; None if no option sets it."""
    from penstock.model import ByDataRate, ByEventRate, Fixed

    _check_one({"--scale-events": events is not None, "--scale-bytes": size is not None, "--no-scaling": fixed})
    if events is not None:
        with option_names(target="--scale-events"):
            return ByEventRate(events)
    if size is not None:
        with option_names(target="--scale-bytes"):
            return ByDataRate(parse_size("--scale-bytes", size))
    return Fixed() if fixed else None


def given_retention(
    time: str | None, size: str | None, *, by_consumption: bool, none: bool = False
) -> Retention | None:
    """Return the retention policy; None if everything is kept, or no option sets it."""
    from penstock.model import ByConsumption, BySize, ByTime

    _check_one(
        {
            "--retention-time": time is not None,
            "--retention-size": size is not None,
            "--retention-consumption": by_consumption,
            "--no-retention": none,
        }
    )
    if time is not None:
        with option_names(seconds="--retention-time"):
            return ByTime(parse_duration("--retention-time", time))
    if size is not None:
        with option_names(size_bytes="--retention-size"):
            return BySize(parse_size("--retention-size", size))
    return ByConsumption() if by_consumption else None


def given_tags(tags: Sequence[str] | None, *, none: bool = False) -> tuple[str, ...]:
    """Return the tags of a stream."""
    _check_one({"--tag": bool(tags), "--no-tags": none})
    return tuple(tags or ())


def _check_one(given: dict[str, bool]) -> None:
    """Refuse options that contradict each other."""
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise BadArgument(f"{' and '.join(names)} contradict each other: give one of them")
