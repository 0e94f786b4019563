"""Pictures of pages that carry the texts that they show, so that two of them can be compared on any machine.

Other fonts and another chromium draw the same page a little differently, so pixels are compared as the mean colours of
small squares, and some may differ. A changed word would be lost in that: the texts are compared as such. They are in an
``iTXt`` chunk of the PNG file, which viewers ignore.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

__all__ = ["SQUARE", "difference", "texts_in", "texts_of", "with_texts"]

SQUARE: Final = 8  # pixels
_PREFIX: Final = b"Texts\0\1\0\0\0"  # the keyword; compressed, with deflate; no language, no translation
_END_SIZE: Final = 12
_TEXTS: Final = """() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const texts = [];
    while (walker.nextNode()) texts.push(walker.currentNode.data.trim());
    return texts.filter(Boolean);
}"""
_DIFFERENCE: Final = """async ([first, second, square]) => {
    const noticed = 20; // steps of 255 of a colour
    const read = async (data) => createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    const [one, other] = [await read(first), await read(second)];
    if (one.width !== other.width || one.height !== other.height) return 1;
    const [width, height] = [Math.ceil(one.width / square), Math.ceil(one.height / square)];
    const means = (picture) => {
        const context = new OffscreenCanvas(width, height).getContext("2d");
        context.imageSmoothingQuality = "high";
        context.drawImage(picture, 0, 0, width, height);
        return context.getImageData(0, 0, width, height).data;
    };
    const [a, b] = [means(one), means(other)];
    let different = 0;
    for (let place = 0; place < a.length; place += 4) {
        if ([0, 1, 2].some((colour) => Math.abs(a[place + colour] - b[place + colour]) > noticed)) different += 1;
    }
    return different / (width * height);
}"""


def texts_of(page: Page) -> list[str]:
    """Return all texts of a page, those of its charts, too."""
    return list(page.evaluate(_TEXTS))


def with_texts(picture: bytes, texts: list[str]) -> bytes:
    """Return a PNG file with texts in it."""
    body = b"iTXt" + _PREFIX + zlib.compress(json.dumps(texts).encode())
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return picture[:-_END_SIZE] + chunk + picture[-_END_SIZE:]


def texts_in(picture: bytes) -> list[str]:
    """Return the texts in a PNG file; none if it has none."""
    for kind, body in _chunks(picture):
        if kind == b"iTXt" and body.startswith(_PREFIX):
            return list(json.loads(zlib.decompress(body[len(_PREFIX) :])))
    return []


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = 8
    while place < len(picture):
        [size] = struct.unpack_from(">I", picture, place)
        yield picture[place + 4 : place + 8], picture[place + 8 : place + 8 + size]
        place += size + 12


def difference(comparison: Page, first: bytes, second: bytes, *, square: int = SQUARE) -> float:
    """Return the share of the squares of two pictures that differ; all of them if their sizes do."""
    pictures = [base64.b64encode(picture).decode() for picture in (first, second)]
    return float(comparison.evaluate(_DIFFERENCE, [*pictures, square]))
