"""How a stream is kept: what is refused, and that it is stored as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from penstock.errors import BadArgument
from penstock.model import (
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
)

if TYPE_CHECKING:
    from collections.abc import Callable

NO_FIGURES = [0, -1, math.nan, math.inf, 10**400, True, np.float64(5), "5", None]


@pytest.mark.parametrize(
    "scaling", [Fixed(), Fixed(4), ByEventRate(1000.5), ByDataRate(1 << 20, factor=4, min_segments=SEGMENTS_MAX)]
)
@pytest.mark.parametrize("retention", [None, ByTime(0.5), BySize(1 << 40), ByConsumption()])
def test_a_configuration_comes_back_as_it_was_stored(scaling: Scaling, retention: Retention | None) -> None:
    """Every kind has its own tag, so none is taken for another."""
    config = StreamConfig(
        scaling=scaling, retention=retention, timestamp_aggregation_timeout=5.0, tags=("plant", "größe")
    )
    for form in (msgspec.msgpack, msgspec.json):
        assert form.decode(form.encode(config), type=StreamConfig) == config


def test_a_stream_stays_as_it_is_and_keeps_everything_by_default() -> None:
    """Neither segments nor events may go without being asked for."""
    config = StreamConfig()
    assert (config.scaling, config.retention, config.tags) == (Fixed(), None, ())
    assert config.timestamp_aggregation_timeout == 60.0


def test_the_stored_form_never_changes() -> None:
    """It stands in catalogs on disk; a field that is added has a default."""
    config = StreamConfig(scaling=ByEventRate(100.0), retention=ByTime(60.0), tags=("a",))
    assert msgspec.json.encode(config) == (
        b'{"scaling":{"type":"event-rate","target":100.0,"factor":2,"min_segments":1},'
        b'"retention":{"type":"time","seconds":60.0},"timestamp_aggregation_timeout":60.0,"tags":["a"],'
        b'"keep_keys":true}'
    )
    assert msgspec.json.decode(b"{}", type=StreamConfig) == StreamConfig()


@pytest.mark.parametrize("figure", NO_FIGURES)
@pytest.mark.parametrize("make", [ByTime, BySize, ByEventRate, ByDataRate])
def test_a_figure_that_cannot_be_is_refused(make: Callable[[Any], object], figure: object) -> None:
    """When it is made, not when the first event has grown old."""
    with pytest.raises(BadArgument):
        make(figure)


@pytest.mark.parametrize("size", [1e9, 1.5])
def test_a_size_is_whole(size: int) -> None:
    """A stored float would be refused when it is read, and with it the whole catalog."""
    with pytest.raises(BadArgument, match="use a whole number"):
        BySize(size)


@pytest.mark.parametrize("count", [0, -1, SEGMENTS_MAX + 1, 1.5, 2.0, True, "2"])
def test_a_number_of_segments_that_cannot_be_is_refused(count: int) -> None:
    """The message says how many there can be."""
    for make in (Fixed, lambda least: ByEventRate(1, min_segments=least), lambda least: ByDataRate(1, 2, least)):
        with pytest.raises(BadArgument, match="from 1 to 10,000"):
            make(count)


@pytest.mark.parametrize("factor", [1, 0, -2, 2.5, True, 2**63, "2", None])
def test_a_factor_that_does_not_split_is_refused(factor: int) -> None:
    """Into less than two parts nothing can be split, and there are no halves of parts."""
    with pytest.raises(BadArgument, match="factor"):
        ByEventRate(1, factor)
    with pytest.raises(BadArgument, match="factor"):
        ByDataRate(1, factor)


@pytest.mark.parametrize(
    "fields",
    [
        {"scaling": None},
        {"scaling": 4},
        {"retention": 3600},
        {"retention": Fixed()},
        {"timestamp_aggregation_timeout": 0},
        {"tags": "plant"},
        {"tags": ("",)},
        {"tags": (5,)},
        {"tags": ("\ud800",)},
        {"tags": ("x" * 257,)},
        {"tags": ("x",) * 129},
    ],
)
def test_a_configuration_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    """A text is a sequence of texts, too: that slip is refused as well."""
    with pytest.raises(BadArgument):
        StreamConfig(**fields)


def test_what_is_damaged_on_disk_is_not_taken_for_a_configuration() -> None:
    """The same checks are made when it is read."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"retention":{"type":"time","seconds":-1}}', type=StreamConfig)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"retention":{"type":"unheard-of"}}', type=StreamConfig)
