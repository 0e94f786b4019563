"""The files of the pages, which are in memory: they are few and small, and nothing else can be asked for."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response

from penstock.console._guard import HEADERS

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["INDEX", "StaticFiles"]

INDEX: Final = "index.html"
_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class _File(NamedTuple):
    content: bytes
    kind: str
    tag: str


class StaticFiles:
    """The files, by name."""

    def __init__(self) -> None:
        self._files = {
            file.name: _file(file.name, file.read_bytes())
            for file in resources.files("penstock.console").joinpath("static").iterdir()
            if file.name.rpartition(".")[2] in _KINDS
        }

    def answer(self, request: Request, name: str) -> Response:
        """Return a file, unless the browser has it already."""
        file = self._files.get(name)
        if file is None:
            return Response("there is no such page\n", 404, dict(HEADERS), media_type="text/plain")
        headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": file.tag}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, 200, headers, media_type=file.kind)


def _file(name: str, content: bytes) -> _File:
    return _File(content, _KINDS[name.rpartition(".")[2]], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
