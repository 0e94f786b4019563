"""``penstock demo``: a whole pipeline: writers, Spark with their watermark, an archive and a chart."""

import json
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption
from penstock.errors import FolderUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.spark.demo import Story

EXAMPLE = "penstock demo --output ./penstock-demo"

_MARK = ".penstock-demo"
_LEFT = {_MARK, "data", "archive", "chart.html"}


def demo(
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The folder for the store, the archive and the chart; a previous demo in it is deleted.",
        ),
    ] = Path("penstock-demo"),
    as_json: JsonOption = False,
) -> None:
    """Run a pipeline in a minute: readings arrive late and out of order, and Spark counts them without losing any."""
    from penstock.cli._chart import chart
    from penstock.spark import local_session
    from penstock.spark.demo import tell

    _make_anew(output)
    with _status(quiet=as_json) as say:
        say("starting Spark")
        with local_session("demo") as spark:
            story = tell(spark, output.absolute(), say)  # Spark was started elsewhere, maybe
    page = output / "chart.html"
    page.write_text(chart(story))
    figures = _figures(story)
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        _print(story, figures, output)
    if figures["exact_lost"] or not story.large_is_whole:
        raise typer.Exit(1)


def _make_anew(folder: Path) -> None:
    """Remove an earlier demo; refuse a folder that holds anything else."""
    if folder.exists() and any(folder.iterdir()):
        names = {path.name for path in folder.iterdir()}
        if _MARK not in names or names - _LEFT:
            raise FolderUnusable(str(folder), reason="it is not empty and was not made by an earlier demo")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()


@contextmanager
def _status(*, quiet: bool) -> "Iterator[Callable[[str], object]]":
    """Yield a function that reports progress; on a terminal it updates one line."""
    from rich.console import Console

    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield _once(console.print)
        return
    with console.status("") as status:
        yield status.update


def _once(report: "Callable[[str], object]") -> "Callable[[str], object]":
    """Skip a message that differs from the last one only in its figures."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        kind = re.sub(r"[\d.]+", "", text)
        if kind != last:
            report(text)
        last = kind

    return say


def _figures(story: "Story") -> dict[str, int | float | bool]:
    windows = story.windows
    return {
        "events": sum(windows.values()),
        "windows": len(windows),
        "exact_lost": sum((windows - story.exact).values()),
        "exact_right": sum(story.exact[start] == count for start, count in windows.items()),
        "spark_lost": sum((windows - story.guessed).values()),
        "spark_right": sum(story.guessed[start] == count for start, count in windows.items()),
        "archived": story.archived,
        "large_event_is_whole": story.large_is_whole,
        "seconds": round(story.seconds, 1),
    }


def _print(story: "Story", figures: dict[str, int | float | bool], output: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from penstock.spark.demo import GUESS_S, LARGE_SIZE, WINDOW_S

    total, windows = figures["events"], figures["windows"]
    table = Table()
    for column, side in (("", "left"), ("counted", "right"), ("lost", "right"), ("windows correct", "right")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for name, kind in (("with the writers' watermark", "exact"), (f"with Spark's own, {GUESS_S} s", "spark")):
        lost, right = figures[f"{kind}_lost"], figures[f"{kind}_right"]
        colour = "red" if lost else "green"
        table.add_row(name, f"{total - lost:,}", f"[{colour}]{lost:,}[/]", f"{right} of {windows}")
    whole = "byte for byte" if story.large_is_whole else "[red]damaged[/]"
    console = Console(highlight=False, soft_wrap=True)  # paths and commands are there to be copied
    console.print(f"{total:,} readings of three plants, counted by Spark in windows of {WINDOW_S} s")
    console.print(table)
    console.print("One plant was offline for two minutes and sent its readings afterwards.")
    console.print("Spark's own watermark dropped them as late; the writers' watermark waited.")
    console.print(f"Archived as Parquet: {story.archived:,} events, one of {LARGE_SIZE >> 20} MiB as a file, {whole}.")
    console.print()
    for label, place in (
        ("chart", f"{output / 'chart.html'}"),
        ("archive", f"{output / 'archive'}"),
        ("stream", f"penstock tail plant/readings --windows --store {output / 'data'}"),
        ("next steps", "examples/pipeline.py, docs/spark.md"),
    ):
        console.print(f"{label:<12} [bold]{place}[/]")
