"""``penstock dev``: a server to try out, in a temporary folder."""

import os
import tempfile
from typing import TYPE_CHECKING

import typer

from penstock.cli._settings import settings_command

if TYPE_CHECKING:
    from penstock.server import Server

EXAMPLE = "penstock dev --port 0 --http-port 0"
COMMAND = settings_command("port", "http_port")


def dev(context: typer.Context) -> None:
    """Run a server on this machine, without users, in a temporary folder that is deleted when it ends."""
    from penstock.server import load_config, run

    with tempfile.TemporaryDirectory(prefix="penstock-dev-") as folder:
        flags = {"store": folder, "host": "127.0.0.1", "anonymous": True, **context.obj}
        environ = {name: os.environ[name] for name in ("PENSTOCK_PORT", "PENSTOCK_HTTP_PORT") if name in os.environ}
        run(load_config(flags, environ=environ), ready=_print)


def _print(server: "Server") -> None:
    typer.echo(f"store\t{server.address}")
    typer.echo(f"health\t{server.http_address}/healthz")
    typer.echo(f"metrics\t{server.http_address}/metrics")
    typer.echo(f"futoin\t{server.futoin_address}")
