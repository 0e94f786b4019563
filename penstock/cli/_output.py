"""The output of commands: tables and readable figures on a terminal, plain lines or JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import NoReturn

__all__ = [
    "JsonOption",
    "act_progress",
    "copy_progress",
    "count_of",
    "duration",
    "fail",
    "figure",
    "human_size",
    "moment",
    "print_json",
    "print_rows",
    "progress",
    "revision_progress",
    "size",
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_WIDTH_MAX: Final = 10_000  # of a table that is not folded
_SIZE_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")
_TIME_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def fail(message: str) -> NoReturn:
    """Print an error, in one line, and exit with 1."""
    typer.echo(f"penstock: {message}", err=True)
    raise typer.Exit(1)


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    typer.echo(json.dumps(value))


def print_rows(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, unbroken: int = 0, is_folded: bool = True
) -> None:
    """Print a table on a terminal; otherwise one line per row, with tabs and without a heading.

    Where the terminal is narrow, values are folded, except in the first ``unbroken`` columns, such as those of ids. If
    it is not to be folded, a row is one line, whatever the width of the terminal.
    """
    if not sys.stdout.isatty():
        for row in rows:
            typer.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number < unbroken)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    if not is_folded:
        unlimited = console.options.update(max_width=_WIDTH_MAX)
        console.width = max(console.width, Measurement.get(console, unlimited, table).maximum)
    console.print(table)


def size(count: int) -> str:
    """Return a number of bytes as text: in a readable unit on a terminal, otherwise the plain number."""
    return human_size(count) if sys.stdout.isatty() else str(count)


def figure(count: int) -> str:
    """Return a number as text: with commas on a terminal, otherwise plain."""
    return f"{count:,}" if sys.stdout.isatty() else str(count)


def duration(seconds: float) -> str:
    """Return a duration as text: in a readable unit on a terminal, otherwise in seconds."""
    return human_duration(seconds) if sys.stdout.isatty() else f"{seconds:g}"


def moment(time_ms: int | None) -> str:
    """Return a writer's time as text: a date on a terminal, otherwise milliseconds; - for None."""
    if time_ms is None:
        return "-"
    if not sys.stdout.isatty():
        return str(time_ms)
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def human_size(count: float) -> str:
    """Return a number of bytes in a readable unit."""
    for unit in _SIZE_UNITS:
        if count < 999.5 or unit == _SIZE_UNITS[-1]:
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def human_duration(seconds: float) -> str:
    """Return a duration in a readable unit."""
    for unit, length in _TIME_UNITS:
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1000:.0f} ms"


def count_of(count: int, thing: str) -> str:
    """Return ``1 event`` or ``2 events``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a progress bar of ``total`` bytes on a terminal; the block calls the function with each part done."""
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda part: bar.advance(task, part)


@contextmanager
def copy_progress() -> Iterator[Callable[[str, str, int, int], object]]:
    """Show a progress bar on a terminal; the block calls the function with a stream, what is done, and both sizes."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(stream: str, act: str, done: int, total: int) -> None:
            title = f"{act} {stream}"
            if title not in tasks:
                for task in tasks.values():
                    bar.remove_task(task)
                tasks.clear()
                tasks[title] = bar.add_task(title)
            bar.update(tasks[title], completed=done, total=total)

        yield show


@contextmanager
def act_progress(every_s: float = 10.0) -> Iterator[Callable[[str, int, int], object]]:
    """Show a progress bar on a terminal, otherwise a line from time to time.

    The block calls the function with what is done, how much of it is done, and how much there is.
    """
    if not sys.stderr.isatty():
        last = time.monotonic()

        def tell(act: str, done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= every_s:
                last = time.monotonic()
                typer.echo(f"penstock: {act}: {100 * done // max(total, 1)} %", err=True)

        yield tell
        return
    with copy_progress() as show:
        yield lambda act, done, total: show("the store", act, done, total)


@contextmanager
def revision_progress(title: str) -> Iterator[Callable[[int, int], object]]:
    """Show a progress bar of revisions on a terminal; the block calls the function with those done, and all of them."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
