"""``penstock top`` as its user sees it, driven by keys, in a terminal of 80 by 24."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import pytest

from penstock.embedded import open_store
from penstock.errors import StoreUnreachable
from penstock.testing import ManualClock
from penstock.top import Query, source_of
from penstock.top._app import TopApp
from tests.top.screens import lines_of, until

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from penstock.stream import Engine
    from penstock.top import Overview, Source, StreamFigures

SIZE: Final = (80, 24)
ROWS: Final = 20
COUNT: Final = 45


def run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(story)


@pytest.fixture
def store() -> Iterator[Engine]:
    with open_store("memory:", clock=ManualClock()) as store:
        for number in range(COUNT):
            store.create_stream(f"plant/stream-{number:02d}")
        yield store


@pytest.fixture
def source(store: Engine) -> Source:
    return source_of(store, "memory:")


def shown(lines: list[str]) -> list[str]:
    """Return the names of the streams on the screen; the selected one begins with ``>``."""
    return [line[:2].strip() + line[2:].split()[0][-2:] for line in lines if "plant/stream-" in line]


def test_rows_fill_the_screen_and_keys_move_through_all_streams(source: Source) -> None:
    """Ten thousand streams do not fit; every one of them can be reached by the keyboard."""

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=SIZE) as pilot:
            lines = await until(pilot, lambda lines: len(shown(lines)) == ROWS)
            assert lines[0].startswith("penstock top  ./data  ")
            assert lines[1] == "45 streams, 0 transactions"
            assert lines[2].split()[0] == "stream*"
            assert "1-20 of 45" in lines[-1]
            assert shown(lines)[:2] == [">00", "01"]
            await pilot.press("down", "down")
            assert shown(lines_of(pilot.app))[2] == ">02"
            await pilot.press("pagedown")
            await until(pilot, lambda lines: shown(lines)[0] == "20")
            await pilot.press("end")
            await until(pilot, lambda lines: shown(lines)[-1] == ">44")
            await pilot.press("down")
            assert shown(lines_of(pilot.app))[-1] == ">44", "there is nothing below it"
            await pilot.press("home")
            await until(pilot, lambda lines: shown(lines)[0] == ">00")
            await pilot.press("up")
            assert shown(lines_of(pilot.app))[0] == ">00"
            await pilot.press(*["down"] * ROWS)
            await until(pilot, lambda lines: shown(lines)[-1] == ">20")

    run(story())


def test_a_filter_shows_the_streams_that_match(source: Source) -> None:
    """An operator knows a part of the name."""

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=SIZE) as pilot:
            await until(pilot, lambda lines: len(shown(lines)) == ROWS)
            await pilot.press("slash", *"-1", "enter")
            lines = await until(pilot, lambda lines: len(shown(lines)) == 10)
            assert lines[1].startswith("10 of 45 streams")
            await pilot.press("slash", *"xyz", "enter")
            await until(pilot, lambda lines: any("no stream matches the filter" in line for line in lines))
            await pilot.press("enter")
            assert len(pilot.app.screen_stack) == 2, "there is no stream to show details of"
            await pilot.press("escape")
            await until(pilot, lambda lines: len(shown(lines)) == ROWS)

    run(story())


def test_keys_sort(store: Engine, source: Source) -> None:
    """What is behind is looked for by another order than by name."""
    with store.writer("plant/stream-30") as writer:
        writer.write_event(b"unread").result()
    store.create_reader_group("dashboard", ["plant/stream-30"])
    store.transactional_writer("plant/stream-40", "etl").begin(lease=60.0)
    store.clock.advance(5)  # type: ignore[attr-defined]

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=SIZE) as pilot:
            await until(pilot, lambda lines: len(shown(lines)) == ROWS)
            for key, first in (("l", ">30"), ("x", ">40"), ("n", ">00")):
                await pilot.press(key)
                await until(pilot, lambda lines, first=first: shown(lines)[0] == first)  # type: ignore[misc]
            for key, title in (("e", "events/s*"), ("b", "bytes/s*"), ("t", "time*")):
                await pilot.press(key)
                await until(pilot, lambda lines, title=title: title in lines[2])  # type: ignore[misc]

    run(story())


def test_details_name_writers_readers_and_transactions(store: Engine, source: Source) -> None:
    """Here is whom to ask, when something is behind."""
    name, clock = "plant/stream-00", store.clock
    slow, quick = (store.writer(name, writer_id=writer) for writer in ("slow", "quick"))
    now_ms = int(clock.now() * 1000)
    for writer in (slow, quick):
        writer.write_event(b"reading").result()
        writer.note_time(now_ms)
        writer.flush()
    store.maintain()
    clock.advance(9)  # type: ignore[attr-defined]
    quick.note_time(now_ms + 9_000)
    quick.flush()
    store.maintain()
    group = store.create_reader_group("dashboard", [name])
    group.reader("wall").read_next_event(timeout=0)
    store.register_consumer(name, "archive")
    store.transactional_writer(name, "etl").begin(lease=60.0)
    large = slow.begin_write_event("film")
    large.write(bytes(3 << 20))

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=(80, 40)) as pilot:
            await until(pilot, lambda lines: bool(shown(lines)))
            await pilot.press("enter")
            lines = await until(pilot, lambda lines: any("consumers" in line for line in lines))
            text = "\n".join(lines)
            assert "plant/stream-00 (active)" in text
            assert "writer      slow: 9.0 s behind, silent for 9.0 s, HOLDS THE WATERMARK BACK" in text
            assert "writer      quick: 0.0 s behind" in text
            assert "group       dashboard: " in text
            assert "reader    wall: " in text
            assert "consumer    archive: " in text
            assert "of writer etl: 1.0 min left" in text
            assert "large events  1 being written" in text
            await pilot.press("escape")
            await until(pilot, lambda lines: bool(shown(lines)))

    run(story())
    large.close()


def test_a_stream_that_is_deleted_under_its_details_is_said_to_be(store: Engine, source: Source) -> None:
    """The last figures stay, with the reason why there are no newer ones."""

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=SIZE) as pilot:
            await until(pilot, lambda lines: bool(shown(lines)))
            await pilot.press("enter")
            await until(pilot, lambda lines: any("consumers" in line for line in lines))
            store.seal_stream("plant/stream-00")
            store.delete_stream("plant/stream-00")
            lines = await until(pilot, lambda lines: "NO NEW FIGURES" in lines[1])
            assert "no stream 'plant/stream-00'" in lines[1]
            assert any("consumers" in line for line in lines)
            await pilot.press("q")
            await until(pilot, lambda lines: bool(shown(lines)) and shown(lines)[0] == ">01")

    run(story())


def test_help_fits_on_a_small_screen(source: Source) -> None:
    """It is the only place that names the keys."""

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=SIZE) as pilot:
            await pilot.press("question_mark")
            lines = await until(pilot, lambda lines: any("quit" in line for line in lines))
            assert lines[-1].startswith("held back by")
            assert max(map(len, lines)) <= SIZE[0]
            await pilot.press("escape")
            await until(pilot, lambda lines: bool(shown(lines)))
            await pilot.press("q")
        assert pilot.app.return_code == 0

    run(story())


@pytest.mark.parametrize("size", [(20, 5), (1, 1), (300, 60)])
def test_any_size_will_do(source: Source, size: tuple[int, int]) -> None:
    """A terminal is resized while the table is on it."""

    async def story() -> None:
        async with TopApp(source, "./data").run_test(size=size) as pilot:
            await pilot.resize_terminal(*SIZE)
            await until(pilot, lambda lines: len(shown(lines)) == ROWS)
            await pilot.resize_terminal(*size)
            await pilot.press("down", "enter", "escape")

    run(story())


def test_without_colour_the_selected_row_is_marked(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some terminals have no colours, and some people do not see them."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def story() -> None:
        app = TopApp(source, "./data", Query(contains="-0"))
        async with app.run_test(size=SIZE) as pilot:
            lines = await until(pilot, lambda lines: len(shown(lines)) == 10)
            assert [line[0] for line in lines if "plant/" in line] == [">", *" " * 9]

    run(story())


class _Interrupted:
    """A source whose owner is away for a while."""

    def __init__(self, source: Source) -> None:
        self._source, self.is_away = source, False

    def overview(self, query: Query) -> Overview:
        """Answer, or say why not."""
        if self.is_away:
            raise StoreUnreachable("./data", reason="connection refused")
        return self._source.overview(query)

    def stream(self, name: str) -> StreamFigures:
        """Answer."""
        return self._source.stream(name)


def test_the_last_figures_stay_while_no_answer_comes(source: Source) -> None:
    """An empty screen says nothing; old figures that look new say something wrong."""
    interrupted = _Interrupted(source)

    async def story() -> None:
        async with TopApp(interrupted, "./data").run_test(size=(120, 24)) as pilot:
            await until(pilot, lambda lines: len(shown(lines)) == ROWS)
            interrupted.is_away = True
            lines = await until(pilot, lambda lines: "NO NEW FIGURES" in lines[1])
            assert "trying again: cannot reach the store at ./data: connection refused" in lines[1]
            assert len(shown(lines)) == ROWS
            interrupted.is_away = False
            await until(pilot, lambda lines: "NO NEW FIGURES" not in lines[1])

    run(story())
