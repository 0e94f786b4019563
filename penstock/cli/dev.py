"""``penstock dev``: a server to try out, with nothing in it and nothing left of it."""

import tempfile
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.server import Server

EXAMPLE = "penstock dev --port 0 --http-port 0"


def dev(
    *,
    port: Annotated[
        int, typer.Option(envvar="PENSTOCK_PORT", help="The port of Arrow Flight; 0 is any that is free.")
    ] = 7367,
    http_port: Annotated[int, typer.Option(envvar="PENSTOCK_HTTP_PORT", help="The port of health and metrics.")] = 7368,
) -> None:
    """Start a server on this machine, without users, with a store that is gone when it ends."""
    from penstock.server import load_config, run

    with tempfile.TemporaryDirectory(prefix="penstock-dev-") as folder:
        flags = {"store": folder, "host": "127.0.0.1", "port": port, "http_port": http_port, "anonymous": True}
        run(load_config(flags, environ={}), ready=_print)


def _print(server: "Server") -> None:
    typer.echo(f"store\t{server.address}")
    typer.echo(f"health\t{server.http_address}/healthz")
    typer.echo(f"metrics\t{server.http_address}/metrics")
