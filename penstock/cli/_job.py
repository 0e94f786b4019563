"""What the commands that run on Spark share: a session, and progress on a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from penstock.cli._output import count_of, human_size, moment, print_json
from penstock.cli._store import existing_store, job_options
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from penstock import Store
    from penstock.events.archive import Copied
    from penstock.spark import Progress

__all__ = [
    "CheckpointOption",
    "FollowOption",
    "LocalOption",
    "OptionOption",
    "job",
    "line_of",
    "print_report",
    "refuse_with_local",
    "run_locally",
]

FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events until Ctrl-C.")]
CheckpointOption = Annotated[
    str | None, typer.Option(metavar="PATH", help="The folder where the job keeps its progress.", show_default=False)
]
OptionOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the Spark source, see docs/spark.md."),
]

LocalOption = Annotated[bool, typer.Option("--local", help="Run in this process, without Spark and Java.")]


class _Given(TypedDict):
    watch: Callable[[Progress], object]
    options: dict[str, str]


@contextmanager
def job(name: str, title: str, store: str, option: list[str] | None) -> Iterator[tuple[SparkSession, str, _Given]]:
    """Start Spark for a job and show its progress; yield the session, the store's address and the common arguments.

    The store stays open meanwhile, so that it has an owner process, of which the job is a client.
    """
    from penstock.spark import local_session

    options = job_options(store) | _options_of(option)
    with existing_store(store), local_session(name) as spark, _watched(title) as watch:
        yield spark, store, {"watch": watch, "options": options}


def _options_of(given: list[str] | None) -> dict[str, str]:
    """Parse ``NAME=VALUE`` options."""
    pairs = [text.partition("=") for text in given or []]
    for name, sign, _ in pairs:
        if name.lower() in ("user", "password", "token", "tls_ca"):
            raise BadArgument(f"--option {name} is not allowed: use --user and --tls-ca")
        if not sign:
            raise BadArgument(f"--option {name} has no value: write {name}=…")
    return {name: value for name, _, value in pairs}


def refuse_with_local(*options: tuple[str, bool], given: str = "--local") -> None:
    """Refuse options that are expressions of Spark, or options of its source; ``given`` rules Spark out."""
    for name, is_given in options:
        if is_given:
            raise BadArgument(f"{name} needs Spark: leave it out, or leave out {given}")


def run_locally(
    store: str, title: str, run: Callable[[Store, Callable[[Copied], object]], Copied], *, as_json: bool
) -> None:
    """Run a job in this process, show its progress on a terminal, and print the result."""
    with existing_store(store) as opened, _line(title) as show:
        done = run(opened, lambda progress: show(f"{progress.events:,} events"))
    if as_json:
        print_json({"batches": done.batches, "rows": done.events})
    else:
        typer.echo(_report(title, done.events, done.batches))


@contextmanager
def _watched(title: str) -> Iterator[Callable[[Progress], object]]:
    """Show the progress of a job on Spark while the block runs."""
    with _line(title) as show:
        yield lambda progress: show(line_of(progress))


@contextmanager
def _line(title: str) -> Iterator[Callable[[str], object]]:
    """Show a title and a changing text while the block runs: one updated line on a terminal, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner = Spinner("dots", title)
    with Live(spinner, console=Console(stderr=True), transient=True, refresh_per_second=8):
        yield lambda text: spinner.update(text=f"{title}: {text}")


def _report(title: str, events: int, batches: int) -> str:
    return f"{title}: {count_of(events, 'event')} in {'1 batch' if batches == 1 else f'{batches} batches'}"


def line_of(progress: Progress) -> str:
    """Return the progress of a job as one line."""
    parts = [
        f"{progress.rows:,} rows",
        f"{progress.rows_per_second:,.0f} rows/s",
        f"{human_size(progress.lag_bytes)} behind",
    ]
    if progress.watermark is not None:
        parts.append(f"watermark {moment(progress.watermark)}")
    return " · ".join(parts)


def print_report(progress: Progress, title: str, *, as_json: bool) -> None:
    """Print the result of a job."""
    if as_json:
        print_json(asdict(progress))
    else:
        typer.echo(_report(title, progress.rows, progress.batches))
