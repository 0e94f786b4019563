"""The process of tests/repo/oracle.py, as tests ask it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BreezyFailed", "BreezyRecord", "Oracle", "Version", "environment", "missing", "oracle"]

_ROOT: Final = Path(__file__).parent.parent.parent
_PACKAGES: Final = _ROOT / f"{Path(sys.prefix).name}-breezy"


def missing() -> str | None:
    """Return why Breezy cannot run here; None if it can."""
    return None if _PACKAGES.joinpath("breezy").is_dir() else "Breezy is not installed: run make setup"


def environment(home: Path) -> dict[str, str]:
    """Return the environment in which Breezy runs, with its settings and its log in a folder."""
    return os.environ | {"PYTHONPATH": str(_PACKAGES), "BRZ_HOME": str(home), "BRZ_LOG": os.devnull}


class BreezyFailed(Exception):
    """What Breezy raised."""


@dataclass(frozen=True)
class Version:
    """A text of a history."""

    name: bytes
    parents: tuple[bytes, ...]
    text: bytes

    @property
    def key(self) -> tuple[bytes, ...]:
        return (self.name,)

    @property
    def parent_keys(self) -> tuple[tuple[bytes, ...], ...]:
        return tuple((parent,) for parent in self.parents)


@dataclass(frozen=True)
class BreezyRecord:
    """A version in the bytes of a knit record."""

    kind: str
    version: Version
    noeol: bool
    data: bytes


class Oracle:
    """Answers as Breezy does; it raises `BreezyFailed` where Breezy raises."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def make(self, history: Sequence[Version], *, annotated: bool, chain: int = 200) -> list[BreezyRecord]:
        """Return the records in which Breezy keeps a history, parents first."""
        versions = [(_text(v.name), [_text(parent) for parent in v.parents], _text(v.text)) for v in history]
        records = self._ask("make", versions=versions, annotated=annotated, chain=chain)
        return [
            BreezyRecord(kind, version, noeol, data.encode("latin-1"))
            for version, (kind, _, _, noeol, data) in zip(history, records, strict=True)
        ]

    def read(self, records: Sequence[BreezyRecord], *, annotated: bool) -> list[bytes]:
        """Return the texts that Breezy reads from records, parents first."""
        rows = [
            (r.kind, _text(r.version.name), [_text(parent) for parent in r.version.parents], r.noeol, _text(r.data))
            for r in records
        ]
        return [text.encode("latin-1") for text in self._ask("read", records=rows, annotated=annotated)]

    def diff(self, text: bytes, parents: Sequence[bytes]) -> bytes:
        """Return Breezy's mpdiff of a text."""
        answer: str = self._ask("diff", text=_text(text), parents=[_text(parent) for parent in parents])
        return answer.encode("latin-1")

    def patch(self, data: bytes, parents: Sequence[bytes]) -> bytes:
        """Return the text that Breezy reads from an mpdiff."""
        answer: str = self._ask("patch", data=_text(data), parents=[_text(parent) for parent in parents])
        return answer.encode("latin-1")

    def _ask(self, name: str, **arguments: object) -> Any:  # noqa: ANN401 - as the function returns
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise BreezyFailed(answer["error"])
        return answer["answer"]


@contextmanager
def oracle(home: Path) -> Iterator[Oracle]:
    """Run Breezy, with its settings and its log in a folder."""
    script = Path(__file__).with_name("oracle.py")
    with subprocess.Popen(
        [sys.executable, "-P", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(home)
    ) as process:
        try:
            yield Oracle(process)
        finally:
            process.kill()  # it would not see the end of its input: other children of this process may hold it open


def _text(content: bytes) -> str:
    return content.decode("latin-1")
