"""``penstock cluster status``: show which server owns what, and which ones stand by."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli._output import JsonOption, print_json, print_rows
from penstock.cli._store import STORE_DEFAULT, StoreOption, new_store
from penstock.errors import BadArgument

if TYPE_CHECKING:
    from penstock.wire import ClusterMember

EXAMPLE = "penstock cluster status --cpo sqlite:./penstock-data/cpo.db"


def status(
    context: typer.Context,
    *,
    store: StoreOption = STORE_DEFAULT,
    cpo: Annotated[
        str | None,
        typer.Option("--cpo", envvar="PENSTOCK_CPO", metavar="URL", help="The oracle, instead of a server."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the servers of a store: address, role, partition, since when, until when unless renewed, epoch.

    Name a server, or several, with --store penstock://host:port[,host:port]: the owner of the store answers users who
    may read all streams. While no server owns the store, or without a user, name its control plane oracle with --cpo.

    Plog servers of registered clusters follow: a server that is away shows no time, and the disk of one that is
    "unwritable" is full or fails. "repair" is the number of plogs of its group that are known to lack a good replica,
    "?" as long as it is not known whether any do: a server is away, or was not looked through since it started. "scrub"
    is the percentage of its replicas that the present scrub has read, and "damaged" the number of damaged ones that
    were found and that are not replaced yet. The owner adds a note to a plog server that it cannot use, or whose group
    is being repaired. Do not empty the next disk before "repair" shows 0, without a note, for all servers of a group.
    """
    import msgspec

    given = {name for name in ("store", "cpo") if _is_given(context, name)}
    if given == {"store", "cpo"}:
        raise BadArgument("--store and --cpo are both given: name the servers or the oracle, not both")
    members = _of_server(store) if cpo is None or "store" in given else _of_oracle(cpo)
    rows = [msgspec.structs.asdict(member) for member in members]
    if as_json:
        print_json(rows)
        return
    columns = ("server", "role", "partition", "since", "until", "epoch", "repair", "scrub", "damaged", "note")
    for row in rows:
        if row["repair"] is None and row["role"] not in ("owner", "standby"):
            row["repair"] = "?"
    shown = [tuple(_shown(column, row[column]) for column in columns) for row in rows]
    print_rows(columns, shown, is_folded=False)


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _of_oracle(url: str) -> "list[ClusterMember]":
    from penstock.cpo import open_cpo
    from penstock.server import cluster_members

    with open_cpo(url, create=False) as oracle:
        return cluster_members(oracle)


def _of_server(address: str) -> "list[ClusterMember]":
    from penstock.client import RemoteStore, ask_for_members

    if not address.startswith("penstock://"):
        raise BadArgument(
            "a folder has no cluster: name a server with --store penstock://host:port, or the oracle with --cpo"
        )
    with new_store(address) as opened:
        assert isinstance(opened, RemoteStore)
        return ask_for_members(opened)


def _shown(column: str, value: str | int | None) -> str:
    if value is None or (column == "epoch" and not value):
        return "-"
    if column == "scrub":
        return f"{value}%"
    if column not in ("since", "until") or not isinstance(value, int) or not sys.stdout.isatty():
        return str(value)
    moment = datetime.fromtimestamp(value // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if column == "since" else f"{moment:%H:%M:%SZ}"
