"""What a user of ``penstock top`` sees, and waiting for it."""

from __future__ import annotations

import html
import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App
    from textual.pilot import Pilot

__all__ = ["lines_of", "until"]

_TEXT: Final = re.compile(r'<text[^>]*?x="([\d.]+)"[^>]*?y="([\d.]+)"[^>]*clip-path[^>]*>(.*?)</text>')
_WAIT_S: Final = 30.0


def lines_of(app: App[None]) -> list[str]:
    """Return the lines of the screen, as they are drawn."""
    rows: dict[float, list[tuple[float, str]]] = defaultdict(list)
    for x, y, text in _TEXT.findall(app.export_screenshot()):
        rows[float(y)].append((float(x), html.unescape(text).replace("\xa0", " ")))
    return ["".join(text for _, text in sorted(rows[y])).rstrip() for y in sorted(rows)]


async def until(pilot: Pilot[None], holds: Callable[[list[str]], bool]) -> list[str]:
    """Wait until something holds for the lines of the screen; return them."""
    end = time.monotonic() + _WAIT_S
    while not holds(lines := lines_of(pilot.app)):
        assert time.monotonic() < end, "\n".join(lines)
        await pilot.pause(0.02)
    return lines
