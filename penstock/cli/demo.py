"""``penstock demo``: kill a writer again and again, and show that nothing it was promised is lost."""

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.cli._demo import PowerLosses, Round

EXAMPLE = "penstock demo --rounds 2 --appends 300"


def demo(
    *,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often the writer is killed.")] = 5,
    appends: Annotated[int, typer.Option(min=1, max=1_000_000, help="After how many acknowledged appends.")] = 2000,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a log stream from four threads, kill -9 the process, read the log back; then pull the plug, too."""
    from penstock.cli._demo import pull_the_plug, run_rounds

    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        killed = list(_watched(run_rounds(Path(folder), rounds=rounds, appends=appends), rounds, quiet=as_json))
    losses = pull_the_plug()
    if as_json:
        typer.echo(json.dumps({"rounds": [done._asdict() for done in killed], "power_losses": losses._asdict()}))
    else:
        _print(killed, losses)
    if losses.lost or any(done.lost or done.disordered for done in killed):
        raise typer.Exit(1)


def _watched(rounds: "Iterable[Round]", total: int, *, quiet: bool) -> "Iterable[Round]":
    from rich.console import Console
    from rich.progress import track

    return track(rounds, "killing the writer", total=total, console=Console(stderr=True), disable=quiet, transient=True)


def _print(rounds: "list[Round]", losses: "PowerLosses") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="A log stream whose writer was killed with kill -9", title_justify="left")
    for column in ("round", "acked", "found", "lost", "disordered", "unacked", "plogs", "reopened"):
        table.add_column(column, justify="right")
    for number, done in enumerate(rounds, start=1):
        table.add_row(
            str(number),
            f"{done.acknowledged:,}",
            f"{done.found:,}",
            f"[green]{done.lost}[/]" if not done.lost else f"[red]{done.lost}[/]",
            str(done.disordered),
            str(done.found - done.acknowledged),
            str(done.plogs),
            f"{done.seconds * 1e3:.0f} ms",
        )
    console = Console()
    console.print(table)
    console.print(
        f"And with the plug pulled: {losses.states:,} disks that a power loss may leave at {losses.points} points of a "
        f"small store's life, lost and torn writes included: [green]{losses.lost} lost[/] what was acknowledged."
    )
    console.print("Next: read docs/ARCHITECTURE.md, run [bold]penstock doctor[/], measure with [bold]make bench[/].")
