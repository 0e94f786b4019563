"""``penstock repo pull``: copy a repository from another store, or from a bundle."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._output import JsonOption, fail
from penstock.cli._store import STORE_DEFAULT, StoreOption, new_store
from penstock.cli.repo._contents import (
    ForceOption,
    NameOption,
    RepositoryArgument,
    TwoStoresCommand,
    is_bundle,
    opened_contents,
    target_repository,
)
from penstock.cli.repo._copies import copied
from penstock.errors import BadArgument

COMMAND = TwoStoresCommand
EXAMPLE = "penstock repo pull code/project ./backup"


def pull(
    stream: RepositoryArgument,
    other: Annotated[
        str, typer.Argument(metavar="OTHER", help="The other store: a folder, or penstock://host:port; or a bundle.")
    ],
    *,
    name: NameOption = None,
    force: ForceOption = False,
    store: StoreOption = STORE_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Copy what a repository lacks from another store or from a bundle: revisions, branches and tags.

    A copy that was interrupted goes on where it was.
    """
    from penstock.model import check_stream_name

    check_stream_name(stream)  # all checks before a store is created
    if "://" not in other and not Path(other).exists():
        fail(f"no bundle and no store {other!r}: check the name")
    if is_bundle(other) and name is not None:
        raise BadArgument(f"--as names a stream of another store, but {other} is a bundle: leave --as out")
    bundle_or_stream = other if is_bundle(other) else name or stream
    with (
        opened_contents(bundle_or_stream, other) as theirs,
        new_store(store) as ours,
        target_repository(ours, stream) as target,
    ):
        copied(theirs, target, "pulling", force=force, as_json=as_json)
