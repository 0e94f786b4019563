"""``penstock bench``: measure Penstock beside its peers on this machine."""

import dataclasses
import json
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._options import option_names
from penstock.cli._output import print_rows
from penstock.cli._output_file import output_file
from penstock.cli._signals import signals_exit
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.bench import BenchReport

EXAMPLE = "penstock bench --only durable --penstock embedded --peers nats --json bench.json"

_NAMES = {"only": "--only", "kinds": "--penstock", "peers": "--peers"}


def bench(
    *,
    full: Annotated[bool, typer.Option("--full", help="Measure for up to an hour, with an event of 1 GiB.")] = False,
    only: Annotated[
        str | None, typer.Option(metavar="WORK,...", help="Run only these workloads, such as durable,tail.")
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(metavar="PEER,...", help="Of nats, redis, rabbitmq, postgresql, kafka; or none. Default: all."),
    ] = None,
    kinds: Annotated[
        str | None,
        typer.Option(
            "--penstock",
            metavar="KIND,...",
            help="Of embedded, shared, served, replicated, bucket. Default: all.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, max=86_400, help="When to begin no more rounds. Default: 140, with --full 3600."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures to a file, as JSON.")
    ] = None,
    html_file: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page with the chart.")] = Path(
        "bench.html"
    ),
    folder: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Where temporary folders are made: the disk that is measured."),
    ] = None,
) -> None:
    """Measure Penstock beside NATS, Redis, RabbitMQ, PostgreSQL and Kafka's client, in three minutes.

    Each one does the same work through its best Python client, in turns: at equal durability, where an event is synced
    before it is acknowledged, and with its default settings. Servers run on loopback in a temporary folder; one that is
    missing is skipped. Where Penstock loses is shown first.
    """
    from penstock.bench import FULL, QUICK, choose_systems, choose_works, page_of, run_bench

    plan = FULL if full else QUICK
    if seconds is not None:
        plan = dataclasses.replace(plan, seconds_max=seconds)
    for file in (json_file, html_file):
        _check_writable(file)
    if folder is not None and not folder.is_dir():
        raise BadArgument(f"invalid --dir {folder}: there is no such folder")
    with option_names(**_NAMES), signals_exit(), _progress() as on_progress:
        systems = choose_systems(kinds=_names(kinds), peers=_names(peers))
        works = choose_works(_names(only), is_full=full)
        report = run_bench(systems, works, plan, parent=folder, on_progress=on_progress)
    if json_file is not None:
        with output_file(json_file) as out:
            out.write(json.dumps(report.to_json(), indent=1).encode() + b"\n")
    with output_file(html_file) as out:
        out.write(page_of(report).encode())
    _print_report(report, html_file)


def _names(value: str | None) -> list[str] | None:
    """Return the names in a list with commas."""
    return None if value is None else [name.strip() for name in value.split(",")]


def _check_writable(file: Path | None) -> None:
    """Raise now what would be raised after minutes of measuring."""
    if file is None:
        return
    if file.is_dir():
        raise BadArgument(f"{file} is a folder: name a file")
    parent = file.resolve().parent
    if not parent.is_dir():
        raise BadArgument(f"there is no folder {parent} for {file.name}: create it, or name another file")
    if file.exists() and not file.is_file():
        return  # a pipe or a device, which is opened when there is something to write
    try:
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise BadArgument(f"{file} cannot be written: {error.strerror}: name another file") from None


@contextmanager
def _progress() -> "Iterator[Callable[[str, int, int], object]]":
    """Show a progress bar on a terminal, otherwise a line for each work."""
    if not sys.stderr.isatty():
        yield lambda act, done, total: typer.echo(f"penstock: {act} ({done} of {total})", err=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting")
        yield lambda act, done, total: bar.update(task, description=act, completed=done, total=total)


def _print_report(report: "BenchReport", page: Path) -> None:
    from penstock.bench import kind_rows, summary_rows

    for skipped in report.skipped:
        typer.echo(f"penstock: {skipped.title} is skipped: {skipped.reason}", err=True)
    for warning in report.warnings:
        typer.echo(f"warning\t{warning}\n")
    for heading, *rows in (summary_rows(report), kind_rows(report)):
        print_rows(heading, rows)
        typer.echo()
    settings = [
        (system.title, "; ".join(f"{name}: {value}" for name, value in system.settings.items()))
        for system in report.systems
    ]
    print_rows(("system", "settings"), settings)
    typer.echo()
    machine = "; ".join(f"{name} {value}" for name, value in report.machine.items())
    typer.echo(f"{report.mode} mode, {report.seconds:.0f} s; {machine}")
    typer.echo(f"chart\t{page}")
