"""``penstock cluster add-group``: add a group of plog servers to a cluster."""

from typing import Annotated

import typer

from penstock.cli.cluster._groups import parse_group

EXAMPLE = "penstock cluster add-group plant west=d:7369,e:7369,f:7369 --cpo sqlite:./penstock-data/cpo.db"


def add_group(
    name: Annotated[str, typer.Argument(help="The name of the cluster.")],
    group: Annotated[
        str, typer.Argument(metavar="GROUP=HOST:PORT,HOST:PORT,HOST:PORT", help="The group and its three servers.")
    ],
    *,
    cpo: Annotated[
        str, typer.Option(envvar="PENSTOCK_CPO", metavar="URL", help="The control plane oracle of the store.")
    ],
) -> None:
    """Add a group of three plog servers to a registered cluster. To add it again changes nothing.

    Owners learn of it when they open the store again: start the plog servers, then stop the owner, so that another
    server takes over, or start it again.
    """
    from penstock.cpo import open_cpo

    added, servers = parse_group(group)
    with open_cpo(cpo, create=False) as oracle:
        present = oracle.cluster(name)
        oracle.change_cluster(present, present.with_group(added, servers))
    typer.echo(f"group {added} added to cluster {name}: its owner uses it when it opens the store again")
