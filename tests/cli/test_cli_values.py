"""Values as users type them, and figures as they read them."""

from __future__ import annotations

from datetime import UTC, datetime
from time import tzset
from typing import TYPE_CHECKING

import pytest

from penstock.cli._output import count_of, human_duration, human_size
from penstock.cli._values import (
    is_time,
    parse_append_time,
    parse_duration,
    parse_ranges,
    parse_segments,
    parse_size,
    parse_time,
)
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("500ms", 0.5), ("1.5h", 5400), ("7d", 604_800), ("2W", 1_209_600), ("3 min", 180), (".5m", 30)],
)
def test_duration(text: str, seconds: float) -> None:
    """All units are read, in small and in large letters."""
    assert parse_duration("--option", text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096B", 4096),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1.5MB", 1_500_000),
        ("10GB", 10**10),
        ("2 tib", 2**41),
    ],
)
def test_size(text: str, size: int) -> None:
    """One kB is a thousand bytes, KiB is 1024; whole numbers are exact, however large."""
    assert parse_size("--option", text) == size
    assert parse_size("--option", "9007199254740993B") == 9_007_199_254_740_993


def test_segments_and_ranges() -> None:
    """Ranges may be copied from what ``stream show`` prints, small ones too."""
    assert parse_segments("--option", "0") == [0]
    assert parse_segments("--option", "1, 2") == [1, 2]
    assert parse_ranges("--option", "0-0.5,0.5-1") == [(0.0, 0.5), (0.5, 1.0)]
    assert parse_ranges("--option", "0.0-1e-05, 1e-05-.5") == [(0.0, 1e-05), (1e-05, 0.5)]


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_duration, ""),
        (parse_duration, "d"),
        (parse_duration, "7"),
        (parse_duration, "-1d"),
        (parse_duration, "1d2h"),
        (parse_duration, "inf"),
        (parse_duration, "\N{ARABIC-INDIC DIGIT ONE}d"),
        (parse_duration, "9" * 5000),
        (parse_size, ""),
        (parse_size, "GB"),
        (parse_size, "10"),
        (parse_size, "1XB"),
        (parse_size, "-1"),
        (parse_size, "9" * 5000),
        (parse_segments, ""),
        (parse_segments, "0,"),
        (parse_segments, "-1"),
        (parse_segments, "0.5"),
        (parse_segments, "9" * 5000),
        (parse_ranges, ""),
        (parse_ranges, "0"),
        (parse_ranges, "0-1,"),
        (parse_ranges, "0-x"),
        (parse_ranges, "-1-1"),
        (parse_time, "2026-13-01"),
        (parse_time, "2026-11-15T25:00"),
        (parse_time, "yesterday"),
        (parse_time, "9" * 30),
        (parse_time, "9" * 5000),
    ],
)
def test_what_is_none_is_refused_with_an_example(parse: Callable[[str, str], object], text: str) -> None:
    """The message shows how it is meant."""
    with pytest.raises(BadArgument, match=r"^invalid --option .*use "):
        parse("--option", text)


def test_seconds_are_not_taken_for_milliseconds() -> None:
    """``date +%s`` is what a script has at hand, and as milliseconds it is a day in 1970."""
    with pytest.raises(BadArgument, match=r"^invalid --option 1794803987: it looks like seconds, use milliseconds"):
        parse_append_time("--option", "1794803987")


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14 23:13:20.5+01:00", 1_700_000_000_500),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_time_is_milliseconds_or_a_date(text: str, time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """People read a clock, programs count; without a zone it is the time on the wall."""
    monkeypatch.setenv("TZ", "UTC")
    tzset()
    assert is_time(text)
    assert parse_time("--from", text) == time


def test_places_are_no_times() -> None:
    """``--from`` takes both, and must not mix them up."""
    for text in ("head", "tail", "plant/readings:0@56", "2026/readings:0@56", "friday", "-1", ""):
        assert not is_time(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_600, "1 MB"), (12_345_678, "12.3 MB")],
)
def test_human_size(size: int, text: str) -> None:
    """Three digits tell enough."""
    assert human_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.25, "250 ms"), (1, "1 s"), (90, "1.5 min"), (5400, "1.5 h"), (604_800, "7 d")],
)
def test_human_duration(seconds: float, text: str) -> None:
    """In the unit that people would use."""
    assert human_duration(seconds) == text


def test_one_thing_is_not_many() -> None:
    """A small courtesy."""
    assert [count_of(count, "event") for count in (0, 1, 2)] == ["0 events", "1 event", "2 events"]


def test_a_time_may_be_how_long_ago() -> None:
    """A user who looks for events of the last ten minutes should not have to calculate."""
    now = datetime.now(UTC).timestamp() * 1000
    assert is_time("10m")
    assert is_time("1.5h")
    assert abs(now - 600_000 - parse_time("--from", "10m")) < 60_000
    assert abs(now - 7 * 86_400_000 - parse_time("--from", "7d")) < 60_000
