"""``penstock cluster create``: register the groups of plog servers of a cluster."""

from typing import Annotated

import typer

from penstock.cli.cluster._groups import parse_group
from penstock.errors import BadArgument

EXAMPLE = "penstock cluster create plant east=a:7369,b:7369,c:7369 --cpo sqlite:./penstock-data/cpo.db"


def create(
    name: Annotated[str, typer.Argument(help="The name of the cluster.")],
    groups: Annotated[
        list[str], typer.Argument(metavar="GROUP=HOST:PORT,HOST:PORT,HOST:PORT...", help="Its groups of three servers.")
    ],
    *,
    cpo: Annotated[
        str, typer.Option(envvar="PENSTOCK_CPO", metavar="URL", help="The control plane oracle of the store.")
    ],
) -> None:
    """Register a cluster of plog servers, for stores at --plogs cluster:NAME. To register it again changes nothing."""
    from penstock.cpo import open_cpo

    servers = dict(map(parse_group, groups))
    if len(servers) < len(groups):
        raise BadArgument("a group is named twice: name each once, with its three servers")
    with open_cpo(cpo) as oracle:
        oracle.register_cluster(name, servers)
    typer.echo(f"cluster {name}: {len(servers)} {'group' if len(servers) == 1 else 'groups'}")
