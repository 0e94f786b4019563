"""``penstock serve``: let other processes and machines use a store."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

EXAMPLE = "penstock serve ./penstock-data --port 0 --http-port 0"


def serve(
    store: Annotated[str | None, typer.Argument(help="The folder of the store; made if it is not there.")] = None,
    *,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A file of settings instead of ./penstock.toml.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The name or address to listen at.")] = None,
    port: Annotated[int | None, typer.Option(help="The port of Arrow Flight; 0 is any that is free.")] = None,
    http_port: Annotated[int | None, typer.Option(help="The port of health and metrics.")] = None,
    tls: Annotated[bool | None, typer.Option(help="Speak TLS; by default unless the host is loopback.")] = None,
    tls_cert: Annotated[str | None, typer.Option(metavar="FILE", help="A certificate instead of our own.")] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    allow_plain: Annotated[
        bool | None, typer.Option("--allow-plain", help="Do without TLS where others can listen.")
    ] = None,
    anonymous: Annotated[
        bool | None, typer.Option("--anonymous", help="Let everybody on this machine do everything.")
    ] = None,
    max_connections: Annotated[int | None, typer.Option(help="On each port.")] = None,
    max_message_bytes: Annotated[int | None, typer.Option(help="The largest message.")] = None,
    max_inflight_bytes: Annotated[int | None, typer.Option(help="What one client may have under way.")] = None,
    idle_timeout_s: Annotated[float | None, typer.Option(help="When a silent connection is closed.")] = None,
    header_timeout_s: Annotated[float | None, typer.Option(help="How long the head of a request may take.")] = None,
    shutdown_timeout_s: Annotated[float | None, typer.Option(help="How long requests may take to end.")] = None,
    maintenance_interval_s: Annotated[
        float | None, typer.Option(help="How often streams are scaled and truncated.")
    ] = None,
    log_format: Annotated[Literal["plain", "json"] | None, typer.Option(help="How to log.")] = None,
) -> None:
    """Let other processes and machines use a store, until Ctrl-C or SIGTERM.

    Settings that are not given here are those of the environment, PENSTOCK_PORT and so on, then those of penstock.toml.
    """
    flags = {name: value for name, value in locals().items() if name != "config"}
    from penstock.server import load_config, run

    run(load_config(flags, environ=os.environ, path=config))
