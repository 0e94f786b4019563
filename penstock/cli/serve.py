"""``penstock serve``: serve a store to other processes and machines."""

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._settings import settings_command
from penstock.server import Config

EXAMPLE = "penstock serve ./penstock-data --port 0 --http-port 0"
COMMAND = settings_command(*(name for name in Config.__struct_fields__ if name != "store"))


def serve(
    context: typer.Context,
    store: Annotated[str | None, typer.Argument(help="The folder of the store; created if it does not exist.")] = None,
    *,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file of settings instead of ./penstock.toml.")
    ] = None,
) -> None:
    """Serve a store to other processes and machines until Ctrl-C or SIGTERM.

    Settings that are not given here are taken from the environment, such as PENSTOCK_PORT, then from penstock.toml.
    """
    from penstock.server import load_config, run

    run(load_config({"store": store, **context.obj}, environ=os.environ, path=config))
