"""``penstock cluster status``: show which server owns what, and which ones stand by."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._output import JsonOption, fail, moment, print_json, print_rows

EXAMPLE = "penstock cluster status --cpo sqlite:./penstock-data/cpo.db"


def status(
    *,
    cpo: Annotated[
        str,
        typer.Option("--cpo", envvar="PENSTOCK_CPO", metavar="URL", help="The control plane oracle of the store."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Show the servers of a store: address, role, partition, since when, until when unless renewed, epoch."""
    from penstock.cpo import open_cpo
    from penstock.server import cluster_servers

    if cpo.startswith("sqlite:") and not Path(cpo.removeprefix("sqlite:")).exists():
        fail(f"no control plane oracle at {cpo}: give the --cpo of the servers")
    with open_cpo(cpo) as oracle:
        servers = cluster_servers(oracle)
    columns = ("server", "role", "partition", "since", "until", "epoch")
    rows = [
        (
            server.address,
            "standby" if server.partition is None else "owner",
            server.partition,
            round(server.since * 1000),
            round(server.until * 1000),
            server.epoch,
        )
        for server in servers
    ]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_rows(
        columns,
        [
            (address, role, partition or "-", moment(since), moment(until), str(epoch) if partition else "-")
            for address, role, partition, since, until, epoch in rows
        ],
    )
