"""The picture in docs/top.md and the README, of a store whose clock stands still: the same in every run.

``PENSTOCK_SCREENSHOTS=1`` writes it to docs; otherwise it is drawn all the same, and compared with the file.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Final

from penstock.embedded import open_store
from penstock.testing import ManualClock
from penstock.top import Query, source_of
from penstock.top._app import TopApp
from tests.sources import ROOT
from tests.top.screens import until

if TYPE_CHECKING:
    from penstock.stream import Engine

BEGIN: Final = 1_795_003_200.0
PICTURE: Final = ROOT / "docs" / "top.svg"
FONTS: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # which a browser would load from the internet
STREAMS: Final = {"plant/readings": 240, "plant/alarms": 3, "shop/orders": 31, "shop/returns": 1, "fleet/positions": 90}


def live(store: Engine, clock: ManualClock, seconds: int) -> None:
    """Let plants, shops and a fleet write for some seconds; the third writer of the readings is silent at the end."""
    source = source_of(store, "memory:")
    writers = {
        (name, number): store.writer(name, writer_id=f"{name.split('/')[0]}-{number}")
        for name in STREAMS
        for number in (1, 2, 3)
    }
    for second in range(seconds):
        for (name, number), writer in writers.items():
            if name == "plant/readings" and number == 3 and second > seconds - 12:
                continue
            writer.write_batch([b"x" * 40] * (STREAMS[name] // 3 + 1)).result()
            writer.note_time(int(clock.now() * 1000) - 700 * number)
            writer.flush()
        clock.advance(1)
        store.maintain()
        source.overview(Query())


def test_the_picture_is_of_this_version() -> None:
    """A picture that shows something else is worse than none."""
    clock = ManualClock(BEGIN)

    async def drawn(store: Engine) -> str:
        app = TopApp(source_of(store, "memory:"), "penstock://plant.example:7367", Query(order="events"))
        async with app.run_test(size=(92, 14)) as pilot:
            await until(pilot, lambda lines: any("plant/readings" in line for line in lines))
            return FONTS.sub("", app.export_screenshot(title="penstock top", simplify=True))

    with open_store("memory:", clock=clock) as store:
        for name in STREAMS:
            store.create_stream(name, segments=2)
        store.create_reader_group("dashboard", ["plant/readings"])
        store.create_reader_group("billing", ["shop/orders"])
        store.transactional_writer("shop/orders", "etl").begin(lease=600)
        live(store, clock, 30)
        picture = asyncio.run(drawn(store))
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
    if os.environ.get("PENSTOCK_SCREENSHOTS"):
        PICTURE.write_text(picture)
    assert PICTURE.read_text() == picture, "draw it again: PENSTOCK_SCREENSHOTS=1 pytest tests/top"
