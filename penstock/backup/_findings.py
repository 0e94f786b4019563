"""What a check has found, and what it has read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.errors import BackupCorrupt, CorruptData, FormatUnknown, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CheckReport", "Finding", "Findings", "LogNames"]

_SEGMENT: Final = re.compile(r"s(\d+)\.(\d+)")
_WATERMARKS: Final = re.compile(r"m(\d+)")
_RESTORE: Final = "restore the store from a backup, or the file from a copy of this moment"

_ANOTHER: Final = "restore another point, if 'penstock check' finds it good, or run a new backup into another target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong: what it belongs to, the file and the place in it if it is one, and what to do."""

    subject: str
    path: str | None
    offset: int | None
    reason: str
    advice: str

    def __str__(self) -> str:
        place = "" if self.path is None else f" ({self.path}{'' if self.offset is None else f' at byte {self.offset}'})"
        return f"{self.subject}{place}: {self.reason}; {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What a check has read, and what is wrong; ``unused_files`` take space, and do no harm.

    ``items`` are those of repositories. What is ``unchecked`` needs a package that is not installed.
    """

    findings: tuple[Finding, ...]
    plogs: int = 0
    blocks: int = 0
    size_bytes: int = 0
    streams: int = 0
    segments: int = 0
    events: int = 0
    watermarks: int = 0
    groups: int = 0
    items: int = 0
    unused_files: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


class LogNames:
    """Says what a log is of, in words."""

    def __init__(self, streams: Mapping[int, str] | None = None) -> None:
        self._streams = streams or {}

    def of(self, log: str | None) -> str:
        """Return the subject of a log; None is a file that belongs to no log."""
        if log is None:
            return "a file that no log needs"
        if not log:
            return "the metadata log"
        if log == "catalog":
            return "the catalog of streams"
        if (segment := _SEGMENT.fullmatch(log)) is not None:
            return f"{self._stream(segment[1])}, segment {segment[2]}"
        if (marks := _WATERMARKS.fullmatch(log)) is not None:
            return f"the watermarks of {self._stream(marks[1])}"
        return f"the log {log}"

    def _stream(self, uid: str) -> str:
        name = self._streams.get(int(uid))
        return f"the stream with uid {uid}" if name is None else f"stream {name}"


@dataclass(slots=True)
class Findings:
    """Collects what is found; of a file only the first fault is reported."""

    found: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    unused_files: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    _faults: set[str] = field(default_factory=set)

    def note(self, subject: str, error: PenstockError | str, *, advice: str = _RESTORE) -> None:
        """Note that something is wrong."""
        path, offset, reason = None, None, str(error)
        if isinstance(error, CorruptData):
            path, offset, reason = error.path, error.offset, error.reason
            advice = _ANOTHER if isinstance(error, BackupCorrupt) else advice
        elif isinstance(error, FormatUnknown):
            path, reason = error.path, f"it holds {error.actual!r}, and this Penstock knows {error.known!r}"
            advice = "upgrade Penstock, or restore the file if no newer Penstock has written it"
        fault = reason if path is None else path
        if fault not in self._faults:
            self._faults.add(fault)
            self.found.append(Finding(subject=subject, path=path, offset=offset, reason=reason, advice=advice))

    def attempt(self, subject: str, step: Callable[[], object], *, advice: str = _RESTORE) -> bool:
        """Do a step of the check; note why it fails, if it does. Return whether it was done."""
        try:
            step()
        except PenstockError as error:
            self.note(subject, error, advice=advice)
            return False
        return True

    def count(self, figure: str, number: int = 1) -> None:
        """Count what was read."""
        self.counts[figure] = self.counts.get(figure, 0) + number

    def report(self) -> CheckReport:
        """Return what was found."""
        return CheckReport(
            findings=tuple(self.found),
            unused_files=tuple(sorted(self.unused_files)),
            unchecked=tuple(self.unchecked),
            **self.counts,
        )
