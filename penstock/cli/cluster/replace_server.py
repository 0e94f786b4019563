"""``penstock cluster replace-server``: let a new plog server take the place of another one."""

from typing import Annotated

import typer

from penstock.cli.cluster._groups import is_address
from penstock.errors import BadArgument

EXAMPLE = "penstock cluster replace-server plant c:7369 d:7369 --cpo sqlite:./penstock-data/cpo.db --force"


def replace_server(
    name: Annotated[str, typer.Argument(help="The name of the cluster.")],
    old: Annotated[str, typer.Argument(metavar="OLD", help="The server that leaves its group: HOST:PORT.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The server that takes its place: HOST:PORT.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Do not ask the two other servers of the group what they have.")
    ] = False,
    cpo: Annotated[
        str, typer.Option(envvar="PENSTOCK_CPO", metavar="URL", help="The control plane oracle of the store.")
    ],
) -> None:
    """Register a new plog server in the place of another one, and let repair copy the replicas to it.

    The two other servers of the group must run and have all plogs of the group. Owners learn of the change when they
    open the store again: start the new server with an empty folder, then stop the owner, so that another server takes
    over, or start it again. With --force, plogs that only the old server has are lost.
    """
    from penstock.cpo import open_cpo
    from penstock.plog.replicated import check_replaceable

    if not is_address(new):
        raise BadArgument(f"invalid server {new!r}: use HOST:PORT")
    with open_cpo(cpo, create=False) as oracle:
        present = oracle.cluster(name)
        group, changed = present.group_of(old), present.with_server(new, in_place_of=old)
        if not force:
            check_replaceable(oracle, name, group, old)
        oracle.change_cluster(present, changed)
    typer.echo(f"{new} is in group {group} of cluster {name}: its owner uses it when it opens the store again")
