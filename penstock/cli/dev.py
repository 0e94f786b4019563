"""``penstock dev``: a server to try out, in a temporary folder."""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.cli._settings import settings_command
from penstock.cli._signals import signals_exit

if TYPE_CHECKING:
    from penstock.server import Server

EXAMPLE = "penstock dev --port 0 --http-port 0"
COMMAND = settings_command("port", "http_port")


def dev(
    context: typer.Context,
    *,
    replicas: Annotated[
        Literal["1", "3"], typer.Option(help="With 3, events are stored by three plog servers, each a process.")
    ] = "1",
) -> None:
    """Run a server on this machine, without users, in a temporary folder that is deleted when it ends."""
    from penstock.server import load_config, local_cluster, run

    with signals_exit(), tempfile.TemporaryDirectory(prefix="penstock-dev-") as folder, ExitStack() as cluster:
        flags = {"store": folder, "host": "127.0.0.1", "anonymous": True, **context.obj}
        environ = {name: os.environ[name] for name in ("PENSTOCK_PORT", "PENSTOCK_HTTP_PORT") if name in os.environ}
        if replicas == "3":
            cpo = f"sqlite:{folder}/cpo.db"
            servers = cluster.enter_context(local_cluster(Path(folder), cpo, name="dev", group="main"))
            flags |= {"plogs": "cluster:dev", "cpo": cpo}
            typer.echo(f"cpo\t{cpo}")
            for server in servers:
                typer.echo(f"plog-server\t{server}")
        run(load_config(flags, environ=environ), ready=_print)


def _print(server: "Server") -> None:
    typer.echo(f"store\t{server.address}")
    typer.echo(f"health\t{server.http_address}/healthz")
    typer.echo(f"metrics\t{server.http_address}/metrics")
    typer.echo(f"console\t{server.console_address}")
    typer.echo(f"futoin\t{server.futoin_address}")
