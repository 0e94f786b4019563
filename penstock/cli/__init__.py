"""The command line: one file here is one command.

``penstock/cli/tail.py`` is ``penstock tail``: it has a function ``tail`` whose docstring is the help, and an
``EXAMPLE`` that the help shows and a test runs. Putting the file here is all it takes to add the command. All
of these files are imported at every start, so they import what is heavy inside their functions.
"""

import importlib
import pkgutil
import sys
from typing import Annotated

import typer

from penstock._version import __version__
from penstock.errors import PenstockError

__all__ = ["command_names", "main"]


def main() -> None:
    """Run the command line; exit with 0 if all is fine, 1 if it failed, 2 if it was called wrongly."""
    try:
        _app()()
    except PenstockError as error:
        typer.echo(f"penstock: {error}", err=True)
        sys.exit(1)


def command_names() -> list[str]:
    """Return the name of every command, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def _app() -> typer.Typer:
    # Markup off: an example may hold brackets. Plain tracebacks: what is not a PenstockError is our own mistake.
    app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_penstock)
    for name in command_names():
        module = importlib.import_module(f"{__name__}.{name}")
        app.command(name, epilog=f"Example: {module.EXAMPLE}")(getattr(module, name))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


def _penstock(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Penstock: a stream store for Python and Spark."""
